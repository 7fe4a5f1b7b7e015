"""Misuse of every public function, method and constructor is one MetricOracleError, a clear line in Python's terms."""

import inspect
from pathlib import Path
from types import FunctionType
from typing import Literal, get_args, get_origin

import numpy as np
import pyarrow as pa
import pytest

import metric_oracle as mo
from metric_oracle.base import validation
from metric_oracle.base.errors import ArgumentError, InputError

FUNCTIONS = [name for name in mo.__all__ if inspect.isfunction(getattr(mo, name))]


class Foreign:
    """What no function takes."""


def needed(function):
    """Return a value that fits each argument that must be given."""
    found = {}
    for name, p in inspect.signature(function).parameters.items():
        if p.default is p.empty and p.kind is not p.VAR_KEYWORD:
            interval = mo.interval([0.0, 1.0, 1.0])
            values = ("x", [], {}, 1, True, ("x", "y"), np.zeros(1), Path("x"), pa.table({}), interval)
            chosen = get_args(p.annotation) if get_origin(p.annotation) is Literal else ()
            fitting = [value for value in (*chosen, *values) if validation._fits(value, p.annotation)]
            found[name] = fitting[0] if fitting else object.__new__(p.annotation)
    return found


def named_in(annotation):
    """Yield the classes of the package that an annotation names."""
    for inner in get_args(annotation):
        yield from named_in(inner)
    if inspect.isclass(annotation) and annotation.__module__.startswith("metric_oracle."):
        yield annotation


SIGNATURES = [inspect.signature(getattr(mo, name)) for name in FUNCTIONS]
CLASSES = [value for name in mo.__all__ if inspect.isclass(value := getattr(mo, name))]
CLASSES += [kind for one in SIGNATURES for p in one.parameters.values() for kind in named_in(p.annotation)]
CLASSES += [kind for one in SIGNATURES for kind in named_in(one.return_annotation)]
CLASSES = [kind for kind in dict.fromkeys(CLASSES) if not issubclass(kind, Exception | tuple)]
CALLED = [(kind, "__init__") for kind in CLASSES if issubclass(kind, validation.Checked)]
CALLED += [
    (kind, name)
    for kind in CLASSES
    for name in dir(kind)
    if not name.startswith("_")
    and isinstance(method := inspect.getattr_static(kind, name), FunctionType | classmethod)
    and getattr(method, "__func__", method).__code__.co_filename == validation.__file__
]


def bound(kind, name):
    """Return a method of an object without content: arguments are checked before it is used."""
    return kind if name == "__init__" else getattr(object.__new__(kind), name)


def test_a_constructor_keeps_the_items_of_an_iterator():
    options = mo.SearchOptions(exclude=iter(["self"]), where=iter(["bleu>0"]))
    assert options == mo.SearchOptions(exclude=["self"], where=["bleu>0"])
    assert mo.Reports(iter(["a"]), iter(["b"]), "x").texts == ["b"]
    samples = mo.Samples(iter(["a"]), iter([["b", "c"]]), iter([["0", "1"]]), "x")
    assert (samples.ids, samples.texts, samples.names) == (["a"], [["b", "c"]], [["0", "1"]])
    index = mo.build_index({"1": "no edema", "2": "no effusion"})
    found = mo.retrieve(index, {"1": "no edema"}, "bleu", options=mo.SearchOptions(exclude=iter(["self"])))
    assert found.table["candidate_id"].to_pylist() == ["2"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_unknown_keyword(name):
    with pytest.raises(ArgumentError, match=r"^\w+: there is no argument 'sektion'\. ") as caught:
        getattr(mo, name)(**needed(getattr(mo, name)), sektion="findings")
    assert isinstance(caught.value, mo.MetricOracleError)
    assert isinstance(caught.value, TypeError)  # Python's own kind, too


@pytest.mark.parametrize("name", FUNCTIONS)
def test_too_many_and_too_few_arguments(name):
    function = getattr(mo, name)
    with pytest.raises(ArgumentError, match=r"^\w+: too many positional arguments\. The call is \w+\("):
        function(*range(20))
    if needed(function):
        with pytest.raises(ArgumentError, match=r"^\w+: missing a required .*argument: '\w+'\. The call is \w+\("):
            function()


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        (name, argument)
        for name in FUNCTIONS
        for argument, kind in validation._known(getattr(mo, name)).items()
        if not validation._fits(Foreign(), kind)
    ],
)
def test_an_argument_of_another_type(name, argument):
    function = getattr(mo, name)
    with pytest.raises(ArgumentError, match=rf"^\w+: {argument} must be .*; got a Foreign\. The call is "):
        function(**{**needed(function), argument: Foreign()})


