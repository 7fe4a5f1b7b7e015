import json
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.base.reprs import OneLine
from metric_oracle.findings.results import Scores
from metric_oracle.kernels.sum.score import composite
from metric_oracle.metrics import get_metric
from metric_oracle.statistics import adjusted, interval, overlap, paired_test
from metric_oracle.tables.compare import compare


def layout(comparison):
    """Return the tables of a comparison and the notes, which are under the last one."""
    tables = comparison.tables()
    return tables, tables[-1].notes


# Tables S5, S6 and S7 of Yu et al. (Patterns 2023): printed averages, and RadCliQ's.
METRICS = ("bleu-2", "bertscore", "chexbert", "radgraph", "radcliq")
PUBLISHED = json.loads((Path(__file__).parents[1] / "golden/published_tables.json").read_text(encoding="utf-8"))["rows"]


MODULES = (
    *(f"raters.{name}" for name in ("interrater", "alignment", "metric_comparison", "failure_modes", "fit_composite")),
    *(f"tables.{name}" for name in ("comparison", "crg", "f1_chexbert")),
)


def made(ids=None, **changes):
    """Return scores: `bleu_2=[...]` is a metric's column, everything else an entry of the signature."""
    columns = {name.replace("_", "-"): changes.pop(name) for name in list(changes) if isinstance(changes[name], list)}
    n = len(next(iter(columns.values()), []))
    ids = [f"s{i}" for i in range(n)] if ids is None else ids
    table = pa.table({"query_id": ids, **{m: pa.array(v, pa.float64()) for m, v in columns.items()}})
    signature = {"kind": "scores", "system": "x", "metrics": {m: {"options": {"order": 2}} for m in columns}}
    return Scores(table, signature | {"references": "abc", "n": n, "version": "0.1.0"} | changes)


def around(mean, *, n=8, seed=0):
    """Return scores whose mean is `mean` up to rounding."""
    noise = np.random.default_rng(seed).normal(0, 0.05, n)
    return list(mean + noise - noise.mean())


def published(name):
    bleu, bertscore, chexbert, radgraph, _ = PUBLISHED[name]
    columns = [around(mean, seed=place) for place, mean in enumerate((bleu, bertscore, chexbert, radgraph))]
    terms, intercept = get_metric("radcliq").terms, get_metric("radcliq").intercept
    assert list(terms) == ["radgraph", "bertscore", "chexbert"]
    radcliq = [composite((g, b, c), terms.values(), intercept) for _, b, c, g in zip(*columns, strict=True)]
    return made(**dict(zip(("bleu_2", *METRICS[1:]), [*columns, radcliq], strict=True)))


def test_radcliq_of_the_published_rows():
    table = compare({name: published(name) for name in PUBLISHED}, resamples=100)
    assert [column.metric for column in table.columns] == list(METRICS)
    rows = dict(layout(table)[0][0].rows)
    for name, printed in PUBLISHED.items():
        found = [table.cells[name, metric].mean for metric in METRICS]
        assert found[:4] == pytest.approx(printed[:4], abs=1e-12)
        assert found[4] == pytest.approx(printed[4], abs=0.0015)
        assert [entry.lines[0] for entry in rows[name][:4]] == [f"{mean:.3f}" for mean in printed[:4]]
        assert float(rows[name][4].lines[0]) == pytest.approx(printed[4], abs=0.0015)


def test_cells_in_the_papers_layout():
    table = compare({"a": made(bleu_2=[0.0, 0.5, 1.0]), "b": made(bleu_2=[0.25, 0.5, 0.5])}, resamples=500, seed=4)
    low, high, _ = interval([0.0, 0.5, 1.0], resamples=500, seed=4)
    (block, *others), notes = layout(table)
    assert others == []
    assert block.columns == ["BLEU-2 ↑"]
    name, (entry,) = block.rows[0]
    assert name == "a"
    assert " ".join(entry.lines) == f"0.500 [95% CI {low:.3f} {high:.3f}] Range [0.000, 1.000]"
    assert entry.best
    assert not block.rows[1][1][0].best
    assert block.rows[2][0] == "Studies"
    assert block.rows[2][1][0].lines == ("3",)
    assert notes == [
        "Intervals: BCa bootstrap over studies, 500 resamples, seed 4.", "Bold: best average.",
        "Fewer than 20 studies (bleu-2 3): the intervals are too short.",
    ]  # fmt: skip


