import csv
import html
import io
import json
import os
import re
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from markdown_it import MarkdownIt
from pyarrow import parquet
from rich.console import Console

from metric_oracle.base.errors import BackendError, InputError
from metric_oracle.findings.printed_tables import plain
from metric_oracle.findings.results import Results, Scores, read_scores
from metric_oracle.statistics import Interval
from metric_oracle.tables.compare import compare
from metric_oracle.tables.layout import Layout

METRICS = ("bleu-2", "bertscore", "chexbert", "radgraph", "rouge-l", "radcliq")
DANGEROUS = [
    "<script>alert(1)</script>", "a|b", r"\input{/etc/passwd}", "50% of $x_1^2$ & #3 ~ {}", "[2cm]", "*", "--> <!-- x",
    "[link](javascript:x)", "**bold** `code`", "line\nbreak\x1b[31m\u202e", "[red]markup[/red]", "M² Trans", "=1+1",
    '"q"',
]  # fmt: skip


def scores(seed, *, shift=0.0, n=30):
    rng = np.random.default_rng(seed)
    columns = {metric: pa.array(np.round(rng.beta(1, 2, n) + shift, 3)) for metric in METRICS}
    signature = {
        "kind": "scores", "system": f"model {seed}", "metrics": {metric: {"variant": 1} for metric in METRICS},
        "references": "abc", "n": n, "version": "0.1.0",
    }  # fmt: skip
    return Scores(pa.table({"query_id": [f"s{i}" for i in range(n)], **columns}), signature)


@pytest.fixture(scope="module")
def comparison():
    """Return a table with everything in it, its rows named to do harm."""
    systems = {name: scores(i, shift=0.1 * (i == 1)) for i, name in enumerate(DANGEROUS)}
    first, second, third, *_ = DANGEROUS
    return compare(
        systems, random=first, oracles={"bleu": second}, paired=[(second, first), (third, "*")], resamples=100
    )


def test_markdown_is_what_it_says(comparison):
    text = comparison.text("md").split("<!-- signature: ")[0]
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    assert {token.type for token in tokens} <= {
        f"{kind}_{end}" for end in ("open", "close")
        for kind in ("table", "thead", "tbody", "tr", "th", "td", "paragraph", "bullet_list", "list_item")
    } | {"inline"}  # fmt: skip
    children = [child.type for token in tokens for child in token.children or []]
    assert set(children) <= {"text", "text_special", "strong_open", "strong_close"}
    cells = [token for before, token in pairwise(tokens) if before.type == "td_open"]
    rows = [cells[i : i + 7] for i in range(0, 7 * (len(DANGEROUS) + 1), 7)]
    shown = ["".join(child.content for child in row[0].children) for row in rows]
    assert shown == [*map(plain, DANGEROUS), "Studies"]
    cell = comparison.cells["a|b", "radcliq"]
    assert rows[1][6].content == (
        f"{cell.mean:.3f} [95% CI {cell.interval.low:.3f} {cell.interval.high:.3f}] "
        f"Range [{cell.minimum:.3f}, {cell.maximum:.3f}] "
        f"1/mean {1 / cell.mean:.3f} [{1 / cell.interval.high:.3f} {1 / cell.interval.low:.3f}]"
    )


def test_markdown_as_html_has_no_harm(comparison):
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(comparison.text("md"))
    body, comment = page.split("<!-- signature: ")
    assert "<script" not in body
    assert "<!--" not in body
    assert "javascript" in body  # as text
    assert "href" not in body
    assert comment.count("-->") == 1
    assert json.loads(comment.split("-->")[0]) == comparison.signature
    assert html.escape("<script>alert(1)</script>") in body


def test_best_is_bold(comparison):
    best = [name for name in comparison.systems if comparison.cells[name, "radgraph"].best]
    assert len(best) == 1
    for line in comparison.text("md").split("Percentage")[0].splitlines():
        cells = line.split(" | ")
        if line.startswith("| ") and len(cells) == 7:
            assert cells[4].startswith("**") == (cells[0] == "| " + _escaped(best[0])), line


def _escaped(name):
    return re.sub(r"([\\`*_{}\[\]#|~$!])", r"\\\1", html.escape(plain(name), quote=False))