@pytest.mark.parametrize(("kind", "name"), CALLED, ids=[f"{kind.__name__}.{name}" for kind, name in CALLED])
def test_a_method_or_constructor_checks_its_arguments(kind, name):
    call = bound(kind, name)
    shown = kind.__name__ if name == "__init__" else f"{kind.__name__}.{name}"
    kinds = inspect.signature(call).parameters.values()
    with pytest.raises(ArgumentError, match=rf"^{shown}: too many positional arguments\. The call is {shown}\("):
        call(*range(30))
    if not any(p.kind is p.VAR_KEYWORD for p in kinds):
        with pytest.raises(ArgumentError, match=rf"^{shown}: there is no argument 'sektion'\. "):
            call(**needed(call), sektion="findings")
    for p in kinds:
        if p.kind is not p.VAR_KEYWORD and not validation._fits(Foreign(), p.annotation):
            with pytest.raises(ArgumentError, match=rf"^{shown}: {p.name} must be .*; got a Foreign\. The call is "):
                call(**{**needed(call), p.name: Foreign()})


@pytest.mark.parametrize(
    "name",
    [name for name in FUNCTIONS if "seed" in validation._known(getattr(mo, name))] + ["interval of Scores"],
)
def test_a_seed_below_zero(name):
    function = mo.score(TEXTS, TEXTS, "bleu").interval if name == "interval of Scores" else getattr(mo, name)
    with pytest.raises(
        InputError, match=r"^[\w.]+: seed must be an int of at least 0; got -3\. Choose another number\.$"
    ):
        function(**{**needed(function), "seed": -3})


UNEVEN = {
    "texts of reports": (lambda: mo.Reports(["a"], ["b", "c"], "x"), r"there are 2 texts and 1 ids\. Pass one"),
    "a column": (lambda: mo.Reports(["a"], ["b"], "x", columns={"age": []}), "there are 0 age and 1 ids"),
    "an id twice": (lambda: mo.Reports(["a", "a"], ["b", "c"], "x"), "an id occurs more than once in ids: 'a'"),
    "a section": (lambda: mo.Reports(["a"], ["b"], "x", section="lungs"), "section must be one of"),
    "texts of samples": (lambda: mo.Samples(["a"], [["x"], ["y"]], [], "m"), "texts must have a list for each id"),
    "names": (lambda: mo.Samples(["a"], [["x"]], [["0", "1"]], "m"), "names must have a list for each id, with a"),
    "values": (lambda: mo.Samples(["a"], [["x"]], [["0"]], "m", values=[[]]), "values must have a list for each id"),
    "no sample": (lambda: mo.Samples(["a"], [[]], [[]], "m"), r"a study has no sample\. Leave its id out"),
    "a study twice": (lambda: mo.Samples(["a"] * 2, [["x"]] * 2, [["0"]] * 2, "m"), "an id occurs more than once in"),
}


@pytest.mark.parametrize("case", UNEVEN)
def test_reports_and_samples_are_even(case):
    call, match = UNEVEN[case]
    with pytest.raises(InputError, match=rf"^{match}"):
        call()


def test_samples_of_no_study_have_a_summary():
    assert mo.Samples([], [], [], "m").summary() == "0 studies, 0 samples each; m"


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    texts = {"1": "no acute process", "2": "small effusion", "3": "no acute process"}
    return mo.build_index(texts, tmp_path_factory.mktemp("calls") / "I")


