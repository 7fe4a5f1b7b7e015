"""Imports point one way; what must stay light, stays light.

    cli -> commands -> bench, explorer, survey, synthetic -> raters -> tables, copies, mining
        -> pools, verification -> scores -> retrieval -> judges, sides, findings -> reading -> indexes
        -> sources, kernels -> corpora, encoders, NumPy, Numba

The rooms of design.md: each imports only what stands in ``ALLOWED``. `base` and `records` are leaves, and so are
`statistics` and `metrics`, which collects the records in the folders of the kernels. `web` serves and renders pages and
knows nothing of what they show. Kernels know no Arrow, no files and no command line, and the plain scorers import no
fast module.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import metric_oracle
import metric_oracle as mo
from metric_oracle.commands.listing import COMMANDS
from metric_oracle.metrics import METRICS

PACKAGE = Path(metric_oracle.__file__).parent
# Part of the package -> the parts that it may import. `metric_oracle/__init__.py` is the part "".
LEAVES = {"base", "metrics", "records"}
ENGINE = LEAVES | {
    "annotating", "corpora", "findings", "indexes", "judges", "pools", "projects", "reading", "retrieval",
    "scores", "sides", "sources",
}  # fmt: skip
ALLOWED = {
    "base": set(),
    "records": set(),
    "metrics": {"base", "kernels", "records"},
    "statistics": {"base"},
    "kernels": {"base", "records"},
    "cluster": {"base"},
    "web": {"base"},
    "corpora": LEAVES,
    "encoders": LEAVES | {"corpora"},
    "sources": LEAVES | {"corpora", "encoders"},
    "indexes": LEAVES | {"cluster", "corpora", "encoders", "kernels", "sources"},
    "reading": LEAVES | {"corpora", "indexes", "sources"},
    "projects": LEAVES | {"corpora", "judges", "reading", "sources"},
    "annotating": LEAVES | {"corpora", "reading", "sources"},
    "sides": LEAVES | {"corpora", "indexes", "reading", "sources"},
    "findings": LEAVES | {"corpora", "indexes", "statistics"},
    "judges": LEAVES | {"corpora", "findings"},
    "retrieval": LEAVES | {"cluster", "corpora", "findings", "indexes", "judges", "kernels", "reading", "sides",
                  "sources", "statistics"},
    "scores": LEAVES | {"corpora", "findings", "indexes", "judges", "kernels", "reading", "retrieval", "sides",
               "sources", "statistics"},
    "pools": LEAVES | {"corpora", "findings", "indexes", "judges", "reading", "retrieval", "scores", "sides",
              "statistics"},
    "verification": LEAVES | {"corpora", "findings", "indexes", "kernels", "reading", "retrieval", "scores", "sides",
                     "statistics"},
    "tables": ENGINE | {"kernels", "statistics"},
    "copies": ENGINE | {"statistics"},
    "mining": ENGINE | {"cluster", "statistics", "verification"},
    "samples": ENGINE | {"statistics", "tables"},
    "raters": ENGINE | {"encoders", "statistics", "tables"},
    "survey": ENGINE | {"raters", "tables", "web"},
    "explorer": ENGINE | {"copies", "kernels", "raters", "samples", "statistics", "tables", "web"},
    "synthetic": ENGINE | {"raters"},
    "bench": ENGINE | {"kernels", "synthetic", "verification"},
    "commands": ENGINE | {"bench", "copies", "explorer", "mining", "raters", "samples", "survey", "synthetic", "tables",
                          "web"},
    "cli": LEAVES | {"commands"},
    "__main__": {"cli", "commands"},  # the list of commands is shown without the command line
    "": ENGINE | {"copies", "mining", "raters", "samples", "statistics", "survey", "tables", "verification"},
}  # fmt: skip
# What stands apart in `base`: kernels raise errors, wait for locks of stored code, ask for the processor and read no
# files; the errors know types only.
OF_BASE = {"kernels": {"errors", "locks", "operating_system"}, "metrics": {"errors", "validation"}, "web": {"errors"},
           "base/errors.py": set(), "base/locks.py": {"errors"}, "base/files.py": {"errors", "locks"},
           "base/declarations.py": set(), "base/operating_system.py": set()}  # fmt: skip
WITH_LIBRARIES = {"base/files.py", "base/job.py", "base/checksum.py"}
KERNEL_LIBRARIES = {"numpy", "numba", "llvmlite"}
DEVICE_LIBRARIES = {"torch", "faiss", "triton"}
DEVICE_FILES = ("cuda.py", "_device.py", "segment_maxima.py")  # the last one is a kernel in Triton's language
# Kernels that use the searches of others: greatest cosines both ways, of tokens or of sentences; sums of scores.
SEARCH_OF = {"sentences": {"bertscore"}, "sum": {"bertscore", "cosine"}}
OF_RECORDS = {"sum"}  # kernels that are given records, those of the metrics that they add up
# What the parts of a `reference.py` may import: scores and other references, never a fast module.
PLAIN = {"score", "reference"}
HEAVY = ("numpy", "numba", "pyarrow", "polars", "torch", "faiss", "scipy", "matplotlib", "starlette", "jinja2", "ray")


def imports_of(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything that a module imports, wherever it stands.

    Lazy imports by name count too: `import_module("a.b")`, and an f-string up to its first field.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            home = node.module or ""
            if node.level:
                up = module.split(".")[: None if is_package and node.level == 1 else -(node.level - is_package)]
                home = ".".join([*up, home] if home else up)
            yield from ((node.lineno, f"{home}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            text = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
            if name in ("import_module", "__import__") and isinstance(text, ast.Constant):
                yield node.lineno, str(text.value)


def broken_rules(source: str, path: Path) -> list[str]:
    """Return one line for every import of a module that points up, or out of bounds.

    Parameters
    ----------
    source : str
    path : Path
        Relative to the package.
    """
    is_package = path.stem == "__init__"
    parts = [*path.parent.parts, *([] if is_package else [path.stem])]
    part = parts[0] if parts else ""
    found = []
    for line, name in imports_of(ast.parse(source), ".".join(["metric_oracle", *parts]), is_package):
        top, *rest = name.split(".")
        place = f"{path}:{line}: {name}"
        if top in ("benchmarks", "tests"):
            found.append(f"{place}: nothing imports {top}")
        elif top != "metric_oracle":
            libraries = set() if is_package else KERNEL_LIBRARIES
            libraries = libraries | DEVICE_LIBRARIES if path.name in DEVICE_FILES else libraries
            if part == "kernels" and top not in libraries and top not in sys.stdlib_module_names:
                found.append(f"{place}: kernels import NumPy, Numba and its LLVM only")
            if (
                part in LEAVES
                and path.as_posix() not in WITH_LIBRARIES
                and top not in {"annotated_doc", "annotated_types", *sys.stdlib_module_names}
            ):
                found.append(f"{place}: a leaf imports the standard library and annotations only")
        elif part not in ALLOWED:
            found.append(f"{place}: {part!r} has no place in the house")
        elif rest and rest[0] != part and rest[0] not in ALLOWED[part]:
            found.append(f"{place}: {part or 'the package'} may not import {rest[0]}")
        elif rest[:1] == ["base"] and rest[1] not in OF_BASE.get(path.as_posix(), OF_BASE.get(part, rest)):
            found.append(f"{place}: {path} may not import base.{rest[1]}")
        elif part == "commands" and any(word.startswith("_") for word in rest):
            found.append(f"{place}: a command calls no private function")
        elif part == "kernels" and (
            (is_package and is_module(rest))
            or (not is_package and rest[0] == "records" and not OF_RECORDS & set(parts))
        ):
            found.append(f"{place}: the records of a folder are apart from its code")
        elif part == "kernels" and path.name == "reference.py" and not PLAIN & set(rest):
            found.append(f"{place}: a reference imports no fast module")
        elif part == "kernels" and path.name == "score.py" and rest[:2] != ["kernels", "_jit"]:
            found.append(f"{place}: a score imports _jit only")
        elif part == "kernels" and len(parts) > 2 and not parts[1].startswith("_"):
            other = rest[1] if len(rest) > 1 else ""
            shared = (
                other.startswith("_")
                or other in ("contract", "topk", parts[1])
                or other in SEARCH_OF.get(parts[1], ())
                or rest[0] == "records"
            )
            if not shared and not PLAIN & set(rest):
                found.append(f"{place}: a metric may not import another's fast module")
    return found


def is_module(names: list[str]) -> bool:
    """Return whether the first of some names, of an import, are a module of the kernels that is no folder."""
    named = range(2, len(names) + 1) if names[0] == "kernels" else ()
    return any((PACKAGE / Path(*names[:n])).with_suffix(".py").exists() for n in named)


def modules() -> list[Path]:
    return sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py*") if path.suffix in (".py", ".pyi"))


def test_no_import_points_up():
    assert len(modules()) > 40
    found = [line for path in modules() for line in broken_rules((PACKAGE / path).read_text("utf-8"), path)]
    assert found == []


def test_one_place_makes_a_sign_of_the_direction():
    """Lower is better is forgotten where each comparison decides on its own; they multiply by `sign`."""
    asked = re.compile(r"higher_is_better (?:else|==|and|or)|(?:if|not) [\w.\[\]()]*\.higher_is_better")
    found = {str(path) for path in modules() if asked.search((PACKAGE / path).read_text("utf-8"))}
    assert found == {"records.py"}


# What Linux alone has, or names in its own way.
OF_ONE_SYSTEM = re.compile(
    r"/proc\b|\bplatform\.(?:machine|processor|system|uname)\b|\bsys\.platform\b|\bos\.name\b"
    r"|\b(?:sched_\w+|posix_f\w+|fdatasync|MADV_\w+|getrusage|memfd_create|copy_file_range|epoll|pidfd_open)\b"
    r"|\b(?:O_(?:DIRECT|TMPFILE|PATH)|F_SETPIPE_SZ)\b"
)


def test_one_module_asks_for_the_operating_system():
    """There, the way that other systems have stands beside Linux's."""
    found = {path.as_posix() for path in modules() if OF_ONE_SYSTEM.search((PACKAGE / path).read_text("utf-8"))}
    assert found == {"base/operating_system.py"}


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("kernels/bleu/cpu.py", "import pyarrow"),
        ("kernels/bleu/cpu.py", "def f():\n    import torch"),
        ("kernels/bleu/cpu.py", "from metric_oracle.indexes.ngrams import tokenize_bleu"),
        ("kernels/bleu/cpu.py", "from ...indexes import ngrams"),
        ("kernels/bleu/cpu.py", "from metric_oracle.metrics import METRICS"),
        ("kernels/bleu/cpu.py", "def f():\n    from metric_oracle.kernels.rouge_l.cpu import count_lcs"),
        ("kernels/bleu/reference.py", "from metric_oracle.kernels.bleu.cpu import search"),
        ("kernels/bleu/reference.py", "from metric_oracle.kernels._overlap import Features"),
        ("kernels/bleu/reference.py", "from . import cpu"),
        ("kernels/bleu/score.py", "from metric_oracle.kernels._overlap import SLACK"),
        ("kernels/__init__.py", "from .. import indexes"),
        ("kernels/bleu/__init__.py", "import numpy"),
        ("kernels/bleu/__init__.py", "from metric_oracle.kernels.bleu import cpu"),
        ("kernels/bleu/__init__.py", "from metric_oracle.kernels.rouge_l.cpu import Backend"),
        ("kernels/bleu/__init__.py", "from metric_oracle.kernels._jit import jit"),
        ("kernels/bleu/__init__.py", "from metric_oracle.metrics import METRICS"),
        ("kernels/bleu/cpu.py", "from metric_oracle.records import Metric"),
        ("indexes/index.py", "from metric_oracle.retrieval import search"),
        ("indexes/index.py", "from importlib import import_module\nimport_module('metric_oracle.retrieval.search')"),
        ("indexes/index.py", "import importlib\nimportlib.import_module(f'metric_oracle.retrieval.{x}')"),
        ("indexes/__init__.py", "from ..retrieval import search"),
        ("corpora/reports.py", "import metric_oracle.indexes.index"),
        ("corpora/entities.py", "from metric_oracle.sources.entities import as_entities"),
        ("sources/radgraph.py", "from metric_oracle.indexes.radgraph import FAMILIES"),
        ("sources/labels.py", "from metric_oracle.kernels.topk import reference"),
        ("encoders/ratescore.py", "from metric_oracle.sources.entities import as_entities"),
        ("retrieval/search.py", "from metric_oracle.mining import mine"),
        ("indexes/prepared.py", "from metric_oracle.reading import reports"),
        ("retrieval/search.py", "from metric_oracle.tables import study"),
        ("tables/study.py", "from metric_oracle.raters import interrater"),
        ("findings/printed_tables.py", "from metric_oracle import cli"),
        ("findings/printed_tables.py", "from metric_oracle.kernels import topk"),
        ("retrieval/search.py", "import tests.conftest"),
        ("tables/study.py", "if True:\n    from metric_oracle import cli"),
        ("findings/printed_tables.py", "from metric_oracle.commands import output"),
        ("commands/output.py", "from metric_oracle import cli"),
        ("tables/systems.py", "from metric_oracle.web import server"),
        ("findings/printed_tables.py", "from metric_oracle.web import render"),
        ("web/server.py", "from metric_oracle.commands import output"),
        ("web/server.py", "from metric_oracle.kernels import topk"),
        ("commands/search.py", "from metric_oracle.kernels import topk"),
        ("commands/training.py", "from metric_oracle.encoders.crepe_training import train"),
        ("commands/tools.py", "from metric_oracle.bench.timing import _measure"),
        ("cli.py", "from metric_oracle import reading"),
        ("reading.py", "from metric_oracle.cli import main"),
        ("reading.py", "from metric_oracle import tables"),
        ("metrics.py", "import numpy"),
        ("statistics.py", "from metric_oracle.findings.results import Scores"),
        ("metrics.py", "from metric_oracle.indexes import index"),
        ("records.py", "from metric_oracle import kernels"),
        ("base/errors.py", "from metric_oracle import metrics"),
        ("base/errors.py", "from metric_oracle.base.files import digest"),
        ("base/operating_system.py", "from metric_oracle.base.errors import InputError"),
        ("kernels/bleu/cpu.py", "from metric_oracle.base.files import digest"),
        ("__init__.py", "from metric_oracle.kernels import topk"),
        ("attic.py", "from metric_oracle.base import errors"),
    ],
)
def test_the_checker_rejects(path, source):
    assert len(broken_rules(source, Path(path))) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "kernels/bleu/cpu.py",
            "import math\nimport numba.extending\nfrom metric_oracle.kernels.topk.cpu import offer",
        ),
        ("kernels/bleu/cpu.py", "from metric_oracle.kernels._overlap import scan\nfrom .score import bleu"),
        ("kernels/bleu/reference.py", "import numpy\nfrom collections import Counter\nfrom .score import bleu"),
        (
            "kernels/rouge_l/__init__.py",
            "from metric_oracle.kernels.bleu import NGRAMS\nfrom metric_oracle.records import Metric",
        ),
        ("kernels/radcliq/__init__.py", "from metric_oracle.kernels import bleu"),
        ("kernels/bertscore/cuda.py", "from .cpu import search\ndef f():\n    import torch"),
        ("indexes/vectors.py", "import faiss\nfrom metric_oracle.kernels._overlap import Features"),
        ("cli.py", "from metric_oracle.commands import output\nfrom metric_oracle.base.errors import InputError"),
        (
            "commands/search.py",
            "from metric_oracle.retrieval.plan import plan\nfrom metric_oracle.findings import views",
        ),
        ("retrieval/search.py", "import_module(f'metric_oracle.kernels.{kernel}.cpu')"),
    ],
)
def test_the_checker_accepts(path, source):
    assert broken_rules(source, Path(path)) == []


