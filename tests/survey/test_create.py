"""A survey from its creation to the readers of its counts: the protocol, the blinding, simulated raters."""

import json
import os
import stat
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import metric_oracle as mo
from metric_oracle.base.checksum import read_sealed, seal
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.label_tables import LABELS
from metric_oracle.corpora.reports import Reports
from metric_oracle.explorer.evidence import rouge_l
from metric_oracle.findings.results import Results, Scores, read_scores
from metric_oracle.metrics import METRICS
from metric_oracle.raters.alignment import align
from metric_oracle.raters.failure_modes import failure_modes
from metric_oracle.raters.fit_composite import fit_composite
from metric_oracle.raters.metric_agreement import MEAN
from metric_oracle.raters.ratings import CATEGORIES, read_ratings
from metric_oracle.reading import reports
from metric_oracle.retrieval.search_signature import digest
from metric_oracle.survey import log as survey_log
from metric_oracle.survey.create import INSTRUCTIONS, SurveyOptions, create_survey, read_strata
from metric_oracle.survey.export import export_survey, survey_status
from metric_oracle.survey.folder import open_survey, read_key
from metric_oracle.survey.log import MAX_ERRORS
from support import write
from support.power import Power, kinds_of

TYPES = ("bleu", "s_emb", "bertscore", "radgraph")
TEXT = '"quoted", <script>\u2028\u202e\nline é'


def references(n=60):
    return {f"s{i}": f"Reference {i}. {TEXT}" for i in range(n)}


def candidates(n=60, types=TYPES):
    return {name: {f"s{i}": f"{name.upper()[::-1]} {i}. {TEXT}" for i in range(n)} for name in types}


def made(tmp_path, *, name="S", n=8, types=TYPES, raters=("anna", "ben"), own=None, others=None, **options):
    options.setdefault("studies", n)
    texts = candidates(n, types) if others is None else others
    return create_survey(own or references(n), texts, tmp_path / name, raters=raters, options=SurveyOptions(**options))


def answer(survey, rater, counts_of, *, skip=()):
    """Save what a function says of study and candidate, by position."""
    log = survey.log(rater)
    for place, study in enumerate(survey.studies):
        for i in range(len(study.candidates)):
            if (place, i) not in skip:
                asked = {"id": f"{place:04}-{i:04}", "study": place, "candidate": i, "base": 0}
                log.save({**asked, "counts": counts_of(place, i), "survey": survey.fingerprint})


def zeros(place, i):
    return [[0, 0]] * len(CATEGORIES)


# Creation


def test_power_cut(tmp_path, monkeypatch):
    """When a survey is announced, all of it is on the disk."""
    root = tmp_path / "root"
    root.mkdir()
    with monkeypatch.context() as patch:
        power = Power(patch, root)
        texts, options = {"m": {"a": "z", "b": "v"}}, SurveyOptions(studies=2)
        made = create_survey({"a": "x", "b": "y"}, texts, root / "S", raters=["anna"], options=options)
        power.cut(tmp_path / "cut", kinds_of(root))
    left = open_survey(tmp_path / "cut/S")
    assert (left.fingerprint, left.links()) == (made.fingerprint, made.links())
    assert not left.log("anna").read().latest


def test_the_protocol_of_the_paper(tmp_path):
    survey = create_survey(references(), candidates(), tmp_path / "S", raters=["r1", "r2", "r3", "r4", "r5", "r6"])
    assert len(survey.studies) == 50
    assert {len(study.candidates) for study in survey.studies} == {4}
    assert survey.categories == CATEGORIES
    assert survey.cells == 50 * 4 * 6 * 2
    assert survey.instructions == INSTRUCTIONS
    key = read_key(survey)
    drawn = [study["study_id"] for study in key["studies"]]
    assert len(set(drawn)) == 50
    assert drawn != sorted(drawn, key=lambda name: int(name[1:]))
    orders = {tuple(sorted(study["positions"], key=study["positions"].get)) for study in key["studies"]}
    assert len(orders) > 12  # of 24
    for study, shown in zip(key["studies"], survey.studies, strict=True):
        assert shown.reference == references()[study["study_id"]]
        for name, place in study["positions"].items():
            assert shown.candidates[place] == candidates()[name][study["study_id"]]


