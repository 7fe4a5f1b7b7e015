"""The docstrings of public names tell of every argument, result and error, and their examples run.

Public are the names of `metric_oracle.__all__` and the methods of its classes. Examples run in a folder with the files
of `oracle example`. How a docstring is written, ruff's rules say.
"""

import doctest
import inspect
import shutil

import pytest

import metric_oracle as mo
from metric_oracle.synthetic.example import write_example
from support import lacking

# https://numpydoc.readthedocs.io/en/latest/validation.html: known sections in their order, the parameters of the
# signature with types and descriptions, results with descriptions, examples. Ruff's rules D have the rest.
CHECKS = {"GL06", "GL07", "PR01", "PR02", "PR03", "PR04", "PR07", "PR10", "RT01", "RT03", "YD01", "EX01"}


def methods(owner):
    """Yield the names of public methods and properties; fields and what is inherited are not among them."""
    for name, found in vars(owner).items():
        if not name.startswith("_") and (inspect.isroutine(found) or isinstance(found, classmethod | property)):
            yield name


OBJECTS = {name: getattr(mo, name) for name in mo.__all__}
CLASSES = {name: found for name, found in OBJECTS.items() if inspect.isclass(found)}
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


@pytest.mark.parametrize("name", OBJECTS)
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
