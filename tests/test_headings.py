"""Texts with both sections under "Findings:" and "Impression:" are cut by one rule, on both sides."""

import json

import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora import streams
from support import assert_refused, write

ROWS = [
    ("1", "The lungs are clear.", "No acute process."), ("2", "There is a small effusion.", "Small effusion."),
    ("3", "The heart is large.", "Cardiomegaly."),
]  # fmt: skip
HEADER = ("study_id", "findings", "impression")
BOTH = {study: f"Findings: {findings}\nIMPRESSION: {impression}" for study, findings, impression in ROWS}
REVERSED = {study: f"Impression: {impression} FINDINGS : {findings}" for study, findings, impression in ROWS}
OF = {"findings": {row[0]: row[1] for row in ROWS}, "impression": {row[0]: row[2] for row in ROWS}}
JOINED = {study: f"{findings} {impression}" for study, findings, impression in ROWS}
UNKNOWN = (
    "the predictions hold findings and impression under their names, and the section of the references is not known"
)


@pytest.fixture
def files(tmp_path):
    rexrank = {study: {"model_prediction": text} for study, text in BOTH.items()}
    (tmp_path / "p.json").write_text(json.dumps(rexrank))
    samples = [json.dumps({"study_id": study, "candidates": [text, ""]}) for study, text in BOTH.items()]
    (tmp_path / "s.jsonl").write_text("\n".join(samples))
    made = {"p.json": tmp_path / "p.json", "samples": tmp_path / "s.jsonl"}
    made["references"] = write(tmp_path / "references.csv", ROWS, HEADER)
    for name, texts in {"both": BOTH, "reversed": REVERSED, "joined": JOINED, **OF}.items():
        made[name] = write(tmp_path / f"{name}.csv", texts)
    return made


def mean(out):
    """Return the mean of BLEU-2 in lines of JSON."""
    scores = [json.loads(line)["bleu-2"] for line in out.splitlines()]
    assert len(scores) == len(ROWS)
    return sum(scores) / len(scores)


@pytest.mark.parametrize("predictions", ["p.json", "both", "reversed"])
@pytest.mark.parametrize("section", ["findings", "impression", "findings+impression", None])
def test_predictions_are_cut_to_the_section_of_the_references(oracle, files, predictions, section):
    options = [] if section is None else ["--section", section]
    code, out, err = oracle("score", files["references"], files[predictions], "-m", "bleu", *options)
    assert code == 0, err
    assert mean(out) == 1.0
    note = "without Findings: and Impression:" if section and "+" in section else "what follows "
    assert note in err
    taken = "column impression, findings not taken, " in err
    assert taken == (section is None)


@pytest.mark.parametrize("section", ["findings", "impression"])
@pytest.mark.parametrize(
    "form",
    [
        "## Findings\n{}\n\n## Impression\n{}", "FINDINGS\n{}\nIMPRESSION\n{}", "Finding: {}\nImpressions: {}",
        "**Findings:** {}\n**Impression:** {}", "[Findings] {} [Impression] {}", "Findings\uff1a{} Impression\uff1a{}",
    ],
)  # fmt: skip
def test_headings_of_other_forms(tmp_path, section, form):
    path = write(tmp_path / "a.csv", {study: form.format(*texts) for study, *texts in ROWS})
    for read in (mo.read_reports, mo.read_predictions):
        found = read(path, mo.Read(section=section))
        assert (dict(zip(found.ids, found.texts, strict=True)), found.marks) == (OF[section], {})
        whole = read(path)
        assert dict(zip(whole.ids, whole.texts, strict=True)) == JOINED


def test_a_singular_within_a_sentence_is_no_heading(tmp_path):
    text = "Findings: Clear lungs. Impression: Normal. Incidental finding: a nodule."
    found = mo.read_reports(write(tmp_path / "a.csv", {"1": text}), mo.Read(section="impression"))
    assert found.texts == ["Normal. Incidental finding: a nodule."]


@pytest.mark.parametrize(
    ("text", "findings", "impression"),
    [
        (
            "Findings: Lungs: clear. Other findings: None. Impression: Normal.",
            "Lungs: clear. Other findings: None.",
            "Normal.",
        ),
        ("Clinical impression: cough. Findings: Clear. Impression: Normal.", "Clear.", "Normal."),
        ("Clinical impression: cough.\nImpression: Normal.\nFindings: Clear.", "Clear.", "Normal."),
        ("CHEST: Findings: A. Impression: B.\nABDOMEN: Findings: C. Impression: D.", "A. C.", "B.\nABDOMEN: D."),
        ("Impression: B. Findings: A. Impression: D.", "A.", "B. D."),
        ("Findings: A. Findings: C. Impression: B.", "A. Findings: C.", "B."),
        ("Findings: A; Impression: B", "A;", "B"),
        ("findings : a , other findings : none . impression : b .", "a , other findings : none .", "b ."),
    ],
)
@pytest.mark.filterwarnings("ignore:.*marks that count as words")
def test_a_heading_begins_a_line_or_a_sentence(tmp_path, text, findings, impression):
    path = write(tmp_path / "a.csv", {"1": text})
    for section, part in (("findings", findings), ("impression", impression)):
        for read in (mo.read_reports, mo.read_predictions):
            assert read(path, mo.Read(section=section)).texts == [part]
        references = mo.reports({"1": part, "2": "Clear."}, mo.Read(section=section))
        best = mo.best_of({"1": [text], "2": [text]}, references, "rouge-l")
        assert best.signature["section"] == section
        assert best.scores["rouge-l"][0] == 1.0


