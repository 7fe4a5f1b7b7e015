"""Every option of every command arrives where it is meant to: found through the app itself, not from a list.

Each command runs with every function of the package below it replaced by a recorder that binds what it is called with
to the real function's parameters. An option is right when its value arrives under its own name, one for reports when
`reports` gets it, or under the name that RENAMED gives it. Nothing is computed.
"""

import enum
import importlib
import inspect
import pkgutil
import re
import types
import typing
from dataclasses import fields, is_dataclass
from functools import wraps
from importlib.metadata import version

import pytest
import typer

import metric_oracle
from generated import registered
from metric_oracle import cli
from metric_oracle.commands import groups, inputs
from metric_oracle.corpora.read import Read
from metric_oracle.encoders.crepe_training import TrainingSettings
from metric_oracle.mining.selection import Selection
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.sources import availability
from metric_oracle.survey.create import SurveyOptions
from metric_oracle.tables.layout import Layout

# Real: what is tested, leaves that know no files, and functions that only call or part what they are given.
CALLERS = ("together", "_numbered", "parted")
DOOR = ("cli", "commands", "declarations", "metrics", "errors", "validation", "argument_checks", "kernels")
# Command ("*": any) and option or argument -> where its value arrives, where that is not a parameter of its own name:
# a pattern of function.parameter.
RENAMED = {
    ("*", "index"): r"open_index\.path",
    ("*", "--out"): r"_?write(?!_plot)\w*\.path",
    ("*", "--plot"): r"\w*plot\w*\.path",
    ("*", "--with-text"): "text",
    ("*", "-m"): "metrics?|record",
    ("demo", "--reports"): "n_reports",
    ("demo", "--tests"): "n_tests",
    ("synth", "--reports"): "n_reports",
    ("synth", "--tests"): "n_tests",
    ("synth", "out"): "out",
    ("retrieve", "--text"): r"reports\.data",
    **{
        (command, f"--{side}-vector-ids"): f"{side}_vectors"
        for side in ("corpus", "query")
        for command in ("baseline nearest", "verify")
    },
    ("*", "--project"): r"current\.path",
    **{("consensus", f"--{name}"): r"write_numbers\.path" for name in ("utilities", "matrix")},
    **{(command, "--out"): rf"{command}\.out" for command in ("mine", "pairs")},
    ("overlap", "--pairs"): r"write_numbers\.path",
    ("table", "systems"): r"compare\.systems",
    ("table", "--interval"): "method",
    ("table", "--oracle"): "oracles",
    ("align", "--direction"): "directions",
    **{("compare-metrics", option): "sets" for option in ("--scores", "--samples")},
    ("compare-metrics", "--direction"): "directions",
    ("compare-metrics", "--ablation"): "ablations",
    ("compare-metrics", "--scatter"): r"write_figure\.path",
    **{(command, "--foreign"): r"read_foreign\.(?:name|path)" for command in ("table", "explore", "report")},
    **{(command, "--direction"): "directions" for command in ("table", "explore", "report")},
    ("study", "--interval"): "method",
    ("failure-modes", "--category"): "categories",
    ("crg", "--level"): "levels",
    **{(command, "results"): r"read_result\.file" for command in ("explore", "report")},
    ("explore", "--sampled"): r"read_samples\.data",
    ("explore", "--copies"): r"read_copies\.path",
    **{(command, "--index"): r"open_index\.path" for command in ("explore", "report")},
    ("report", "--with-text"): r"write_report\.text",
    **{(command, "--ratings"): r"read_ratings\.path" for command in ("explore", "report")},
    **{(command, "--scores"): r"read_cases\.rated" for command in ("explore", "report")},
    **{(f"survey {command}", "survey"): "folder" for command in ("status", "export", "serve")},
}
# Those that choose what is called: what is typed, and the function.
CHOOSES = {
    ("info", "--check"): [(["--check"], r"open_index\(\)\.verify_files")],
}
# What the door itself does; test_cli.py, test_cli_tools.py, copies/test_overlap.py and the last test here run them.
OF_THE_DOOR = {
    ("reports", "--dry-run"),
    ("*", "--quiet"),
    ("*", "--format"),
    ("annotate", "*"),
    ("explore", "--images"),
    ("study", "--overlap"),
}
# What only makes sense beside another option, and without another argument.
BESIDE = {
    ("score", "--published-names"): ["--out", "zz.csv"],
    ("retrieve", "--components"): ["--format", "table"],
    ("merge", "--components"): ["--format", "table"],
    ("rerank", "--components"): ["--format", "table"],
    ("retrieve", "--part"): ["--out", "zz.parquet"],
    ("retrieve", "--weights"): ["-m", "composite"],
    **{(command, "*"): ["--out", "zz.parquet"] for command in ("mine", "pairs", "pool")},
    ("mine", "--weights"): ["-m", "composite", "--out", "zz.parquet"],
    ("report", "*"): ["--out", "zz.html", "--queries", "zzq.csv"],
    ("study", "--overlap"): ["--out", "zzfolder"],
    ("*", "--width"): ["--plot", "zz.png"],
    ("explore", "*"): ["--queries", "zzq.csv"],
    **{("report", option): ["--out", "zz.html"] for option in ("--queries", "results", "--index")},
    **{("explore", option): [] for option in ("--queries", "results", "--index", "--port", "--ratings")},
    **{("explore", option): ["--ratings", "zzr.csv"] for option in ("--samples", "--scores")},
    ("report", "--ratings"): ["--out", "zz.html"],
    **{("report", option): ["--out", "zz.html", "--ratings", "zzr.csv"] for option in ("--samples", "--scores")},
    **{(command, "--direction"): ["--foreign", "zz=zz.csv"] for command in ("table", "explore")},
    ("report", "--direction"): ["--foreign", "zz=zz.csv", "--out", "zz.html"],
}
METRICS = ("rouge-l", "bleu-4")  # one where a command has a default: it takes one
LEFT_OUT = {("retrieve", "--text"): "queries"}
FORMS = {
    "NAME=FILE": "zz{}=zz{}file.csv",
    "[NAME=]FILE": "zz{}=zz{}file.csv",
    "[NAME=]COLUMN": "zz{}=zz{}column",
    "[NAME=]SECTION": "zz{}=findings",
    "NAME=SECTION": "zz{}=findings",
    "NAME=COLUMN": "zz{}=zz{}column",
    "METRIC=NAME": "zz{}=zz{}name",
    "NAME=REASON": "zz{}=zz{}reason",
    "A,B": "zza{},zzb{}", "NAME=higher": "zz{}=zz{}way",
}  # fmt: skip