def test_means_are_over_the_studies_that_all_can_score():
    a = made(bleu_2=[0.0, 1.0, None, 0.5, 0.5], radgraph=[0.1, 0.2, 0.3, 0.4, 0.5], rouge_l=[0.0] * 5)
    b = made(bleu_2=[None, 0.25, None, 0.25, 0.75], radgraph=[0.5, 0.4, 0.3, 0.2, 0.1])
    table = compare({"a": a, "b": b}, resamples=100, paired=[("a", "b")])
    bleu, radgraph = table.columns
    assert (bleu.metric, bleu.n, radgraph.metric, radgraph.n, table.studies) == ("bleu-2", 3, "radgraph", 5, 5)
    cell = table.cells["a", "bleu-2"]
    assert (cell.mean, cell.minimum, cell.maximum, cell.unscorable) == (2 / 3, 0.5, 1.0, 1)
    assert table.cells["b", "bleu-2"].unscorable == 2
    assert table.left_out == {"a": ["rouge-l"]}
    assert table.differences[0].difference == pytest.approx((0.75 + 0.25 - 0.25) / 3)
    notes = layout(table)[1]
    assert "Averages are over the studies that every system can score, of 5. Unscorable: BLEU-2: a 1, b 2." in notes
    assert "Not in the table, because not every system has it: a: rouge-l." in notes


def test_studies_are_joined_on_ids():
    ids, scores = ["3", "1", "2", "4"], [0.3, 0.1, 0.2, 0.4]
    order = [2, 0, 3, 1]
    a, b = made(ids=ids, bleu_2=scores), made(ids=ids, bleu_2=[0.9, 0.8, 0.1, 0.0])
    moved = made(ids=[ids[i] for i in order], bleu_2=[[0.9, 0.8, 0.1, 0.0][i] for i in order])
    one, other = (compare({"a": a, "b": x}, paired=[("a", "b")], resamples=100) for x in (b, moved))
    assert one == other


def test_best_follows_the_direction_and_leaves_out_oracles():
    systems = {
        "oracle": made(bleu_2=[0.9, 1.0], radcliq=[-1.0, -1.4]),
        "a": made(bleu_2=[0.2, 0.4], radcliq=[0.5, 0.7]),
        "b": made(bleu_2=[0.4, 0.2], radcliq=[0.1, 0.7]),
        "random": made(bleu_2=[0.0, 0.1], radcliq=[1.5, 2.5]),
    }

    def best(table, metric):
        return [name for name in table.systems if table.cells[name, metric].best]

    table = compare(systems, random="random", oracles={"bleu": "oracle"}, resamples=100)
    assert best(table, "bleu-2") == ["a", "b"]
    assert best(table, "radcliq") == ["b"]
    assert "Bold: best average of the systems that are no oracle and no baseline." in layout(table)[1]
    assert best(compare(systems, resamples=100), "radcliq") == ["oracle"]  # nothing says that it is one
    few = {name: systems[name] for name in ("oracle", "random")}
    table = compare(few, random="random", oracles={"bleu": "oracle"}, resamples=100)
    assert best(table, "bleu-2") == []
    assert not any("Bold" in note for note in layout(table)[1])


@pytest.mark.parametrize("sign", [1, -1])
def test_the_best_is_marked_where_random_is_better(sign):
    """All models are worse than chance, under a metric and under its mirror, of which lower is better."""
    name = "bleu_2" if sign > 0 else "radcliq"
    scores = {"a": [0.2, 0.3], "b": [0.3, 0.3], "random": [0.5, 0.7]}
    systems = {row: made(**{name: [sign * value for value in values]}) for row, values in scores.items()}
    table = compare(systems, random="random", resamples=100)
    assert [row for row in systems if table.cells[row, table.columns[0].metric].best] == ["b"]


def test_a_p_value_above_one_thousandth_is_printed():
    """All 2^13 assignments of 13 studies are counted: p is 10 and 8 of 8,192."""
    base = np.linspace(0.2, 0.8, 13)
    shown = []
    for least in (0.04, 0.03):
        gains = np.arange(1, 14) / 100
        gains[0] = -least
        systems = {"a": made(bleu_2=list(base + gains)), "b": made(bleu_2=list(base))}
        table = compare(systems, paired=[("a", "b")])
        tests = layout(table)[0][-1]
        ((_, cells),) = tests.rows
        shown.append((table.differences[0].p_value, cells[tests.columns.index("p")].lines))
    assert shown == [(10 / 2**13, ("0.001",)), (8 / 2**13, ("<0.001",))]


