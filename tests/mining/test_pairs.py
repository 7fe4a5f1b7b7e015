"""Shapes of pairs: equality with loops over all rows, texts left out, judgements, the command, error lines."""

import json
import random

import pyarrow as pa
import pytest
from pyarrow import parquet

import metric_oracle as mo
from metric_oracle.mining import mine as module

SHAPES = ("triplet", "n-tuple", "labeled-pair", "labeled-list")


def folded(text):
    return " ".join(text.casefold().split())


@pytest.fixture(scope="module")
def mined(tmp_path_factory):
    """Return an index of equal and similar texts, positives, and negatives in blocks of another size."""
    rng, folder = random.Random(3), tmp_path_factory.mktemp("pairs")
    usual = ["No acute process.", "no  acute process.", "small effusion", "clear.", "clear"]
    texts = [rng.choice(usual) if rng.random() < 0.5 else " ".join(rng.choices("abcd", k=3)) for _ in range(60)]
    index = mo.build_index(texts, folder / "INDEX", metrics="rouge-l,bleu-2")
    files = {}
    with pytest.MonkeyPatch.context() as patch:
        for name, block, k, where, text in (
            ("positives", 13, 3, "rouge-l>=0.6", False), ("negatives", 17, 4, "bleu-2<=0.7", False),
            ("positives_text", 13, 3, "rouge-l>=0.6", True), ("negatives_text", 17, 4, "bleu-2<=0.7", True),
        ):  # fmt: skip
            patch.setattr(module, "BLOCK", block)
            options = mo.SearchOptions(k=k, where=where)
            files[name] = mo.mine(index, "rouge-l", folder / f"{name}.parquet", text=text, options=options).path
    return index, texts, files


def lists_of(path):
    """Return the candidates of each anchor, in order."""
    table, lists = parquet.read_table(path), {}
    for anchor, candidate, score in zip(
        *(table[name].to_pylist() for name in ("anchor_row", "candidate_row", "score")), strict=True
    ):
        lists.setdefault(anchor, []).append((candidate, score))
    return lists


def expected_rows(shape, texts, positives, negatives, n):
    """Return the rows of a shape by plain loops, and the counts."""
    rows, equal, own, few = [], 0, 0, 0
    for anchor, of_anchor in positives.items():
        others = [c for c, _ in negatives.get(anchor, [])]
        same = {folded(texts[c]) for c, _ in of_anchor}
        a = texts[anchor]
        if shape == "labeled-pair":
            kept = [c for c in others if folded(texts[c]) not in {*same, folded(a)}]
            own += sum(folded(texts[c]) == folded(a) for c in others)
            equal += sum(folded(texts[c]) in same - {folded(a)} for c in others)
            rows += [{"anchor": a, "candidate": texts[c], "label": 1} for c, _ in of_anchor]
            rows += [{"anchor": a, "candidate": texts[c], "label": 0} for c in kept]
            continue
        for positive, _ in of_anchor:
            p = texts[positive]
            kept = [texts[c] for c in others if folded(texts[c]) not in {folded(p), folded(a)}]
            equal += sum(folded(texts[c]) == folded(p) for c in others)
            own += sum(folded(texts[c]) == folded(a) != folded(p) for c in others)
            few += len(kept) != n if shape == "n-tuple" else not kept and shape == "labeled-list"
            if shape == "triplet":
                rows += [{"anchor": a, "positive": p, "negative": c} for c in kept]
            elif shape == "labeled-list" and kept:
                rows.append({"anchor": a, "candidates": [p, *kept], "labels": [1] + [0] * len(kept)})
            elif shape == "n-tuple" and len(kept) == n:
                rows.append({"anchor": a, "positive": p} | {f"negative_{i}": c for i, c in enumerate(kept, 1)})
    counts = {"rows": len(rows), "equal to the positive": equal, "equal to the anchor": own, "too few negatives": few}
    return rows, counts


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("stored", [False, True])
def test_shapes_are_those_of_plain_loops(mined, shape, stored, tmp_path):
    index, texts, files = mined
    sides = [files[f"{name}{'_text' if stored else ''}"] for name in ("positives", "negatives")]
    out = tmp_path / "train.parquet"
    found = mo.pairs(*sides, shape=shape, out=out, index=None if stored else index)
    rows, counts = expected_rows(shape, texts, *map(lists_of, sides), 4)
    assert parquet.read_table(out).to_pylist() == rows
    assert found.counts == counts
    assert rows
    assert counts["equal to the positive"] > 0
    assert counts["equal to the anchor"] > 0


def test_without_negatives(mined, tmp_path):
    index, texts, files = mined
    rows = [(texts[a], texts[c]) for a, of_anchor in lists_of(files["positives"]).items() for c, _ in of_anchor]
    mo.pairs(files["positives"], shape="n-tuple", out=tmp_path / "a.parquet", index=index)
    assert [tuple(row.values()) for row in parquet.read_table(tmp_path / "a.parquet").to_pylist()] == rows
    mo.pairs(files["positives"], shape="labeled-pair", out=tmp_path / "b.parquet", index=index)
    assert [tuple(row.values()) for row in parquet.read_table(tmp_path / "b.parquet").to_pylist()] == [
        (*row, 1) for row in rows
    ]