def test_a_survey_is_shown_without_reports(tmp_path):
    survey = made(tmp_path)
    assert repr(survey) == f"<Survey: 8 studies, 2 raters; {tmp_path / 'S'}>"


def test_a_seed_is_a_survey(tmp_path):
    found = []
    for number, seed in enumerate((3, 3, 4)):
        survey = create_survey(
            references(),
            candidates(),
            tmp_path / str(number),
            raters=["a"],
            options=SurveyOptions(studies=9, seed=seed, repeats=3),
        )
        found.append((survey.studies, read_key(survey)["studies"]))
    assert found[0] == found[1] != found[2]


def test_all_raters_have_one_order_by_default(tmp_path):
    survey = made(tmp_path, repeats=2)
    wanted = [(place, [0, 1, 2, 3]) for place in range(10)]
    assert survey.order("anna") == survey.order("ben") == wanted
    assert "orders" not in json.loads((tmp_path / "S/survey.json").read_text())


def test_each_rater_may_have_his_own_order(tmp_path):
    """Of the studies, of those shown again at the end, and of the candidates; the survey is otherwise the same."""
    raters = ("anna", "ben", "carl")
    survey, again, shared = (
        made(tmp_path, name=name, n=40, repeats=5, raters=raters, order=order)
        for name, order in (("S", "per-rater"), ("T", "per-rater"), ("U", "shared"))
    )
    assert survey.orders == again.orders
    assert survey.studies == shared.studies
    for rater in raters:
        order = survey.order(rater)
        assert sorted(place for place, _ in order[:40]) == list(range(40))
        assert sorted(place for place, _ in order[40:]) == list(range(40, 45))
        assert all(sorted(candidates) == [0, 1, 2, 3] for _, candidates in order)
        assert len({tuple(candidates) for _, candidates in order}) > 12  # of 24
    orders = [survey.order(rater) for rater in raters]
    for one in range(3):
        for other in range(one):
            assert sum(a[0] == b[0] for a, b in zip(orders[one], orders[other], strict=True)) < 10
            own, others = dict(orders[one]), dict(orders[other])
            assert sum(own[place] == others[place] for place in own) < 12
    assert open_survey(tmp_path / "S") == survey
    answer(survey, "anna", zeros)
    notes = export_survey(tmp_path / "S", tmp_path / "E", leave_out={"ben": "x", "carl": "x"}).notes
    assert notes["order"] == "per-rater"


def test_what_raters_see_is_blinded(tmp_path):
    """No id and no origin is in what the server reads, and opening a survey reads nothing else."""
    others = {f"origin{name}": {f"s{i}": f"Words {place} {i}." for i in range(8)} for place, name in enumerate(TYPES)}
    survey = made(tmp_path, own={f"s{i}": f"Words {i}." for i in range(8)}, others=others, repeats=2)
    shown = (tmp_path / "S/survey.json").read_text()
    assert not any(word in shown for word in ("origin", "study_id", '"s1"', "positions", "repeat", "seed"))
    (tmp_path / "S/key.json").unlink()
    assert open_survey(tmp_path / "S") == survey
    survey_status(tmp_path / "S")


def test_the_folder_is_for_its_owner(tmp_path):
    survey = made(tmp_path)
    for path in [tmp_path / "S", *(tmp_path / "S").rglob("*")]:
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    assert os.listdir(tmp_path) == ["S"]
    assert len({*survey.links().values()}) == 2
    assert all(len(link) >= 32 for link in survey.links().values())


def test_identical_texts_are_rated_once(tmp_path):
    own = references(8)
    others = {**candidates(8, ("bleu", "radgraph")), "s_emb": candidates(8)["bleu"], "bertscore": dict(own)}
    others["s_emb"]["s3"] = others["radgraph"]["s3"].replace(". ", ".\n  ")
    survey = made(tmp_path, own=own, others=others)
    key = read_key(survey)
    assert {len(study.candidates) for study in survey.studies} == {3}
    for study in key["studies"]:
        same = "radgraph" if study["study_id"] == "s3" else "bleu"
        assert study["positions"]["s_emb"] == study["positions"][same]
        assert set(study["positions"].values()) == {0, 1, 2}
    assert {len(s.candidates) for s in made(tmp_path, name="T", others=others, own=own, identical="show").studies} == {
        4
    }