TEXTS = ["no effusion", "clear"]
CALLS = {
    "no index": (lambda i: mo.retrieve(None, TEXTS, "bleu"), "index must be an index or reports; got None"),
    "no queries": (lambda i: mo.retrieve(i, None, "bleu"), "reports must be a path, texts, .*; got NoneType"),
    "queries that are none": (lambda i: mo.expectation(i, Foreign(), "bleu"), "reports must be .*; got .*Foreign"),
    "results as queries": (lambda i: mo.retrieve(i, mo.retrieve(i, TEXTS, "bleu"), "bleu"), "reports must be a path"),
    "index and queries swapped": (
        lambda i: mo.retrieve(TEXTS, i, "bleu"),
        r"index and queries must be the corpus and the test reports, in this order; got reports and an i",
    ),
    "no metric": (lambda i: mo.retrieve(i, TEXTS, None), "metric must be a string; got None"),
    "metrics in a list": (lambda i: mo.retrieve(i, TEXTS, ["bleu"]), "metric must be a string; got a list of str"),
    "metrics with commas": (
        lambda i: mo.retrieve(i, TEXTS, "bleu,rouge-l"),
        "metric must be one .*; got 'bleu,rouge-l'",
    ),
    "metrics that are none": (lambda i: mo.score(TEXTS, TEXTS, [None]), "metrics must be .*; got a list of NoneType"),
    "metrics in place of models": (lambda i: mo.study(i, TEXTS, "bleu,rouge-l"), "models must be a dict .*; got a str"),
    "models with numbers": (lambda i: mo.study(i, TEXTS, {1: TEXTS}), "models must be .*; got a dict from int to list"),
    "a number of answers as text": (
        lambda i: mo.retrieve(i, TEXTS, "bleu", k="5"),
        "k must be an int or None; got a str",
    ),
    "an option of another type": (
        lambda i: mo.retrieve(i, TEXTS, "bleu", options=mo.SearchOptions(max_memory="4")),
        "max_memory must be a number of GB above 0 or None; got a str",
    ),
    "a share that is none": (
        lambda i: mo.rerank(i, TEXTS, "crepe", recall=1.0),
        r"recall must be a number between 0 and 1; got 1\.0\. Choose one, such as 0\.95\.$",
    ),
    "kind and metric swapped": (lambda i: mo.baseline(i, TEXTS, "bleu", "random"), "kind must be one of random"),
    "a path in place of a list": (lambda i: mo.merge("part.parquet"), "parts must be a list of paths; got a str"),
    "systems in a list": (lambda i: mo.compare(["a.parquet"]), "systems must be a dict .*; got a list of str"),
    "raters in a string": (
        lambda i: mo.create_survey(TEXTS, {"a": TEXTS}, "S", raters="anna"),
        "raters must be a list of strings; got a str",
    ),
    "values that are no numbers": (lambda i: mo.interval(["a", "b"]), "values must be .*; got a list of str"),
    "a section that is none": (
        lambda i: mo.score(mo.reports(TEXTS, mo.Read(section="lungs")), TEXTS, "bleu"),
        "section must be one of",
    ),
    "graphs that are none": (lambda i: mo.reports(TEXTS, radgraph=5).load(), "graphs must be a RadGraph file"),
    "completions that are none": (
        lambda i: mo.reward("bleu")(completions=5, reference=TEXTS),
        r"completions must be texts, or lists of chat messages with a content each; got int\.",
    ),
    "messages without content": (
        lambda i: mo.reward("bleu")(completions=[[{}], [{}]], reference=TEXTS),
        "completions must be texts, or lists of chat",
    ),
    "a progress without arguments": (
        lambda i: mo.retrieve(i, TEXTS, "bleu", progress=lambda: 1),
        "progress must be a function of 3 arguments or None; got a function",
    ),
    "a pair of one": (
        lambda i: mo.compare({"a": mo.score(TEXTS, TEXTS, "bleu")}, paired=[("a",)]),
        "paired must be a list of pairs; got a list of tuple",
    ),
    "a system without scores": (lambda i: mo.compare({"a": []}), "'a' has no scores. Give each system its scores"),
    "no system": (lambda i: mo.compare_study({}), "systems must have at least one name with scores; got none"),
    "a path with NUL": (
        lambda i: mo.build_index(TEXTS, "a\0b"),
        "out must be a path that a file can have; got ",
    ),
    "a checkpoint without a path": (
        lambda i: mo.rerank(i, TEXTS, "crepe", crepe={}, pool="bleu:1"),
        r"crepe must name a checkpoint; got none\. Add `crepe=FOLDER`\.",
    ),
    "a configuration without a checkpoint": (
        lambda i: mo.score(TEXTS, TEXTS, "crepe", crepe={"config": "config.json"}),
        r"crepe must name a checkpoint; got 'config' alone\. Add 'path': FOLDER\.",
    ),
    "one reference for all": (
        lambda i: mo.reward("bleu")(completions=TEXTS, reference="ab"),
        "reference must be one value for each of 2 .*; got str",
    ),
}