@pytest.mark.parametrize("system", ["bleu-2 oracle", "most frequent", "most-frequent", "random", "expectation"])
def test_files_of_oracles_and_baselines_do_not_compete(system):
    """Their files say what they are, whatever the rows are called."""
    yardstick = made(bleu_2=[0.9, 1.0, 0.8], system=system)
    table = compare({"mine": made(bleu_2=[0.2, 0.4, 0.1]), "other": yardstick}, resamples=100)
    assert (table.competing, table.cells["mine", "bleu-2"].best) == (["mine"], True)
    assert not table.cells["other", "bleu-2"].best
    alone = compare({"one": yardstick, "two": made(bleu_2=[0.1, 0.1, 0.3], system="identity")}, resamples=100)
    assert not any(cell.best for cell in alone.cells.values())
    assert not any(entry.best for _, entries in layout(alone)[0][0].rows for entry in entries)
    near = {"nearest": made(bleu_2=[0.1, 0.1, 0.3], system="nearest"), "an oracle": made(bleu_2=[0, 0, 1.0])}
    assert compare(near, resamples=100).competing == ["nearest", "an oracle"]


def test_percentage_change_as_in_figure_5():
    # Supplementary tables 4 and 5 of the preprint: BLEU 0.048 to 0.566, predicted errors 3.266 to 3.088.
    systems = {
        "random": made(bleu_2=around(0.048), radcliq=around(3.266), bertscore=around(-0.1)),
        "other": made(bleu_2=around(0.566), radcliq=around(3.088), bertscore=around(0.1)),
    }
    table = compare(systems, random="random", resamples=100)
    assert table.cells["other", "bleu-2"].percent_change == pytest.approx(100 * 0.518 / 0.048)
    assert table.cells["other", "radcliq"].percent_change == pytest.approx(100 * 0.178 / 3.266)
    assert table.cells["other", "bertscore"].percent_change is None
    assert table.cells["random", "bleu-2"].percent_change == 0
    blocks, notes = layout(table)
    assert blocks[1].title == "Percentage change from random; where lower is better, percentage decrease"
    assert [entry.lines[0] for entry in blocks[1].rows[1][1]] == ["+1079.2 %", "+5.5 %", "–"]
    assert "No percentage of an average that is not above 0: BERTScore." in notes
    assert any(note.startswith("RadCliQ is centred: 0 is not a report without errors") for note in notes)
    assert any(note.startswith("BERTScore: the cosine of unrelated reports is far from 0") for note in notes)


@pytest.mark.parametrize(
    ("metric", "said"),
    [("radcliq:v0", ["RadCliQ"]), ("bertscore:recall", ["BERTScore recall"]), ("bleu-2", []), ("chexbert:labels", [])],
)
def test_what_a_percentage_is_not(metric, said):
    systems = {name: made(**{metric: around(middle)}) for name, middle in (("a", 0.4), ("b", 0.5))}
    notes = [note for note in layout(compare(systems, random="a", resamples=100))[1] if "not percentages of" in note]
    assert [note.split(":")[0].split(" is")[0] for note in notes] == [name.split(":")[0] for name in said]


def test_shown_in_one_line():
    table = compare({"a": made(bleu_2=around(0.4)), "b": made(bleu_2=around(0.5))}, resamples=100)
    assert repr(table) == "<Comparison: 2 systems, 8 studies: bleu-2>"
    for module in MODULES:
        kinds = vars(import_module(f"metric_oracle.{module}")).values()
        shown = [kind for kind in kinds if isinstance(kind, type) and hasattr(kind, "summary") and kind is not OneLine]
        assert shown
        assert all(kind.__repr__ is OneLine.__repr__ for kind in shown), shown


def test_a_comparison_goes_where_other_results_go(tmp_path):
    """A table in a notebook, frames, and files, as `Results` and `Scores` have them."""
    systems = {"<a>": made(bleu_2=[0.0, 0.5, 1.0] * 7), "b": made(bleu_2=[0.25, 0.5, 0.5] * 7)}
    found = compare(systems, paired=[("<a>", "b")], resamples=100)
    assert found.table.to_pylist() == found.records()
    assert found.to_polars()["p_value"].to_list() == [None, None, found.differences[0].p_value]
    cell = found.cells["<a>", "bleu-2"]
    shown = found._repr_html_()
    ends = f"[95% CI {cell.interval.low:.3f} {cell.interval.high:.3f}]"
    assert re.search(rf">&lt;a&gt;</th><td [^>]*><b>0\.500</b><br>{re.escape(ends)}<br>Range ", shown)
    for ending in ("md", "tex", "csv", "parquet", "jsonl"):
        found.write(tmp_path / f"found.{ending}")
        assert (tmp_path / f"found.{ending}").stat().st_size
    with pytest.raises(InputError, match=r"must end with \.md, .*, \.svg or \.pdf; got .*x\.txt"):
        found.write(tmp_path / "x.txt")
    pytest.importorskip("pandas")
    frame = found.to_pandas()
    assert list(frame["system"]) == ["<a>", "b", "<a>"]
    assert frame["mean"][0] == found.cells["<a>", "bleu-2"].mean