def results(texts, *, signature=None, drop=()):
    """Return the answers of a search: of each study the best and a worse one."""
    rows = [(study, rank, text if rank == 1 else "Worse.") for study, text in texts.items() for rank in (1, 2)]
    columns = {
        "query_id": [row[0] for row in rows], "rank": [row[1] for row in rows], "row": [0] * len(rows),
        "candidate_id": ["c"] * len(rows), "score": [0.5] * len(rows), "n_ties": [1] * len(rows),
        "fallback": [False] * len(rows), "exact": [True] * len(rows), "text": [row[2] for row in rows],
    }  # fmt: skip
    table = pa.table({name: column for name, column in columns.items() if name not in drop})
    return Results(table, {"metric": "bleu-2", **(signature or {})})


def test_candidates_come_from_searches(tmp_path):
    own, paths = Reports.from_texts(list(references(8).values()), list(references(8))), {}
    for name, ending in zip(TYPES, ("parquet", "csv", "jsonl", "parquet"), strict=True):
        paths[name] = tmp_path / f"{name}.{ending}"
        results(candidates(8)[name], signature={"references": digest(own)}).write(paths[name])
    survey = made(tmp_path, others=paths)
    for study, shown in zip(read_key(survey)["studies"], survey.studies, strict=True):
        for name, place in study["positions"].items():
            assert shown.candidates[place] == candidates()[name][study["study_id"]]
    assert read_key(survey)["sources"]["bleu"]["file"] == "bleu.parquet"
    other = {**references(8), "s5": "Other words."}
    with pytest.raises(InputError, match=r"the results of candidate bleu are for other texts"):
        create_survey(other, paths, tmp_path / "T", raters=["a"], options=SurveyOptions(studies=3))
    bare = results(candidates(8)["bleu"], drop=["text"])
    with pytest.raises(InputError, match=r"the results of candidate bleu have no column text\. Search again"):
        create_survey(references(8), {"bleu": bare}, tmp_path / "T", raters=["a"], options=SurveyOptions(studies=3))


def test_what_a_model_wrote(tmp_path):
    own, model = write(tmp_path / "test.csv", references(8)), write(tmp_path / "model.csv", candidates(8)["bleu"])
    survey = create_survey(own, {"model": model}, tmp_path / "S", raters=["a"], options=SurveyOptions(studies=8))
    assert len(survey.studies) == 8


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_a_file_of_scores_leads_to_the_reports_beside_it(tmp_path, ending):
    """Those of a study's oracle; elsewhere nothing is known of where they are."""
    path = tmp_path / f"bleu-2-oracle.{ending}"
    mo.score(["no edema", "edema", "a b"], ["no edema", "edema", ""], "bleu").write(path)
    asked = [
        lambda: create_survey(references(8), {"o": path}, tmp_path / "S", raters=["a"]),
        lambda: create_survey(path, {"o": candidates(8)["bleu"]}, tmp_path / "S", raters=["a"]),
        lambda: mo.score(write(tmp_path / "t.csv", references(8)), path, "bleu"),
        lambda: mo.build_index(path, tmp_path / "I"),
    ]
    for beside, step in (
        (False, "Name the file with the reports themselves"),
        (True, "Name .*-oracle-reports.*, which"),
    ):
        if beside:
            results(candidates(8)["bleu"]).write(tmp_path / f"bleu-2-oracle-reports.{ending}")
        for ask in asked:
            with pytest.raises(InputError, match=rf"bleu-2-oracle\.{ending} has scores and no reports\. {step}"):
                ask()
    again = create_survey(
        references(8), {"o": tmp_path / f"bleu-2-oracle-reports.{ending}"}, tmp_path / "S", raters=["a"],
        options=SurveyOptions(studies=3),
    )  # fmt: skip
    assert len(again.studies) == 3


