"""What messages show: every name that a person typed, whatever is in it, and no report.

The sessions of `frozen` are driven with blanks in every name, as they are and with an error in each place.
"""

import inspect
import os
import re
import shlex
import shutil
import traceback
import warnings
from itertools import pairwise
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import typer

import frozen
import metric_oracle as mo
from metric_oracle import cli
from metric_oracle.base import validation
from metric_oracle.base.errors import shown
from support import SECRET, write

WORD = SECRET.split()[0]
LONG = "; ".join([f"{SECRET} on the left"] * 20)
LINES = f"{SECRET} on the left.\nNo effusion.\n"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Accession No.", "'Accession No.'"),
        ("it's", '"it\'s"'),
        ("", "''"),
        ("a\x1b[31m", r"'a\x1b[31m'"),
        ("双肺纹理清晰。", "'双肺纹理清晰。'"),
        ("a " * 40, repr("a " * 40)),
        ("a " * 41, repr("a " * 40 + "...")),
        ("a" * 200, repr("a" * 80 + "...")),
        ("a" * 201, "a text of 201 characters"),
        ("a" * 1000, "a text of 1,000 characters"),
        ("a\nb", "a text of 3 characters"),
        ("a\u2028b", "a text of 3 characters"),
        (None, "None"),
        (0.5, "0.5"),
        (["a", 1], "a list of int or str"),
        ({"a": [1]}, "a dict from str to list"),
        (np.zeros(2), "a ndarray"),
        (Path("no such.csv"), "no such.csv"),
        (Path("a\x1b[31m"), r"'a\x1b[31m'"),
        (Path(f"none/{'a ' * 45}.csv"), f"none/{'a ' * 37}a..."),
        (Path("no process\nno effusion"), "a text of 22 characters"),
    ],
)
def test_one_value(value, expected):
    assert shown(value) == expected


def test_several_values():
    assert shown("a", "b c", 1) == "'a', 'b c', 1"
    assert shown() == ""


def test_of_a_path_what_exists_is_no_report(tmp_path):
    folder = tmp_path / f"{'my ' * 40}files" / f"{'my ' * 40}files"
    folder.mkdir(parents=True)
    assert shown(folder) == str(folder)
    assert shown(folder / "none.csv") == str(folder / "none.csv")
    assert shown(folder / LINES).startswith("a text of ")


# Blanks in every name

CUT = re.compile(r"<text |withheld|not shown|another (?:text|value)|a text of [\d,]+ characters")
FILE = re.compile(r"[\w-]+\.(?:csv|jsonl?|parquet|npz|md|tex|html|png|qrels)\b")
OF_METRICS = ("-m", "--metrics", "--metric")
OF_NAMES = ("--random", "--paired", "--oracle", "--foreign", "--samples")


class Session:
    """The commands of a session of `frozen`, with blanks in the names of files, folders, systems, columns, metrics."""

    def __init__(self, name):
        self.lines = [*frozen.commands(frozen.SESSIONS[name][1])]
        words = [word for line in self.lines for word in shlex.split(line)]
        self.folders = {b for a, b in pairwise(words) if a == "--out" and "." not in b} | {"INDEX"}
        named = re.findall(r"(?<![\w-])(\w+)=[\w-]+\.(?:csv|parquet)", " ".join(self.lines))
        self.systems = {*named} if name != "survey" else set()  # names in addresses have no blanks

    def renamed(self, line):
        """Return the words of a line with blanks in its names."""
        words, before, found = shlex.split(line), "", []
        for place, word in enumerate(words):
            if place and before in OF_METRICS:
                word = word.replace(",", ", ")
            elif place and word in self.folders:
                word = f"my {word}"
            elif (place > 1 and not word.startswith("-")) or FILE.search(word):
                is_of_names = before in OF_NAMES or "=" in word
                parts = re.split("([=,])", word) if is_of_names else [word]
                word = "".join(f"My {part}" if is_of_names and part in self.systems else part for part in parts)
                word = FILE.sub(r"my \g<0>", word)
            found.append(word)
            before = words[place]
        return found


@pytest.fixture(scope="module")
def blanks(tmp_path_factory):
    """Return a function that makes a folder of the example, with blanks in the names of its files and columns."""
    source = frozen.example()[1]

    def made():
        folder = tmp_path_factory.mktemp("names") / "my files"
        folder.mkdir()
        for path in source.iterdir():
            content = path.read_bytes()
            if path.suffix == ".csv":
                content = content.replace(b"study_id,report\n", b"Study ID,Report Text\n", 1)
            if path.name == "oracle.toml":
                (folder / path.name).write_text(FILE.sub(r"my \g<0>", content.decode()), encoding="utf-8")
            else:
                (folder / f"my {path.name}").write_bytes(content)
        return folder

    return made


