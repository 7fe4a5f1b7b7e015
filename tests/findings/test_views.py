"""Every view at 60, 80, 100 and 120 columns: no line is longer, and no number or id is cut or broken."""

import io
import re

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from metric_oracle.bench.view import bench_tables
from metric_oracle.commands.search import metric_record
from metric_oracle.findings.cells import scientific
from metric_oracle.findings.results import Scores
from metric_oracle.findings.views import answers_table, info_table, metrics_view, scores_table
from metric_oracle.metrics import METRICS
from metric_oracle.raters.alignment import align
from metric_oracle.raters.failure_modes import failure_modes
from metric_oracle.raters.fit_composite import fit_composite
from metric_oracle.raters.interrater import agreement
from metric_oracle.raters.names import agreement_cell
from metric_oracle.reading import reports
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.plan import retrieve
from metric_oracle.scores.expectation import expectation
from metric_oracle.scores.scoring import score
from metric_oracle.survey.export import status_table
from metric_oracle.synthetic.demo import DemoOutcome, MetricOutcome, demo_tables
from metric_oracle.tables.compare import compare
from metric_oracle.tables.crg import score_crg
from metric_oracle.tables.f1_chexbert import score_f1_chexbert

WIDTHS = pytest.mark.parametrize("width", [60, 80, 100, 120])