def test_studies_that_lack_candidates(tmp_path):
    others = candidates(8)
    del others["bleu"]["s2"], others["radgraph"]["s2"]
    match = r"candidate bleu has no report for 1 drawn studies, such as 's2'"
    noted = "^left out of candidate (bleu|radgraph): 1 without a prediction$"
    with pytest.raises(InputError, match=match), pytest.warns(UserWarning, match=noted):
        made(tmp_path, others=others)
    with pytest.warns(UserWarning, match=noted):
        survey = made(tmp_path, others=others, unequal=True)
    assert sorted(len(study.candidates) for study in survey.studies) == [2, *[4] * 7]


def test_categories_and_instructions_of_a_file(tmp_path):
    (tmp_path / "c.txt").write_text("wrong side\n\n wrong device \n")
    (tmp_path / "i.txt").write_text("Count <b>all</b>.")
    survey = made(tmp_path, categories=tmp_path / "c.txt", instructions=tmp_path / "i.txt")
    assert survey.categories == {"wrong side": "wrong side", "wrong device": "wrong device"}
    assert survey.instructions == "Count <b>all</b>."
    assert len(made(tmp_path, name="T", categories="radevalx").categories) == 8


def strata(n=60):
    return {f"s{i}": "normal" if i < 40 else "effusion" if i < 55 else "device" for i in range(n)}


@pytest.mark.parametrize(("n", "shares"), [(12, (4, 4, 4)), (20, (8, 7, 5)), (50, (30, 15, 5)), (60, (40, 15, 5))])
def test_strata_are_drawn_evenly(tmp_path, n, shares):
    """As many of each as there are; who is drawn and in which order stays random."""
    found = []
    for number, seed in enumerate((1, 1, 2)):
        survey = create_survey(
            references(),
            candidates(),
            tmp_path / str(number),
            raters=["a"],
            options=SurveyOptions(studies=n, seed=seed, stratify=strata()),
        )
        found.append([(study["study_id"], study["stratum"]) for study in read_key(survey)["studies"]])
    drawn = found[0]
    assert len(set(drawn)) == n
    assert all(strata()[study] == stratum for study, stratum in drawn)
    counts = [sum(stratum == name for _, stratum in drawn) for name in ("normal", "effusion", "device")]
    assert abs(np.subtract(counts, shares)).max() <= (n == 20)  # one more of one or of the other
    assert sum(counts) == n
    assert found[0] == found[1] != found[2]
    assert [stratum for _, stratum in drawn] != sorted(stratum for _, stratum in drawn)
    assert "stratum" not in (tmp_path / "0/survey.json").read_text()


def test_strata_of_a_file(tmp_path):
    path = write(tmp_path / "t.csv", [("s50000001", "a"), ("s50000002", ""), ("x", "b")], ("study_id", "kind"))
    assert read_strata(path) == {"50000001": "a", "x": "b"}
    assert read_strata(write(tmp_path / "n.csv", [("x", "b")], ("who", "kind")), "who") == {"x": "b"}
    rows = [("a", {"Edema": 1, "Fracture": 1}), ("b", {"Edema": 1}), ("c", {"No Finding": 1}), ("d", {"Edema": -1})]
    cells = [[study, *(labels.get(name, "") for name in LABELS)] for study, labels in rows]
    of_labels = write(tmp_path / "l.csv", cells, ("study_id", *LABELS))
    assert read_strata(of_labels) == {"a": "Fracture", "b": "Edema", "c": "none", "d": "none"}
    wide = write(tmp_path / "w.csv", [("x", "b", "c")], ("id", "kind", "other"))
    for bad in (wide, tmp_path / "n.csv"):
        with pytest.raises(
            InputError,
            match=r"^.*\.csv has neither CheXbert labels with ids nor one column besides the ids; columns",
        ):
            read_strata(bad)
    with pytest.raises(InputError, match=r"^there is no file none\.csv\. Check"):
        read_strata("none.csv")
    twice = write(tmp_path / "d.csv", [("x", "a"), ("x", "b")], ("id", "kind"))
    with pytest.raises(InputError, match=r"^an id occurs more than once in the ids of .*d\.csv: 'x'"):
        read_strata(twice)
    with pytest.raises(InputError, match=r"^create_survey: the file of strata has no value for 3 references, such as"):
        made(tmp_path, stratify={f"s{i}": "a" for i in range(5)})


