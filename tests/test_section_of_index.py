"""The section of an index is that of everything compared with it; another one is an error that names both."""

import re

import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.explorer.cases import read_cases
from metric_oracle.findings.results import read_results, read_scores
from metric_oracle.findings.signature import short_signature
from metric_oracle.judges.given import crepe_judge
from metric_oracle.pools.candidate_pools import planned_pool
from metric_oracle.pools.rerank import Reranking
from support import assert_refused, write

HEADER = ("study_id", "findings", "impression")
TRAIN = [
    (1, "the heart is large", "cardiomegaly"), (2, "the lungs are clear", "no acute process"),
    (3, "there is a small left effusion", "effusion"), (4, "the lungs are clear", "normal chest"),
]  # fmt: skip
TESTS = [(7, "the lungs are clear", "effusion"), (8, "the heart is small", "no acute process"), (9, "clear", "normal")]
BOTH = r"test reports and index must be of one section; got impression \(by {}\) and findings \(by column\)\. "
SECTION = {"Python": r"`mo\.reports\(\.\.\., mo\.Read\(section='findings'\)\)`", "command": "--section findings"}
STEP = {caller: rf"Pass {section}, or search an index of section impression\.$" for caller, section in SECTION.items()}


class Lengths:
    """A stand-in for CREPE."""

    signature = {"model": "lengths"}  # noqa: RUF012

    def count_errors(self, pairs, *, progress=None):
        import numpy as np

        return np.array([[abs(len(a) - len(b)), 0, 0, 0, 0, 0] for a, b in pairs], float), 0


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sections")
    found = {"train": write(folder / "train.csv", TRAIN, HEADER), "tests": write(folder / "tests.csv", TESTS, HEADER)}
    found["model"] = write(folder / "model.csv", [(i, f) for i, f, _ in TESTS], ("study_id", "report"))
    found["findings"] = write(folder / "findings.csv", [(i, f) for i, f, _ in TESTS], ("study_id", "findings"))
    found["impression"] = write(folder / "impression.csv", [(i, t) for i, _, t in TESTS], ("study_id", "impression"))
    for section in ("findings", "impression"):
        found[f"of {section}"] = folder / f"INDEX-{section}"
        mo.build_index(mo.reports(found["train"], mo.Read(section=section)), found[f"of {section}"])
        found[f"tests of {section}"] = folder / f"TESTS-{section}"
        mo.build_index(mo.reports(found["tests"], mo.Read(section=section)), found[f"tests of {section}"])
        found[f"answers of {section}"] = folder / f"{section}.parquet"
        index = mo.open_index(found[f"of {section}"])
        mo.retrieve(index, found["tests"], "bleu").write(found[f"answers of {section}"])
    return found


def calls(files, tests, **loading):
    """Return what compares test reports with the index of findings, by name."""
    index, answers = files["of findings"], files["answers of findings"]
    return {
        "retrieve": lambda: mo.retrieve(index, mo.reports(tests, mo.Read(**loading)), "rouge-l", k=2),
        "baseline": lambda: mo.baseline(index, mo.reports(tests, mo.Read(**loading)), "random", "bleu"),
        "expectation": lambda: mo.expectation(index, mo.reports(tests, mo.Read(**loading)), "bleu"),
        "verify": lambda: mo.verify(index, answers, mo.reports(tests, mo.Read(**loading))),
        "study": lambda: mo.study(index, mo.reports(tests, mo.Read(**loading)), {"M": files["model"]}, metrics="bleu"),
        "score": lambda: mo.score(mo.reports(tests, mo.Read(**loading)), files["model"], "bleu", index=index),
    }


NAMES = list(calls({"of findings": 0, "answers of findings": 0, "model": 0}, 0))


@pytest.mark.parametrize("name", NAMES)
def test_the_section_of_the_index_is_the_default(files, name):
    by_default = calls(files, files["tests"])[name]()
    named = calls(files, files["tests"], section="findings")[name]()
    assert repr(by_default) == repr(named)
    if name not in ("verify", "study"):
        assert by_default.table.equals(named.table)
        assert by_default.signature["section"] == "findings"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tests", ["impression", "tests of impression", "by --section", "loaded", "in memory"])
