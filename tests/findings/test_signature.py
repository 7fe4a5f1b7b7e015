import json
import re

import pytest

import metric_oracle as mo
from metric_oracle.findings.signature import short_signature
from metric_oracle.metrics import METRICS
from metric_oracle.tables.compare import compare


@pytest.mark.parametrize(
    ("signature", "line"),
    [
        (
            {"metric": "bleu-2", "source": "Papineni et al., ACL 2002", "tool": "cxr-report-metric",
             "index": "e25f61e3aa", "version": "0.2.0"},
            "bleu-2|cxr-report-metric|idx:e25f61e3|v0.2.0",
        ),
        (
            {"metric": "rouge-l", "source": "Lin, ROUGE 2004", "tool": "rouge-score", "baseline": "random",
             "index": "e25f61e3aa", "references": "0123456789", "version": "0.2.0"},
            "rouge-l|rouge-score|random|idx:e25f61e3|refs:01234567|v0.2.0",
        ),
        (
            {"metric": "bertscore", "source": "Zhang et al., ICLR 2020", "tool": "", "idf": "off", "rescaled": False,
             "representation": {"bertscore": {"encoder": {"name": "a/distil roberta", "layer": 5}}},
             "index": "e25f61e3aa", "version": "1"},
            "bertscore|distil-roberta:L5|idf:off|rescaled:no|idx:e25f61e3|v1",
        ),
        (
            {"command": "align", "metrics": ["bleu", "a|b"], "ratings": {"file": "r.csv", "sha256": "ff" * 32},
             "bootstrap": {"resamples": 1000, "seed": 3}, "version": "1"},
            "align|bleu+a-b|ratings:ffffffff|studies:1000:3|v1",
        ),
        (
            {"metric": "f1-chexbert", "uncertain": {"positive": "f1chexbert", "blank": "R2Gen"}, "version": "1"},
            "f1-chexbert|uncertain:positive+blank|v1",
        ),
        ({"command": "failure-modes", "rate": 0.01, "ratings": "a table", "version": "1"}, "failure-modes|fdr:0.01|v1"),
    ],
)  # fmt: skip
def test_lines(signature, line):
    assert short_signature(signature) == line


def test_tools_of_the_registry():
    """The second part of a line is a field of its own: rewording `source` does not change it."""
    assert {name for name, metric in METRICS.items() if not metric.tool} == {
        "embedding", "chexbert:labels", "labels:agreement", "srr-bert:agreement", "radcliq:preprint",
        "jaccard:1", "jaccard:2", "jaccard:3", "jaccard:4",
    }  # fmt: skip
    for name, metric in METRICS.items():
        assert re.fullmatch(r"[a-z0-9][a-z0-9./-]*|", metric.tool)
        signature = {"metric": name, "source": "any | words", "tool": metric.tool, "version": "1"}
        assert short_signature(signature) == "|".join(filter(None, [name, metric.tool, "v1"]))


def test_under_each_table(corpus, tmp_path):
    scores = mo.score(corpus["test"], corpus["test"], ["bleu", "rouge-l"], system="x")
    refs = scores.signature["references"][:8]
    version = scores.signature["version"]
    assert short_signature(scores.signature) == f"bleu-2+rouge-l|refs:{refs}|v{version}"
    table = compare({"x": scores, "y": scores}, resamples=200, seed=4)
    line = f"bleu-2+rouge-l|refs:{refs}|bca:200:4|v{version}"
    assert short_signature(json.loads(json.dumps(table.signature))) == line
    assert line.replace("|", r"\|") in table.text("md")
    assert f"\n% Signature: {line}\n" in table.text("tex")  # a table for a paper does not print it
    full = compare({"x": scores, "y": scores}, resamples=200, seed=4, layout=mo.Layout(style="full"))
    assert line.replace("|", r"\textbar{}") in full.text("tex")