def test_the_notes_say_what_was_drawn_of_what(tmp_path):
    survey = made(tmp_path, stratify={f"s{i}": "rare" if i == 3 else "usual" for i in range(8)}, studies=4, repeats=2)
    for rater in survey.raters:
        answer(survey, rater, zeros)
    notes = export_survey(tmp_path / "S", tmp_path / "E").notes
    assert notes["strata"] == {"usual": {"drawn": 3, "of": 7}, "rare": {"drawn": 1, "of": 1}}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"raters": []},
            r"create_survey: raters must have different names of letters, digits, - and _; got a name twice, or none",
        ),
        (
            {"raters": ["a", "A"]},
            r"create_survey: raters must have different names .* got a name twice, or none\. Rename them\.",
        ),
        *(
            (
                {"raters": ["a", name]},
                r"create_survey: raters must have names that tables give back as they are, .*; "
                rf"got '{name}'\. Rename it",
            )
            for name in ("NA", "None", "nan", "null", "s50000001")
        ),
        *(
            (
                {"others": {name: {}}},
                rf"create_survey: candidates must have names that tables give back as they are, .*; got '{name}'\. Ren",
            )
            for name in ("NA", "0.0", "1.0", "NaN", "s50000001")
        ),
        ({"raters": ["../a"]}, r"create_survey: raters must have different names .* got '\.\./a'\."),
        (
            {"others": {}},
            r"create_survey: candidates must have names of letters, digits and _ \. : \+ -, at least one; got none",
        ),
        (
            {"others": {"a b": {}}},
            r"create_survey: candidates must have names of .* got 'a b'\. Add `candidates=\{NAME: FILE\}`\.",
        ),
        ({"others": {"study_id": {}}}, r"create_survey: candidates must have names of .* got 'study_id'"),
        ({"studies": 0}, r"SurveyOptions: studies must be an int of at least 1; got 0\. Choose another number\."),
        ({"studies": 9}, r"create_survey: studies must be at most 8, the references to draw from; got 9\. Draw fewer"),
        ({"repeats": -1}, r"SurveyOptions: repeats must be an int of at least 0; got -1"),
        ({"repeats": 9}, r"create_survey: repeats must be at most the studies, 8; got 9\. Repeat fewer\."),
        ({"seed": 1.5}, r"SurveyOptions: seed must be an int of at least 0; got 1\.5"),
        ({"order": "random"}, r"SurveyOptions: order must be one of shared, per-rater; got 'random'\. Choose one\."),
        ({"identical": "never"}, r"SurveyOptions: identical must be one of once, show; got 'never'\. Choose one\."),
        ({"categories": "none.txt"}, r"create_survey: there is no file none\.txt"),
    ],
)
def test_what_is_no_survey(tmp_path, options, match):
    with pytest.raises(InputError, match=f"^{match}"):
        made(tmp_path, **options)
    assert os.listdir(tmp_path) == []


def test_files_that_are_none(tmp_path):
    for content in ("one\none\n", "one\n1\n", "one\nNone\n"):
        (tmp_path / "c.txt").write_text(content)
        match = r"c\.txt is not a text file with one category per line, none of them repeated, a bare number, or a word"
        with pytest.raises(InputError, match=match):
            made(tmp_path, categories=tmp_path / "c.txt")
    with pytest.raises(InputError, match=r"^.*survey\.json is missing or not readable\. Name"):
        open_survey(tmp_path)
    survey = made(tmp_path)
    with pytest.raises(InputError, match=r"^create_survey: out must be a new folder; got "):
        made(tmp_path)
    with pytest.raises(InputError, match=r"^there is no such rater; raters are anna, ben\. Correct the name\."):
        survey.log("carl")
    path = tmp_path / "S/survey.json"
    key = tmp_path / "S/key.json"
    key.write_text(json.dumps(seal({**read_sealed(key, ""), "survey": "other"})))
    with pytest.raises(InputError, match=r"^export_survey: key\.json in .*S belongs to another survey"):
        export_survey(tmp_path / "S", tmp_path / "E")
    path.write_text(path.read_text().replace("Reference 1", "Reference 0"))
    match = r"^.*S.survey\.json was altered since `mo\.create_survey` made it, or is of another version\. Restore"
    with pytest.raises(InputError, match=match):
        open_survey(tmp_path / "S")