def test_several_parts_of_a_section_are_told(oracle, tmp_path):
    text = "CHEST: Findings: A. Impression: B. ABDOMEN: Findings: C. Impression: D."
    path = write(tmp_path / "a.csv", {"1": text, "2": BOTH["1"], "3": BOTH["2"]})
    note = "what follows Findings: (1 have it several times, and their parts are joined)"
    assert note in mo.read_reports(path, mo.Read(section="findings")).source
    assert note not in mo.read_reports(write(tmp_path / "b.csv", BOTH), mo.Read(section="findings")).source
    code, _, err = oracle("build-index", path, "--out", tmp_path / "INDEX", "-m", "bleu", "--section", "findings")
    assert (code, note in err) == (0, True)
    assert mo.open_index(tmp_path / "INDEX").strings("text").to_pylist()[0] == "A. C."


def test_words_before_the_only_heading_impression_are_the_findings(oracle, tmp_path):
    unnamed = {
        study: f"{findings} Other findings: None. Impression: {impression}" for study, findings, impression in ROWS
    }
    path = write(tmp_path / "a.csv", unnamed)
    for read in (mo.read_reports, mo.read_predictions):
        cut = read(path, mo.Read(section="findings"))
        assert cut.texts == [f"{row[1]} Other findings: None." for row in ROWS]
        assert "what stands before Impression:" in cut.source
        assert read(path, mo.Read(section="impression")).texts == [row[2] for row in ROWS]
        assert read(path).texts == [*unnamed.values()]
    code, out, _ = oracle("score", write(tmp_path / "r.csv", BOTH), path, "-m", "bleu", "--section", "impression")
    assert (code, mean(out)) == (0, 1.0)


@pytest.mark.parametrize("section", ["findings", "impression"])
def test_a_heading_that_may_be_a_word_of_the_text_is_asked_for(tmp_path, section):
    texts = {study: f"Findings: {findings[:-1]} impression: {impression}" for study, findings, impression in ROWS}
    match = (
        r"3 of 3 texts begin with Findings: or Impression:, and have the other one in the middle of a sentence, .* "
        r"Write it at the beginning of a line or sentence, or give the sections columns of their own\.$"
    )
    for read in (mo.read_reports, mo.read_predictions):
        with pytest.raises(InputError, match=match):
            read(write(tmp_path / "a.csv", texts), mo.Read(section=section))
        assert read(tmp_path / "a.csv").texts == [*texts.values()]


@pytest.mark.parametrize("section", ["findings", "impression"])
def test_both_sides_are_cut_by_one_rule(oracle, files, section):
    for references, predictions in ((files["both"], files["p.json"]), (files["both"], files[section])):
        words = ["score", references, predictions, "-m", "bleu", "--section", section]
        code, out, err = oracle(*words)
        assert (code, mean(out)) == (0, 1.0), err
    code, out, _ = oracle("score", files["both"], files["reversed"], "-m", "bleu")
    assert (code, mean(out)) == (0, 1.0)
    for references in (BOTH, [*BOTH.values()]):
        predictions = OF[section] if isinstance(references, dict) else [*OF[section].values()]
        cut = mo.score(mo.reports(references, mo.Read(section=section)), predictions, "bleu")
        assert cut.mean() == {"bleu-2": 1.0}
        assert cut.signature["section"] == section


@pytest.mark.parametrize("section", ["findings", "impression"])
def test_what_a_message_advises_gives_that_text(files, section):
    said = mo.read_predictions(files["p.json"], mo.Read(section=section))
    assert dict(zip(said.ids, said.texts, strict=True)) == OF[section]
    assert said.known_section == (section, "headers")
    whole = mo.read_predictions(files["p.json"])
    match = (
        rf"references and predictions must be of one section; got {section} \(by caller\) and findings\+impression "
        rf"\(by headers\)\. Pass `mo\.reports\(\.\.\., mo\.Read\(section='findings\+impression'\)\)`, or "
        rf"`mo\.reports\(predictions, mo\.Read\(section='{section}'\)\)` where that is what the model writes\.$"
    )
    with pytest.raises(InputError, match=match), pytest.warns(UserWarning, match="without Findings: and Impression:"):
        mo.score(mo.reports(OF[section], mo.Read(section=section)), whole, "bleu")
    cut = mo.reports(files["p.json"], mo.Read(section=section))
    assert mo.score(mo.reports(OF[section], mo.Read(section=section)), cut, "bleu").mean() == {"bleu-2": 1.0}