@pytest.fixture(scope="module")
def world(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("views")
    index = build_index(reports(corpus["train"], radgraph=corpus["train_graphs"]), folder / "I")
    return index, reports(corpus["test"], radgraph=corpus["test_graphs"]).load()


def shown(width, *views):
    """Return what is printed at a width, after the checks that hold for all views."""
    console = Console(width=width, file=io.StringIO(), color_system=None)
    for view in views:
        console.print(view)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    return text


def whole(text, tokens):
    """Raise unless each token stands in the text, between blanks or punctuation and not within another number."""
    lacking = [t for t in tokens if not re.search(rf"(?<![\w.]){re.escape(t)}(?![\w]|\.\d)", text)]
    assert lacking == []


@WIDTHS
def test_answers(world, width):
    index, queries = world
    for metric in ("bleu", "radgraph"):
        results = retrieve(index, queries, metric, k=3)
        texts = dict(zip(queries.ids, queries.texts, strict=True))
        text = shown(width, answers_table(results, texts))
        for record in results.table.to_pylist():
            line = f"  {record['rank']}  {record['score']:.4f}  {record['n_ties']:,} tie"
            (found,) = [
                row for row in text.splitlines() if row.startswith(line) and f"  {record['candidate_id']}" in row
            ][:1] or [None]
            assert found is not None, record
            assert " ".join(record["text"].split()) in " ".join(text.split())
        whole(text, queries.ids)
        assert all(" ".join(report.split()) in " ".join(text.split()) for report in queries.texts)
        assert not any(name in text for name in results.components)
        assert f"signature: {results.signature['metric']}|" in " ".join(text.split())
        text = shown(width, answers_table(results, components=True))
        assert all(name in text for name in results.components)


def test_one_answer_of_one_query_is_what_a_person_reads_first(world):
    index, _ = world
    results = retrieve(index, ["No acute cardiopulmonary process."], "rouge-l", k=2)
    text = shown(80, answers_table(results, {"0": "No acute cardiopulmonary process."}))
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[:4] == ["rouge-l oracle", "", "0", "  No acute cardiopulmonary process."]
    first, second = results.table.to_pylist()
    ties = f"{first['n_ties']} {'tie' if first['n_ties'] == 1 else 'ties'}"
    assert lines[4] == f"  1  {first['score']:.4f}  {ties}  {first['candidate_id']}"
    assert lines[5].startswith("     " + first["text"].split()[0])
    assert f"  2  {second['score']:.4f}" in "\n".join(lines)


@WIDTHS
def test_expectation(world, width):
    index, queries = world
    found = expectation(index, queries, "bleu")
    text = shown(width, *found.shown())
    names = [name for name in found.table.column_names if name not in ("query_id", "n")]
    whole(text, [*names, *queries.ids])
    for record in found.table.to_pylist():
        whole(text, [f"{record[name]:.4f}" for name in names])


@WIDTHS
def test_scores_and_info(world, corpus, width):
    index, _ = world
    scores = score(corpus["test"], corpus["test"], ["bleu-1", "bleu-2:coco", "rouge-l"], system="a long name " * 9)
    text = shown(width, scores_table(scores))
    whole(text, [*scores.metrics, *(f"{np.mean(scores.table[name].to_numpy()):.4f}" for name in scores.metrics)])
    varied = score(list("abcdef"), ["a", "b", "x", "d", "y", ""], ["rouge-l", "bleu-1"])
    text = shown(width, scores_table(varied))
    for low, high, _ in varied.interval().values():
        assert f"[{low:.4f} {high:.4f}]" in text
    assert "†" not in text
    assert "[1.0000 1.0000]†" in shown(width, scores_table(score(["a", "b"], ["a", "b"], "rouge-l")))
    assert "†" in shown(width, scores_table(score(["a"], ["b"], "rouge-l")))
    text = shown(width, info_table(index))
    assert index.fingerprint in re.sub(r"\s", "", text)


@WIDTHS
def test_alignment(rated, width):
    found = align(rated.long, rated.scores, directions={"poor": "higher"}, resamples=100)
    text = shown(width, *found.tables())
    whole(text, [*found.scores])
    for record in found.records():
        if record["rater"] != "raters among themselves" and not record["versus"]:
            if record["statistic"] in ("tau-b", "spearman") or record["rater"] == "mean of raters":
                assert f"{record['value']:z.3f}" in text
                assert f"[{record['low']:z.3f} {record['high']:z.3f}]" in text
        elif record["versus"] is None or record["statistic"] == "tau-b":
            assert f"[{record['low']:z.3f} {record['high']:z.3f}]" in text


@WIDTHS
def test_failure_modes(rated, width):
    found = failure_modes(rated.long)
    text = shown(width, *found.tables(), *found.brief())
    for record in found.records():
        whole(text, [scientific(record["p_value"]), scientific(record["study_p_value"])])
        assert f"{record['rate_ratio']:.2f} [{record['ratio_low']:.2f} {record['ratio_high']:.2f}]" in text
    for table in found.tables()[:2]:
        whole(text, [cell.lines[0] for _, cells in table.rows for cell in cells])


@WIDTHS
def test_crg_and_composite(rated, tmp_path, width):
    names = ["Enlarged Cardiomediastinum", "Lung Lesion", "x"]
    rng = np.random.default_rng(0)
    for name in "rp":
        lines = [",".join(["study_id", *names])]
        lines += [",".join([f"s{i}", *map(str, row)]) for i, row in enumerate(rng.integers(0, 2, (30, 3)))]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    scored = score_crg(tmp_path / "r.csv", tmp_path / "p.csv", uncertain="blank", resamples=200)
    text = shown(width, *scored.shown())
    for record in scored.records():
        whole(text, [str(record[name]) for name in ("tp", "fn", "fp", "tn") if record[name] is not None])
    whole(text, [f"{scored.score:.4f}", f"{scored.interval.low:.4f}", f"{scored.interval.high:.4f}"])
    assert all(name in " ".join(text.split()) for name in names[1:])

    fitted = fit_composite(rated.long, samples=rated.samples, metrics=["bleu-1"], name="of texts")
    text = shown(width, *fitted.tables())
    for record in fitted.records():
        whole(text, [record["metric"], *(f"{record[name]:z.4f}" for name in ("mean", "scale", "weight"))])


@WIDTHS
def test_metrics_f1_agreement_and_survey(rated, corpus, width):
    records = [metric_record(metric) for metric in METRICS.values()]
    text = shown(width, *metrics_view(records))
    assert len(text.splitlines()) < 40  # a screen
    heads = [line.strip() for line in text.splitlines() if line.startswith("reads ")]
    assert heads[:2] == ["reads the reports", "reads --radgraph GRAPHS.json"]
    assert len(set(heads)) == len(heads)
    whole(text, METRICS)
    text = " ".join(text.split())
    whole(text, [f"{record['metric']} (also {record['also']})" for record in records if record["also"]])
    whole(text, [f"{record['metric']} ↓" for record in records if record["better"] == "lower" and not record["also"]])

    scored = score_f1_chexbert(corpus["test_labels"], corpus["test_labels"], resamples=100)
    text = shown(width, *scored.shown())
    whole(text, [f"{value:.4f}" for value, _ in scored.values.values()])

    found = agreement(rated.long, resamples=100)
    text = shown(width, *found.tables())
    whole(text, [agreement_cell(record).split("\n")[0] for record in found.records()])

    raters = [("anna", 4, 0, "2026-11-22T05:01:02Z"), ("ben-of-the-long-name", 0, 96_000, None)]
    status = [
        {
            "rater": rater,
            "studies": n,
            "of_studies": 4,
            "open_cells": cells,
            "saves": 7,
            "last_save": at,
            "torn_bytes": 3,
            "unsure": "",
        }
        for rater, n, cells, at in raters
    ]
    text = shown(width, status_table(status))
    whole(text, ["anna", "4 of 4", "0 of 4", "96,000", "2026-11-22"])
    assert "05:01" in text


@WIDTHS
def test_demo_and_bench(width):
    metrics = [
        MetricOutcome(name, 0.91234, {"strong": 0.5, "weak": 0.25}, 0.1234, (0.5, "No acute process. " * 12))
        for name in ("radgraph", "radgraph:rg_er", "chexbert", "chexbert:labels")
    ]
    text = shown(width, *demo_tables(DemoOutcome(20_000, 500, "Small effusion.", metrics)))
    is_whole = "500 test reports, 20,000 training reports (made up)\n" in re.sub(" +\n", "\n", text)
    assert is_whole or width < 80  # the width of most terminals
    whole(text, ["radgraph:rg_er", "chexbert:labels", "0.912", "0.123", "0.500", "0.250"])
    assert (
        " ".join(text.split()).count(("No acute process. " * 12).strip()) == 1
    )  # what several metrics find is shown once
    assert "radgraph 0.500, radgraph:rg_er 0.500, chexbert 0.500, chexbert:labels 0.500" in " ".join(text.split())
    row = {
        "metric": "radgraph:rg_er-bar", "backend": "cpu", "reports": 185_538, "tests": 2_192, "seconds": 12.34,
        "p20": 11.0, "p80": 14.0, "pairs_per_s": 3.3e7, "queries_per_s": 177.0, "single_ms": 12.5, "load_s": 0.1,
        "compile_s": 20.0, "prepare_s": 0.5, "encode_s": 0.25, "search_s": 12.0, "peak_gb": 3.21,
    }  # fmt: skip
    text = shown(width, *bench_tables([row, {"metric": "crg", "backend": "cuda", "skipped": "no GPU"}]))
    whole(text, ["radgraph:rg_er-bar", "cpu", "3.21", "177", "33"])
    assert "-11% +13%" in text


def test_table_of_one_wide_column_with_long_names():
    """A name gives way before a number does: it is folded, and nothing of it is lost."""
    rng = np.random.default_rng(0)
    name = "a_system_with_a_name_that_is_longer_than_half_of_the_terminal_of_sixty_columns"
    signature = {
        "kind": "scores", "system": "x", "metrics": {"bleu-2": {}}, "references": "r", "n": 30, "version": "1",
    }  # fmt: skip
    systems = {
        n: Scores(pa.table({"query_id": [str(i) for i in range(30)], "bleu-2": rng.random(30)}), signature)
        for n in (name, "b")
    }
    compared = compare(systems, random="b", paired=[(name, "b")], resamples=100)
    text = shown(60, *compared.tables())
    assert name in re.sub(r"[^a-z_]", "", text)
    cell = compared.cells[name, "bleu-2"]
    assert f"[95% CI {cell.interval.low:.3f} {cell.interval.high:.3f}]" in text
    (difference,) = compared.differences
    ends = difference.interval
    assert f"{difference.difference:+z.3f} [{ends.low:.3f} {ends.high:.3f}]" in text


def test_the_mean_of_many_answers_stands_first(world):
    index, queries = world
    text = shown(
        80, answers_table(retrieve(index, queries, "bleu"), dict(zip(queries.ids, queries.texts, strict=True)))
    )
    lines = text.splitlines()
    assert lines[0].strip() == "bleu-2 oracle"
    assert lines[1].startswith(f"{len(queries.ids)} test reports, mean best score ")
    assert text.count("mean best score") == 1
    assert "signature: bleu-2|" in " ".join(" ".join(lines[-2:]).split())


def test_paired_differences_are_one_table_at_80_columns():
    """The names of the rows are folded before a column goes to a second table."""
    rng, ids = np.random.default_rng(0), [str(i) for i in range(30)]
    signature = {"kind": "scores", "system": "x", "metrics": {"bleu-2": {}}, "references": "r", "version": "1"}
    systems = {
        name: Scores(pa.table({"query_id": ids, "bleu-2": rng.random(30)}), signature)
        for name in ("Strong", "bleu-2 oracle")
    }
    tables = compare(systems, paired=[("Strong", "bleu-2 oracle")], resamples=100).tables()
    text = shown(80, *tables)
    assert len(re.findall(r"^ {10,}.*Intervals *$", text, re.MULTILINE)) == 1
    (line,) = [line for line in text.splitlines() if line.lstrip().startswith("Strong −")]
    assert line.split()[-1] in ("yes", "no")
    assert "p adjusted" in " ".join(tables[-1].columns)