# Status and export


def test_status(tmp_path):
    survey = made(tmp_path)
    answer(survey, "anna", zeros)
    answer(survey, "ben", lambda place, i: [[0, None], *zeros(place, i)[1:]], skip=[(7, 3)])
    with (tmp_path / "S/ratings/ben.jsonl").open("ab") as file:
        file.write(b"{")
    anna, ben = survey_status(tmp_path / "S")
    assert (anna["studies"], anna["of_studies"], anna["candidates"], anna["open_cells"]) == (8, 8, 32, 0)
    assert (ben["studies"], ben["candidates"], ben["open_cells"], ben["saves"]) == (0, 0, 31 + 12, 31)
    assert (anna["torn_bytes"], ben["torn_bytes"]) == (0, 1)
    assert anna["last_save"].endswith("+00:00")


@pytest.fixture
def unsynced(monkeypatch):
    """Let many saves be quick; `test_survey_log` is where they must be safe."""
    monkeypatch.setattr(survey_log, "os", SimpleNamespace(**{**vars(os), "fsync": lambda file: None}))


def drawn_counts(seed, *shape):
    return np.random.default_rng(seed).poisson(0.3, shape).clip(0, MAX_ERRORS)


@pytest.mark.parametrize("is_balanced", [True, False])
@pytest.mark.filterwarnings("ignore:left out of candidate radgraph. 1 without a prediction")
@pytest.mark.usefixtures("unsynced")
def test_the_export_has_what_was_typed(tmp_path, is_balanced):
    """Counts, texts and ids come out as they went in, in the layout that the design allows; equal texts expand."""
    others = candidates(8)
    others["s_emb"]["s1"] = others["bleu"]["s1"]
    others["bertscore"]["s4"] = references()["s4"]
    if not is_balanced:
        del others["radgraph"]["s6"]
    survey = made(tmp_path, others=others, unequal=True, repeats=2)
    typed = {rater: drawn_counts(seed, 10, 4, 6, 2) for seed, rater in enumerate(survey.raters)}
    for rater, counts in typed.items():
        answer(survey, rater, lambda place, i, counts=counts: counts[place, i].tolist())
    out = export_survey(tmp_path / "S", tmp_path / "E")
    pairs = 32 if is_balanced else 31
    assert out.summary() == f"{pairs} pairs of 8 studies, 2 raters: anna, ben"
    assert out.warnings() == []
    rated = read_ratings(tmp_path / "E/ratings.csv", samples=tmp_path / "E/samples.csv")
    assert rated.raters == ["anna", "ben"]
    assert rated.categories == list(CATEGORIES)
    key = read_key(survey)
    place_of = {study["study_id"]: place for place, study in enumerate(key["studies"]) if not study["is_repeat"]}
    ids = rated.study_ids if is_balanced else rated.studies
    seen = set()
    for row, (study, kind) in enumerate(zip(ids, rated.candidates, strict=True)):
        place = place_of[study]
        i = key["studies"][place]["positions"][kind]
        for r, rater in enumerate(survey.raters):
            assert np.array_equal(rated.counts[row, r], typed[rater][place, i][:, ::-1])
        assert rated.references[row] == references()[study]
        assert rated.predictions[row] == others[kind][study]
        seen.add((study, kind))
    assert len(seen) == pairs
    assert len(rated.without_identical().pairs) == pairs - 1
    again = read_ratings(tmp_path / "E/repeats.csv")
    assert set(again.pairs) <= set(rated.pairs)
    for row, pair in enumerate(again.pairs):
        study = (rated.study_ids or rated.studies)[rated.pairs.index(pair)]
        place = next(p for p, s in enumerate(key["studies"]) if s["study_id"] == study and s["is_repeat"])
        i = key["studies"][place]["positions"][again.candidates[row]]
        assert np.array_equal(again.counts[row, 1], typed["ben"][place, i][:, ::-1])
    for path in (tmp_path / "E").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    asked, answered = (reports(tmp_path / f"E/pairs_{side}.csv").load() for side in ("references", "candidates"))
    assert dict(zip(asked.ids, asked.texts, strict=True)) == dict(zip(rated.pairs, rated.references, strict=True))
    assert dict(zip(answered.ids, answered.texts, strict=True)) == dict(
        zip(rated.pairs, rated.predictions, strict=True)
    )