def test_references_of_unknown_section_are_compared_with_both_and_a_word(oracle, files):
    code, _, err = oracle("score", files["findings"], files["p.json"], "-m", "bleu")
    assert code == 0
    assert f"{UNKNOWN}: both are compared. Pass --section findings or --section impression to compare one" in err
    with pytest.warns(UserWarning, match=f"^(predictions: .*|{UNKNOWN}.*)") as told:
        mo.score(OF["findings"], BOTH, "bleu")
    assert [str(one.message).partition(":")[0] for one in told] == ["predictions", UNKNOWN]
    assert "without Findings: and Impression:" in str(told[0].message)
    code, out, err = oracle("score", files["findings"], files["p.json"], "-m", "bleu", "--section", "findings")
    assert (code, mean(out), UNKNOWN in err) == (0, 1.0, False)


def test_after_impression_is_the_impression(files):
    one = mo.read_predictions(files["reversed"], mo.Read(after_impression=True))
    assert (
        one.texts
        == mo.read_predictions(files["reversed"], mo.Read(section="impression")).texts
        == [*OF["impression"].values()]
    )
    with pytest.raises(
        InputError,
        match=r"section must be impression with `mo\.Read\(after_impression=True\)`; got "
        "findings\\. Leave `",
    ):
        mo.read_predictions(files["both"], mo.Read(after_impression=True, section="findings"))


@pytest.mark.parametrize("section", ["findings", "impression"])
def test_models_samples_and_copies(oracle, files, tmp_path, section):
    built = tmp_path / "INDEX"
    code, _, err = oracle("build-index", files["both"], "--out", built, "--section", section)
    assert (code, f"what follows {section.capitalize()}:" in err) == (0, True)
    assert mo.open_index(built).strings("text").to_pylist() == [*OF[section].values()]
    systems = mo.study(built, files["references"], {"M": files["p.json"]}, metrics="bleu")
    assert systems["M"].mean() == {"bleu-2": 1.0}
    copies = mo.overlap(built, {"M": files["p.json"]})
    assert copies.distinct == {"M": 3}
    assert copies.sets["M"].is_copy.all()
    best = mo.best_of(files["samples"], mo.reports(files["references"], mo.Read(section=section)), "bleu")
    assert best.signature["section"] == section


def test_an_index_of_both_sections(tmp_path, files, monkeypatch):
    with pytest.warns(UserWarning, match="^reports: .*, without Findings: and Impression:, 3 of 3 rows$"):
        made = mo.build_index(files["both"], tmp_path / "INDEX", metrics="bleu")
    assert made.section == ("findings+impression", "headers")
    assert made.strings("text").to_pylist() == [*JOINED.values()]
    monkeypatch.setattr(streams, "AT_ONCE", 1)
    cut = mo.build_index(
        mo.reports(files["both"], mo.Read(section="findings")), tmp_path / "SET", metrics="bleu", shard_rows=2
    )
    assert cut.section == ("findings", "headers")
    mixed = write(tmp_path / "mixed.csv", {**BOTH, "4": "Clear."})
    with pytest.raises(
        InputError, match=r"has parts with the headings Findings: and Impression:, and others without\. Leave"
    ):
        mo.build_index(mixed, tmp_path / "MIXED", metrics="bleu", shard_rows=2)


# The section of the tests


def test_tests_of_unknown_section_are_named(oracle, files, tmp_path):
    built = tmp_path / "INDEX"
    code, _, err = oracle("build-index", files["references"], "--out", built, "-m", "bleu")
    assert (code, "column impression, findings not taken" in err) == (0, True)
    tests = write(tmp_path / "tests.csv", OF["findings"], ("study_id", "described"))
    note = "section of the tests not known: they are compared with impression. Say it by --section NAME"
    named = ["--text-column", "described"]
    for words in (
        ["retrieve", built, tests, "-m", "bleu"], ["baseline", "random", built, tests, "-m", "bleu"],
        ["study", built, tests, "-m", "bleu"], ["score", tests, files["impression"], "-m", "bleu", "--index", built],
    ):  # fmt: skip
        code, _, err = oracle(*words, *named)
        assert code == 0, err
        assert err.count(note) == 1, words
        outcome = oracle(*words, *named, "--section", "findings")
        match = r".* must be of one section; got findings \(by caller\) and impression"
        assert_refused(outcome, match, "test reports: |references: |predictions: ")
        code, _, err = oracle(*words, *named, "--section", "impression")
        assert (code, note in err) == (0, False)
    with pytest.warns(UserWarning, match="section of the tests not known: they are compared with impression"):
        mo.retrieve(built, mo.reports(tests, mo.Read(text_column="described")), "bleu")
    read = mo.read_reports(tests, mo.Read(text_column="described"))
    with pytest.warns(UserWarning, match=r"not known: .* Say it by `mo\.reports\(\.\.\., mo\.Read\(section=NAME\)\)`$"):
        mo.retrieve(built, read, "bleu")
    mo.retrieve(built, mo.read_reports(tests, mo.Read(text_column="described", section="impression")), "bleu")
    mo.retrieve(built, OF["impression"], "bleu")  # texts alone
    mo.retrieve(built, mo.Reports.from_texts(read.texts, read.ids), "bleu")
