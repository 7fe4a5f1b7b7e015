"""README and site are true: their commands and their Python run, in order, and say what stands below them.

Every ```bash and ```python block is run on the files of `oracle example`, a fresh copy for each page; a ```text block
right after it is what it prints on a terminal of 80 columns. A line ``[...]`` stands for lines that are left out.
The commands of ```sh blocks, servers and such, are
only parsed. ``ORACLE_WRITE_DOCS=1`` writes what was printed into the pages.
"""

import csv
import html
import importlib.metadata
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

import metric_oracle
from metric_oracle import cli
from metric_oracle.base.declarations import declarations
from metric_oracle.base.files import package_version
from metric_oracle.metrics import METRICS, get_metric
from metric_oracle.records import COMPOSITE
from metric_oracle.synthetic.example import write_example
from support import lacking, parse_command
from support.terminal import Terminal

ROOT = Path(__file__).parents[1]
(RELEASE,) = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if re.search(r"^```(bash|python)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    # Commands on files that people have: test_recipes.py, and the test of the page on IU X-ray below.
    if path.name not in ("recipes.md", "iu-xray.md")
)
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
PICTURES = (
    ("docs/study.md", "study/table.png", "study.png"),
    ("docs/samples.md", "curve.png", "samples.png"),
    ("docs/gallery.md", "gallery.png", "gallery.png"),
)
LEFT_OUT = "[...]\n"
pytestmark = pytest.mark.usefixtures("small_work")


def run_command(line, said):
    """Run a line of a bash block: an `oracle` command in this process, `> FILE` and all, anything else in a shell."""
    words = shlex.split(line, comments=True)
    if not words:
        return
    if words[0] != "oracle":
        said.append(subprocess.run(["bash", "-ec", line], capture_output=True, text=True, check=True).stdout)
        return
    words, _, to = " ".join(map(shlex.quote, words)).partition(" '>' ")
    printed = said if not to else []
    sys.argv = shlex.split(words)
    with (
        redirect_stdout(Terminal(printed, is_terminal=not to)),
        redirect_stderr(Terminal(said, is_terminal=False)),
    ):
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
    assert code == 0, f"{line}\n{''.join(said)}"
    if to:
        Path(to).write_text("".join(printed), encoding="utf-8")


def run_python(source, names, said):
    with redirect_stdout(Terminal(said, is_terminal=False)):
        exec(compile(source, "page", "exec"), names)


def as_written(said):
    """Return what was said as pages have it: at no time of day."""
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", "2026-11-22T12:00:00+00:00", "".join(said))
    return "".join(line.rstrip() + "\n" for line in text.strip("\n").split("\n"))


def shortened(text, expected):
    """Leave out of a text what is left out of the expected one: as many lines as it has before and after its mark."""
    head, mark, tail = expected.partition(LEFT_OUT)
    if not mark:
        return text
    lines = text.splitlines(keepends=True)
    n_head, n_tail = head.count("\n"), tail.count("\n")
    return "".join(lines[:n_head]) + mark + "".join(lines[len(lines) - n_tail :])


def rewritten(page):
    """Run the blocks of a page in the current folder; return the page with what they print."""
    names = {}

    def run(block):
        language, source, expected = block.groups()
        said = []
        if language == "python":
            run_python(source, names, said)
        else:
            for line in source.replace("\\\n", " ").splitlines():
                run_command(line, said)
        if expected is None:
            return block[0]
        return f"```{language}\n{source}```\n\n```text\n{shortened(as_written(said), expected)}```\n"

    return BLOCK.sub(run, page)