def test_the_export_has_scores(tmp_path):
    """Of the texts, and those that came with the candidates, where all of them have one."""
    files, of_graphs = {}, {}
    for place, name in enumerate(TYPES):
        texts = candidates(8)[name]
        of_graphs[name] = [None if study == "s3" and place == 0 else place + i / 10 for i, study in enumerate(texts)]
        columns = {
            "query_id": list(texts), "radgraph": [place + i / 10 for i in range(8)], "radcliq": of_graphs[name],
            **({"chexbert": [0.5] * 8} if place else {}), "prediction": list(texts.values()),
        }  # fmt: skip
        metrics = {metric: {} for metric in columns if metric not in ("query_id", "prediction")}
        files[name] = tmp_path / f"{name}.parquet"
        Scores(pa.table(columns), {"kind": "scores", "system": name, "metrics": metrics}).write(files[name])
    survey = made(tmp_path, others=files, repeats=2, raters=["anna", "ben"])
    for rater in survey.raters:
        answer(survey, rater, lambda place, i: [[place % 3 + i, 0], *zeros(place, i)[1:]])
    export_survey(tmp_path / "S", tmp_path / "E")
    scored = read_scores(tmp_path / "E/scores.csv")
    assert {"bleu-2", "rouge-l"} <= set(scored.metrics)
    assert not {"radcliq", "chexbert"} & set(scored.table.column_names)
    own = pa.csv.read_csv(tmp_path / "E/samples.csv")["study_id"].to_pylist()
    for record in scored.table.to_pylist():
        number, name = record["query_id"].split("/")
        study = own[int(number)]
        assert record["radgraph"] == TYPES.index(name) + int(study[1:]) / 10
        pair = rouge_l(references()[study], candidates()[name][study], METRICS["rouge-l"])
        assert record["rouge-l"] == pair.score
    found = align(tmp_path / "E/ratings.csv", tmp_path / "E/scores.csv", resamples=100)
    assert {"bleu-2", "rouge-l", "radgraph"} <= set(found.scores)
    fit_composite(tmp_path / "E/ratings.csv", tmp_path / "E/scores.csv", metrics=["rouge-l", "radgraph"])


def test_unfinished_raters_are_named(tmp_path):
    survey = made(tmp_path, raters=("anna", "ben", "carl"))
    with pytest.raises(InputError, match=r"there are no finished ratings to export; not finished: anna \(384 op"):
        export_survey(tmp_path / "S", tmp_path / "E")
    answer(survey, "anna", zeros)
    answer(survey, "ben", zeros, skip=[(0, 0), (5, 1)])
    out = export_survey(tmp_path / "S", tmp_path / "E1", leave_out={"carl": "ill"})
    assert out.notes["raters"] == ["anna"]
    assert out.warnings() == ["carl is left out: ill.", "ben is left out: 24 cells are open."]
    assert read_sealed(tmp_path / "E1/notes.json", "") == out.notes
    with pytest.raises(
        InputError,
        match=r"no finished ratings to export; .*\. Leave out the raters who have hardly begun, "
        r"with `leave_out=\{NAME: REASON\}`",
    ):
        export_survey(tmp_path / "S", tmp_path / "E", partial=True)
    out = export_survey(tmp_path / "S", tmp_path / "E2", partial=True, leave_out={"carl": "ill"})
    assert out.warnings() == ["carl is left out: ill.", "2 pairs are left out: not all raters finished them."]
    rated = read_ratings(tmp_path / "E2/ratings.csv", samples=tmp_path / "E2/samples.csv")
    assert (len(rated.pairs), rated.raters) == (30, ["anna", "ben"])
    for bad, got in (({"dora": "x"}, r"'dora'\."), ({"carl": " "}, r"'carl', without a reason\.")):
        match = rf"^export_survey: leave_out must name raters of anna, ben, carl, each with a reason; got {got} Correct"
        with pytest.raises(InputError, match=match):
            export_survey(tmp_path / "S", tmp_path / "E", leave_out=bad)
    assert not (tmp_path / "E").exists()


