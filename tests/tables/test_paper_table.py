"""The table for a paper and the figure of a comparison: style, rows, columns, digits, marks, widths."""

import io
import re
import shutil
import subprocess
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.findings.figures import BASELINE, MODEL, ORACLE, OTHER_ORACLE
from metric_oracle.findings.results import Scores

METRICS = ("bleu-2", "rouge-l", "radgraph", "radcliq", "errors")
SPECIAL = ["50% of $x_1^2$ & #3 ~ {}", r"\input{/etc/passwd}", "[2cm]", "*", "a|b", "M² Trans ≈ 1", "line\nbreak"]


def scores(seed, *, shift=0.0, system="model", n=40, unscorable=0, flat=None):
    rng = np.random.default_rng(seed)
    columns = {}
    for metric in METRICS:
        values = [*(np.round(rng.beta(2, 2, n) + shift, 4) if flat is None else np.full(n, flat))]
        columns[metric] = pa.array([None] * (unscorable if metric == "radgraph" else 0) + values, pa.float64())[:n]
    how = {metric: {} for metric in METRICS} | {"errors": {"direction": "lower"}}
    signature = {"kind": "scores", "system": system, "metrics": how, "references": "abc", "n": n, "version": "0.1.0"}
    return Scores(pa.table({"query_id": [f"s{i}" for i in range(n)], **columns}), signature)


def table(systems, **layout):
    """Return the table for a paper of some systems, all pairs of models tested."""
    models = [name for name, one in systems.items() if one.signature["system"] == "model"]
    paired = [(a, b) for i, a in enumerate(models) for b in models[i + 1 :]]
    has_random = "random" in systems
    return mo.compare(
        systems,
        random="random" if has_random else None,
        oracles={"bleu": "bleu-2 oracle"} if has_random and "bleu-2 oracle" in systems else None,
        paired=paired,
        resamples=200,
        layout=mo.Layout(**{"style": "paper", **layout}),
    )


@pytest.fixture(scope="module")
def whole():
    """Return systems of all kinds: good, near the best, bad, an oracle, another one, and baselines."""
    return {
        "good": scores(1, shift=0.3),
        "near": scores(1, shift=0.2999),
        "bad": scores(2, shift=0.05),
        "bleu-2 oracle": scores(3, system="bleu-2 oracle"),
        "rouge-l oracle": scores(4, system="rouge-l oracle"),
        "identity": scores(5, shift=9, system="identity"),
        "random": scores(6, shift=-0.2, system="random"),
    }


def body(text):
    """Return the rows of a LaTeX table as lists of cells, with the commands between them."""
    inside = text.split(r"\toprule")[1].split(r"\bottomrule")[0]
    lines = [line for line in inside.splitlines() if line]
    return [[*map(str.strip, re.split(r"(?<!\\)&", line.removesuffix(r"\\")))] for line in lines]


def names(text):
    return [row[0] for row in body(text)[2:] if len(row) > 1 and row[0]]


def test_tex_has_the_table_for_a_paper_by_default_and_other_forms_do_not(whole, tmp_path):
    compared = mo.compare(whole, resamples=200)
    text = compared.text("tex")
    assert text.count(r"\begin{tabular}") == 1
    assert text.startswith("% \\usepackage{booktabs}\n\\begin{table*}[t]\n\\centering\n\\caption{Average scores on 40 ")
    assert r"\label{tab:scores}" in text
    assert "Range [" in compared.text("md")
    # Two tables of a paper have labels of their own, from the names of their files; a study's is called table.tex.
    for name, label in (("table", "scores"), ("Bleu_a&b~2", "Bleu-a-b-2"), ("#", "scores")):
        compared.write(tmp_path / f"{name}.tex")
        assert (tmp_path / f"{name}.tex").read_text() == text.replace(r"\label{tab:scores}", rf"\label{{tab:{label}}}")
    full = mo.compare(whole, resamples=200, layout=mo.Layout(style="full")).text("tex")
    assert "Range [" in full
    paper = mo.compare(whole, resamples=200, layout=mo.Layout(style="paper")).text("md")
    assert "Range [" not in paper
    assert "| good | **" in paper
    # An option of the table for a paper is a wish for it.
    assert "Range [" not in mo.compare(whole, resamples=200, layout=mo.Layout(digits=2)).text("md")


