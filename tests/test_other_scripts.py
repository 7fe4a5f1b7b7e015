"""Reports without a word under a metric that reads the letters a to z alone are counted in a note."""

import re

import pytest

import metric_oracle as mo
from support import write

TEXTS = {"1": "双肺清晰。", "2": "تضخم القلب", "3": "ปอดใส", "4": "Лёгкие чистые.", "5": "Clear lungs."}
NOTE = "4 of 5 {} have no word under {}: only the letters a to z and digits count, so they score 0 and tie"


@pytest.fixture
def files(tmp_path):
    index = tmp_path / "INDEX"
    with pytest.warns(UserWarning, match=NOTE.format("reports", "rouge-l, jaccard:1")):
        mo.build_index(TEXTS, index)
    return {"reports": write(tmp_path / "reports.csv", TEXTS), "index": index}


def test_commands_tell_it(oracle, files, tmp_path):
    index, reports = files["index"], files["reports"]
    for words, nouns in (
        (["score", reports, reports, "-m", "rouge-l,jaccard:1"], {"references", "predictions"}),
        (["build-index", reports, "--out", tmp_path / "I", "-m", "rouge-l"], {"reports"}),
        (["retrieve", index, reports, "-m", "jaccard:2"], {"test reports"}),
        (["baseline", "random", index, reports, "-m", "rouge-l"], {"test reports"}),
        (
            ["study", index, reports, f"M={reports}", "-m", "rouge-l,bleu"],
            {"test reports", "reports of model 'M'"},
        ),
    ):
        code, _, err = oracle(*words)
        assert code == 0, err
        assert set(re.findall(r"4 of 5 (.*?) have no word under", err)) == nouns, err
    for words in (["score", reports, reports, "-m", "bleu,cider-d"], ["retrieve", index, reports, "-m", "bleu"]):
        code, _, err = oracle(*words)
        assert (code, "no word" in err) == (0, False)


def test_python_warns(files):
    index, texts = mo.open_index(files["index"]), [*TEXTS.values()]
    for call, match in (
        (lambda: mo.retrieve(index, texts, "rouge-l"), NOTE.format("test reports", "rouge-l")),
        (lambda: mo.baseline(index, texts, "identity", "jaccard:1"), NOTE.format("test reports", "jaccard:1")),
        (lambda: mo.expectation(index, texts, "rouge-l"), NOTE.format("test reports", "rouge-l")),
        (
            lambda: mo.consensus({"a": texts, "b": ["x"]}, "rouge-l"),
            "4 of 6 distinct samples have no word under rouge-l",
        ),
        (
            lambda: mo.score(["Clear.", "清"], ["Clear.", "..."], "rouge-l"),
            "1 of 2 references have no word under rouge-l",
        ),
    ):
        with pytest.warns(UserWarning, match=match) as told:
            call()
        assert len(told) == 1
    mo.retrieve(index, ["Clear lungs."], "rouge-l")