def test_latex_is_what_it_says(comparison):
    text = replace(comparison, layout=Layout(style="full")).text("tex")
    *lines, last = text.splitlines()
    assert json.loads(last.removeprefix("% signature: ")) == comparison.signature
    body = "\n".join(lines[1:])
    for name in (r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}", r"\end{table}"):
        assert body.count(name) == 4
    known = (
        r"\\(?:(?:textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|textdagger(?:dbl)?)\{\}"
        r"|(?:begin|end)\{(?:table|tabular)\}|(?:toprule|midrule|bottomrule|addlinespace|caption|centering|footnotesize"
        r"|textbf|par|smallskip|raggedright|uparrow|downarrow)(?![a-zA-Z])|[{}$&#%_\\])"
    )
    rest = re.sub(known, "", body)
    assert "\\" not in rest
    assert not set("#%_^~|<>\x1b") & set(rest)
    unescaped = re.sub(r"\\[{}$&#%_\\]", "", body)
    assert unescaped.count("{") == unescaped.count("}")
    assert unescaped.count("$") == 2 * len(re.findall(r"\$(-|\\uparrow|\\downarrow)\$", body))
    for table, n in zip(body.split(r"\toprule")[1:], (7, 7, 2, 5), strict=True):
        for line in table.split(r"\bottomrule")[0].splitlines():
            if line.endswith(r" \\"):
                assert len(re.findall(r"(?<!\\)&", line)) == n - 1, line
                # Or it would be the argument of the line end before it.
                assert line.lstrip()[0] not in "[*"
            else:
                assert line in ("", r"\midrule", r"\addlinespace")
    assert "M² Trans & " in body
    assert r"50\% of \$x\_1\textasciicircum{}2\$ \& \#3 \textasciitilde{} \{\} & " in body
    assert r" & [95\% CI 0." in body
    assert "$-$" in body


def test_files_of_numbers_have_every_digit(comparison, tmp_path):
    records = comparison.records()
    comparison.write(tmp_path / "t.parquet")
    assert parquet.read_table(tmp_path / "t.parquet").to_pylist() == records
    read = list(csv.DictReader(io.StringIO(comparison.text("csv"))))
    assert len(read) == len(records) == len(DANGEROUS) * 6 + 2 * 6
    for got, wanted in zip(read, records, strict=True):
        assert got["system"] == wanted["system"]
        for name in ("mean", "interval_low", "interval_high"):
            assert float(got[name]) == wanted[name]
        assert (got["p_value"] == "") == (wanted["p_value"] is None) == (got["versus"] == "")
    assert list(map(json.loads, comparison.text("jsonl").splitlines())) == records


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_terminal(comparison, width):
    console = Console(width=width, record=True, file=io.StringIO(), color_system=None)
    for part in comparison.tables():
        console.print(part)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b[31m" not in text
    for cell in comparison.cells.values():
        assert f"[95% CI {cell.interval.low:.3f} {cell.interval.high:.3f}]" in text
        assert f"Range [{cell.minimum:.3f}, {cell.maximum:.3f}]" in text
    assert "[red]markup[/red]" in text
    assert "…" not in text
    for cell in comparison.cells.values():
        change, share = cell.change_interval, cell.share_interval
        assert change is None or f"[{change.low:+z.1f} {change.high:+z.1f}]" in text
        assert share is None or f"[{100 * share.low:z.1f} {100 * share.high:z.1f}]" in text
    n_parts = sum(line.strip().startswith("Studies") for line in text.splitlines())
    assert n_parts == {60: 6, 80: 3, 100: 2, 120: 2, 200: 1}[width]


# Files


@pytest.mark.parametrize("ending", ["md", "tex", "csv", "JSONL"])
def test_write(comparison, tmp_path, ending):
    path = tmp_path / f"t.{ending}"
    for _ in range(2):  # it replaces what it wrote
        comparison.write(path)
    assert path.read_text("utf-8") == comparison.text(ending.lower(), "t")
    is_signed = ending in ("csv", "JSONL")  # the others hold it as a comment
    signature = tmp_path / f"{path.name}.signature.json"
    assert set(os.listdir(tmp_path)) == ({path.name, signature.name} if is_signed else {path.name})
    if is_signed:
        record = json.loads(signature.read_text())
        assert {name: record[name] for name in comparison.signature} == comparison.signature
        assert record.keys() - comparison.signature.keys() == {"table_sha256", "signature_sha256"}


def test_a_failing_write_keeps_the_old_file(comparison, tmp_path, monkeypatch):
    path = tmp_path / "t.md"
    comparison.write(path)
    old = path.read_text("utf-8")

    def full(self, *args, **kwargs):
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match=r"^.*t\.md cannot be written \(No space"):
        comparison.write(path)
    assert path.read_text("utf-8") == old
    assert os.listdir(tmp_path) == ["t.md"]


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_plot_files(comparison, tmp_path, ending):
    pytest.importorskip("matplotlib")
    comparison.write(tmp_path / f"p.{ending}")
    assert os.listdir(tmp_path) == [f"p.{ending}"]
    begin = (tmp_path / f"p.{ending}").read_bytes()[:6]
    assert begin == {"png": b"\x89PNG\r\n", "pdf": b"%PDF-1", "svg": b"<?xml "}[ending]