# A reward function is called by the trainer; it has no public name.
OF_NO_NAME = {"completions that are none", "messages without content", "one reference for all"}


@pytest.mark.parametrize("case", CALLS)
def test_misuse_is_one_clear_line(index, case):
    call, match = CALLS[case]
    name = "" if case in OF_NO_NAME else r"[\w.]+: "
    with pytest.raises(mo.MetricOracleError, match=rf"^{name}{match}") as caught:
        call(index)
    assert "\n" not in str(caught.value)
    assert not any(text in str(caught.value) for text in TEXTS)  # reports are patients' data


def test_what_fits_is_let_through(index, tmp_path):
    assert mo.retrieve(str(index.folder), np.array(TEXTS), "bleu", k=np.int64(2)).table.num_rows == 4
    assert mo.score(TEXTS, TEXTS, metrics=("bleu", "rouge-l"), options=mo.SearchOptions(rescale=None)).metrics == [
        "bleu-2",
        "rouge-l",
    ]
    assert mo.retrieve is mo.retrieve
    shown, declared = inspect.signature(mo.retrieve), inspect.signature(mo.retrieve.__wrapped__)
    assert [p.replace(annotation=p.empty) for p in shown.parameters.values()] == [
        p.replace(annotation=p.empty) for p in declared.parameters.values()
    ]
    assert "Doc(" in str(declared)
    assert "Doc(" not in str(shown)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: mo.score(TEXTS, TEXTS, "bertscore"), r"Add `mo\.reports\(\.\.\., encoder=NAME\|FOLDER\)`\.$"),
        (
            lambda: mo.score({"a": "A.", "b": "B."}, {"a": "A."}),
            r"Complete them, or pass `inner=True` to score the ids that h",
        ),
        (
            lambda: mo.score(mo.reports(TEXTS, layer=3), TEXTS),
            r"Add `mo\.reports\(\.\.\., encoder=NAME\)` or a folder\.$",
        ),
        (lambda: mo.score(TEXTS, TEXTS, "cider-d:corpus"), r"Add `index=INDEX`, the corpus whose frequencies count\.$"),
        (lambda: mo.retrieve("none", TEXTS, "bleu"), "Build one with `mo.build_index`"),
    ],
)
def test_advice_is_in_python_s_terms(call, match):
    with pytest.raises(mo.MetricOracleError, match=match):
        call()


def test_the_command_line_has_its_own_terms(oracle, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("study_id,report\n1,clear\n")
    assert "Add --encoder NAME|FOLDER." in oracle("score", path, path, "-m", "bertscore")[2]


def test_score_takes_the_section_as_a_search_does(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("study_id,findings,impression\n1,the heart is large,cardiomegaly\n")
    with pytest.warns(UserWarning, match="^references: .*, column impression, findings not taken, 1 of 1 rows$"):
        assert mo.score(path, {"1": "cardiomegaly"}, "rouge-l").mean() == {"rouge-l": 1.0}
    assert mo.score(mo.reports(path, mo.Read(section="findings")), {"1": "cardiomegaly"}, "rouge-l").mean() == {
        "rouge-l": 0.0
    }
    with pytest.raises(InputError, match=r"^read_predictions: .* Pass "):
        mo.read_predictions(path)
