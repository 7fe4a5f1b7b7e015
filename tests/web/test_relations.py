"""Pages by relation: what must follow when the direction of every score is turned, or the corpus lies in shards."""

import base64
import gzip
import json
import re

import numpy as np
import pyarrow as pa
import pytest

import metric_oracle as mo
from metric_oracle.explorer.cases import read_cases
from metric_oracle.explorer.report import write_report
from metric_oracle.findings.results import Results, Scores
from support.pages import client_of, made_up

N = 40
IDS = [f"s{i}" for i in range(N)]
TEXTS = ["Clear lungs.", "Small left effusion.", "Large right effusion.", "No edema. Stable heart.", "Left effusion."]
METRICS = {"bleu-2": "ngrams", "rouge-l": "words"}


def turned(table, columns, is_lower):
    """Return a table with its scores k/64 as they are, or, where lower is better, as 1 - k/64, which is exact too."""
    for name in columns:
        values = np.round(table[name].to_numpy() * 64) / 64
        values = pa.array(1 - values if is_lower else values)
        table = table.set_column(table.column_names.index(name), name, values)
    return table


def files_of(is_lower):
    """Return oracles under two metrics, random reports, and two models; the directions of all are these.

    An oracle is better than the models for all test reports but one, and contradicts some.
    """
    direction = "lower" if is_lower else "higher"
    made = {"direction": direction, "source": None, "options": None, "tool": None}
    how = {metric: {**made, "representation": {kind: {}}} for metric, kind in METRICS.items()}
    found, best = [], np.zeros((len(METRICS), N))
    for seed, name in enumerate(("strong", "weak"), 7):
        values = np.random.default_rng(seed).random((len(METRICS), N)) * 0.75
        best = np.maximum(best, values)
        table = pa.table({"query_id": IDS, **dict(zip(METRICS, values, strict=True)),
                          "reference": [TEXTS[i % 5] for i in range(N)],
                          "prediction": [TEXTS[i % 3] for i in range(N)]})  # fmt: skip
        found.append(Scores(turned(table, METRICS, is_lower), {"kind": "scores", "system": name, "metrics": how}))
    for seed, (metric, baseline) in enumerate([*((m, None) for m in METRICS), ("bleu-2", "random")]):
        one = made_up(IDS, metric, baseline, texts=TEXTS, k=2, seed=seed, direction=direction)
        score = one.table["score"].to_numpy().copy()
        if baseline is None:
            score[::2] = best[seed] + 0.25 * score[::2] - 0.5 * (np.arange(N) == 5)
        table = one.table.set_column(one.table.column_names.index("score"), "score", pa.array(score))
        found.append(Results(turned(table, ["score"], is_lower), one.signature))
    return [*found[2:], *found[:2]]


@pytest.fixture(scope="module")
def both():
    """Return clients of the pages where higher is better, and where lower is."""
    return [client_of(read_cases(files_of(is_lower))) for is_lower in (False, True)]


def skeleton(page, is_lower):
    """Return a page without numbers, bars of its histogram and directions; arrows as where higher is better."""
    page = re.sub(r'<span class="soft"> lower is better</span>', "", page)
    page = re.sub(r"(?:lower|higher) is better", "", page)
    page = re.sub(r'<a [^>]*><rect class="bar"[^>]*/></a>', "", page)  # of scores, the smallest first
    if is_lower:
        swapped = {"↑": "↓", "↓": "↑", '"ascending"><': '"descending"><', '"descending"><': '"ascending"><'}
        page = re.sub("|".join(swapped), lambda found: swapped[found[0]], page)
    return re.sub(r'[+-]?\d+\.\d+|(?<=class="number score )s-\d+', "#", page)


PATHS = [
    "/",
    "/systems",
    *(f"/cases?sort={i}{turn}" for i in range(7) for turn in ("", "&turn=1")),
    "/cases?sort=0&minus=3",
    "/cases?sort=1&minus=4&turn=1",
    *(f"/case/{q}" for q in range(0, N, 9)),
]


@pytest.mark.parametrize("path", PATHS)
def test_pages_where_lower_is_better_are_those_of_the_turned_scores(both, path):
    shown = [client.get(path) for client in both]
    assert [answer.status_code for answer in shown] == [200, 200]
    higher, lower = (skeleton(answer.text, is_lower) for is_lower, answer in enumerate(shown))
    assert lower == higher
    assert shown[0].text != shown[1].text


@pytest.mark.parametrize("i", [0, 2, 3])
def test_a_filter_by_scores_turns_with_them(both, i):
    shown = [
        re.findall(
            r'<th scope="row" class="id"><a href="/case/(\d+)', both[is_lower].get(f"/cases?column={i}&{ends}").text
        )
        for is_lower, ends in enumerate(("low=0.25&high=0.625", "low=0.375&high=0.75"))
    ]
    assert shown[0] == shown[1]
    assert 0 < len(shown[0]) < N


def test_a_page_for_print_turns_with_the_scores(tmp_path):
    for is_lower in (False, True):
        write_report(read_cases(files_of(is_lower)), tmp_path / f"{is_lower}.html")
    pages = [(tmp_path / f"{is_lower}.html").read_text() for is_lower in (False, True)]
    for part in (without_code, opened):
        higher, lower = (skeleton(part(page), is_lower) for is_lower, page in enumerate(pages))
        assert lower == higher


def without_code(page):
    """Return a page without its style and scripts."""
    return re.sub(r"<(style|script)[^>]*>.*?</\1>", "", page, flags=re.DOTALL)


def opened(page):
    """Return the cases of a page as they are when they are opened."""
    packed = re.search(r'<script type="application/gzip" id="marked">(.*?)</script>', page)[1]
    return "\n".join(json.loads(gzip.decompress(base64.b64decode(packed))).values())


@pytest.mark.parametrize("shard_rows", [30, 70])
def test_a_corpus_in_shards_has_the_pages_of_one_index(corpus, prepared, tmp_path, shard_rows):
    """With the evidence of every metric: graphs and labels of a row are those of the shard that has it."""
    files = {name: corpus[f"train_{name}"] for name in ("graphs", "labels")}
    given = mo.reports(corpus["train"], radgraph=files["graphs"], chexbert_labels=files["labels"], uncertain="negative")
    clients = []
    for index in (prepared.index, mo.build_index(given, tmp_path / "SET", shard_rows=shard_rows)):
        found = [
            mo.retrieve(index, prepared.queries, metric, k=2) for metric in ("bleu-2", "radgraph", "chexbert:labels")
        ]
        clients.append(client_of(read_cases(found, index, prepared.queries)))
    for path in ("/", "/cases", *(f"/case/{q}?show={show}" for q in range(12) for show in range(3))):
        one, split = (re.sub(r"idx:\w+|index \w{12}, [^<]*", "", client.get(path).text) for client in clients)
        assert split == one
    last = {int(row) // shard_rows for row in found[1].table["row"].to_pylist()}
    assert len(last) > 1