def test_oracles_and_baselines_are_below_a_rule(whole):
    text = table(whole).text("tex")
    assert names(text) == ["good", "near", "bad", "BLEU-2 oracle", "ROUGE-L oracle", "Identity", "random"]
    rows = [row[0] for row in body(text)]
    assert [rows[i + 1] for i, row in enumerate(rows) if row == r"\midrule"] == ["good", "BLEU-2 oracle"]
    only_models = table(whole, rows=["bad", "good"]).text("tex")
    assert names(only_models) == ["bad", "good"]
    assert only_models.count(r"\midrule") == 1
    only_baselines = table(whole, rows=["identity", "random"]).text("tex")
    assert only_baselines.count(r"\midrule") == 1
    assert "come last" not in only_baselines


def test_rows_and_columns_are_chosen_and_ordered(whole):
    text = table(whole, rows=["random", "bad", "good", "identity"], without=["identity"]).text("tex")
    assert names(text) == ["bad", "good", "random"]
    text = table(whole, columns=["rouge-l", "bleu"]).text("tex")
    assert body(text)[0] == ["", r"ROUGE-L $\uparrow$", r"BLEU-2 $\uparrow$"]
    # Numbers are those of the whole table: the studies that all of its systems can score, and its tests.
    assert table(whole, rows=["bad"]).records() == table(whole).records()


@pytest.mark.parametrize(
    ("layout", "match"),
    [
        ({"rows": ["nobody"]}, "rows must name systems of the table, 'good', .*; got 'nobody'"),
        ({"rows": ["good", "good"]}, "rows must have each name once; got 'good' twice"),
        ({"columns": ["green"]}, "columns must name metrics of the table, 'bleu-2', .*; got 'green'"),
        ({"percent": ["cider-d"]}, "percent must name metrics of the table"),
        ({"rows": ["good"], "without": ["good"]}, "without must leave a system; got every row"),
        ({"without": ["nobody"]}, "without must name systems of the table"),
        ({"digits": 0}, "digits must be an int from 1 to 9; got 0"),
        ({"style": "full", "digits": 2}, 'digits must be left out with style "full"'),
        ({"style": "small"}, "style must be one of paper, full; got 'small'"),
    ],
)
def test_errors(whole, layout, match):
    with pytest.raises(InputError, match=match):
        table(whole, **layout)


def test_names_are_folded_where_that_makes_it_fit_one_column():
    names = ["CheXbert agreement oracle of a pool", "good"]
    systems = {name: scores(i) for i, name in enumerate(names)}
    text = table(systems, columns=METRICS[:2]).text("tex")
    assert r"\begin{table}[t]" in text
    lines = text.splitlines()
    (first,) = [i for i, line in enumerate(lines) if line.startswith("CheXbert agreement")]
    assert " oracle of a pool &" not in lines[first]
    # The second line of the name stands beside the intervals, not above them.
    assert re.match(r"\\hspace\{6pt\}[a-z ]*pool & \{\\scriptsize \[", lines[first + 1])
    assert r"\begin{table*}[t]" in table(systems).text("tex")


def test_an_arrow_stays_beside_its_word(whole):
    """Where numbers are narrower than a head, "RadGraph F1 ↑" has two lines."""
    console = Console(width=80, record=True, file=io.StringIO(), color_system=None)
    console.print(*table(whole, intervals="none").tables())
    lines = console.export_text().splitlines()
    assert not any(re.fullmatch(r"[ ↑↓]+", line) and re.search("[↑↓]", line) for line in lines)
    assert any("F1 ↑" in line and "RadGraph" not in line for line in lines)


def test_an_arrow_stays_in_the_line_of_a_name_that_is_folded(whole):
    console = Console(width=70, record=True, file=io.StringIO(), color_system=None)
    console.print(*mo.compare(whole, paired=[("good", "bad")], resamples=100).tables())
    lines = console.export_text().splitlines()
    assert not any(re.match(r" *[↑↓] *$", line) for line in lines)
    assert any(re.match(r" RadGraph F1 ↑ ", line) for line in lines)  # the second line of "good − bad, RadGraph F1 ↑"


def test_marks(whole):
    compared = table(whole, intervals="none")
    rows = {row[0]: row[1:] for row in body(compared.text("tex")) if len(row) > 1}
    for i, metric in enumerate(METRICS):
        is_lower = metric in ("radcliq", "errors")
        best, worst = ("bad", "good") if is_lower else ("good", "bad")
        cell = compared.cells[best, metric]
        assert rf"\textbf{{{cell.mean:.3f}}}" in rows[best][i]
        assert rows["near"][i].count(r"\underline{") == 1
        assert "textbf" not in rows[worst][i]
        assert "underline" not in rows[worst][i]
        p = {frozenset((d.a, d.b)): d.p_adjusted for d in compared.differences if d.metric == metric}
        for name in ("near", worst):
            assert (r"\rlap{$^{\approx}$}" in rows[name][i]) == (p[frozenset((best, name))] > 0.05)
        # What does not compete is not marked, however good it is.
        assert rows["Identity"][i].replace("phantom", "") == rows["Identity"][i].replace("phantom", "").strip("\\{}")
    assert rows["random"] == [f"{compared.cells['random', metric].mean:z.3f}" for metric in METRICS]


