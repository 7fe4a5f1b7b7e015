"""What a notebook shows: what a terminal does, as HTML that has no colour, script or text of a report in it."""

import inspect
import io
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console
from rich.text import Text

import metric_oracle as mo
from metric_oracle.findings.notebook import InNotebook, html
from metric_oracle.findings.printed_tables import Entry, PaperTable, Print, entry

# What public functions return that is no result: what was read, and what is said for later calls.
READ = {"AttachedReports", "Export", "GivenJudge", "Project", "Rated", "Ratings", "Samples", "Survey"}
TEXTS = ["Small left effusion.", "No acute process.", "Large right effusion."]


class Tables(HTMLParser):
    """The cells of each row, and all texts."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.texts, self.tags, self.is_cell = [], [], set(), False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")
            self.is_cell = True
        elif tag == "br":
            self.rows[-1][-1] += "\n"

    def handle_endtag(self, tag):
        self.is_cell = self.is_cell and tag not in ("th", "td")

    def handle_data(self, data):
        self.texts.append(data)
        if self.is_cell:
            self.rows[-1][-1] += data


def printed(parts, width=200):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    for part in parts:
        console.print(part)
    return console.file.getvalue()


def test_a_table_has_the_cells_of_the_terminal():
    cells = [[Entry(("0.5", "[0.4 0.6]"), best=True), entry("–")], [Entry(("<1",), second=True, mark="≈"), entry("2")]]
    rows = list(zip(["<a>\nof b", "x\x1b"], cells, strict=True))
    table = PaperTable("One & two", ["m ↑", "n"], rows, ["A note."], "system", Print(["A legend."], 1))
    found = html([table, Text("signature: <s>", style="dim")])
    lines = [[of.replace("\x1b", "\ufffd") for of in row] for row in Tables(found).rows]
    assert lines == [["system", "m ↑", "n"], ["<a>\nof b", "0.5 \n[0.4 0.6]", "–"], ["x\ufffd", "<1≈", "2"]]
    assert "<b>0.5</b> <br>" in found
    assert "<u>&lt;1</u>≈" in found
    assert found.count("border-top") == 2 * 3  # below the heads, and above the second row
    assert [found.index(word) for word in ("A legend.", "A note.", "signature: &lt;s&gt;")] == sorted(
        found.index(word) for word in ("A legend.", "A note.", "signature: &lt;s&gt;")
    )
    assert "\x1b" not in found


def test_numbers_beside_their_intervals_are_one_line():
    rows = [("a", [Entry(("0.5", "[0.4 0.6]"), best=True)])]
    found = html([PaperTable("t", ["m"], rows, print=Print([], 1, beside=True))])
    assert Tables(found).rows[1] == ["a", "0.5 [0.4 0.6]"]
    assert "<b>0.5</b> [0.4 0.6]" in found


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    index = mo.build_index(TEXTS, folder / "INDEX", metrics="rouge-l,bleu")
    tests = ["Small effusion.", "No process."]
    rows = mo.study(index, tests, {"model": ["Effusion.", "No acute process."]}, metrics="rouge-l")
    return {
        "search": mo.retrieve(index, tests, "rouge-l", k=2),
        "chance": mo.expectation(index, tests, "rouge-l"),
        "scores": mo.score(tests, ["Effusion.", "No acute process."], "rouge-l", text=True),
        "study": rows,
        "table": mo.compare_study(rows, resamples=100),
        "best": mo.best_of({"a": TEXTS, "b": TEXTS[:2]}, {"a": tests[0], "b": tests[1]}, "rouge-l"),
        "consensus": mo.consensus({"a": TEXTS}, "rouge-l"),
        "mined": mo.mine(index, "rouge-l", folder / "mined.parquet", k=1),
        "paired": mo.pairs(folder / "mined.parquet", shape="labeled-pair", index=index, out=folder / "pairs.parquet"),
        "pool": mo.pool(index, tests, pool="rouge-l:2"),
        "overlap": mo.overlap(index, {"model": tests}),
    }


def test_results_show_what_a_terminal_shows(made):
    for name, result in made.items():
        assert isinstance(result, InNotebook)
        found = result._repr_html_()
        page = Tables(found)
        assert "script" not in page.tags, name
        assert not re.search(r"color:|background", found), name  # those of the page, dark or light
        assert not any(word in found.lower() for word in ("effusion", "process")), name
        words = "".join(page.texts).split()
        numbers = re.findall(r"(?<![\w.])[+-]?\d+(?:\.\d+)?(?![\w.])", printed(result.shown()))
        assert numbers, name
        assert [n for n in dict.fromkeys(numbers) if not any(n in word for word in words)] == [], name


def test_the_rows_of_a_study_are_a_table_of_means(made):
    assert isinstance(made["study"], dict)
    mean = made["study"]["model"].mean()["rouge-l"]
    assert Tables(made["study"]._repr_html_()).rows[:2] == [["", "ROUGE-L ↑"], ["model", f"{mean:.4f}"]]


def test_a_metric_is_one_line():
    assert all(len(repr(metric)) < 70 for metric in mo.list_metrics())


def test_every_result_has_a_view():
    functions = filter(inspect.isfunction, (getattr(mo, name) for name in mo.__all__))
    kinds = filter(inspect.isclass, {inspect.signature(function).return_annotation for function in functions})
    own = {kind for kind in kinds if kind.__module__.startswith("metric_oracle")}
    assert len(own) > 20
    assert {kind.__name__ for kind in own if not hasattr(kind, "_repr_html_")} == READ | {"Interval"}
