"""What a command tells of reports that were left out, missing or chosen, its function in Python warns of."""

import re
import warnings

import polars as pl
import pytest

import metric_oracle as mo
from support import write

STUDIES = [f"s{i}" for i in range(8)]
TEXTS = [
    f"there is a {size} {side} effusion" for size in ("small", "large") for side in ("left", "right", "new", "old")
]
# Of two sections, the impression is taken; of s6 it is missing, of s7 empty.
IMPRESSIONS = [*TEXTS[:6], "nan", ""]
WRITTEN = dict(zip([*STUDIES[1:6], "s6", "s7", "x"], [*TEXTS[1:6], "None", TEXTS[7], "clear"], strict=True))
OF_READING = re.compile(r"(?!/|[\w./-]+\.(?:csv|md|jsonl|parquet): )(?P<line>.*\S)")
TOLD = re.compile(
    r"left out|missing|not taken|marks that count|is joined with|have no word|not used|are read as|scored as such"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("told")
    rows = [(study, f"{text} again", found) for study, text, found in zip(STUDIES, TEXTS, IMPRESSIONS, strict=True)]
    found = {"tests": write(folder / "tests.csv", rows, ("study_id", "findings", "impression"))}
    found["model"] = write(folder / "model.csv", WRITTEN, ("uid", "generated"))
    found["whole"] = write(folder / "whole.csv", [*WRITTEN.items(), ("s0", "clear")], ("uid", "generated"))
    found["listed"] = write(folder / "listed.csv", [(i, f"['{text}']") for i, text in WRITTEN.items()], ("uid", "text"))
    found["train"] = write(
        folder / "train.csv", [*rows[:6], ("t", "x", "no effusion")], ("id", "findings", "impression")
    )
    groups = [(study, f"[quoted] {text}") for study, text in WRITTEN.items() if study in STUDIES[1:6]]
    found["samples"] = write(folder / "samples.csv", [*groups, *((i, "nan") for i, _ in groups)], ("uid", "report"))
    found["index"] = folder / "INDEX"
    mo.build_index(mo.reports(found["train"], mo.Read(section="impression")), found["index"], metrics="rouge-l,bleu")
    labels = [(study, i % 2, 1) for i, study in enumerate(STUDIES)]
    found["labels"] = write(folder / "labels.csv", labels, ("study_id", "Edema", "Fracture"))
    found["more labels"] = write(folder / "more.csv", [*labels, ("x", 1, 0)], ("study_id", "Edema", "Fracture"))
    found["results"] = folder / "results.parquet"
    mo.retrieve(found["index"], mo.reports(found["tests"], tell=lambda line: None), "rouge-l").write(found["results"])
    return found


ROUGE = ["-m", "rouge-l"]
SURVEY = {"raters": ["ann"], "options": mo.SurveyOptions(studies=2, unequal=True)}
# Of each: the words of a command, and the call of its function with the same inputs.
CALLS = {
    "score": lambda f, out: (
        ["score", f["tests"], f["model"], *ROUGE, "--inner"],
        lambda: mo.score(f["tests"], f["model"], "rouge-l", inner=True),
    ),
    "compute": lambda f, out: (
        ["score", f["tests"], f["model"], *ROUGE, "--inner"],
        lambda: mo.compute(predictions=f["model"], references=f["tests"], metrics="rouge-l", inner=True),
    ),
    "score with marks": lambda f, out: (
        ["score", f["tests"], f["listed"], *ROUGE, "--inner"],
        lambda: mo.score(f["tests"], f["listed"], "rouge-l", inner=True),
    ),
    "score with an index": lambda f, out: (
        ["score", f["tests"], f["model"], *ROUGE, "--inner", "--index", f["index"]],
        lambda: mo.score(f["tests"], f["model"], "rouge-l", inner=True, index=f["index"]),
    ),
    "study": lambda f, out: (
        ["study", f["index"], f["tests"], f"M={f['model']}", *ROUGE, "--inner"],
        lambda: mo.study(f["index"], f["tests"], {"M": f["model"]}, metrics="rouge-l", inner=True),
    ),
    "best-of": lambda f, out: (
        ["best-of", f["samples"], f["tests"], *ROUGE, "--inner"],
        lambda: mo.best_of(f["samples"], f["tests"], "rouge-l", inner=True),
    ),
    "consensus": lambda f, out: (
        ["consensus", f["samples"], *ROUGE], lambda: mo.consensus(f["samples"], "rouge-l"),
    ),
    "overlap": lambda f, out: (
        ["overlap", f["index"], f"M={f['model']}", f"L={f['listed']}"],
        lambda: mo.overlap(f["index"], {"M": f["model"], "L": f["listed"]}),
    ),
    "overlap with references": lambda f, out: (
        ["overlap", f["index"], f"M={f['whole']}", "--references", f["tests"]],
        lambda: mo.overlap(f["index"], {"M": f["whole"]}, f["tests"]),
    ),
    "survey create": lambda f, out: (
        ["survey", "create", f["tests"], "--candidates", f"M={f['model']}", "--raters", "ann", "--studies", 2,
         "--unequal", "--out", out / "S1"],
        lambda: mo.create_survey(f["tests"], {"M": f["model"]}, out / "S2", **SURVEY),
    ),
    "retrieve": lambda f, out: (
        ["retrieve", f["index"], f["tests"], *ROUGE], lambda: mo.retrieve(f["index"], f["tests"], "rouge-l"),
    ),
    "baseline": lambda f, out: (
        ["baseline", "random", f["index"], f["tests"], *ROUGE],
        lambda: mo.baseline(f["index"], f["tests"], "random", "rouge-l"),
    ),
    "expectation": lambda f, out: (
        ["baseline", "expectation", f["index"], f["tests"], *ROUGE],
        lambda: mo.expectation(f["index"], f["tests"], "rouge-l"),
    ),
    "verify": lambda f, out: (
        ["verify", f["index"], f["results"], f["tests"]], lambda: mo.verify(f["index"], f["results"], f["tests"]),
    ),
    "crg": lambda f, out: (
        ["crg", f["labels"], f["more labels"], "--uncertain", "blank"],
        lambda: mo.score_crg(f["labels"], f["more labels"], uncertain="blank"),
    ),
    "build-index": lambda f, out: (
        ["build-index", f["listed"], "--out", out / "I1", *ROUGE],
        lambda: mo.build_index(f["listed"], out / "I2", metrics="rouge-l"),
    ),
    "build-index of a section": lambda f, out: (
        ["build-index", f["tests"], "--out", out / "I1", *ROUGE],
        lambda: mo.build_index(f["tests"], out / "I2", metrics="rouge-l"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_function_warns_of_what_its_command_tells(oracle, files, tmp_path, name):
    words, call = CALLS[name](files, tmp_path)
    code, _, err = oracle(*words)
    assert code == 0, err
    lines = [found["line"] for found in map(OF_READING.fullmatch, err.splitlines()) if found]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        call()
    said = [str(one.message) for one in warned]
    assert {one.filename for one in warned} == {__file__}  # they point at the call
    assert said == [line for line in lines if line in said or TOLD.search(line)]
    assert len(said) == len({*said}) > 0


NAN = float("nan")
FRAME = pl.DataFrame({"study_id": ["a", "b", "c"], "report": ["x y", None, "z"]})


@pytest.mark.parametrize(
    ("references", "predictions", "told"),
    [
        (["a b", None], ["a b", "c d"], "1 missing, left out"),
        (["a b", NAN], ["a b", "c d"], "1 missing, left out"),
        (["a b", "nan"], ["a b", "c d"], 'words that stand for a missing report: 1 "nan"'),
        (["a b", ""], ["a b", "c d"], "1 empty, left out"),
        (["a b", "..."], ["a b", "c d"], "1 tokenless, left out"),
        (FRAME, {"a": "x", "b": "y", "c": "z"}, "1 missing, left out"),
        (FRAME.to_dicts(), {"a": "x", "b": "y", "c": "z"}, "1 missing, left out"),
    ],
)
def test_a_study_that_is_dropped_is_told(references, predictions, told):
    calls = [
        lambda: mo.score(references, predictions, "rouge-l"),
        lambda: mo.compute(predictions=predictions, references=references, metrics="rouge-l"),
    ]
    if isinstance(predictions, dict):
        samples = {study: [text] for study, text in predictions.items()}
        calls.append(lambda: mo.best_of(samples, references, "rouge-l"))
    for call in calls:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            call()
        said = [str(one.message) for one in warned]
        assert any(line.startswith("references: ") and told in line for line in said), said
        assert said[-1] == "left out: 1 with a missing or empty reference"


def test_what_inner_leaves_out_is_told():
    references = {str(i): f"a {i}" for i in range(10)}
    predictions = {str(i): f"a {i}" for i in range(6)} | {"x": "y"}
    line = "^left out: 4 without a prediction, 1 without a reference$"
    with pytest.warns(UserWarning, match=line):
        assert mo.score(references, predictions, "rouge-l", inner=True).table.num_rows == 6
    with pytest.warns(UserWarning, match=line):
        mo.compute(predictions=predictions, references=references, metrics="rouge-l", inner=True)
    with pytest.warns(UserWarning, match=line):
        mo.best_of({k: [v, "z"] for k, v in predictions.items()}, references, "rouge-l", inner=True)


def test_a_table_given_twice_is_paired_by_row(tmp_path):
    """Another column may look like ids; the rows are those of one table."""
    rows = [("CXR978_IM-1", "No acute process seen.", "No process seen."), ("CXR979_IM-1", "Small effusion.", "Small.")]
    path = write(tmp_path / "t.csv", rows, ("custom_id", "ref", "hyp"))
    for data in (path, pl.read_csv(path)):
        sides = [mo.reports(data, mo.Read(text_column=name)) for name in ("ref", "hyp")]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="(references|predictions): .*, column (ref|hyp), ")
            assert mo.score(*sides, "rouge-l").table["rouge-l"].to_pylist() == [
                pytest.approx(6 / 7),
                pytest.approx(2 / 3),
            ]