def test_another_section_names_both(files, name, tests):
    loading = {"section": "impression"} if tests in ("by --section", "in memory") else {}
    given = {
        "by --section": files["tests"], "in memory": {str(i): text for i, _, text in TESTS},
        "loaded": mo.reports(files["tests"], mo.Read(section="impression")).load(),
    }.get(tests, files.get(tests))  # fmt: skip
    match = BOTH.format("caller" if tests == "in memory" else "column") + STEP["Python"]
    if name == "score":
        by = "caller" if tests == "in memory" else "column"
        match = BOTH.format(by).replace("test reports", "^score: references") + rf"Pass {SECTION['Python']}\.$"
    if tests == "impression":  # the file has no other column
        match = r"has no column that is clearly the findings; candidates are 'impression'"
    with pytest.raises(InputError, match=match):
        calls(files, given, **loading)[name]()


def reranked(index, queries):
    return Reranking(planned_pool(index, "all", mo.SearchOptions()), crepe_judge(Lengths()), queries).results()


def test_rerank_compares_the_sections(files):
    index = mo.open_index(files["of findings"])
    queries = mo.reports(files["tests"], mo.Read(section="impression")).load()
    with pytest.raises(InputError, match=BOTH.format("column") + STEP["Python"]):
        reranked(index, queries)
    queries = mo.reports(files["tests"]).load(index)
    assert reranked(index, queries).signature["section"] == "findings"


@pytest.mark.parametrize("name", ["retrieve", "study", "baseline random", "baseline expectation", "verify"])
def test_commands_read_the_section_of_the_index(oracle, files, name):
    index, tests, answers = files["of findings"], files["tests"], files["answers of findings"]
    words = [*name.split(), index, *([answers] if name == "verify" else []), tests]
    words += [] if name == "verify" else ["-m", "bleu"]
    code, _, err = oracle(*words)
    assert code == 0, err
    assert "column findings, 3 of 3 rows" in err
    assert_refused(
        oracle(*words, "--section", "impression"),
        r"[\w ]+: " + BOTH.format("column") + STEP["command"],
        "test reports: ",
    )


def test_the_text_option_takes_a_section(oracle, files):
    words = ["retrieve", files["of findings"], "--text", "clear", "-m", "bleu"]
    assert oracle(*words)[0] == oracle(*words, "--section", "findings")[0] == 0
    assert_refused(oracle(*words, "--section", "impression"), "retrieve: " + BOTH.format("caller"))


def test_models_of_a_study_have_the_section_of_the_index(oracle, named, files):
    words = ["study", files["of findings"], files["tests"], "-m", "bleu"]
    match = r"study: test reports and model 'M' must be of one section; got findings \(by column\) and impression "
    step = (
        r".* Say by --section findings by oracle reports NAME FILE what it writes, or search an index of its section\."
    )
    notes = "(test reports|model 'M'): "
    assert_refused(oracle(*words, f"M={files['impression']}"), match + r"\(by column\)" + step, notes)
    assert_refused(oracle(*words, f"M={files['tests of impression']}"), match + r"\(by column\)" + step, notes)
    named("M", files["model"], section="impression")
    assert_refused(oracle(*words, "M"), match + r"\(by caller\)" + step, notes)
    for model in ("model", "findings", "tests of findings"):
        assert oracle(*words, f"M={files[model]}")[0] == 0


def test_a_survey_has_the_section_of_its_results(files, tmp_path):
    options = {"raters": ["anna"], "options": mo.SurveyOptions(studies=2)}
    candidates = {"bleu": files["answers of findings"]}
    survey = mo.create_survey(files["tests"], candidates, tmp_path / "S", **options)
    assert {study.reference for study in survey.studies} <= {findings for _, findings, _ in TESTS}
    match = r"create_survey: references and candidate bleu must be of one section; got impression .* and findings "
    for references in (mo.reports(files["tests"], mo.Read(section="impression")), files["tests of impression"]):
        with pytest.raises(InputError, match=match):
            mo.create_survey(references, candidates, tmp_path / "T", **options)