def test_results_with_a_table_have_a_view_in_a_notebook(tmp_path):
    (tmp_path / "labels.csv").write_text("study_id,Edema,Pneumonia\na,1,0\nb,0,1\n")
    scored = mo.score_crg(tmp_path / "labels.csv", tmp_path / "labels.csv", uncertain="blank", resamples=100)
    assert re.search(r"<th [^>]*>label</th>", scored._repr_html_())
    pytest.importorskip("pandas")
    assert list(scored.to_pandas().columns) == scored.table.column_names


def test_share_of_the_way():
    systems = {
        "random": made(bleu_2=[0.1, 0.3], radcliq=[1.5, 2.5], rouge_l=[0.1, 0.2]),
        "a": made(bleu_2=[0.5, 0.5], radcliq=[1.0, 1.0], rouge_l=[0.1, 0.2]),
        "B": made(bleu_2=[0.9, 0.7], radcliq=[3.0, 3.0], rouge_l=[0.1, 0.2]),
        "R": made(bleu_2=[0.0, 0.1], radcliq=[0.0, 0.0], rouge_l=[0.1, 0.2]),
    }
    table = compare(systems, random="random", oracles={"bleu": "B", "radcliq": "R"}, resamples=100)
    share = {name: [table.cells[name, m].share for m in ("bleu-2", "radcliq")] for name in systems}
    assert share["random"] == [0, 0]
    assert share["a"] == pytest.approx([0.5, 0.5])
    assert share["B"] == pytest.approx([1, -0.5])
    assert share["R"] == pytest.approx([-0.25, 1])
    assert table.cells["a", "rouge-l"].share is None
    block = layout(table)[0][2]
    assert block.title == "Share of the way from random to the metric's oracle"
    assert block.columns == ["BLEU-2 ↑", "RadCliQ (predicted errors) ↓"]
    assert [entry.lines[0] for entry in block.rows[2][1]] == ["100.0 %", "-50.0 %"]


def test_differences():
    rng = np.random.default_rng(0)
    a, b, c = rng.beta(1, 3, (3, 40)) + np.array([[0.3], [0.0], [0.05]])
    systems = {name: made(bleu_2=list(x), radgraph=list(x**2)) for name, x in (("a", a), ("b", b), ("c", c))}
    table = compare(systems, paired=[("a", "b"), ("b", "c")], resamples=300, seed=2)
    assert [(d.a, d.b, d.metric) for d in table.differences] == [
        ("a", "b", "bleu-2"), ("b", "c", "bleu-2"), ("a", "b", "radgraph"), ("b", "c", "radgraph"),
    ]  # fmt: skip
    first = table.differences[0]
    test = paired_test(a, b, resamples=300, seed=2)
    assert (first.difference, *first.interval, first.p_value) == pytest.approx(
        (test.difference, *test.interval, test.p_value), abs=1e-15
    )
    # One family of all pairs and metrics: of one metric alone the adjusted p-values would be others.
    p_values = [d.p_value for d in table.differences]
    assert [d.p_adjusted for d in table.differences] == adjusted(p_values)
    assert [d.p_adjusted for d in table.differences[:2]] != adjusted(p_values[:2])
    ends = [table.cells[name, "bleu-2"].interval for name in "abc"]
    assert [d.overlap for d in table.differences[:2]] == [overlap(*ends[:2]), overlap(*ends[1:])] == [False, True]
    block = layout(table)[0][-1]
    assert [name for name, _ in block.rows[:2]] == ["a − b, BLEU-2 ↑", "b − c, BLEU-2 ↑"]
    assert [row[-1].lines for _, row in block.rows[:2]] == [("no",), ("yes",)]
    family = "over one family, the 4 tests of this table: 2 pairs of systems, each once, under 2 metrics. "
    assert any(family in note for note in layout(table)[1])
    assert table.signature["adjusted_over"] == 4
    assert table.signature["test"] == {"name": "permutation", "resamples": 300, "seed": 2}


