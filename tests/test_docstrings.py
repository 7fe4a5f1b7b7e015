"""The docstrings of public names are complete numpydoc, their examples run, and those of internal names are short.

Public are the names of `metric_oracle.__all__` and the methods of its classes. Examples run in a folder with the files
of `oracle example`. Internal names have a line, and a paragraph where a reason or a rule needs one; the entry points of
kernels may have sections, which carry shapes. Fields of internal classes are described where they stand.
"""

import ast
import doctest
import gc
import inspect
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

import metric_oracle as mo
from metric_oracle.synthetic.example import write_example
from support import lacking

# https://numpydoc.readthedocs.io/en/latest/validation.html: a summary of one line that ends with a period, the
# parameters of the signature in its order with types and descriptions, results with descriptions, examples.
CHECKS = {"GL06", "GL07", "GL08", "SS01", "SS02", "SS03", "SS06", "PR01", "PR02", "PR03", "PR04", "PR07", "PR10"}
CHECKS |= {"RT01", "RT03", "YD01", "EX01"}


def methods(owner):
    """Yield the names of public methods and properties; fields and what is inherited are not among them."""
    for name, found in vars(owner).items():
        if not name.startswith("_") and (inspect.isroutine(found) or isinstance(found, classmethod | property)):
            yield name


OBJECTS = {name: getattr(mo, name) for name in mo.__all__}
CLASSES = {name: found for name, found in OBJECTS.items() if inspect.isclass(found)}
# Of names of one function, which has one example, the first.
WITH_EXAMPLES = list({inspect.unwrap(found): name for name, found in reversed(OBJECTS.items())}.values())[::-1]
METHODS = [f"{name}.{method}" for name, owner in CLASSES.items() for method in methods(owner)]


def faults_of(name):
    """Return what numpydoc finds, and whether a function with parameters says nothing of the errors that it raises."""
    try:
        from numpydoc.docscrape import NumpyDocString
        from numpydoc.validate import validate
    except ImportError:
        lacking("numpydoc is not installed: pip install --group docs")
    found = [": ".join(fault) for fault in validate(f"metric_oracle.{name}")["errors"]]
    checks = CHECKS - {"EX01"} if name in METHODS else CHECKS
    if name in OBJECTS and name not in CLASSES and inspect.signature(OBJECTS[name]).parameters:
        found += [] if NumpyDocString(inspect.getdoc(OBJECTS[name]))["Raises"] else ["no Raises section"]
    return [fault for fault in found if fault.partition(":")[0] in {*checks, "no Raises section"}]


@pytest.mark.parametrize("name", [*OBJECTS, *METHODS])
def test_docstrings_are_complete(name):
    assert "\n".join(faults_of(name)) == ""


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docstrings") / "example"
    write_example(folder)
    return folder


@pytest.mark.parametrize("name", WITH_EXAMPLES)
@pytest.mark.filterwarnings("ignore:ids. study_id of the references is joined with id of the samples")
def test_examples_of_docstrings_run(name, example, tmp_path, monkeypatch):
    shutil.copytree(example, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    said = []
    runner = doctest.DocTestRunner(optionflags=options)
    for test in doctest.DocTestFinder().find(inspect.unwrap(OBJECTS[name]), name, globs={"mo": mo}):
        runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)


SECTIONS = {"Parameters", "Returns", "Yields", "Raises", "Attributes", "Notes"}


def sections_of(node):
    """Return the heads of numpydoc's sections in the docstring of a function or class."""
    lines = (ast.get_docstring(node) or "").splitlines()
    return [head for head, rule in pairwise(lines) if head in SECTIONS and set(rule) == {"-"}]


def described(tree, module, public):
    """Yield internal functions and classes with sections; those in `public` and their methods are for users."""
    nodes = [(node, "", False) for node in tree.body]
    while nodes:
        node, prefix, is_of_public = nodes.pop()
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        name = f"{prefix}{node.name}"
        is_public = not node.name.startswith("_") and (is_of_public or f"{module}.{name}" in public)
        is_entry = ".kernels." in module and isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        if sections_of(node) and not (is_public or is_entry):
            yield f"{module}.{name}"
        nodes += [(inner, f"{name}.", is_public) for inner in node.body]


def test_internal_docstrings_have_no_sections():
    # A class that a public function takes or returns is for users as well; `public.guard` has marked it.
    public = {f"{obj.__module__}.{obj.__qualname__}" for obj in map(inspect.unwrap, OBJECTS.values())}
    # Not isinstance, which asks lazy objects of other libraries for their class.
    guarded = [obj for obj in gc.get_objects() if type in type(obj).__mro__ and "_is_guarded" in vars(obj)]
    public |= {f"{kind.__module__}.{kind.__qualname__}" for kind in guarded}
    folder = Path(mo.__file__).parent
    found = []
    for path in folder.rglob("*.py"):
        module = ".".join((folder.name, *path.relative_to(folder).with_suffix("").parts))
        found += described(ast.parse(path.read_text(encoding="utf-8")), module, public)
    assert found == []


@pytest.mark.parametrize(
    ("module", "source", "names"),
    [
        ("p.indexes.a", 'def f(x):\n    """Do it.\n\n    Parameters\n    ----------\n    x : int\n    """', ["f"]),
        ("p.indexes.a", 'class A:\n    """An a.\n\n    Attributes\n    ----------\n    x : int\n    """', ["A"]),
        ("p.kernels.a", 'def f(x):\n    """Do it.\n\n    Parameters\n    ----------\n    x : int\n    """', []),
        ("p.kernels.a", 'def _f(x):\n    """Do it.\n\n    Returns\n    -------\n    int\n    """', ["_f"]),
        ("p.indexes.a", 'def public(x):\n    """Do it.\n\n    Returns\n    -------\n    int\n    """', []),
        ("p.indexes.a", 'def f(x):\n    """Do it.\n\n    Why it is done so.\n    """', []),
    ],
)
def test_the_guard_of_internal_docstrings(module, source, names):
    assert [*described(ast.parse(source), module, {"p.indexes.a.public"})] == [f"{module}.{name}" for name in names]
