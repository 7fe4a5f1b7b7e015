"""The help of the commands, and the options: each typed once, choices from the registry, two screens, names whole."""

import ast
import inspect
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest
import typer

import generated
from metric_oracle import __main__, cli, commands
from metric_oracle.base.declarations import PANELS, declarations
from metric_oracle.base.option_types import BACKENDS
from metric_oracle.commands import listing
from metric_oracle.commands.option import complete_metric
from metric_oracle.commands.wording import Wording
from metric_oracle.metrics import ALIASES, ATTACHED, METRICS, SOURCES
from metric_oracle.sources.keywords import Sources

FOLDER = Path(commands.__file__).parent


def walk(command, path=()):
    """Yield path and command of every command that does something."""
    if hasattr(command, "commands"):
        for name in command.list_commands(None):
            yield from walk(command.get_command(None, name), (*path, name))
    else:
        yield " ".join(path), command


COMMANDS = dict(walk(typer.main.get_command(cli.app)))


@pytest.fixture
def help_of(oracle, monkeypatch):
    """Return a function that gives the help of a command as a terminal of 80 columns shows it."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")

    def shown(path):
        code, out, err = oracle(*path.split(), "--help")
        assert (code, err) == (0, "")
        return out

    return shown


@pytest.mark.parametrize("path", ["", "baseline", "survey"])
def test_help_of_groups_names_no_types(help_of, path):
    assert "--help" in help_of(path)
    assert "<bool>" not in help_of(path)


def test_the_list_has_all_options_and_commands(help_of, monkeypatch, capsys):
    app = typer.main.get_command(cli.app)
    with typer.Context(app) as context:
        assert {parameter.opts[-1]: parameter.help for parameter in app.get_params(context)} == listing.OPTIONS
    shown = help_of("")
    words = set(re.split(r"[\s│]+", shown))
    assert {*listing.COMMANDS, *listing.OPTIONS} <= words
    assert max(map(len, shown.splitlines())) <= 80
    # As a program it is shown at once; Typer ends it with an empty line.
    monkeypatch.setattr("sys.argv", ["oracle", "--help"])
    monkeypatch.setattr(cli, "main", lambda: pytest.fail("the command line was read"))
    __main__.main()
    assert capsys.readouterr().out.rstrip("\n") == shown.rstrip("\n")


@pytest.mark.parametrize("width", [20, 40, 80, 131])
def test_the_list_fits_the_terminal(monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(listing.terminal, "shows_styles", lambda: True)
    listing.show()
    styled = capsys.readouterr().out
    plain = re.sub("\033\\[[0-9;]*m", "", styled)
    assert plain != styled
    boxes = [line for line in plain.splitlines() if line[:1] in tuple("╭│╰")]
    assert {len(line) for line in boxes} == {max(width, 40)}
    monkeypatch.setattr(listing.terminal, "shows_styles", lambda: False)
    monkeypatch.setattr(listing.terminal, "shows_lines", lambda: False)
    listing.show()
    assert capsys.readouterr().out == plain.translate(str.maketrans("╭╮╰╯─│", "++++-|"))


@pytest.mark.parametrize("file", generated.FILES)
def test_generated_files_are_up_to_date(file):
    made = generated.FILES[file]()
    assert generated.path_of(file).read_text("utf-8") == made, "run python tests/generated.py"


@pytest.mark.parametrize("name", listing.COMMANDS)
def test_the_list_says_of_a_command_what_its_own_help_says(name):
    shown = typer.main.get_command(cli.app).get_command(None, name)
    assert listing.COMMANDS[name].text == shown.help.split("\n\n")[0]


def test_every_module_with_commands_is_of_a_family():
    modules = [path.stem for path in FOLDER.glob("*.py") if "app = typer.Typer" in path.read_text(encoding="utf-8")]
    assert sorted(modules) == sorted(module for family in commands.FAMILIES.values() for module in family)


@pytest.mark.parametrize("path", COMMANDS)
def test_help_cuts_no_name(help_of, path):
    shown = help_of(path)
    assert max(map(len, shown.splitlines())) <= 80
    assert "<bool>" not in shown
    assert "...}" not in shown
    assert "...]" not in shown
    words = set(re.split(r"[\s,]+", shown))
    for parameter in COMMANDS[path].params:
        assert {name for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("-")} <= words


@pytest.mark.parametrize("path", COMMANDS)
def test_help_teaches_by_example(help_of, path):
    """Each example can be pasted: its lines are whole, and the app takes it."""
    examples = COMMANDS[path].epilog
    shown = help_of(path)
    assert all(line.replace(r"\[", "[") in shown for line in examples.split("\n"))
    lines = examples.replace(r"\[", "[").replace("\\\n", " ").split("\n")
    own = [shlex.split(line.partition("&&")[0])[1:] for line in lines if line.startswith(f"oracle {path}")]
    assert own
    for words in own:
        COMMANDS[path].make_context(path, words[len(path.split()) :])


@pytest.mark.parametrize("path", COMMANDS)
def test_every_option_has_a_panel_and_a_help(path):
    for parameter in COMMANDS[path].params:
        assert parameter.name == "help" or parameter.help, parameter.name
        if parameter.param_type_name == "option" and parameter.name != "help":
            assert parameter.rich_help_panel in PANELS


def test_no_option_is_typed_twice():
    """An option is declared once: the package has no name of an option and no text of one in two places."""
    makers, names, texts = set(), Counter(), Counter()
    for path in FOLDER.parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            said = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            if ast.unparse(node.func) in ("typer.Option", "typer.Argument"):
                makers.add(path.name)
            elif ast.unparse(node.func) == "Flag":
                names.update(name for text in said for name in text.split("/") if name)
            elif ast.unparse(node.func) == "Doc":
                texts.update(said)
    assert makers == {"cli.py", "option.py"}  # cli: those of the program itself
    assert {"-k", "--no-text"} <= {*names}
    # Scores of rated pairs, which are read, and those of the best samples, which best-of writes.
    assert {name for name, count in names.items() if count > 1} == {"--scores"}
    assert len(texts) > 50
    assert {text for text, count in texts.items() if count > 1} == set()


def _arguments():
    return [a for source in ATTACHED for a in source.arguments]


def test_what_the_registry_names_has_an_option():
    """A representation that is added gets its options by its record, in every command that reads reports."""
    assert {*_arguments()} <= {*declarations(Sources)}
    for path in ("build-index", "reports"):
        assert {*_arguments(), "uncertain", "device", "radgraph_encoder", "vocabulary", "entity_encoder"} <= {
            p.name for p in COMMANDS[path].params
        }
    for source in SOURCES.values():
        command = "score" if source.made == "pairs" else "build-index"
        for name in re.findall(r"--[a-z-]+", Wording({}).text(source.option)):
            assert name in {opt for p in COMMANDS[command].params for opt in p.opts}
        if source.made == "pairs":
            for path in ("score", "rerank"):  # the other files lie beside the first
                assert {*source.arguments[:1]} <= {p.name for p in COMMANDS[path].params}


def test_choices_are_those_of_the_package():
    choices = {}
    for command in COMMANDS.values():
        for name, p in inspect.signature(command.callback).parameters.items():
            choices.setdefault(name, set()).add(str(p.annotation).partition("Literal")[2].partition("]")[0])
    assert choices["backend"] == {str([*BACKENDS])[:-1]}


def test_metrics_complete():
    every = dict(complete_metric(""))
    assert every.keys() == {*METRICS, *ALIASES}
    assert [name for name, _ in complete_metric("rouge-l,radcliq:")] == [
        f"rouge-l,{name}" for name in [*ALIASES, *METRICS] if name.startswith("radcliq:")
    ]
    for command in COMMANDS.values():
        for parameter in command.params:
            if parameter.name == "metric":
                names = {item.value for item in parameter.shell_complete(None, "roug")}
                assert names == {name for name in METRICS if name.startswith("roug")}


def test_exit_codes_are_said(help_of):
    assert "0 success, 1 a check found a difference, 2 usage error, 130 interrupted" in " ".join(help_of("").split())
