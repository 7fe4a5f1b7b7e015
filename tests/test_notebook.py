"""Pages as notebooks: made of the pages, whose blocks `test_docs` runs, so that there is one text.

``ORACLE_WRITE_DOCS=1`` writes the notebooks; run it after test_docs.py, which writes the pages. Where nbclient and
ipykernel are installed, a kernel runs them, too, that of IU X-ray where its files are.
"""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from support import HANG

ROOT = Path(__file__).parents[1]
PAGES = ("study", "iu-xray")
# A block with what it prints, or the figure of the study.
PART = re.compile(
    r"^```(bash|sh|python)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?|^!\[[^]]*\]\(images/study\.png\)\n",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"\[([^]]*)\]\(([\w-]+\.md)(?:#[\w-]*)?\)")
BEFORE = """\
*Made of `docs/{}.md`. To run it: `pip install ".[cpu,excel,plots,web]" jupyterlab` in a checkout, then `jupyter lab`
from the same environment.*
"""
SET_UP = "%env TERM=dumb"  # what a program shows in a notebook cannot move
FIGURE = 'from IPython.display import Image\n\nImage("study/table.png")'


def as_cell(language, source):
    """Return a block of commands, or of Python, as IPython takes it."""
    if language == "python":
        return source
    lines = source.replace("\\\n", " ").splitlines()
    return "\n".join(f"%{line}" if line.startswith("cd ") else f"!{line}" for line in lines)


def notebook_of(name, page):
    """Return the notebook of a page: its commands as cells with what they print, the rest as text."""
    cells = []

    def add(kind, source, **more):
        if source.strip():
            lines = source.strip("\n").splitlines(keepends=True)
            cells.append({"cell_type": kind, "id": f"cell-{len(cells)}", "metadata": {}, "source": lines, **more})

    def add_text(source):
        add("markdown", LINK.sub(r"\1 (`docs/\2`)", source))

    title, _, page = page.partition("\n")
    add_text(f"{title}\n\n{BEFORE.format(name)}")
    add("code", SET_UP, execution_count=None, outputs=[])
    end = 0
    for part in PART.finditer(page):
        add_text(page[end : part.start()])
        end = part.end()
        language, source, printed = part.groups()
        if language == "sh" and not source.startswith("oracle example"):
            add_text(part[0])  # a server, which stays
            continue
        texts = [] if printed is None else [printed.splitlines(keepends=True)]
        outputs = [{"name": "stdout", "output_type": "stream", "text": text} for text in texts]
        add("code", FIGURE if language is None else as_cell(language, source), execution_count=None, outputs=outputs)
    add_text(page[end:])
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}


@pytest.mark.parametrize("name", PAGES)
def test_the_notebook_is_the_page(name):
    page = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    notebook = ROOT / f"docs/{name}.ipynb"
    made = json.dumps(notebook_of(name, page), indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("ORACLE_WRITE_DOCS") == "1":
        notebook.write_text(made, encoding="utf-8")
    assert notebook.read_text(encoding="utf-8") == made


def test_cells_are_made_of_blocks():
    blocks = (
        "bash\nls\necho a",
        "text\na",
        "sh\noracle example try\ncd try",
        "sh\noracle explore x",
        "python\nprint(1)",
    )
    text = "\n\n".join(f"```{block}\n```" for block in blocks)
    page = (
        f"# Title\n\nSee [metrics](metrics.md#a).\n\n{text}\n\n![figure](images/study.png)\n\n![page](images/a.png)\n"
    )
    cells = notebook_of("a", page)["cells"]
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in cells] == [
        ("markdown", f"# Title\n\n{BEFORE.format('a').rstrip()}"),
        ("code", SET_UP),
        ("markdown", "See metrics (`docs/metrics.md`)."),
        ("code", "!ls\n!echo a"),
        ("code", "!oracle example try\n%cd try"),
        ("markdown", "```sh\noracle explore x\n```"),
        ("code", "print(1)"),
        ("code", FIGURE),
        ("markdown", "![page](images/a.png)"),
    ]
    assert cells[3]["outputs"][0]["text"] == ["a\n"]


def bare(text):
    """Return a text without its line breaks and without the version in signatures, which is this one's."""
    return " ".join(re.sub(r"\|v\S+", "|v", text).split())


@pytest.mark.parametrize("name", PAGES)
def test_a_kernel_runs_the_notebook(name, tmp_path, monkeypatch, request):
    """`!` does not stop at an error, so the text of the page must be printed, folded anew; more may be."""
    for module in ("matplotlib", "starlette", "ipykernel"):
        pytest.importorskip(module)
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    if name == "iu-xray":
        request.getfixturevalue("iu_files")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(ROOT / f"docs/{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    written = [["".join(output["text"]) for output in cell.get("outputs", ())] for cell in notebook.cells]
    nbclient.NotebookClient(notebook, timeout=HANG, resources={"metadata": {"path": tmp_path}}).execute()
    for cell, texts in zip(notebook.cells, written, strict=True):
        shown = "".join(output.text for output in cell.get("outputs", ()) if output.output_type == "stream")
        lines = [line for text in texts for line in text.splitlines() if not re.match(r"\[\.\.\.\]$|built by ", line)]
        assert [line for line in lines if bare(line) not in bare(shown)] == [], shown
    assert sum(map(len, written)) > {"study": 8, "iu-xray": 5}[name]
    drawn = [cell.outputs[0].data for cell in notebook.cells if cell.source == FIGURE]
    assert ["image/png" in data for data in drawn] == [True] * (name == "study")
