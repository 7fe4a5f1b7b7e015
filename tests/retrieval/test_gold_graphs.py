"""RadGraph oracles of the synthetic corpus against a brute force that reads the same JSON files with Python sets.

The sets and formulas below are written from the papers, without code of the package: RadGraph F1 of Yu et al. 2023, and
the three reward levels of Delbrouck et al. 2022.
"""

import csv
import json
from collections import Counter
from fractions import Fraction

import pytest

import metric_oracle as mo
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.plan import retrieve
from metric_oracle.synthetic.corpus import write_synthetic

N_TRAIN, N_TEST = 900, 60


def sets_of(graph: dict) -> dict[str, frozenset]:
    """Return what each metric compares."""
    entities = graph["entities"]
    name = {key: (e["tokens"], e["label"]) for key, e in entities.items()}
    links = [(key, kind, target) for key, e in entities.items() for kind, target in e["relations"]]
    has = {key: bool(e["relations"]) for key, e in entities.items()}
    return {
        "entities": frozenset(name.values()),
        "relations": frozenset((name[key], name[target], kind) for key, kind, target in links),
        "rg_er": frozenset((*name[key], True) if has[key] else name[key] for key in entities),
        "rg_er-bar": frozenset(
            [name[key] for key in entities if not has[key]]
            + [
                (entities[key]["tokens"].lower(), entities[key]["label"], kind, entities[target]["tokens"].lower())
                for key, kind, target in links
            ]
        ),
    }


def f1(candidate: frozenset, reference: frozenset) -> Fraction:
    both = len(candidate & reference)
    if both == 0:
        return Fraction(0)
    precision, recall = Fraction(both, len(candidate)), Fraction(both, len(reference))
    return 2 * precision * recall / (precision + recall)


SCORES = {
    "radgraph": lambda c, r: (f1(c["entities"], r["entities"]) + f1(c["relations"], r["relations"])) / 2,
    "radgraph:rg_e": lambda c, r: f1(c["entities"], r["entities"]),
    "radgraph:rg_er": lambda c, r: f1(c["rg_er"], r["rg_er"]),
    "radgraph:rg_er-bar": lambda c, r: f1(c["rg_er-bar"], r["rg_er-bar"]),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Return the candidates' and the references' graphs by row, the texts, the index and the query arguments."""
    folder = tmp_path_factory.mktemp("gold")
    files = write_synthetic(folder / "corpus", N_TRAIN, N_TEST, seed=9)
    graphs, texts = {}, {}
    for split in ("train", "test"):
        with files[split].open(encoding="utf-8", newline="") as file:
            reports = list(csv.DictReader(file))
        by_id = json.loads(files[f"{split}_graphs"].read_text(encoding="utf-8"))
        if split == "test":  # three queries that match nothing
            for report, tokens in zip(reports[:3], ("", "zebra", "Zebra"), strict=True):
                one = {"1": {"tokens": tokens, "label": "OBS-DP", "start_ix": 0, "end_ix": 0, "relations": []}}
                by_id[report["study_id"]]["entities"] = one if tokens else {}
            files["test_graphs"].write_text(json.dumps(by_id), encoding="utf-8")
        graphs[split] = [sets_of(by_id[report["study_id"]]) for report in reports]
        texts[split] = [report["report"] for report in reports]
    index = build_index(
        mo.reports(files["train"], radgraph=files["train_graphs"]), folder / "index", metrics=["radgraph"]
    )
    return graphs, texts, index, files


@pytest.mark.parametrize("metric", SCORES)
def test_oracles_equal_the_brute_force(world, metric):
    graphs, texts, index, files = world
    k = 3
    table = retrieve(index, mo.reports(files["test"], radgraph=files["test_graphs"]), metric, k=k, threads=2).table
    got = list(zip(*(table[name].to_pylist() for name in ("row", "score", "n_ties", "fallback")), strict=True))
    names = {"radgraph": ("entities", "relations"), "radgraph:rg_e": ("entities",)}.get(metric, (metric[9:],))
    rows_of: dict[tuple, list[int]] = {}
    for row, candidate in enumerate(graphs["train"]):
        rows_of.setdefault(tuple(candidate[name] for name in names), []).append(row)
    frequent = Counter(texts["train"]).most_common()
    assert frequent[0][1] > frequent[1][1]
    most_frequent = texts["train"].index(frequent[0][0])

    n_fallbacks, n_tied = 0, 0
    for q, reference in enumerate(graphs["test"]):
        scores = [Fraction(0)] * N_TRAIN
        for sets, rows in rows_of.items():
            if any(s & reference[name] for s, name in zip(sets, names, strict=True)):
                score = SCORES[metric](dict(zip(names, sets, strict=True)), reference)
                for row in rows:
                    scores[row] = score
        ties = Counter(scores)
        order = sorted(range(N_TRAIN), key=lambda row: (-scores[row], row))
        fallback = scores[order[0]] == 0
        if fallback:
            order = [most_frequent, *[row for row in order if row != most_frequent]]
            n_fallbacks += 1
        n_tied += ties[scores[order[0]]] > 1
        for rank, row in enumerate(order[:k]):
            answer = got[q * k + rank]
            assert (answer[0], answer[2], answer[3]) == (row, ties[scores[row]], fallback and rank == 0)
            assert answer[1] == pytest.approx(float(scores[row]), rel=1e-15, abs=0)
    assert n_fallbacks >= 3
    assert n_tied > 12


def test_scores_are_components(world):
    _, _, index, files = world
    table = retrieve(index, mo.reports(files["test"], radgraph=files["test_graphs"]), "radgraph").table
    entities, relations = (table[name].to_pylist() for name in ("entities_f1", "relations_f1"))
    means = [(e + r) / 2 for e, r in zip(entities, relations, strict=True)]
    assert table["score"].to_pylist() == pytest.approx(means, rel=1e-15)
    assert any(e != r for e, r in zip(entities, relations, strict=True))