def test_ties_for_the_best_are_both_bold_and_nothing_is_second():
    systems = {"a": scores(1, shift=0.2), "b": scores(1, shift=0.2), "c": scores(2)}
    text = table(systems, intervals="none", columns=["bleu"]).text("tex")
    rows = {row[0]: row[1] for row in body(text) if len(row) == 2}
    assert rows["a"] == rows["b"]
    assert "textbf" in rows["a"]
    assert r"\underline" not in text
    assert "second" not in text


def test_what_was_not_tested_is_said(whole):
    systems = {name: whole[name] for name in ("good", "near", "bad")}
    layout = mo.Layout(columns=["bleu"])
    compared = mo.compare(systems, paired=[("good", "near")], resamples=200, layout=layout)
    assert compared.differences[0].p_adjusted <= 0.05 or "Not tested against the best of each column: bad." in (
        compared.text("md")
    )
    assert "≈" not in mo.compare(systems, resamples=200, layout=layout).text("md")


def test_a_system_alone_has_no_marks_and_one_without_interval_no_brackets():
    text = table({"alone": scores(1)}).text("tex")
    assert names(text) == ["alone"]
    assert "textbf" not in text
    assert "Bold" not in text
    flat = table({"flat": scores(1, flat=0.5), "other": scores(2)}, columns=["bleu"]).text("tex")
    rows = [row for row in body(flat) if len(row) == 2]
    assert [row[0] for row in rows[1:]] == ["flat", "other", ""]  # the interval of equal values says nothing


def test_digits_and_percent(whole):
    compared = table(whole, digits=4, percent=["bleu"], columns=["bleu", "rouge-l"], intervals="beside")
    text = compared.text("md")
    bleu, rouge = (compared.cells["bad", metric] for metric in ("bleu-2", "rouge-l"))
    low, high = (100 * end for end in bleu.interval[:2])
    assert "BLEU-2 (%) ↑ | ROUGE-L ↑" in text
    assert f"| bad | {100 * bleu.mean:.2f} [{low:.2f}, {high:.2f}] | {rouge.mean:.4f} [" in text
    assert r"BLEU-2 (\%) $\uparrow$" in compared.text("tex")


def test_numbers_have_space_for_what_others_have_before_the_point(whole):
    systems = {"a": scores(1, shift=-0.9), "b": scores(2), "c": scores(3, shift=10)}
    rows = {row[0]: row[1] for row in body(table(systems, intervals="none", columns=["bleu"]).text("tex"))[2:]}
    assert rows["a"].startswith(r"\phantom{0}$-$0.")
    assert rows["b"].startswith(r"\phantom{$-$0}")
    assert r"\textbf{10." in rows["c"]
    assert rows["c"].startswith(r"\phantom{$-$}")


def test_fewer_studies_are_said(whole):
    systems = {"a": scores(1), "b": scores(2, unscorable=3)}
    text = table(systems).text("md")
    assert "**Average scores on 40 studies (RadGraph F1 on 37)**" in text
    assert "Unscorable: RadGraph F1: b 3." in text
    text = table(systems, columns=["radgraph"]).text("tex")
    assert r"\caption{Average scores on 37 of 40 studies." in text
    assert "% Averages are over the studies that every system can score, of 40." in text


def test_names_with_special_characters():
    systems = {name: scores(i, shift=0.01 * i) for i, name in enumerate(SPECIAL)}
    text = table(systems).text("tex")
    shown = text.split("\n% ")[0].removeprefix("% ")  # without the notes
    assert r"50\% of \$x\_1\textasciicircum{}2\$ \& \#3 \textasciitilde{} \{\}" in shown
    assert r"\textbackslash{}input\{/etc/passwd\}" in shown
    assert r"M² Trans $\approx$ 1" in shown
    for row in body(text):
        assert len(row) in (1, 1 + len(METRICS))
        assert not row[0].startswith(("[", "*"))
    unescaped = re.sub(r"\\[{}$&#%_\\]", "", shown)
    assert unescaped.count("{") == unescaped.count("}")
    assert not set("#_~|") & set(re.sub(r"\\[{}$&#%_\\]", "", shown))


