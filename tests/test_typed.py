"""Report text in the place of any argument, of every command and every public function: no message shows it."""

import inspect
import os
import shutil
import traceback
import warnings
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import typer

import metric_oracle as mo
from metric_oracle import cli
from metric_oracle.base import errors, public
from metric_oracle.base.typed import Hidden, is_text, texts_in, without
from support import SECRET, write

WORD = SECRET.split()[0]
SHORT = f"{SECRET} on the left."
TEXTS = {
    "short": SHORT,
    "long": f"{SHORT} " * 20,
    "of lines": f"{SHORT}\nNo effusion.\n",
    "with NUL": f"{SECRET}\0",
    "without blanks": WORD + "胸水" * 9,
    "of another script": f"{WORD}双肺纹理清晰。",
    "in a folder": f"none/{SHORT}",
    "with an ending": f"{SHORT}csv",
    "of a list": f"{SHORT}, {SECRET}=b",
}


def said(error):
    """Return what Python prints of an error that nobody catches, with the errors that caused it."""
    chain = traceback.TracebackException.from_exception(error)
    lines = []
    while chain is not None:
        lines += [*chain.format_exception_only()]
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    return "".join(lines)


@pytest.mark.parametrize(
    ("value", "may_be_report", "expected"),
    [
        *[(text, False, True) for text in TEXTS.values()],
        ("tests.csv", True, False),
        ("tests.csv.gz", True, False),
        ("报告.csv", True, False),
        ("none/tests", True, False),
        ("trials", True, True),  # where reports belong, a word may be one
        ("trials", False, False),
        ("bleu,rouge-l", False, False),
        ("Größe", False, False),
        ("microsoft/BiomedVLP-CXR-BERT-specialized", False, False),
        ("a" * 60, False, False),
        ("a" * 61, False, True),
        ("", False, False),
    ],
)
def test_what_can_be_a_report(value, may_be_report, expected):
    assert is_text(value, may_be_report=may_be_report) is expected


def test_of_a_path_what_exists_is_no_report(tmp_path, monkeypatch):
    folder = tmp_path / "my files"
    folder.mkdir()
    assert not is_text(str(folder))
    assert not is_text(str(folder / "tests.csv"))
    for typed, expected in ((f"A={folder}", False), (f"={folder}", False), (f"{SECRET} x, y={folder}", True)):
        assert is_text(typed) is expected
    assert is_text(str(folder / SHORT))
    monkeypatch.chdir(tmp_path)
    assert not is_text("my files/none", may_be_report=True)
    assert is_text("none/my files")


def test_a_message_names_the_argument_in_place_of_the_text():
    hidden = [*texts_in("metric", SHORT), *texts_in("keep", ["a", SECRET, "c d"])]
    assert without(f"got {SHORT!r}. {SECRET}; 'c d', xc d", hidden) == (
        "got <text given as metric>. <text 2 given as keep>; <text 3 given as keep>, xc d"
    )
    assert [*texts_in("model", {"Our model": "a.csv"})] == []  # what a system is called
    assert [found.text for found in texts_in("leave_out", ["ben=on leave"])] == ["ben=on leave"]
    assert [*texts_in("model", ["Our model=a b"])] == [
        Hidden("Our model=a b", "<text given as model>"),
        Hidden("a b", "<text given as model>"),
    ]


def test_texts_in_containers_are_looked_for_when_a_message_is_written(monkeypatch):
    looked_at = []
    monkeypatch.setattr(errors, "texts_in", lambda name, value: looked_at.append(name) or [*texts_in(name, value)])
    assert mo.Reports.from_texts(iter([SHORT, "b c"])).texts == [SHORT, "b c"]
    assert looked_at == []
    with pytest.raises(mo.MetricOracleError, match=r"got '?<text given as metrics>") as caught:
        mo.score(["a b"], ["b c"], iter([SHORT]))
    assert WORD not in said(caught.value)
    assert looked_at == ["metrics"]


def test_a_file_that_a_call_writes_was_a_text_before(tmp_path, monkeypatch):
    """A note on it does not show its name, which may be a report."""
    monkeypatch.chdir(tmp_path)
    with errors.called("write", given={"out": f"{SHORT}csv"}):
        Path(f"{SHORT}csv").touch()
        assert errors.in_terms_of_caller(f"{SHORT}csv: 2 lines") == "<text given as out>: 2 lines"


@pytest.mark.parametrize(
    ("text", "line"),
    [("KİSS ſo µ", "kiss SO μ"), ("ΣΑΣ one", "σασ ONE"), ("naïve ﬁ x", "NAÏVE ﬁ X"), ("a\nb c", r"A\nB C")],
)
def test_a_text_is_found_without_regard_to_case(text, line):
    assert without(f"got '{line}' here", [Hidden(text, "<text>")]) == "got <text> here"


@pytest.mark.parametrize("text", [pytest.param(text, id=kind) for kind, text in TEXTS.items()])
@pytest.mark.parametrize(
    "name", ["read_reports", "open_index", "read_samples", "read_ratings", "read_results", "survey_status"]
)
def test_a_text_is_no_path_in_python(name, text):
    with pytest.raises(
        mo.MetricOracleError,
        match=rf"^{name}: \w+ must be an existing file or folder; got another text, not shown here",
    ) as caught:
        getattr(mo, name)(text)
    assert WORD not in repr(caught.value)


def test_a_text_is_no_path_of_an_output(tmp_path):
    scores = mo.score(["a", "b"], ["a", "c"], "rouge-l")
    with pytest.raises(
        mo.MetricOracleError, match=r"^build_index: out must be a path that a file can have; got another"
    ):
        mo.build_index(["a b"], TEXTS["long"])
    with pytest.raises(mo.MetricOracleError, match=r"^write_table: .*got <text given as path>") as caught:
        mo.write_table(mo.compare({"a": scores}), SHORT)
    assert WORD not in repr(caught.value)


def test_what_the_system_refuses_is_one_line(open_folder, request):
    (open_folder / "r.csv").write_text("id,report\n1,a b\n")
    (open_folder / "r.csv").chmod(0)
    request.getfixturevalue("unprivileged")
    match = (
        r"^read_reports: files and folders must be open to this user, .*; got .*r\.csv \(Permission denied\)\. Check"
    )
    with pytest.raises(mo.MetricOracleError, match=match):
        mo.read_reports(open_folder / "r.csv")


# Every argument of every command


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
        for text in (SHORT, TEXTS["long"], *[f"a={TEXTS[length]}" for length in ("short", "long") if "list[" in kind]):
            if words == ("demo",) and text == SHORT:
                continue  # a folder of this name can be made, and the demo takes its time
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
    known = public._known(function.__wrapped__)
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
        for text in TEXTS.values():
            lists = ([text], (text,), {text: 1}.keys(), np.array([text]), iter([text]))
            for value in (text, Path(text), *lists, {"a": text}, {"a": [text]}, {"a": {"b": text}}, [("a", text)]):
                if not public._fits(value, kind) or (argument in ("groups", "data") and not isinstance(value, str)):
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