class Anything(dict):
    """What a recorded function returns: it has every attribute and item, and its methods are recorded too."""

    def __init__(self, calls, name):
        super().__init__()
        self._calls, self._name = calls, name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(self._calls, f"{self._name}.{name}")

    def __missing__(self, key):
        return self

    def __call__(self, *positional, **named):
        self._calls.append((self._name, {**{"?" * (i + 1): v for i, v in enumerate(positional)}, **named}))
        return Anything(self._calls, f"{self._name}()")

    def __format__(self, form):
        return "0"

    __hash__ = object.__hash__

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        return None


def walk(command, path=()):
    """Yield path and command of every command that does something."""
    if hasattr(command, "commands"):
        for name in command.list_commands(None):
            yield from walk(command.get_command(None, name), (*path, name))
    else:
        yield path, command


COMMANDS = {" ".join(path): command for path, command in walk(typer.main.get_command(cli.app))}
FOR_REPORTS = {f"{group.name or ''} {info.name}".strip(): info.callback.reports for *_, group, info in registered()}
CASES = [
    (path, p.opts[0])
    for path, command in COMMANDS.items()
    for p in command.params
    if p.name != "help"
    and ((path, p.opts[0]) in CHOOSES or not {(path, p.opts[0]), ("*", p.opts[0]), (path, "*")} & OF_THE_DOOR)
]