@pytest.mark.parametrize("intervals", ["below", "beside", "none"])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_terminal(whole, width, intervals):
    compared = table(whole, intervals=intervals)
    console = Console(width=width, record=True, file=io.StringIO(), color_system=None)
    for part in compared.tables():
        console.print(part)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    for (name, metric), cell in compared.cells.items():
        low, high = (f"{end:z.3f}" for end in cell.interval[:2])
        assert any(f"{cell.mean:z.3f}" in line for line in lines), (name, metric)
        assert any(f"[{low}, {high}]" in line for line in lines) == (intervals != "none")
    points = {line.index(".") for line in lines if re.match(r" *(good|near|bad) +-?\d\.\d{3}", line)}
    assert len(points) <= 1 + sum(line.strip().startswith("good") for line in lines)


ARTICLE = r"""\documentclass[10pt,twocolumn]{article}
\usepackage[utf8]{inputenc}\usepackage[T1]{fontenc}\usepackage{booktabs}
\begin{document}
TABLE
See \ref{tab:scores}.
\end{document}
"""


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here")
@pytest.mark.parametrize("intervals", ["below", "beside", "none"])
@pytest.mark.parametrize("kind", ["eight", "one", "twenty", "special"])
def test_it_fits_an_article_of_two_columns(whole, tmp_path, kind, intervals):
    systems = {
        "eight": {**whole, "an eighth system": scores(9)},
        "one": {"alone": scores(1)},
        "twenty": {f"model number {i}": scores(i, shift=i / 50) for i in range(20)},
        "special": {name: scores(i) for i, name in enumerate(SPECIAL)},
    }[kind]
    text = table(systems, intervals=intervals).text("tex")
    (tmp_path / "a.tex").write_text(ARTICLE.replace("TABLE", text), encoding="utf-8")
    line = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout


@pytest.mark.parametrize("intervals", ["below", "beside", "none"])
def test_a_table_of_many_metrics_has_parts(intervals, tmp_path):
    rng = np.random.default_rng(0)
    metrics = [f"metric {i}" for i in range(12)]
    how = {metric: {"direction": "lower" if i % 2 else "higher"} for i, metric in enumerate(metrics)}
    signature = {"kind": "scores", "system": "model", "metrics": how, "references": "abc", "n": 30, "version": "0.1.0"}
    systems = {}
    for name in ("one", "another", "a third system"):
        columns = {metric: pa.array(rng.beta(2, 2, 30)) for metric in metrics}
        systems[name] = Scores(pa.table({"query_id": [f"s{i}" for i in range(30)], **columns}), signature)
    text = mo.compare(systems, resamples=100, layout=mo.Layout(intervals=intervals)).text("tex")
    parts = text.split(r"\begin{tabular}")[1:]
    assert len(parts) == {"below": 2, "beside": 3, "none": 1}[intervals]
    heads = [part.split(r"\midrule")[0].replace(r"\\\strut", "") for part in parts]  # some are folded
    shown = [re.findall(r"metric \d+", of_part) for of_part in heads]
    assert [*chain(*shown)] == metrics
    assert max(map(len, shown)) - min(map(len, shown)) <= 1
    assert all(part.count("a third system &") == 1 for part in parts)
    if shutil.which("pdflatex"):
        (tmp_path / "a.tex").write_text(ARTICLE.replace("TABLE", text), encoding="utf-8")
        line = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0
        assert "Overfull" not in done.stdout


# The figure


def drawn(axes, kind):
    """Return the heights of the dots of a kind in a panel, from top to bottom."""
    return sorted(
        float(line.get_ydata()[0])
        for line in axes.lines
        if line.get_marker() == kind.marker
        and line.get_color() == kind.colour
        and (line.get_markerfacecolor() == "white") != kind.is_filled
    )


def test_kinds_of_systems_differ_in_colour_and_form(whole):
    pytest.importorskip("matplotlib")
    forms = {(kind.colour, kind.marker, kind.is_filled) for kind in (MODEL, ORACLE, OTHER_ORACLE, BASELINE)}
    assert len(forms) == 4
    assert len({(kind.marker, kind.is_filled) for kind in (MODEL, ORACLE, OTHER_ORACLE, BASELINE)}) == 4
    bleu, rouge, *_ = table(whole).figure().axes
    assert bleu.get_title() == "BLEU-2 ↑"
    shown = [tick.get_text() for tick in bleu.get_yticklabels()]
    assert shown == ["good", "near", "bad", "BLEU-2 oracle", "ROUGE-L oracle", "Identity", "random"]
    assert bleu.yaxis_inverted()
    heights = [*bleu.get_yticks()]
    assert drawn(bleu, MODEL) == heights[:3]
    assert drawn(bleu, ORACLE) == [heights[3]]
    assert drawn(bleu, OTHER_ORACLE) == [heights[4]]
    assert drawn(rouge, OTHER_ORACLE) == heights[3:5]  # its own was not named
    assert drawn(bleu, BASELINE) == [heights[6]]
    # Identity would squeeze the axis: an arrow at its edge, with the mean.
    assert [line.get_ydata()[0] for line in bleu.lines if line.get_marker() == ">"] == [heights[5]]
    compared = table(whole)
    assert f"{compared.cells['identity', 'bleu-2'].mean:z.2f}" in [text.get_text() for text in bleu.texts]
    assert bleu.get_xlim()[1] < 2
    chance, oracle = (compared.cells[name, "bleu-2"].mean for name in ("random", "bleu-2 oracle"))
    (band,) = bleu.patches
    assert (band.get_x(), band.get_x() + band.get_width()) == pytest.approx((chance, oracle))
    assert not rouge.patches
    legend = {text.get_text() for text in bleu.figure.legends[0].get_texts()}
    assert {"models", "the metric's oracle", "other oracles", "baselines", "95% CI", "beyond the axis"} <= legend