def test_plot_errors(comparison, tmp_path, monkeypatch):
    match = r"^Comparison\.write: out must end with .md, .*, .svg or .pdf; got .*p.jpg. Name one"
    with pytest.raises(InputError, match=match):
        comparison.write(tmp_path / "p.jpg")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BackendError, match=r'^Comparison\.write: a plot needs .* matplotlib, .*"matplotlib>=\S+"$'):
        comparison.write(tmp_path / "p.png")
    assert os.listdir(tmp_path) == []


# The command


@pytest.fixture
def files(tmp_path):
    """Return files of scores, one in each format, the last with an unscorable study."""
    found = []
    for i, ending in enumerate(("parquet", "csv", "jsonl")):
        made = scores(i, shift=0.2 * (i == 1))
        values = made.table["radgraph"].to_pylist()
        table = made.table.set_column(
            4, "radgraph", pa.array([None if i == 2 else values[0], *values[1:]], pa.float64())
        )
        Results(table, made.signature).write(tmp_path / f"s{i}.{ending}")
        assert read_scores(tmp_path / f"s{i}.{ending}").table.to_pylist() == table.to_pylist()
        found.append(tmp_path / f"s{i}.{ending}")
    return found


def test_command_in_a_pipe(oracle, files):
    a, b, c = files
    code, out, err = oracle(
        "table", f"A={a}", f"B oracle={b}", f"C={c}", "--random", "A", "--oracle", "bleu=B oracle", "--paired",
        "B oracle,A", "--paired", "C,A", "--resamples", 150, "--seed", 3, "--interval", "percentile",
    )  # fmt: skip
    assert (code, err) == (0, "")
    wanted = compare(
        {"A": a, "B oracle": b, "C": c}, random="A", oracles={"bleu": "B oracle"}, resamples=150, seed=3,
        paired=[("B oracle", "A"), ("C", "A")], method="percentile",
    )  # fmt: skip
    assert out == wanted.text("jsonl")
    assert [record["n"] for record in wanted.records() if record["metric"] == "radgraph"] == [29] * 5


def test_command_formats_and_files(oracle, files, tmp_path):
    named = [f"{name}={path}" for name, path in zip("ABC", files, strict=True)]
    table = compare(dict(zip("ABC", files, strict=True)), resamples=100)
    assert oracle("table", *named, "--resamples", 100, "--format", "md") == (0, table.text("md"), "")
    assert oracle("table", *named, "--resamples", 100, "--format", "tex") == (0, table.text("tex"), "")
    code, out, err = oracle("table", *named, "--resamples", 100, "--format", "table")
    assert (code, err) == (0, "")
    assert "Average, 95% confidence interval and range" in out
    path = tmp_path / "t.csv"
    said = f"{path}: {table.summary()}\n"
    assert oracle("table", *named, "--resamples", 100, "--out", path) == (0, "", said)
    assert path.read_text() == table.text("csv")


def test_a_file_without_a_name_is_called_as_the_file(oracle, files):
    """So explore does. A file whose name has an equals sign is a file all the same."""
    bare = files[1].rename(files[1].with_name("x=1.csv"))
    files[1].with_name("s1.csv.signature.json").rename(bare.with_name("x=1.csv.signature.json"))
    code, out, err = oracle("table", files[0], bare, f"C={files[2]}", "--resamples", 100)
    assert (code, err) == (0, "")
    assert {json.loads(line)["system"] for line in out.splitlines()} == {"s0", "x=1", "C"}