def test_judgements(mined, tmp_path):
    index, texts, files = mined
    positives, negatives = lists_of(files["positives"]), lists_of(files["negatives"])
    found = mo.pairs(files["positives"], files["negatives"], shape="trec", out=tmp_path / "q.txt", index=index)
    expected = []
    for anchor, of_anchor in positives.items():
        same = {folded(texts[c]) for c in (anchor, *(c for c, _ in of_anchor))}
        expected += [f"{anchor} 0 {c} {sum(s <= score for _, s in of_anchor)}" for c, score in of_anchor]
        expected += [f"{anchor} 0 {c} 0" for c, _ in negatives.get(anchor, []) if folded(texts[c]) not in same]
    lines = (tmp_path / "q.txt").read_text().splitlines()
    assert lines == expected
    assert found.counts["rows"] == len(lines)
    assert {line[-1] for line in lines} >= {"0", "1", "3"}
    spaced = mo.build_index({"a b": "x", "c": "x"}, tmp_path / "I", metrics="rouge-l")
    mo.mine(spaced, "rouge-l", tmp_path / "s.parquet", text=True)
    with pytest.raises(mo.MetricOracleError, match="ids must be without white space for the shape trec; got 1 others"):
        mo.pairs(tmp_path / "s.parquet", shape="trec", out=tmp_path / "s.txt")


def test_no_positives_make_an_empty_file(mined, tmp_path):
    index, _, files = mined
    nothing = mo.mine(index, "rouge-l", tmp_path / "n.parquet", options=mo.SearchOptions(where="rouge-l>2"))
    assert (nothing.counts["pairs"], nothing.counts["without any"], nothing.quantiles) == (0, 60, {})
    mo.pairs(nothing.path, files["negatives"], shape="triplet", out=tmp_path / "t.parquet", index=index)
    assert parquet.read_table(tmp_path / "t.parquet").to_pylist() == []


def test_the_command_writes_and_reports(mined, oracle, tmp_path):
    index, _, files = mined
    out, sides = tmp_path / "t.parquet", (files["positives"], files["negatives"])
    more = ("--shape", "triplet", "--index", index.folder, "--out", out, "--format", "jsonl")
    code, printed, err = oracle("pairs", *sides, *more)
    found = mo.pairs(*sides, shape="triplet", out=tmp_path / "p.parquet", index=index)
    assert (code, json.loads(printed), err) == (0, found.counts, f"{out}: {found.summary()}\n")
    assert out.read_bytes() == found.path.read_bytes()
    code, _, err = oracle("pairs", *sides, "--shape", "triplet")
    assert (code, err) == (2, "error: pairs: --out must be given; got none. Add --out FILE.\n")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"shape": "tuple"}, "shape must be one of triplet, n-tuple"),
        ({"out": "t.txt"}, r"out must end with \.parquet"),
        ({"shape": "trec"}, r"out must end with \.txt or \.qrels"),
        ({"negatives": None}, "negatives must be given for the shape triplet"),
        ({"positives": "zz.parquet"}, "positives must be an existing file"),
        ({"index": None}, "index must be given for files without texts"),
        ({"negatives": "other"}, "positives, negatives and index must be of one index; they are of several"),
        ({"positives": "foreign"}, "positives must be a file that `mo.mine` wrote; got .* another file or damaged"),
        ({"positives": "altered"}, "positives must be a file that `mo.mine` wrote; got .* altered"),
        ({"positives": "cut"}, "positives must be a file that `mo.mine` wrote; got .* altered"),
        ({"positives": "damaged"}, "positives must be a file that `mo.mine` wrote; got .*damaged"),
    ],
)
def test_wrong_arguments(mined, given, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    index, texts, files = mined
    table = parquet.read_table(files["positives"])
    parquet.write_table(pa.table({"a": [1]}), "foreign.parquet")
    changed = table.set_column(table.column_names.index("rank"), "rank", pa.array([7] * table.num_rows))
    metadata = parquet.read_schema(files["positives"]).metadata
    with parquet.ParquetWriter("altered.parquet", table.schema.with_metadata(metadata)) as writer:
        for _ in range(5):
            writer.write_table(changed.replace_schema_metadata(metadata))
    parquet.write_table(table, "cut.parquet")
    raw = bytearray(files["positives"].read_bytes())
    raw[40:60] = bytes(20)
    (tmp_path / "damaged.parquet").write_bytes(raw)
    other = mo.build_index([*texts, "x"], "OTHER", metrics="rouge-l")
    mo.mine(other, "rouge-l", "other.parquet")
    wrong = {key: f"{value}.parquet" for key, value in given.items() if key in ("positives", "negatives") and value}
    usual = {"positives": files["positives"], "negatives": files["negatives"], "index": index, "shape": "triplet"}
    with pytest.raises(mo.MetricOracleError, match=line):
        mo.pairs(**{**usual, "out": "t.parquet", **given, **wrong})
    assert not (tmp_path / "t.parquet").exists()