@pytest.fixture(scope="module", autouse=True)
def release():
    """Let the package have the version of the release that the pages are about; a line wraps where that one does."""
    with pytest.MonkeyPatch.context() as patch:
        read = importlib.metadata.Distribution.version.fget
        ours = property(lambda found: RELEASE if found.name == "metric-oracle" else read(found))
        patch.setattr(importlib.metadata.Distribution, "version", ours)
        package_version.cache_clear()
        yield
    package_version.cache_clear()


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs") / "try"
    write_example(folder)
    return folder


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.filterwarnings("ignore:ids. study_id of the references is joined with id of the samples")
def test_a_page_runs(name, example, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    pytest.importorskip("starlette")
    compare_or_write(name, shutil.copytree(example, tmp_path / "try"), monkeypatch)
    if os.environ.get("ORACLE_WRITE_DOCS") == "1":
        for page, made, picture in PICTURES:
            if name == page:
                shutil.copy(made, ROOT / "docs/images" / picture)


def compare_or_write(name, folder, monkeypatch):
    """Run the blocks of a page in a folder, as on a terminal; compare what they print with the page, or write it."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["oracle"])
    for variable, value in {"COLUMNS": "80", "TERM": "dumb", "PYTHONPATH": str(ROOT)}.items():
        monkeypatch.setenv(variable, value)
    for variable in ("ORACLE_DEBUG", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    page = (ROOT / name).read_text(encoding="utf-8")
    found = rewritten(page)
    if os.environ.get("ORACLE_WRITE_DOCS") == "1":
        (ROOT / name).write_text(found, encoding="utf-8")
    else:
        assert found == page


def test_the_page_on_iu_xray_runs(iu_files, monkeypatch):
    pytest.importorskip("matplotlib")
    compare_or_write("docs/iu-xray.md", iu_files, monkeypatch)
    page = (ROOT / "docs/iu-xray.md").read_text(encoding="utf-8").replace("\\\n", " ")
    (commands,) = re.findall(r"^```sh\n(oracle .*?)\n```$", page, re.MULTILINE | re.DOTALL)
    (iu_files / "res.csv").write_text("no acute disease .\n" * 590, encoding="utf-8")
    said = []
    for command in commands.splitlines():
        run_command(command, said)
    assert re.search(r"\n R2Gen +0\.\d+ ", "".join(said)), said


@pytest.mark.parametrize("name", ["docs/iu-xray.md", "docs/iu-xray.ipynb"])
def test_no_report_of_iu_xray_is_shown(name, iu_xray):
    """The licence allows no copies: no sentence of five words or more is on the page."""
    shown = " ".join(re.findall(r"\w+", (ROOT / name).read_text(encoding="utf-8").lower()))
    with (iu_xray / "indiana_reports.csv").open(encoding="utf-8", newline="") as file:
        texts = [f"{row['findings']}. {row['impression']}" for row in csv.DictReader(file)]
    sentences = {" ".join(re.findall(r"\w+", part.lower())) for text in texts for part in text.split(".")}
    sentences = {sentence for sentence in sentences if sentence.count(" ") >= 4}
    assert len(sentences) > 5000
    assert [sentence for sentence in sorted(sentences) if sentence in shown] == []


def test_commands_that_are_not_run_parse():
    texts = [path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]]
    blocks = [block for text in texts for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]
    commands = re.findall(r"^oracle (.*)$", "\n".join(blocks).replace("\\\n", " "), re.MULTILINE)
    assert len(commands) > 10
    for command in commands:
        parse_command(shlex.split(command, comments=True))


def test_pages_are_found_and_checked():
    assert {"README.md", "docs/study.md"} <= set(PAGES)
    page = "```bash\necho one; echo two; echo three\n```\n\n```text\none\n[...]\nthree\n```\n"
    assert rewritten(page) == page
    assert rewritten(page.replace("\nthree", "\nfour")) == page
    assert "changed" in rewritten("```python\nprint('changed')\n```\n\n```text\nbefore\n```\n")
    with pytest.raises(AssertionError, match="no such command"):
        rewritten("```bash\noracle nonsense\n```\n")


def test_pages_of_the_cookbook_are_short_and_listed():
    jobs = sorted(path.name for path in (ROOT / "docs/cookbook").glob("*.md") if path.name != "index.md")
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs/cookbook/index.md").read_text(encoding="utf-8"))
    assert sorted(listed) == jobs
    lines = {job: len((ROOT / "docs/cookbook" / job).read_text(encoding="utf-8").splitlines()) for job in jobs}
    assert {job: number for job, number in lines.items() if number > 80} == {}


def test_the_gallery_shows_what_its_page_says():
    """The page's table is compared with what runs; here its sentences are compared with its table."""
    page = (ROOT / "docs/gallery.md").read_text(encoding="utf-8")
    heads, *rows = BLOCK.findall(page)[0][2].splitlines()
    table = {name: dict(zip(heads.split(), map(float, values), strict=True)) for name, *values in map(str.split, rows)}
    assert table["meteor:nltk-stems"]["negation"] == 0.97
    assert table["rouge-l"]["negation"] == 0.86
    assert min(table["chexbert:labels"], key=table["chexbert:labels"].get) == "negation"
    assert table["chexbert:labels"]["side"] == table["chexbert:labels"]["severity"] == 1
    assert table["chexbert:agreement"]["template"] == 0.86
    for metric in ("bleu-2", "bleu-4:coco", "rouge-l", "meteor:nltk-stems", "cider-d", "jaccard:1", "radgraph"):
        assert table[metric]["paraphrase"] == min(table[metric].values())
    assert table["chexbert:agreement"]["paraphrase"] == 1
    assert {kind for kind, value in table["temporal"].items() if value == 0} == {"comparison", "paraphrase"}


def test_pages_can_be_followed_in_one_folder_in_any_order():
    """An index of one page does not stand where another page makes its own."""
    new_folder = re.compile(r'(?:build-index|survey create|study) [^\n]*?--out (\w+)|mo\.build_index\("[^"]+", "(\w+)"')
    pages = [(ROOT / name).read_text(encoding="utf-8") for name in PAGES if name != "README.md"]
    sources = [source for page in pages for _, source, _ in BLOCK.findall(page)]
    made = ["".join(names) for source in sources for names in new_folder.findall(source)]
    assert len(made) > 5
    assert sorted(set(made)) == sorted(made)
    # The README's commands make folders of the same names as those of the pages, in a folder of their own.
    (of_readme,) = re.findall(r"^oracle example (\w+)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert of_readme not in re.findall(r"^oracle example (\w+)$", "\n".join(pages), re.MULTILINE)


def test_benchmarks_are_a_small_part_of_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (benchmarks,) = re.findall(r"^## Speed\n(.*?)^## ", readme, re.MULTILINE | re.DOTALL)
    assert "<!-- benchmarks:begin -->" in benchmarks
    assert len(benchmarks) < 0.1 * len(readme)


def test_the_readme_is_short_and_names_the_release():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 120
    assert f"version = {{{RELEASE}}}" in readme
    assert "pip install metric-oracle" not in readme.replace('"', "")


def test_links_outside_of_the_site_lead_to_files():
    """The strict build checks the links of docs/ with their anchors; these files are not part of it."""
    files = [*ROOT.glob("*.md"), *(ROOT / "metric_oracle").rglob("*.md"), *(ROOT / "tests").glob("*.md")]
    links = {
        (path.relative_to(ROOT).as_posix(), link)
        for path in [*files, *(ROOT / "benchmarks").glob("*.md")]
        for link in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", path.read_text(encoding="utf-8"))
    }
    assert len(links) > 40
    assert [(name, link) for name, link in sorted(links) if not (ROOT / name).parent.joinpath(link).exists()] == []


def test_the_reference_has_every_public_name():
    named = re.findall(r"^::: metric_oracle\.(?:.*\.)?(\w+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    assert sorted(named) == metric_oracle.__all__


def metrics_of(cell):
    """Return the metrics that a cell of a table names; `:variant` is one of the metric named before it."""
    found = []
    for name in re.findall(r"`([^`]*)`", cell):
        if not name.startswith(("-", "oracle ")):
            found.append(found[-1].partition(":")[0] + name if name.startswith(":") else name)
    return found


def test_tables_of_metrics_are_those_of_the_registry():
    """docs/metrics.md is what `oracle metrics` prints, compared as it runs; here are tables that people write."""
    cells = {
        page: [line.split(" | ") for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
        for page in ("tests/README.md", "docs/coming-from.md")
    }
    anchored = [name for row in cells["tests/README.md"] for name in metrics_of(row[0])]
    assert sorted(anchored) == sorted([*METRICS, COMPOSITE])
    files = {file for row in cells["tests/README.md"] for file in re.findall(r"`(\w+/\w+\.py)`", " ".join(row[1:]))}
    assert len(files) > 20
    assert [file for file in sorted(files) if not (ROOT / "tests" / file).is_file()] == []
    ours = [name for row in cells["docs/coming-from.md"] for name in metrics_of(row[1])]
    assert len(ours) > 15
    for name in ours:
        get_metric(name)


def check_skill(text, pages):
    """Check a skill file: what loads it asks for, its commands, and that each job and page of the site is in it."""
    import yaml

    _, head, body = text.split("---\n", 2)
    about = yaml.safe_load(head)
    assert set(about) == {"name", "description"}
    assert re.fullmatch(r"[a-z-]{1,64}", about["name"])
    assert 100 < len(about["description"]) <= 1024
    assert len(body.splitlines()) < 500
    jobs = re.findall(r"^### .*\n\n(?:\w|`).*\n\n```", body, re.MULTILINE)
    assert len(jobs) == len(list((ROOT / "docs/cookbook").glob("*.md"))) - 1
    commands = re.findall(r"^oracle (?!=)(.*)$", body, re.MULTILINE)
    assert len(commands) > 30
    for command in commands:
        parse_command(shlex.split(re.sub(r" > \S+$", "", command), comments=True))
    assert re.findall(r"^- .*: `(\S+\.html)`$", body, re.MULTILINE) == pages
    assert len(re.findall(r"^- \*\*", body, re.MULTILINE)) > 5


def check_reference(page):
    """Check that the reference describes every declared parameter, and shows types without their declarations."""
    plain = html.unescape(re.sub(r"<[^>]+>", "", page))
    assert not re.search(r"Annotated\[|\bDoc\(|\bFlag\(|\bUses\(", plain)
    sections = re.split(r'<h3 id="metric_oracle\.(\w+)"', page)
    assert {*sections[1::2]} == {*metric_oracle.__all__}
    for name, section in zip(sections[1::2], sections[2::2], strict=True):
        described = {parameter.lstrip("*") for parameter in re.findall(r"<td>\s*<code>([*\w]+)</code>", section)}
        texts = {one.name for one in declarations(inspect.unwrap(getattr(metric_oracle, name))).values() if one.text}
        assert texts <= described, name


def test_the_site_is_whole_and_loads_nothing_from_elsewhere(tmp_path):
    try:
        import mkdocs  # noqa: F401
    except ImportError:
        lacking("mkdocs is not installed: pip install --group docs")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path / "site"]
    run = subprocess.run(
        build, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert run.returncode == 0, run.stderr
    entries = json.loads((tmp_path / "site/search/search_index.json").read_text(encoding="utf-8"))["docs"]
    messages = [entry["title"] for entry in entries if entry["location"].startswith("troubleshooting.html#")]
    assert len(messages) == 20  # a search for the words of a message leads to its heading
    of_models = (tmp_path / "site/llms.txt").read_text(encoding="utf-8")
    linked = re.findall(r"^- \[.+\]\((\S+\.html)\): ", of_models, re.MULTILINE)
    assert len(linked) > 30
    assert [page for page in linked if not (tmp_path / "site" / page).is_file()] == []
    check_skill((tmp_path / "site/skills/metric-oracle/SKILL.md").read_text(encoding="utf-8"), linked)
    check_reference((tmp_path / "site/api.html").read_text(encoding="utf-8"))
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 10
    loading = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=\"?((?:https?:)?//[^\"> ]+)")
    for path in [*pages, *(tmp_path / "site").rglob("*.css")]:
        text = path.read_text(encoding="utf-8")
        assert not loading.findall(text), path
        assert not re.search(r":(?:func|class|meth|mod|attr):|\]\[metric_oracle", text), path
        assert not re.search(r"url\([\"']?(?:https?:)?//|@import", text), path