def test_no_two_modules_import_each_other():
    paths = {
        ".".join(["metric_oracle", *path.with_suffix("").parts]): path for path in modules() if path.suffix == ".py"
    }
    imported = {}
    for module, path in paths.items():
        names = [name for _, name in imports_of(ast.parse((PACKAGE / path).read_text("utf-8")), module, False)]
        imported[path.as_posix()] = {
            paths[home].as_posix() for name in names for home in (name, name.rpartition(".")[0]) if home in paths
        }
    assert "corpora/workbooks.py" in imported["corpora/tables.py"]
    found = {(a, b) for a, others in imported.items() for b in others if a < b and a in imported[b]}
    assert found == set()


# Classes that each kernel has under one name: the two roles of `kernels/contract.py`.
ROLES = {"Backend", "Workspace"}
# Modules that several rooms have under one name: what each does about the same subject.
SUBJECTS = {
    "contract", "crg", "embeddings", "entities", "figures", "labels", "pages", "pair_models", "radgraph", "sentences",
    "token_states", "vectors", "view",
}  # fmt: skip


def test_one_name_means_one_idea():
    """No two classes share a name, nor do modules of different subjects.

    The modules of `commands` are left out: each has the name of its subject.
    """
    classes, rooms = {}, {}
    for path in modules():
        if path.suffix == ".py":
            tree = ast.parse((PACKAGE / path).read_text("utf-8"))
            for name in [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]:
                classes.setdefault(name, []).append(path.as_posix())
            if len(path.parts) < 3 and path.stem != "__init__" and path.parts[0] != "commands":
                rooms.setdefault(path.stem, []).append(path.as_posix())
    assert {name: places for name, places in classes.items() if len(places) > 1 and name not in ROLES} == {}
    assert {name: places for name, places in rooms.items() if len(places) > 1 and name not in SUBJECTS} == {}


