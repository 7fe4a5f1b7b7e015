"""The one place where texts are written for the command line.

Docstrings, texts of options, messages and notes are written for Python: `k`, `k=5`, `mo.retrieve` or
`mo.reports(..., mo.Read(section='findings'))`, in backticks. `Wording` writes each such piece as it is typed: -k, -k 5,
oracle retrieve, --section findings.
"""

import ast
import re
import shlex
from collections.abc import Mapping
from typing import Any

from metric_oracle.base.errors import ColumnsError, MetricOracleError, read_call
from metric_oracle.commands.listing import FUNCTIONS

# The forms of reports on the command line.
_FORMS = (
    "as a table with ids and texts (CSV, TSV, Parquet, JSON, JSON Lines or Excel), the folder or zip file of MIMIC-CXR "
    "or a folder that oracle build-index wrote"
)
_OF_ENTRY = "{} by oracle reports NAME FILE"  # an option that only an entry of oracle.toml has
# Functions whose work is an option of a command.
_OPTIONS = {"read_foreign": "oracle table --foreign NAME=FILE", "study_pairs": "oracle study --pairs FILE"}
_ARGUMENTS = re.compile("[a-z_]+(?:(?:, | and | or )[a-z_]+)*")  # one argument or several


class Wording:
    """How a command writes what stands in backticks.

    `flags` has its options by the arguments of its function, with both forms of a switch, and the names of values that
    are typed without an option: ``{"k": "-k", "text": "--with-text/--no-text", "queries": "QUERIES"}``.
    """

    def __init__(self, flags: Mapping[str, str]) -> None:
        self.flags = flags

    def text(self, text: str) -> str:
        """Return a text as the command line shows it."""
        text = text.replace("in any form that [`reports`][metric_oracle.reports] takes", _FORMS)
        text = re.sub(r"\[`(\w+)`\]\[metric_oracle\.\w+\]", r"`mo.\1`", text)
        text = re.sub(r'``"?(.*?)"?``', r"\1", text)
        return re.sub("`([^`]+)`", lambda found: self._typed(found[1]), text)

    def message(self, error: MetricOracleError) -> str:
        """Return the line of an error as the command line shows it, after the name of the command."""
        return f"{error.function or 'oracle'}: {self.line(error)}"

    def line(self, error: MetricOracleError) -> str:
        """Return the line of an error as the command line shows it."""
        sentence = self.text(error.sentence)
        if error.argument:
            argument = error.argument
            if _ARGUMENTS.fullmatch(argument):
                argument = re.sub("[a-z_]+", lambda name: self._named(name[0]), argument)
            value = "none" if error.value == "None" else error.value
            sentence = f"{self.text(argument)} {self.text(error.rule)}; got {value}."
        line = f"{sentence} {self.text(error.step)}".rstrip()
        if isinstance(error, ColumnsError) and error.columns and "project" in self.flags:
            line += f" Or say it once: {self.text(read_call(error.path, error.columns))}."
        return line

    def _typed(self, code: str) -> str:
        """Return a piece of Python as it is typed."""
        if code.isidentifier():
            return self._flag(code)
        if re.fullmatch(r"mo\.\w+", code):
            function = code[3:]
            return _OPTIONS.get(function) or f"oracle {FUNCTIONS.get(function) or function.replace('_', '-')}"
        name, mark, value = code.partition("=")
        try:
            call = ast.parse(f"f({code})", mode="eval").body
        except SyntaxError:  # such as direction=NAME=higher
            return f"{self._flag(name)} {value}" if mark and name.isidentifier() else code
        assert isinstance(call, ast.Call)
        options = self._options(call, f"f({code})", self._of_entry())
        return " ".join(options) or code

    def _options(self, call: ast.Call, source: str, forms: Mapping[str, str]) -> list[str]:
        """Return the keywords of a call, and of the calls that are its arguments, as options.

        `forms` has how an option is said that the command lacks. A call that names a file is the whole command `oracle
        reports`; the name of one of several files stands for its entry.
        """
        options = []
        for value in [*call.args, *(keyword.value for keyword in call.keywords)]:
            if isinstance(value, ast.Call):
                match value.args[:1]:
                    case [ast.Constant(value=str(file))]:
                        options += [f"oracle reports NAME {shlex.quote(file)}", *self._options(value, source, {})]
                    case [ast.Name()]:
                        options.append(_OF_ENTRY.format(" ".join(self._options(value, source, {}))))
                    case _:
                        options += self._options(value, source, forms)
        by_form: dict[str, list[str]] = {}
        for keyword in call.keywords:
            if keyword.arg and not isinstance(keyword.value, ast.Call):
                typed = self._option(keyword.arg, keyword.value, source)
                by_form.setdefault(forms.get(keyword.arg, "{}"), []).append(typed)
        return [*options, *(form.format(" ".join(typed)) for form, typed in by_form.items())]

    def _option(self, name: str, value: ast.expr, source: str) -> str:
        """Return an argument and its value as an option."""
        flag = self._flag(name)
        match value:
            case ast.Constant(value=bool(is_on)):
                _, _, off = self.flags.get(name, "").partition("/")
                return flag if is_on else off or flag.replace("--", "--no-", 1)
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                parts = (f"{_plain(key, source)}={_plain(of_key, source)}" for key, of_key in pairs)
                typed = " ".join(map(shlex.quote, parts))
            case ast.Constant(value=str(text)):
                typed = shlex.quote(text)
            case _:
                typed = ast.get_source_segment(source, value) or ""
        return f"{flag} {typed}" if flag.startswith("-") else typed

    def _flag(self, name: str) -> str:
        """Return the option of an argument, or the name of its value if there is none."""
        return (self.flags.get(name) or f"--{name.replace('_', '-')}").partition("/")[0]

    def _named(self, noun: str) -> str:
        """Return the option of what an error is about; an argument that is typed without one is said as a noun."""
        flag = self._flag(noun) if noun in self.flags else noun
        return flag if flag.startswith("-") else noun

    def _of_entry(self) -> dict[str, str]:
        """Return the options that an entry of oracle.toml has and the command has not, with how messages show them."""
        if not self.flags:
            return {}
        from metric_oracle.commands.inputs import ENTRY
        from metric_oracle.sources.keywords import OF_ENCODER

        forms = dict.fromkeys(ENTRY.options, _OF_ENTRY)
        forms |= dict.fromkeys(OF_ENCODER, "{} in [encoders.NAME] of oracle.toml")
        return {name: form for name, form in forms.items() if name not in self.flags}


def _plain(value: Any, source: str) -> str:
    """Return a value without the quotes of Python."""
    return str(value.value) if isinstance(value, ast.Constant) else ast.get_source_segment(source, value) or ""


# Those of the running command, which sets `flags`.
current = Wording({})