def test_legacy_intervals_are_named_so():
    systems = {"a": made(bleu_2=around(0.5)), "b": made(bleu_2=around(0.4, seed=1))}
    table = compare(systems, method="legacy-yu2023", paired=[("a", "b")])
    (block, differences), notes = layout(table)
    assert block.title == "Average, legacy interval and range of metric scores"
    assert block.rows[0][1][0].lines[1].startswith("[legacy 0.4")
    assert notes[0].startswith("Intervals: legacy-yu2023, the t interval of the mean of one sample of 5,000 scores")
    assert "that code prints the mean of the sample, the middle of the interval, and this table the average" in notes[0]
    assert notes[0].endswith("It is not a confidence interval of the average.")
    assert re.fullmatch(r"\+[\d.]+ \[-?[\d.]+ [\d.]+\]", differences.rows[0][1][0].lines[0])
    assert "10,000 resamples. The interval of a difference has what its test does not reject" in notes[-1]
    assert table.signature["interval"]["resamples"] == 5000


def test_equal_scores_of_one_system_are_marked():
    table = compare({"identity": made(bleu_2=[1.0] * 4), "a": made(bleu_2=[0.5, 0.2, 0.2, 0.1])}, resamples=100)
    block, notes = layout(table)[0][0], layout(table)[1]
    assert block.rows[0][1][0].lines[1] == "[95% CI 1.000 1.000]†"
    assert block.rows[1][1][0].lines[1].endswith("]")
    assert any(note.startswith("† The values are equal, or nearly, or too few") for note in notes)


def test_distinct_texts_where_known():
    systems = {"a": made(bleu_2=[0.1, 0.2], distinct_texts=1), "b": made(bleu_2=[0.3, 0.2])}
    block = layout(compare(systems, resamples=100))[0][0]
    assert block.columns == ["BLEU-2 ↑", "Distinct texts"]
    assert [row[1][1].lines for row in block.rows] == [("1",), ("–",), ("",)]


def test_signature_and_progress():
    steps = []
    systems = {"a": made(bleu_2=[0.1, 0.2], system="model a"), "b": made(bleu_2=[0.3, 0.2], system="model b")}
    table = compare(systems, random="a", paired=[("b", "a")], seed=9, progress=lambda *step: steps.append(step))
    assert table.signature == {
        "kind": "table",
        "systems": {"a": "model a", "b": "model b"},
        "metrics": {"bleu-2": {"options": {"order": 2}}},
        "references": "abc",
        "scores_version": "0.1.0",
        "interval": {"method": "bca", "level": 0.95, "resamples": 10000, "seed": 9},
        "random": "a",
        "oracles": {},
        "paired": [["b", "a"]],
        "test": {"name": "permutation", "resamples": 10000, "seed": 9},
        "adjusted_over": 1,
        "version": table.signature["version"],
    }
    assert steps == [("bleu-2", 0, 2), ("b against a, bleu-2", 1, 2)]


def test_records_have_every_number():
    systems = {"a": made(bleu_2=[0.1, 0.2, None]), "b": made(bleu_2=[0.3, 1 / 3, 0.5])}
    table = compare(systems, random="a", oracles={"bleu-2": "b"}, paired=[("b", "a")], resamples=100)
    first, second, difference = table.records()
    assert first.keys() == second.keys() == difference.keys()
    cell = table.cells["b", "bleu-2"]
    assert second == {
        "system": "b", "versus": None, "metric": "bleu-2", "direction": "higher", "n": 2, "mean": cell.mean,
        "interval_low": cell.interval.low, "interval_high": cell.interval.high, "degenerate": False, "minimum": 0.3,
        "maximum": 1 / 3, "unscorable": 0, "best": False, "nonzero": 2, "effective": 2.0,
        "percent_change_from_random": cell.percent_change, "percent_change_low": cell.change_interval.low,
        "percent_change_high": cell.change_interval.high, "share_of_way_to_oracle": 1.0, "share_low": None,
        "share_high": None, "p_value": None, "p_adjusted": None, "intervals_overlap": None,
    }  # fmt: skip
    assert first["unscorable"] == 1
    assert (difference["system"], difference["versus"]) == ("b", "a")
    assert difference["mean"] == table.differences[0].difference
    assert difference["p_value"] == 0.5


def test_public_name():
    assert mo.compare is compare


# Cells that say nothing end no table


