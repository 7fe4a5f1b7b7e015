"""The marks on the page of a case, recounted against the metric's own counts on 100 real reports."""

import csv
import html
import re
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("starlette")

import metric_oracle as mo
from metric_oracle.corpora.label_tables import LABELS
from metric_oracle.explorer.cases import read_cases
from metric_oracle.findings.results import Results
from metric_oracle.indexes.ngrams import tokenize_bleu, tokenize_coco, tokenize_rouge
from metric_oracle.indexes.temporal import KEYWORDS, mask_of
from metric_oracle.kernels.bleu.score import bleu
from metric_oracle.kernels.cosine.score import integer_cosine
from metric_oracle.kernels.rouge_l.score import rouge_l
from metric_oracle.kernels.temporal.score import temporal_f1
from metric_oracle.metrics import METRICS
from support.pages import bare, client_of

N = 100
NAMES = ("bleu-2", "bleu-4", "bleu-4:coco", "rouge-l", "rouge-l:coco", "temporal", "chexbert:labels")
_MARK = re.compile(r'<span class="(matched|partly|lacking)(?: opposite)?"(?: data-p="(\d+)")?>(.*?)</span>')


@pytest.fixture(scope="module")
def cases(iu_xray, tmp_path_factory):
    """Return 100 real reports with their oracles among 300 others, shown with the evidence of every metric."""
    folder = tmp_path_factory.mktemp("marks")
    with (iu_xray / "indiana_reports.csv").open(encoding="utf-8", newline="") as file:
        texts = {row["uid"]: row["findings"] for row in csv.DictReader(file) if row["findings"].strip()}
    with (iu_xray / "r2gen_split.csv").open(encoding="utf-8", newline="") as file:
        ids = [(row["id"], row["uid"]) for row in csv.DictReader(file) if row["uid"] in texts][: 4 * N]
    labels = (iu_xray / "chexbert_labels_organ.csv").read_text(encoding="utf-8").splitlines()
    rows = [line.split(",")[1:] for line in labels]
    for name, part in (("INDEX", ids[N:]), ("TESTS", ids[:N])):
        some = set(dict(part))
        (folder / f"{name}.csv").write_text(
            "\n".join(",".join(row) for row in [["study_id", *rows[0][1:]], *(row for row in rows if row[0] in some)])
        )
        reports = mo.reports(
            {study: texts[uid] for study, uid in part}, chexbert_labels=folder / f"{name}.csv", uncertain="negative"
        )
        mo.build_index(reports, folder / name)
    index, queries = mo.open_index(folder / "INDEX"), mo.reports(folder / "TESTS").load()
    best = mo.retrieve(index, queries, "bleu-2")
    return read_cases([Results(best.table, {**best.signature, "metric": name}) for name in NAMES], index, queries)


def marks(side):
    """Return (text, kind, number) of each mark of a text on the page."""
    return [(html.unescape(text), kind, number) for kind, number, text in _MARK.findall(side)]


def counts_on(page):
    """Return the counts that the page states, and the score."""
    stated = page[page.index(", from these counts</summary>") :]
    counts = re.findall(r'<th scope="row">(.*?)</th><td class="number">(.*?)</td>', stated[: stated.index("</table>")])
    score = re.findall(r"<summary>\S+ (\S+), from these counts</summary>", page)[0]
    return {name: float(value) for name, value in counts}, score


def grams(side, tokenize, n):
    """Count the n-grams of marked words that follow one another; of single words, those of numbered phrases."""
    words = []
    for text, kind, number in marks(side):
        counts = number if n == 1 else kind != "lacking"
        words += tokenize(text) if counts else [None]
    runs = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return Counter(run for run in runs if None not in run)


@pytest.mark.parametrize("show", range(len(NAMES)))
def test_the_marks_give_the_counts_again(cases, show):
    name, metric, client, n_marked = NAMES[show], METRICS[NAMES[show]], client_of(cases), 0
    for q in range(N):
        page = client.get(f"/case/{q}?show={show}").text
        reference, text = cases.reference(q), cases.candidates(q)[0].text
        counts, score = counts_on(page)
        if text == reference:
            assert "Identical to the test report" in page
            assert not _MARK.search(page[page.index('<div class="case">') :])
            continue
        n_marked += 1
        sides = re.findall(r'<p class="text" dir="auto">(.*?)</p>', page, re.DOTALL)
        assert list(map(bare, sides)) == [reference, text]
        if name.startswith("bleu"):
            tokenize = tokenize_coco if metric.options["coco"] else tokenize_bleu
            order = metric.options["order"]
            both = [[grams(side, tokenize, n) for side in sides] for n in range(1, order + 1)]
            matched = [sum((one & other).values()) for one, other in both]
            assert both[0][0] == both[0][1]
            assert matched == [counts[f"matched {n}"] for n in range(1, order + 1)]
            lengths = len(tokenize(text)), len(tokenize(reference))
            value = bleu(*matched, *[0] * (4 - order), *lengths, order, metric.options["coco"])
        elif name.startswith("rouge"):
            tokenize = tokenize_bleu if metric.options else tokenize_rouge
            words = [[w for t, k, _ in marks(side) if k == "matched" for w in tokenize(t)] for side in sides]
            assert words[0] == words[1]
            assert len(words[0]) == counts["common"]
            value = rouge_l(len(words[0]), len(tokenize(text)), len(tokenize(reference)), bool(metric.options))
        elif name == "temporal":
            sets = [{t.lower() for t, _, _ in marks(side)} for side in sides]
            keywords = [{w for i, w in enumerate(KEYWORDS) if int(mask_of(t)) >> i & 1} for t in (reference, text)]
            assert sets == keywords
            assert {t.lower() for t, k, _ in marks(sides[0]) if k == "matched"} == sets[0] & sets[1]
            value = temporal_f1(len(sets[0] & sets[1]), len(sets[1]), len(sets[0]))
        else:
            states = {"positive": 1, "negative": -1, "blank": 0}
            rows = re.findall(r"<tr[^>]*><td><bdi>(.*?)</bdi></td><td><bdi>(.*?)</bdi></td><td><bdi>(.*?)</bdi>", page)
            assert [row[0] for row in rows] == list(LABELS)
            one, other = np.array([[states[row[1]], states[row[2]]] for row in rows]).T
            value = integer_cosine(int(one @ other), int(other @ other), int(one @ one))
        assert score == f"{value:.4f}"
    assert n_marked > 50
