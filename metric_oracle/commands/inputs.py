"""Reports on the command line: the options that a command has for them, and the names of an oracle.toml."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from metric_oracle.base.argument_checks import check_path
from metric_oracle.base.declarations import IN_PYTHON, declarations
from metric_oracle.base.errors import InputError, not_installed, shown
from metric_oracle.commands.option import Option
from metric_oracle.commands.output import note, progress
from metric_oracle.corpora.read import Read
from metric_oracle.metrics import find_metric
from metric_oracle.sources.keywords import OF_ENCODER, Sources


class Inputs(NamedTuple):
    """The options that a command has for the reports of an argument, by their names in Python."""

    options: tuple[str, ...]
    of_encoder: tuple[str, ...] = ()  # what the name of an encoder stands for here

    def options_of(self, argument: str) -> Iterator[Option]:
        """Yield the options."""
        for object_, key in ((Read, "read"), (Sources, "sources")):
            for name, one in declarations(object_).items():
                if name in self.options:
                    yield Option(name, one, one.flag.panel, (argument, key))


_TEXTS = ("id_column", "text_column", "section", "split")
_MODELS = ("radgraph", "chexbert", "entities", "radgraph_encoder", "vocabulary", "entity_encoder", "device")
_ALL = (*(name for name, one in declarations(Read).items() if one.flag is not IN_PYTHON), *declarations(Sources))
TEXTS = Inputs(_TEXTS)
TESTS = Inputs((*_TEXTS, "encoder"), ("encoder",))
REFERENCES = Inputs(TESTS.options, ("encoder", "layer", "rescale_table"))
SAMPLES = Inputs(("id_column", "text_column", "section", "encoder"), REFERENCES.of_encoder)
CORPUS = Inputs(_ALL, ("encoder", *OF_ENCODER))
ENTRY = Inputs(tuple(name for name in _ALL if name not in CORPUS.of_encoder))  # what an entry [reports.NAME] may say
ANNOTATED = Inputs((*_TEXTS, *_MODELS))


class Names:
    """What a command line says of reports: the names of an oracle.toml, and options for files that it does not name.

    The options hold for the first file without an entry; what columns they name is looked for in the others, too. Those
    of the encoder hold for all reports.
    """

    def __init__(self, project: Any, options: Mapping[str, Any]) -> None:
        self.project = project  # a Project, or None
        self.options = {name: value for name, value in options.items() if value is not None and value is not False}
        self.is_used = False

    def attach(self, argument: str, inputs: Inputs, data: Any) -> Any:
        """Return reports as `mo.reports` makes them of what was typed: a file, a name, a dict of these, or texts.

        Without a file, None, no option may be given.
        """
        if data is None:
            self.check_none(argument)
            return None
        if isinstance(data, Mapping):
            made = [self._titled(name, typed, self.attach(argument, inputs, typed)) for name, typed in data.items()]
            twice = [name for i, (name, _) in enumerate(made) if name in [before for before, _ in made[:i]]]
            if twice:
                raise InputError(argument, "must have each name once", shown(twice[0]), "Write NAME=FILE with another.")
            return dict(made)
        encoder = self._encoder(inputs)
        name = self._entry(argument, data)
        if name is not None:
            return self.project.reports(name, **encoder, tell=note)
        if isinstance(data, str | Path):
            check_path(argument, str(data))
        from metric_oracle.reading import reports

        usual = {name: one.default for name, one in declarations(Read).items()}
        own = {} if self.is_used else {name: value for name, value in self.options.items() if name in inputs.options}
        self.is_used = True
        read = Read(**{name: own.pop(name) for name in usual if name in own})
        return reports(data, read, **{**own, **encoder}, tell=note)

    def with_judges(self, metrics: Any, *, may_be: bool) -> Any:
        """Return names of metrics with the judges of the project in the place of theirs; one name as it is.

        Raise InputError for the name of a judge unless the command takes them, `may_be`.
        """
        judges = {} if self.project is None else self.project.judges
        if isinstance(metrics, str):
            return metrics
        for name in metrics:
            near = [] if name in judges or find_metric(name) is not None else get_close_matches(name, judges, n=1)
            if near:
                rule = "must be metrics, or judges that oracle.toml names"
                raise InputError("metrics", rule, shown(name), f"Did you mean {near[0]!r}?")
            if name in judges and not may_be:
                raise InputError("metrics", "must be names of metrics", "a judge", "`mo.rerank` takes judges.")
        return [judges.get(name, name) for name in metrics]

    def check_used(self) -> None:
        """Raise InputError if an option was given and every file has an entry, which says how it is read."""
        names = [name for name in self._typed() if name not in ("encoder", *OF_ENCODER)]
        if names and not self.is_used:
            raise InputError(
                ", ".join(f"`{name}`" for name in names),
                "must be given with a file that has no entry",
                f"names of {self.project.path} alone",
                "Leave them out, or change the entry: oracle reports NAME FILE.",
            )

    def check_none(self, argument: str) -> None:
        """Raise InputError if an option was given although there is no file that it holds for."""
        names = self._typed()
        if names:
            rule = f"must be given with {', '.join(f'`{name}`' for name in names)}"
            raise InputError(argument, rule, "none", "Add the file of reports that they belong to.")

    def _typed(self) -> list[str]:
        """Return the names of the options that were typed."""
        usual = {name: one.default for name, one in declarations(Read).items()}
        return [name for name, value in self.options.items() if value != usual.get(name)]

    def _encoder(self, inputs: Inputs) -> dict[str, Any]:
        """Return the options of the encoder on the command line, as far as the argument takes them.

        An encoder may be named by its entry; options that are typed besides replace those of the entry.
        """
        typed = {name: self.options[name] for name in ("encoder", *OF_ENCODER) if name in self.options}
        named = {} if self.project is None else self.project.encoders.get(typed.get("encoder"), {})
        found = {**typed, **named, **{name: typed[name] for name in OF_ENCODER if name in typed}}
        return {name: found[name] for name in inputs.of_encoder if name in found}

    def _entry(self, argument: str, typed: Any) -> str | None:
        """Return the name of the entry that was typed; None for a file."""
        if self.project is None or not isinstance(typed, str | Path):
            return None
        name = str(typed).removeprefix("reports.")
        if name not in self.project:
            return None
        if name == str(typed) and Path(typed).exists():
            raise InputError(
                argument,
                "must be a name or a file",
                f"{name}, which is both",
                f"Write reports.{name} for the name in {self.project.path}, or ./{name} for the file.",
            )
        return name

    def _titled(self, name: str, typed: Any, made: Any) -> tuple[str, Any]:
        """Return the name of reports in a table, which is their title unless another was typed, and the reports."""
        return (made.title or name) if name == str(typed) else name, made


def check_models(reports: Any, *others: object) -> None:
    """Raise BackendError if a model cannot run here; see `reading.check_models`."""
    from metric_oracle.reading import check_models

    check_models(reports, *others)


def with_ids(values: Mapping[str, Any], **ids: Path | None) -> dict[str, Any]:
    """Return files of vectors, by their arguments, each in a pair with the file of its ids if that was given."""
    return {name: (values.get(name), path) for name, path in ids.items() if path is not None}


def check_web() -> None:
    """Raise BackendError if a library of the web pages is not installed."""
    missing = [library for library in ("starlette", "uvicorn", "jinja2") if find_spec(library) is None]
    if missing:
        raise not_installed("a page", missing[0], "web")


def load_tests(tests: Any, *results: Any) -> Any:
    """Return test reports with their sources; print what was recognised.

    By default their section is that of `results`, which are indexes or results.
    """
    from metric_oracle.indexes.shards import section_of

    known = next((result for result in results if section_of(result) is not None), None)
    with progress("test reports") as step:
        return tests.load(known, step)