def kind_of(command, name):
    """Return type and whether it may come more than once, from the annotation of the command's parameter."""
    annotation = inspect.signature(command.callback, eval_str=True).parameters[name].annotation
    while typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        (annotation,) = (part for part in typing.get_args(annotation) if part is not types.NoneType)
    several = typing.get_origin(annotation) is list
    return (typing.get_args(annotation)[0] if several else annotation), several


# Numbers within the ranges that 7 is not in.
WITHIN = {"width": 70.0, "resamples": 700, "rate": 0.07, "recall": 0.7, "learning_rate": 0.07, "presence_weight": 0.7}


def samples(command, p):
    """Return what may be typed for a parameter: lists of strings with the values that must arrive for each."""
    kind, several = kind_of(command, p.name)
    if kind is bool:
        yes, no = [p.opts[0]], p.secondary_opts[:1]
        return [(yes, [True])] + ([(no, [False])] if no else [])
    form = next((text for mark, text in FORMS.items() if mark in (p.metavar or "") or mark in (p.help or "")), None)
    if typing.get_origin(kind) is typing.Literal:
        values = [v for v in typing.get_args(kind) if v != p.default][-1:]
    elif inspect.isclass(kind) and issubclass(kind, enum.Enum):
        values = [v.value for v in kind if v.value != p.default][-1:]
    elif p.name in ("metric", "metrics"):
        values = list(METRICS[: 1 if p.name == "metric" and p.default else 2])
    elif kind in (int, float):
        values = [WITHIN.get(p.name, kind(7))]
    else:
        n = 2 if several else 1
        values = [form.format(i, i) if form else f"zz{p.name}{i}.csv" for i in range(n)]
    option = [] if p.param_type_name == "argument" else p.opts[-1:]
    parts = [part for value in values for part in (str(value).replace("=", ",").split(",") if form else [value])]
    return [([word for value in values for word in (*option, str(value))], parts)]