def test_contradictions_are_said(tmp_path):
    others = {**candidates(8, ("bleu",)), "s_emb": candidates(8)["bleu"]}
    survey = made(tmp_path, others=others, identical="show")
    answer(survey, "anna", zeros)
    answer(survey, "ben", lambda place, i: [[i * (place < 3), 0], *zeros(place, i)[1:]])
    out = export_survey(tmp_path / "S", tmp_path / "E")
    assert out.warnings() == ["ben gave different counts to 3 pairs of identical candidates."]


def test_equal_texts_of_different_studies_are_no_contradiction(tmp_path):
    """Two studies with the same candidate have other references, so that raters may count differently."""
    others = {"bleu": {f"s{i}": f"Report {i // 2}." for i in range(8)}, "s_emb": candidates(8)["bleu"]}
    survey = made(tmp_path, others=others)
    for rater in ("anna", "ben"):
        answer(survey, rater, lambda place, i: [[place, i], *zeros(place, i)[1:]])
    assert export_survey(tmp_path / "S", tmp_path / "E").warnings() == []


# From raters of known error counts to the known order of metrics


@pytest.mark.usefixtures("unsynced")
def test_the_known_order_comes_out(tmp_path):
    """Reports with known errors, raters who see most of them, metrics that know more or less of them."""
    rng = np.random.default_rng(7)
    rates = dict(zip(TYPES, (1.6, 1.1, 0.7, 0.3), strict=True))  # errors of a report in the first category
    true = {
        (f"s{i}", name): rng.poisson([rate, 0.4, 0.2, 0.2, 0.1, 0.1]) for i in range(60) for name, rate in rates.items()
    }
    survey = create_survey(references(), candidates(), tmp_path / "S", raters=["r1", "r2", "r3"])
    key = read_key(survey)["studies"]
    of_place = {(p, i): true[s["study_id"], n] for p, s in enumerate(key) for n, i in s["positions"].items()}
    for rater in survey.raters:

        def counts(place, i):
            seen = rng.binomial(of_place[place, i], 0.9)
            significant = rng.binomial(seen, 0.6)
            return np.array([significant, seen - significant]).T.tolist()

        answer(survey, rater, counts)
    export_survey(tmp_path / "S", tmp_path / "E")

    modes = failure_modes(tmp_path / "E/ratings.csv")
    first = dict(zip(modes.candidates, modes.means["total"][:, 0], strict=True))
    assert sorted(first, key=first.get) == list(TYPES)[::-1]
    assert {(r["a"], r["b"]) for r in modes.records() if r["category"] == "1" and r["significant"]} >= {
        ("bleu", "bertscore"), ("bleu", "radgraph"), ("s_emb", "radgraph"),
    }  # fmt: skip

    noise = {"radgraph": 0.3, "bertscore": 1.5, "bleu-2": 6.0}
    pairs = pa.csv.read_csv(tmp_path / "E/pairs_candidates.csv")["query_id"].to_pylist()
    own = pa.csv.read_csv(tmp_path / "E/samples.csv")["study_id"].to_pylist()
    errors = np.array([true[own[int(pair.split("/")[0])], pair.split("/")[1]].sum() for pair in pairs])
    columns = {name: -errors + rng.normal(0, spread, len(errors)) for name, spread in noise.items()}
    write(tmp_path / "scores.csv", zip(pairs, *columns.values(), strict=True), ("query_id", *columns))
    found = align(tmp_path / "E/ratings.csv", tmp_path / "scores.csv", resamples=100)
    tau = {
        r["metric"]: r["value"]
        for r in found.metrics.to_pylist()
        if (r["statistic"], r["errors"], r["rater"]) == ("tau-b", "total", MEAN)
    }
    assert sorted(tau, key=tau.get, reverse=True) == list(noise)
    assert tau["radgraph"] > 0.7 > 0.5 > tau["bertscore"] > 0.3 > tau["bleu-2"]
    fitted = fit_composite(tmp_path / "E/ratings.csv", tmp_path / "scores.csv").content
    weights = {name: -term["weight"] for name, term in fitted["terms"].items()}
    assert sorted(weights, key=weights.get, reverse=True) == list(noise)
    assert fitted["fit"]["tau_b_held_out"] > 0.7