def test_each_metric_has_its_row_in_the_table_of_tests():
    table = (Path(__file__).parent / "README.md").read_text("utf-8")
    first = {line.split("|")[1] for line in table.splitlines() if line.startswith("| `")}
    named = {name for cell in first for name in re.findall(r"`([^`]+)`", cell)}
    spans = {"bleu-2": "bleu-4", "bleu-3": "bleu-4", "bleu-2:coco": "bleu-4:coco", "bleu-3:coco": "bleu-4:coco"}
    for name in METRICS:
        family, _, variant = name.partition(":")
        is_variant = family in named and f":{variant}" in named
        assert name in named or is_variant or spans.get(name) in named, name


def test_an_interruption_during_imports_is_one_line():
    code = """
import builtins, runpy, sys
real = builtins.__import__
def stop(name, *rest, **more):
    if name == "typer":
        raise KeyboardInterrupt
    return real(name, *rest, **more)
builtins.__import__ = stop
runpy.run_module("metric_oracle", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    line = "error: oracle: the command must run to its end; got an interruption. Run it again: a build resumes.\n"
    assert (done.returncode, done.stdout, done.stderr) == (130, "", line)


@pytest.mark.parametrize(
    "module",
    [
        "metric_oracle",
        "metric_oracle.cli",
        "metric_oracle.corpora.read",
        "metric_oracle.base.errors",
        "metric_oracle.metrics",
        "metric_oracle.sources.keywords",
    ],
)
def test_importing_costs_nothing(module):
    code = f"import sys, {module}; print(sorted(set({HEAVY}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# What neither the help nor a search of texts needs. Numba's import takes SciPy's first lines, and no more.
LATER = ("pandas", "scipy.linalg", "polars", "torch", "transformers", "matplotlib", "ray", "faiss", "starlette")


# What no module of a public function imports at its head: compiled code, models, and what computes with tables.
BY_USE = {*HEAVY, *LATER, "llvmlite", "pyarrow.compute", "pyarrow.json", "pyarrow.parquet"} - {"numpy", "pyarrow"}


def modules_after(*words):
    """Return what a command printed, and the names of all modules that it had loaded at its end."""
    code = "import atexit, sys; from metric_oracle.__main__ import main; "
    code += "atexit.register(lambda: print(*sys.modules, file=sys.stderr)); main()"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    return done.stdout, {*done.stderr.split()}


def test_the_list_of_commands_is_shown_without_them():
    shown, loaded = modules_after("--help")
    assert "retrieve" in shown
    assert {*HEAVY, *LATER, "pydantic", "typer", "rich.markdown", "rich.traceback"} & loaded == set()
    assert "metric_oracle.commands.search" not in loaded


def test_the_help_of_a_command_needs_neither_kernels_nor_what_reads_tables():
    """The declarations of its options stand at public functions, whose modules import these where they use them."""
    code = f"""