@pytest.fixture(scope="module")
def reports():
    """The reports of the example."""
    columns = [
        mo.read_reports(frozen.example()[1] / f"{name}.csv").texts for name in ("train", "test", "strong", "weak")
    ]
    return {text for texts in columns for text in texts if text and len(text.split()) > 2}


def with_errors(words, path, sets):
    """Yield the words of a command with another name in one place, and that name: a missing file or set, no metric."""
    new = [
        word.replace("my ", "my new ") if before in ("--out", "--plot") else word
        for before, word in pairwise(["", *words])
    ]
    for place in range(len(path), len(words)):
        before, word, file = words[place - 1], words[place], FILE.search(words[place])
        if before in ("--out", "--plot", "--pairs", "--scores", "--format") or word.startswith("-"):
            continue
        if before in OF_METRICS:
            name, other = "my metric", "my metric"
        elif file or word.rpartition("=")[2] in sets:
            name = f"my missing {file[0] if file else 'set'}"
            other = f"{word.partition('=')[0]}={name}" if "=" in word else name
        elif word.startswith("my "):
            name = other = "my missing folder"
        else:
            continue
        yield [*new[:place], other, *new[place + 1 :]], name


@pytest.mark.parametrize("name", frozen.SESSIONS)
def test_names_with_blanks_are_shown(name, blanks, reports):
    for package in frozen.SESSIONS[name][0]:
        pytest.importorskip(package)
    expected = (frozen.FOLDER / f"commands/{name}.txt").read_text(encoding="utf-8").split("$ oracle ")[1:]
    codes = [int((re.findall(r"^--- exit code (\d+)$", text, re.MULTILINE) or ["0"])[0]) for text in expected]
    paths = sorted(filter(None, frozen.paths(typer.main.get_command(cli.app))), key=len)
    session, folder, wrong, run_lines = Session(name), blanks(), [], []
    with frozen.surroundings(folder):
        for line in session.lines:
            words = session.renamed(line)
            if words[0] == "rate":
                frozen.rate(words[1])
                continue
            code, out, err = frozen.run(words, is_terminal=False)
            written = [path.read_text(encoding="utf-8") for path in folder.glob("*.md")]
            is_named = code or "--quiet" in words or "--out" not in words
            is_named = is_named or Path(words[words.index("--out") + 1]).stem in err + out
            if code != codes.pop(0) or CUT.search(" ".join([out, err, *written])) or not is_named:
                wrong.append((words, code, out[:300], err))
            run_lines.append((code, words))
        for code, words in run_lines:  # each command in each of its places, once
            path = next((path for path in reversed(paths) if tuple(words[: len(path)]) == path), ())
            for other, missing in with_errors(words, path, {*mo.project()}) if code == 0 and path else ():
                code, out, err = frozen.run(other, is_terminal=False)
                if (
                    code != 2
                    or (missing not in err and "--part" not in other)
                    or CUT.search(out + err)
                    or any(text in err for text in reports)
                ):
                    wrong.append((other, code, out[:300], err))
    assert wrong == []


def said(error):
    """Return what Python prints of an error that nobody catches, with the errors that caused it."""
    chain = traceback.TracebackException.from_exception(error)
    lines = []
    while chain is not None:
        lines += [*chain.format_exception_only()]
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    return "".join(lines)


# A report in the place of every argument of every command


def commands(command=None, path=()):
    """Yield the words and the parameters of every command."""
    command = command or typer.main.get_command(cli.app)
    if not hasattr(command, "list_commands"):
        yield path, inspect.signature(command.callback).parameters
        return
    for name in command.list_commands(None):
        yield from commands(command.get_command(None, name), (*path, name))