def leaves(value, path):
    """Yield (path, leaf) of everything inside a value."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield f"{path}.{key}", key
            yield from leaves(part, f"{path}.{key}")
    elif isinstance(value, list | tuple | set):
        for part in value:
            yield from leaves(part, path)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            is_named = isinstance(value, SearchOptions | Selection | SurveyOptions | TrainingSettings | Layout)
            yield from leaves(getattr(value, field.name), f"{path}.{field.name}" if is_named else path)
    else:
        yield path, value


def is_of_the_door(module):
    return module.removeprefix("metric_oracle.").removeprefix("base.").split(".")[0] in DOOR


@pytest.fixture(scope="module")
def recorded():
    """Replace every function below the door by a recorder, and return the list of calls."""
    found = []

    def recorder(function):
        name = f"{function.__module__.removeprefix('metric_oracle.')}.{function.__name__}"
        signature = inspect.signature(function)

        @wraps(function)
        def record(*positional, **named):
            bound = signature.bind(*positional, **named).arguments
            for p in signature.parameters.values():
                if p.kind is p.VAR_KEYWORD:
                    bound.update(bound.pop(p.name, {}))
            for value in [*bound.values()]:
                bound |= vars(value) if isinstance(value, Read) else {}
            found.append((name, bound))
            return Anything(found, f"{name}()")

        return record

    recorders, patch = {}, pytest.MonkeyPatch()
    infos = [*pkgutil.walk_packages(metric_oracle.__path__, "metric_oracle.")]
    # All before the first is patched: what is imported later would keep a recorder for good.
    modules = [importlib.import_module(info.name) for info in infos if not info.ispkg]
    assert all(hasattr(metric_oracle, name) for name in metric_oracle.MODULES)  # which are imported when first used
    for module in [*modules, metric_oracle]:
        if is_of_the_door(module.__name__):
            continue
        for name, value in list(vars(module).items()):
            for key, function in value.items() if isinstance(value, dict) else [(None, value)]:
                is_ours = inspect.isfunction(function) and function.__module__.startswith("metric_oracle.")
                if is_ours and function.__name__ in CALLERS:
                    continue
                if not is_ours or is_of_the_door(function.__module__) or name.startswith("__"):
                    continue
                replaced = recorders.setdefault(function, recorder(function))
                patch.setitem(value, key, replaced) if key else patch.setattr(module, name, replaced)
    # No model runs and no page is served: their libraries need not be there.
    for module in (availability, inputs):
        patch.setattr(module, "find_spec", lambda name: True)
    groups.made.cache_clear()  # commands are made of the recorders
    yield found
    patch.undo()
    groups.made.cache_clear()


@pytest.fixture
def calls(recorded):
    recorded.clear()
    return recorded


def arrivals(calls):
    """Yield function.parameter and value of all that was handed over; checks of a path do not count."""
    for function, arguments in calls:
        if not function.rpartition(".")[2].startswith("check_"):
            for argument, value in arguments.items():
                for where, leaf in leaves(value, argument):
                    yield f"{function}.{where}", leaf


def line_with(path, parameter, words):
    """Return a whole command line: arguments and required options in order, `words` for the parameter."""
    key = path, parameter.opts[0]
    line = path.split()
    for p in COMMANDS[path].params:
        if p is parameter:
            line += words
        elif (p.required or p.param_type_name == "argument") and LEFT_OUT.get(key) != p.name:
            line += samples(COMMANDS[path], p)[0][0]
    keys = key, ("*", parameter.opts[0]), (path, "*" if parameter.opts[0] != "--out" else "")
    return [*line, *next((BESIDE[one] for one in keys if one in BESIDE), [])]


@pytest.mark.parametrize(("path", "option"), CASES)
def test_an_option_arrives_under_its_name(oracle, calls, path, option):
    (parameter,) = (p for p in COMMANDS[path].params if p.opts[0] == option)
    if (path, option) in CHOOSES:
        for words, function in CHOOSES[path, option]:
            for line, is_called in ((line_with(path, parameter, []), False), (line_with(path, parameter, words), True)):
                calls.clear()
                assert oracle(*line)[0] == 0
                assert any(re.search(rf"{function}$", name) for name, _ in calls) == is_called
        return
    own = parameter.name if (path, option) not in RENAMED else "(?!)"
    renamed = RENAMED.get((path, option)) or RENAMED.get(("*", option)) or "(?!)"
    if parameter.name in FOR_REPORTS[path]:  # names of several sets arrive in a dict under the own name
        own, renamed = own if "NAME=" in (parameter.metavar or "") else "(?!)", r"reports\.data"
    for words, values in samples(COMMANDS[path], parameter):
        calls.clear()
        line = line_with(path, parameter, words)
        code, _, err = oracle(*line)
        assert code == 0, (line, err)
        arrived = [*arrivals(calls)]
        right = [leaf for where, leaf in arrived if re.search(rf"\.(?:{own}|{renamed}|\?+)(?:\.zz\d)?$", where)]
        for value in values:
            elsewhere = [where for where, leaf in arrived if str(leaf) == str(value)]
            assert str(value) in map(str, right), (line, elsewhere)


def test_version(oracle):
    assert oracle("--version") == (0, f"metric-oracle {version('metric-oracle')}\n", "")


def test_the_folder_of_images_arrives(oracle, tmp_path):
    code, _, err = oracle("explore", "zz.parquet", "--images", tmp_path / "none")
    assert code == 2
    assert f"explore: --images must be an existing folder; got {tmp_path / 'none'}" in err


# How files are read is said in the first two; what a machine has, in the others.
MANY = {"build-index": 43, "reports": 32, "mine": 30, "retrieve": 28}


def test_a_command_has_few_options(oracle, monkeypatch):
    numbers = {name: sum(p.param_type_name == "option" for p in command.params) for name, command in COMMANDS.items()}
    assert {name: n for name, n in numbers.items() if n > MANY.get(name, 25)} == {}
    monkeypatch.setenv("COLUMNS", "100")
    code, out, _ = oracle("score", "--help")
    assert code == 0
    assert len(out.splitlines()) <= 90