def test_a_metric_with_one_score_everywhere_is_marked():
    flat = {"a": made(bleu_2=[0.5, 0.5], rouge_l=[0.1, 0.2]), "b": made(bleu_2=[0.5, 0.5], rouge_l=[0.1, 0.3])}
    table = compare(flat, random="a", oracles={"bleu": "b"}, paired=[("a", "b")], resamples=100)
    assert all(table.cells[name, "bleu-2"].interval == (0.5, 0.5, True) for name in flat)
    assert table.cells["b", "bleu-2"].share is None
    assert table.differences[0].interval.degenerate
    assert table.differences[0].p_value == 1
    notes = layout(table)[1]
    assert "No share where the oracle is not better than random: BLEU-2." in notes


def test_an_oracle_below_random_has_no_share():
    table = compare(GOOD, random="a", oracles={"bleu": "b"}, resamples=100)
    assert table.cells["b", "bleu-2"].share is None
    assert [entry.lines for entry in layout(table)[0][2].rows[1][1]] == [("–",)]


def test_a_metric_that_too_few_studies_have_is_left_out():
    few = {name: made(bleu_2=[0.5, None, None], rouge_l=[0.1, 0.2, 0.4]) for name in "ab"}
    table = compare(few, resamples=100)
    assert [column.metric for column in table.columns] == ["rouge-l"]
    assert table.too_few == {"bleu-2": 1}
    assert "Not in the table, because fewer than 2 studies have it of every system: bleu-2 (1)." in layout(table)[1]


# Warnings, and the intervals of ratios


def test_intervals_that_rest_on_few_studies_are_named():
    """Seven scores that are not 0; skewed scores; three differences that are not 0."""
    rng = np.random.default_rng(3)
    sparse = np.where(np.arange(60) < 7, 0.5, 0.0)
    scores = rng.beta(2, 3, 60)
    systems = {
        "a": made(bleu_2=list(sparse)), "b": made(bleu_2=list(scores)), "c": made(bleu_2=list(np.exp(8 * scores))),
        "d": made(bleu_2=list(scores + 0.2 * np.isin(np.arange(60), [3, 5, 8]))),
    }  # fmt: skip
    table = compare(systems, paired=[("d", "b"), ("b", "c")], resamples=100)
    skewed = [60 / stats.skew(column) ** 2 for column in (np.exp(8 * scores), scores - np.exp(8 * scores))]
    assert 1 < min(skewed) < max(skewed) < 20
    assert table.cells["b", "bleu-2"].effective == 60
    assert [d.effective for d in table.differences] == pytest.approx([3, skewed[1]])
    assert table.warnings() == [
        f"Too few studies for these intervals: bleu-2: a 7, c {skewed[0]:.0f}. Effective studies are those whose score "
        "is not 0, or n / skewness² if fewer; below 20 an interval is too short.",
        f"Too few studies for these intervals: bleu-2: d − b 3, b − c {skewed[1]:.0f}. Effective studies are those "
        "whose difference is not 0, or n / skewness² if fewer; below 20 an interval is too short.",
    ]
    assert table.warnings()[1:] == table.short_differences()
    assert table.warnings()[0] in layout(table)[1]


def test_a_paired_interval_and_its_p_value_agree():
    """Also of CRG and of corpus BLEU, under every method, for differences on either side of significance."""
    rng = np.random.default_rng(8)
    crossed = []
    for repetition in range(40):
        a = rng.beta(2, 3, 30)
        b = a + np.where(rng.random(30) < 0.3, rng.normal(0.05, 0.1, 30), 0)
        systems = {"a": made(bleu_2=list(a)), "b": made(bleu_2=list(b))}
        (one,) = compare(systems, paired=[("a", "b")], resamples=200, seed=repetition).differences
        assert (one.interval.low <= 0 <= one.interval.high) == (one.p_value > 0.05)
        crossed.append(one.p_value > 0.05)
    assert 0 < sum(crossed) < 40


def test_intervals_of_change_and_share_are_scipys():
    rng = np.random.default_rng(4)
    random, a, oracle = rng.beta(2, 6, (3, 40)) + np.array([[0.0], [0.2], [0.5]])
    systems = {"random": made(bleu_2=list(random)), "a": made(bleu_2=list(a)), "B": made(bleu_2=list(oracle))}
    table = compare(systems, random="random", oracles={"bleu": "B"}, resamples=300, seed=5)

    def mean(x, axis):
        return x.mean(axis=axis)

    for found, statistic in (
        (table.cells["a", "bleu-2"].change_interval, lambda r, s, o, axis: 100 * (mean(s, axis) / mean(r, axis) - 1)),
        (
            table.cells["a", "bleu-2"].share_interval,
            lambda r, s, o, axis: (mean(s, axis) - mean(r, axis)) / (mean(o, axis) - mean(r, axis)),
        ),
    ):
        theirs = stats.bootstrap(
            (random, a, oracle), statistic, paired=True, n_resamples=300, rng=np.random.default_rng(5)
        ).confidence_interval
        assert found[:2] == pytest.approx((theirs.low, theirs.high), rel=1e-10)
    assert table.cells["random", "bleu-2"].change_interval is table.cells["B", "bleu-2"].share_interval is None
    low, high, _ = table.cells["a", "bleu-2"].share_interval
    assert layout(table)[0][2].rows[1][1][0].lines[1] == f"[{100 * low:.1f} {100 * high:.1f}]"