COMMANDS = dict(commands())
# Values of arguments that must be given, and of such that make a command short or let it end.
GIVEN = {
    "index": "I", "results": "r.parquet", "systems": "a=s.parquet", "sets": "a=t.csv", "raters": "anna", "base": "none",
    "pool": "bleu:1", "crepe": "none", "shape": "trec", "out": "new.parquet", "folder": "new", "survey": "none",
}  # fmt: skip
MORE = {
    ("synth",): {"reports": "2", "tests": "1"},
    ("demo",): {"folder": "t.csv"},
    ("bench",): {"index": "none", "queries": "t.csv"},
    ("explore",): {"results": "none.parquet"},
    ("survey", "create"): {"candidates": "a=t.csv"},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    write(folder / "t.csv", {"1": "no acute process", "2": "small effusion"})
    mo.build_index(folder / "t.csv", folder / "I", metrics="bleu")
    mo.score(folder / "t.csv", folder / "t.csv", "bleu").write(folder / "s.parquet")
    mo.retrieve(folder / "I", folder / "t.csv", "bleu").write(folder / "r.parquet")
    return folder


@pytest.fixture
def here(files, tmp_path, monkeypatch):
    """Return a function that empties the current folder but for links to the files."""
    monkeypatch.chdir(tmp_path)

    def fresh():
        for path in tmp_path.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        for name in os.listdir(files):
            (tmp_path / name).symlink_to(files / name)

    return fresh


def typed_words(name, parameter, value):
    """Return the words for an argument or option of a command."""
    (info,) = [item for item in get_args(parameter.annotation)[1:] if hasattr(item, "param_decls")]
    if isinstance(info, typer.models.ArgumentInfo):
        return [value]
    flags = [flag for flag in info.param_decls or () if flag.startswith("--")]
    return [flags[0].partition("/")[0] if flags else f"--{name.replace('_', '-')}", value]


@pytest.mark.parametrize("words", [pytest.param(words, id=" ".join(words)) for words in COMMANDS])
def test_no_command_shows_a_text(words, oracle, here):
    parameters = COMMANDS[words]
    needed = {name: GIVEN.get(name, "t.csv") for name, p in parameters.items() if p.default is p.empty}
    needed |= MORE.get(words, {})
    shown = []
    for name, p in parameters.items():
        kind = str(p.annotation)
        if "Literal" in kind or not ("str" in kind or "Path" in kind):
            continue
        for text in (LONG, LINES, *[f"a={text}" for text in (LONG, LINES) if "list[" in kind]):
            if words == ("demo",) and text == LINES:
                continue  # a folder of this name can be made
            here()
            line = [
                word for n, value in {**needed, name: text}.items() for word in typed_words(n, parameters[n], value)
            ]
            code, out, err = oracle(*words, *line)
            if WORD in err or code not in (0, 2) or "Traceback" in err or (code and WORD in out):
                shown.append((name, code, out, err))
    assert shown == []


# Every argument of every public function


@pytest.mark.parametrize("name", [name for name in mo.__all__ if inspect.isfunction(getattr(mo, name))])
def test_no_public_function_shows_a_text(name, here):
    function = getattr(mo, name)
    known = validation._known(function.__wrapped__)
    here()
    scores = mo.score("t.csv", "t.csv", "bleu")
    valid = {
        "index": "I", "corpus": "I", "metric": "bleu", "metrics": "bleu", "kind": "random", "out": "new.parquet",
        "path": "t.csv", "results": "r.parquet", "name": "a", "raters": ["anna"], "shape": "trec", "pool": "bleu:1",
        "models": {"a": "t.csv"}, "systems": {"a": scores}, "sets": {"a": "t.csv"}, "values": [0.0, 1.0, 1.0],
        "comparison": mo.compare({"a": scores}, resamples=100), "parts": ["r.parquet"], "folder": "none",
        "candidates": {"1": ["a", "b"], "2": ["c"]} if name in ("best_of", "consensus") else {"a": "t.csv"},
    }  # fmt: skip
    needed = {
        argument: valid.get(argument, "t.csv")
        for argument, p in inspect.signature(function).parameters.items()
        if p.default is p.empty and p.kind is not p.VAR_KEYWORD
    }
    needed |= {"uncertain": "positive"} if name == "score_crg" else {}
    for argument, kind in known.items():
        for text in (LONG, LINES):
            lists = ([text], (text,), {text: 1}.keys(), np.array([text]), iter([text]))
            for value in (text, Path(text), *lists, {"a": text}, {"a": [text]}, {"a": {"b": text}}, [("a", text)]):
                if not validation._fits(value, kind) or (argument in ("groups", "data") and not isinstance(value, str)):
                    continue  # lists and dicts of texts are reports there
                here()
                with warnings.catch_warnings(record=True) as warned:
                    warnings.simplefilter("always")
                    try:
                        function(**{**needed, argument: value})
                        quoted = ""
                    except mo.MetricOracleError as error:
                        quoted = said(error) + repr(error)
                assert WORD not in " ".join([quoted, *[str(warning.message) for warning in warned]]), argument