import contextlib, io, json, sys
import typer
from metric_oracle import cli

def show(*words):
    sys.argv = ["oracle", *words, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        cli.main()
    assert "Usage: " + " ".join(["oracle", *words]) in shown.getvalue(), words
    print(json.dumps([" ".join(words), *sorted(sys.modules.keys() & {BY_USE})]))

commands = typer.main.get_command(cli.app)
context = typer.Context(commands)
for name in commands.list_commands(context):
    show(name)
    for inner in getattr(commands.get_command(context, name), "commands", ()):
        show(name, inner)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {words: [*names] for words, *names in map(json.loads, done.stdout.splitlines())}
    assert {*COMMANDS, "baseline random", "survey export"} <= {*loaded}
    assert {words: names for words, names in loaded.items() if names} == {}


def test_a_search_loads_what_it_needs(tmp_path):
    texts = ["No acute process.", "Small effusion on the right.", "Large effusion."]
    mo.build_index(texts, tmp_path / "INDEX", metrics="rouge-l")
    search = ("retrieve", tmp_path / "INDEX", "--text", "Small effusion.", "-m", "rouge-l", "--format", "jsonl")
    by_kernels = (*search, "--backend", "cpu")
    modules_after(*by_kernels)  # the first one compiles, for which Numba imports SciPy's linear algebra
    cpu = {"metric_oracle.kernels.rouge_l.cpu", "metric_oracle.kernels.topk.cpu"}
    for words, kernels in ((by_kernels, cpu), (search, set())):
        shown, loaded = modules_after(*words)
        assert json.loads(shown)["text"] == texts[1]
        assert {*LATER, "pyarrow.compute", "pyarrow.parquet", "rich", "metric_oracle.tables"} & loaded == set()
        assert {name for name in loaded if re.fullmatch(r"metric_oracle\.kernels\.[a-z_]+\.cpu", name)} == kernels


def test_public_names_are_loaded_when_used():
    code = "import sys, metric_oracle as mo; mo.retrieve; print('numpy' in sys.modules, len(mo.__all__), *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    has_numpy, n_names, *names = done.stdout.split()
    assert (has_numpy, n_names) == ("True", str(len(metric_oracle.__all__)))
    assert not {
        "metric_oracle.cluster",
        "metric_oracle.indexes.remote_build",
        "metric_oracle.retrieval.remote_search",
    } & {*names}
    for name in metric_oracle.__all__:
        assert getattr(metric_oracle, name).__name__ == name
    assert dir(metric_oracle) == sorted(metric_oracle.__all__)
    with pytest.raises(AttributeError, match=r"^module 'metric_oracle' has no attribute 'nothing'$"):
        metric_oracle.nothing  # noqa: B018


def test_models_are_imported_by_what_opens_them():
    """Reading a source loads no encoder."""
    code = "import sys; from metric_oracle.sources import attaching; attaching.attached_sources(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not [name for name in done.stdout.split() if name.startswith("metric_oracle.encoders")]
    assert "metric_oracle.sources.radgraph" in done.stdout.split()


def test_the_formatter_is_skipped_for_tables_of_data_only():
    """`# fmt: skip` may end an assignment or a return of a literal list, dict, set or tuple, and nothing else."""
    literals = (ast.Dict, ast.List, ast.Set, ast.Tuple)
    statements = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)
    wrong = []
    for path in [*PACKAGE.rglob("*.py"), *(PACKAGE.parent / "benchmarks").glob("*.py")]:
        source = path.read_text(encoding="utf-8")
        nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, statements)]
        tables = {node.end_lineno for node in nodes if isinstance(node.value, literals)}
        skipped = {row for row, line in enumerate(source.splitlines(), 1) if "# fmt:" in line}
        wrong += [f"{path.relative_to(PACKAGE.parent)}:{row}" for row in sorted(skipped - tables)]
    assert wrong == []