def test_no_interval_where_a_resample_has_no_such_number():
    a, b = [0.1, -0.09, 0.02, 0.0], [0.4, 0.5, 0.6, 0.3]
    table = compare({"a": made(bleu_2=a), "b": made(bleu_2=b)}, random="a", resamples=200)
    assert table.cells["b", "bleu-2"].percent_change > 0
    assert table.cells["b", "bleu-2"].change_interval is None


def test_coverage_of_the_interval_of_a_share():
    """Correlated scores of 60 studies: the share of the way is one half."""
    rng = np.random.default_rng(6)
    held = 0
    for repetition in range(200):
        common = rng.gamma(2, 0.05, 60)
        columns = [common + shift + rng.normal(0, 0.05, 60) for shift in (0.1, 0.3, 0.5)]
        rows = {name: made(bleu_2=list(x)) for name, x in zip("rao", columns, strict=True)}
        table = compare(rows, random="r", oracles={"bleu": "o"}, resamples=200, seed=repetition)
        low, high, _ = table.cells["a", "bleu-2"].share_interval
        held += low <= 0.5 <= high
    assert 180 <= held <= 199  # 190 expected, with a standard error of 3


# What is refused


GOOD = {"a": made(bleu_2=[0.1, 0.2, 0.4]), "b": made(bleu_2=[0.3, 0.2, 0.1])}


def other(**changes):
    return {**GOOD, "b": made(**{"bleu_2": [0.3, 0.2, 0.1], **changes})}