def test_pages_have_the_section_of_their_results(oracle, files, tmp_path):
    answers, tests = files["answers of findings"], files["tests"]
    words = ["report", answers, "--queries", tests, "--out", tmp_path / "page.html"]
    assert oracle(*words)[0] == 0
    match = r"report: test reports and results must be of one section; got impression .* and findings \(by a signature"
    assert_refused(oracle(*words, "--section", "impression"), match, "test reports: ")
    index, loaded = mo.open_index(files["of findings"]), mo.reports(tests, mo.Read(section="impression")).load()
    match = (
        r"^test reports and results must be of one section; got impression \(by column\) and findings \(by column\)\. "
        r"Pass `mo\.reports\(\.\.\., mo\.Read\(section='findings'\)\)`\.$"
    )
    with pytest.raises(InputError, match=match):
        read_cases([], index, loaded)


def test_the_signature_names_the_section(oracle, files, tmp_path):
    answers = files["answers of findings"]
    assert "|findings|idx:" in short_signature(read_results(answers).signature)
    for section, name in (("findings", "A"), ("impression", "B")):
        words = ["score", files["tests"], files["model"], "-m", "bleu", "--section", section]
        assert oracle(*words, "--out", tmp_path / f"{name}.parquet")[0] == 0
        assert read_scores(tmp_path / f"{name}.parquet").signature["section"] == section
    code, out, err = oracle("table", f"A={tmp_path / 'A.parquet'}", f"oracle={answers}", "--format", "md")
    assert code == 0, err
    assert '"section": "findings"' in out
    match = r"table: 'B' was not scored as 'A': section is impression, not"
    assert_refused(oracle("table", *(f"{name}={tmp_path / name}.parquet" for name in "AB")), match)


def test_what_does_not_say_its_section_agrees_with_all(files, tmp_path):
    texts = {str(i): findings for i, findings, _ in TESTS}
    unknown = mo.build_index({str(i): f for i, f, _ in TRAIN}, tmp_path / "I")
    assert unknown.section == (None, "")
    assert "section" not in mo.retrieve(unknown, texts, "bleu").signature
    # Without the index's word a file is read as ever, and its section is that of the result.
    with pytest.warns(UserWarning, match="^test reports: .*, column impression, findings not taken, 3 of 3 rows$"):
        assert mo.retrieve(unknown, files["tests"], "bleu").signature["section"] == "impression"
    found = mo.retrieve(files["of findings"], mo.reports(texts).load(), "bleu")
    assert found.table.equals(mo.retrieve(files["of findings"], files["tests"], "bleu").table)
    assert found.signature["section"] == "findings"


def test_a_set_of_shards_has_a_section(files, tmp_path):
    made = mo.build_index(mo.reports(files["train"], mo.Read(section="findings")), tmp_path / "SET", shard_rows=2)
    assert made.section == ("findings", "column")
    found = mo.retrieve(made, files["tests"], "bleu")
    assert found.table.equals(mo.retrieve(files["of findings"], files["tests"], "bleu").table)
    parts = [tmp_path / f"{place}.parquet" for place in (1, 2)]
    for place, path in enumerate(parts, start=1):
        mo.retrieve(made, files["tests"], "bleu", options=mo.SearchOptions(part=f"{place}/2")).write(path)
    assert mo.merge(parts).signature["section"] == "findings"
    with pytest.raises(InputError, match=BOTH.format("column")):
        mo.retrieve(made, files["tests of impression"], "bleu")


def test_predictions_in_a_folder_give_the_section_of_score(files):
    found = mo.score(files["tests"], files["tests of findings"], "bleu")
    assert found.signature["section"] == "findings"
    assert re.search(r"bleu-2 ", repr(found))
    match = (
        r"^score: references and predictions must be of one section; got impression \(by column\) and findings "
        r"\(by column\)\. Pass `mo\.reports\(\.\.\., mo\.Read\(section='findings'\)\)`, or "
        r"`mo\.reports\(predictions, mo\.Read\(section='impression'\)\)` where that is what the model writes\.$"
    )
    with pytest.raises(InputError, match=match):
        mo.score(mo.reports(files["tests"], mo.Read(section="impression")), files["tests of findings"], "bleu")