def test_command_plots(oracle, files, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "p.svg"
    code, out, err = oracle("table", f"A={files[0]}", "--resamples", 100, "--plot", path)
    assert (code, err) == (0, f"{path}: 1 system, 30 studies: {', '.join(METRICS)}\n")
    assert json.loads(out.splitlines()[0])["system"] == "A"
    assert path.exists()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["A={0}", "={1}"], "table: systems must be FILE or NAME=FILE; got '=.*s1.csv'. Write both"),
        (["A={0}", "A={1}"], "table: the files of 'A' have metric bleu-2 twice. Leave one of them out"),
        (["A={0}", "--random", "A", "--oracle", "bleu"], "table: --oracle must be METRIC=NAME; got 'bleu'. Write both"),
        (
            ["A={0}", "--oracle", "bleu=A", "--oracle", "bleu=B"],
            "table: --oracle must have each name once; got 'bleu' twice",
        ),
        (["A={0}", "--paired", "A"], "table: --paired must be A,B; got 'A'. Write both"),
        (
            ["A={0}", "--paired", "A,B"],
            "table: --paired must name systems of the table, 'A'; got 'B'. Correct",
        ),
        (
            ["A={0}", "--format", "png"],
            "oracle table: --format must be one of table, jsonl, csv, md, tex; got 'png'",
        ),
        (
            ["A={0}", "--out", "{dir}/t.txt"],
            "table: --out must end with .md, .*.parquet or .jsonl; got .*t.txt. Name",
        ),
        (["A={0}", "--out", "{dir}/no/t.md"], "table: --out must be in an existing folder; got .*t.md. Make"),
        (["A={1}", "--out", "{1}"], "table: --out must be another file than the inputs; got .*s1.csv, which is one. "),
        (["A={0}", "--plot", "{dir}/p.gif"], "table: --plot must end with .png, .svg or .pdf; got .*p.gif. Name"),
        (["A={dir}/none.csv"], "table: scores must be an existing file; got .*none.csv. Write"),
        (
            ["A={dir}/bad.jsonl"],
            "table: scores must be a file .*; got .*bad.jsonl without bad.jsonl.signature.json. Copy both",
        ),
        (
            ["A={0}", "--interval", "normal"],
            "oracle table: --interval must be one of bca, percentile, legacy-yu2023; got 'normal'",
        ),
    ],
)
def test_command_errors(oracle, files, tmp_path, arguments, match):
    (tmp_path / "bad.jsonl").write_text('{"query_id": "1"}\n')
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    code, out, err = oracle("table", *(text.format(*files, dir=tmp_path) for text in arguments))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert re.match("error: " + match, err), err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_inverse_of_radcliq():
    """As ReXrank prints it: of the mean, marked where that or an end of its interval is no positive number."""
    table = compare({"a": scores(0)}, resamples=100)
    cell = table.cells["a", "radcliq"]
    for mean, ends, expected in (
        (2.0, (1.0, 4.0), ("1/mean 0.500", "[0.250 1.000]")),
        (0.5, (-0.1, 1.0), ("1/mean 2.000‡",)),
        (-0.2, (-0.5, 0.1), ("1/mean –‡",)),
        (0.0, (-0.5, 0.5), ("1/mean –‡",)),
    ):
        cells = {**table.cells, ("a", "radcliq"): replace(cell, mean=mean, interval=Interval(*ends))}
        (shown,) = replace(table, cells=cells).tables()
        assert dict(shown.rows)["a"][METRICS.index("radcliq")].lines[3:] == expected


def test_what_a_program_gives_for_a_whole_set_is_a_note():
    systems = {}
    for seed, name in enumerate(("A", "B")):
        one = scores(seed)
        how = {
            "metrics": {**one.signature["metrics"], "meteor:1.5": {}},
            "noted": {"meteor:1.5": {"corpus": 0.2 + seed}},
        }
        table = one.table.append_column("meteor:1.5", one.table["bleu-2"])
        systems[name] = Scores(table, {**one.signature, **how})
    note = "as papers print it; no mean, and without an interval: "
    compared = compare(systems, resamples=100)
    assert f"meteor:1.5 of the corpus, from the counts of all reports, {note}A 0.200, B 1.200." in compared.text("md")
    assert compared.signature["of_whole_sets"] == {"meteor:1.5": {"A": 0.2, "B": 1.2}}
    # Where a report is not in the table, the number is of other reports.
    values = systems["B"].table["meteor:1.5"].to_pylist()
    place = systems["B"].table.column_names.index("meteor:1.5")
    table = systems["B"].table.set_column(place, "meteor:1.5", pa.array([None, *values[1:]]))
    systems["B"] = Scores(table, systems["B"].signature)
    assert "meteor:1.5 of the corpus" not in compare(systems, resamples=100).text("md")