@pytest.mark.parametrize(
    ("systems", "options", "match"),
    [
        ({}, {}, "systems must have at least one name with scores; got none. Write files"),
        (other(kind="results"), {}, "the file of 'b' is not a file of scores; its kind is 'results'. Write one"),
        (other(kind=None), {}, "the file of 'b' is not a file of scores; its kind is None."),
        (other(metrics=7), {}, "the file of 'b' is not a file of scores; its kind is 'scores'."),
        (
            other(metrics={"bleu-2": {}, "radgraph": {}}),
            {},
            "the file of 'b' has no column, or several, for radgraph.",
        ),
        (
            {"a": made(bleu_2=[0.1, 0.2], rouge_l=[0.1, 0.2]), "b": made(radgraph=[0.1, 0.2])},
            {},
            "the systems have no metric in common: a: bleu-2, rouge-l; b: radgraph. Score them",
        ),
        (
            other(metrics={"bleu-2": {"options": {"order": 4}}}),
            {},
            r"'b' was not scored as 'a': bleu-2, .*, order is 4, not 2\.",
        ),
        (
            other(metrics={"bleu-2": {"options": {"order": 2}, "encoder": {"sha256": "f" * 64}}}),
            {},
            r"'b' was not scored as 'a': bleu-2, encoder is \{'sha256': 'f+\.\.\., not None\.",
        ),
        (
            other(references="xyz"),
            {},
            r"'a' and 'b' are scored on the same studies against different reference texts\. Score both",
        ),
        (
            other(version="0.2.0"),
            {},
            r"'b' was not scored as 'a': version is 0\.2\.0, not 0\.1\.0\.",
        ),
        (
            other(ids=["s0", "s1", "s9"]),
            {},
            r"'a' has scores of 3 studies and 'b' of 3: 2 in both, 1 only in 'a' \('s2'\), 1 only in 'b' \('s9'\)\. "
            r"Write the references of the 2 to a file, and score both against it with ",
        ),
        (
            other(references="xyz", ids=["s0", "s1", "s9"]),
            {},
            r"'a' has scores of 3 studies and 'b' of 3: 2 in both, 1 only in 'a' \('s2'\), 1 only in 'b' \('s9'\)\.",
        ),
        (
            {**GOOD, "b": made(bleu_2=[0.3, 0.2])},
            {},
            r"'a' has scores of 3 studies and 'b' of 2: 2 in both, 1 only in 'a' \('s2'\), 0 only in 'b'\. Write",
        ),
        (
            other(ids=["s0", "s1", "s1"]),
            {},
            r"the scores of 'b' have 1 ids more than once \('s1'\)\. Drop",
        ),
        (
            {"a": made(bleu_2=[0.1])},
            {},
            "the systems have 1 studies. One study has no interval; score",
        ),
        ({"a": made(bleu_2=[])}, {}, "the systems have 0 studies."),
        (
            {"z": made(bleu_2=[]), **GOOD},
            {},
            r"'z' has scores of 0 studies and 'a' of 3: 0 in both, .*, 3 only in 'a' \(.*\)\. Check that both have",
        ),
        (
            other(bleu_2=[0.5, None, None]),
            {},
            r"bleu-2 has 1 of 3 studies that every system can score \(unscorable: b 2\), and needs 2\. Score",
        ),
        (
            other(bleu_2=[0.5, float("nan"), 0.1]),
            {},
            r"the scores of 'b' under bleu-2 have NaN or infinity\. Score it again",
        ),
        (
            other(bleu_2=[0.5, float("-inf"), None]),
            {},
            r"the scores of 'b' under bleu-2 have NaN or infinity",
        ),
        (GOOD, {"random": "c"}, "random must name systems of the table, 'a', 'b'; got 'c'. Correct the name"),
        (GOOD, {"random": "a", "oracles": {"bleu": "c"}}, "oracles must name systems of the table, 'a', 'b'; got 'c'"),
        (GOOD, {"paired": [("a", "c")]}, "paired must name systems of the table, 'a', 'b'; got 'c'"),
        (GOOD, {"paired": [("a", "a")]}, "paired must name two systems; got 'a' twice. Name another"),
        (GOOD, {"paired": [("a", "b"), ("b", "a")]}, "`paired` names a pair twice. Name it once: a repeated"),
        (
            GOOD,
            {"oracles": {"bleu": "a"}},
            "`oracles` need the row of random reports, at which the share of the way to the oracle begins.",
        ),
        (
            GOOD,
            {"random": "b", "oracles": {"bleu": "a", "bleu-2": "a"}},
            "oracles must name each metric once; got bleu, bleu-2. Keep one row",
        ),
        (
            GOOD,
            {"random": "b", "oracles": {"rouge-l": "a"}},
            "oracles must name metrics that all systems have, bleu-2; got 'rouge-l'. Leave this oracle out.",
        ),
        (GOOD, {"random": "b", "oracles": {"blue": "a"}}, "metric must be one of .*; got 'blue'. Did you mean"),
    ],
)
def test_refusals(systems, options, match):
    with pytest.raises(InputError, match="^compare: " + match):
        compare(systems, **options)


def test_ids_with_blanks_are_shown_and_texts_described():
    with pytest.raises(InputError, match=r"1 only in 'b' \('Case No\. 12, left'\)"):
        compare(other(ids=["s0", "s1", "Case No. 12, left"]))
    with pytest.raises(InputError, match=r"1 only in 'b' \(a text of 17 characters\)"):
        compare(other(ids=["s0", "s1", "Zzsecret\nfinding."]))


def test_interval_options_are_checked():
    with pytest.raises(InputError, match=r"^compare: method must be one of bca"):
        mo.compare({"a": "a.csv"}, method="basic")
    with pytest.raises(InputError, match=r"^compare: resamples must be left out with legacy-yu2023"):
        compare(GOOD, method="legacy-yu2023", resamples=1000)


@pytest.mark.parametrize("metric", ["bleu", "rouge-l"])
def test_equal_draws_are_the_score_of_one(metric, tmp_path):
    """A corpus of one text: the mean of random draws is its score but for rounding."""
    rng = np.random.default_rng(0)
    words = ["no", "acute", "edema", "small", "left", "effusion", "clear", "lungs", "are"]
    references = {f"s{i}": " ".join(rng.choice(words, 7)) for i in range(14)}
    text = "no small left effusion"
    index = mo.build_index([text] * 20, tmp_path / "I", metrics=metric)
    rows = {
        "chance": mo.baseline(index, references, "random", metric, draws=7),
        "one": mo.score(references, dict.fromkeys(references, text), metric),
    }
    for pair in (("chance", "one"), ("one", "chance")):
        (found,) = mo.compare(rows, paired=[pair], resamples=500).differences
        assert (found.difference, found.interval, found.p_value) == (0, (0, 0, True), 1)