def test_dots_are_means_and_lines_intervals(whole):
    pytest.importorskip("matplotlib")
    compared = table(whole, rows=["near", "good"], columns=["rouge-l"])
    (axes,) = compared.figure(width=88).axes
    dots = {float(x.get_ydata()[0]): float(x.get_xdata()[0]) for x in axes.lines if x.get_marker() == "o"}
    ends = {float(x.get_ydata()[0]): [*x.get_xdata()] for x in axes.lines if len(x.get_xdata()) == 2 and x.get_alpha()}
    for y, name in enumerate(("near", "good")):
        cell = compared.cells[name, "rouge-l"]
        assert dots[y] == cell.mean
        assert ends[y] == [*cell.interval[:2]]


@pytest.mark.parametrize("width", [60, 88, 180, 300])
def test_the_figure_has_the_width_that_is_asked_for(whole, width, tmp_path):
    pytest.importorskip("matplotlib")
    figure = table(whole).figure(width)
    assert figure.get_figwidth() * 25.4 == pytest.approx(width)
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert len(shown) == len(METRICS)
    for axes in shown:
        low, high = axes.get_xlim()
        assert sum(low <= tick <= high for tick in axes.get_xticks()) >= 3
    rows = {round(axes.get_position().y0, 3) for axes in shown}
    assert (len(rows) == 1) == (width >= 180)


def test_fonts_are_in_the_files(whole, tmp_path):
    pytest.importorskip("matplotlib")
    compared = table(whole)
    compared.write(tmp_path / "f.pdf", width=88)
    content = (tmp_path / "f.pdf").read_bytes()
    assert b"/FontFile2" in content  # TrueType; publishers refuse Type 3
    assert b"/Type3" not in content
    compared.write(tmp_path / "f.svg")
    first = (tmp_path / "f.svg").read_bytes()
    assert b"<text" not in first
    compared.write(tmp_path / "f.svg")
    assert (tmp_path / "f.svg").read_bytes() == first
    with pytest.raises(InputError, match=r"^Comparison\.write: width must be left out for a file that is no figure"):
        compared.write(tmp_path / "t.md", width=88)
    with pytest.raises(InputError, match=r"width must be a number from 40 to 500; got 7"):
        compared.write(tmp_path / "f.svg", width=7)


@pytest.mark.parametrize("n", [1, 20])
def test_figures_of_one_and_of_twenty(n):
    pytest.importorskip("matplotlib")
    systems = {f"model {i}": scores(i, flat=0.5 if n == 1 else None) for i in range(n)}
    figure = table(systems).figure()
    assert len(drawn(figure.axes[0], MODEL)) == n


# The command


def test_command(oracle, whole, tmp_path):
    for name in ("good", "bad"):
        whole[name].write(tmp_path / f"{name}.parquet")
    files = [tmp_path / f"{name}.parquet" for name in ("good", "bad")]
    layout = mo.Layout(digits=2, columns=["bleu", "radgraph"], rows=["bad", "good"], percent=["bleu"], intervals="none")
    wanted = mo.compare({"good": files[0], "bad": files[1]}, resamples=200, layout=layout)
    options = ("--digits", 2, "--columns", "bleu,radgraph", "--rows", "bad,good", "--percent", "bleu")
    for form in ("md", "tex"):
        code, out, _ = oracle("table", *files, "--resamples", 200, *options, "--intervals", "none", "--format", form)
        assert (code, out) == (0, wanted.text(form))
    code, _, err = oracle("table", *files, "--resamples", 200, "--width", 88)
    assert code == 2
    assert "table: --width must be left out without --plot" in err
