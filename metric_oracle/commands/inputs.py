"""Reports on the command line: the options that a command has for them, and how they are read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from metric_oracle.base import choices
from metric_oracle.base.arguments import check_declared
from metric_oracle.base.declared import PREDICTED, Flag, declarations
from metric_oracle.base.errors import InputError, not_installed, option, shown
from metric_oracle.commands.option import Option, named
from metric_oracle.commands.output import note, progress
from metric_oracle.corpora.read import Read
from metric_oracle.metrics import ATTACHED
from metric_oracle.sources.keywords import Sources

_TOO = "The reference or test reports need them, too: `{}`, or a folder that was built with it."
_MODEL = "Here the model must be given."
_ALONE = "With NAME= it is for the file of that name alone, else for all."
_LIKE = "A column that is named for the reference or test reports comes first if this file has it, too."


@dataclass(frozen=True)
class Role:
    """How a command reads the reports of an argument: the options that it has for them."""

    fields: tuple[str, ...]  # those of `Read`
    sources: tuple[str, ...] = ()  # those of `Sources`
    prefix: str = ""  # of the options' names, such as "predicted_"
    bare: tuple[str, ...] = ()  # fields whose options have no prefix
    remark: str = ""  # on the sources that are attached to reports, not on files of their ids; {} is the argument
    is_many: bool = False  # whether files are given as NAME=FILE, and options as [NAME=]VALUE

    def options(self, argument: str) -> Iterator[Option]:
        """Yield the options for the reports of an argument."""
        for object_, names in ((Read, self.fields), (Sources, self.sources)):
            for name in names:
                one = declarations(object_)[name]
                metavar = one.flag.metavar
                if self.prefix and name in ("id_column", "text_column"):
                    one = one._replace(text=f"{one.text} {_LIKE}")
                if self.remark and name in _SOURCES and name not in _IDS:
                    one = one._replace(text=f"{one.text} {self.remark.format(name)}")
                if self.is_many:
                    value = metavar or ("FILE" if Path in one.kinds else name.rpartition("_")[2].upper())
                    metavar = f"{'NAME=' if object_ is Sources else '[NAME=]'}{value}"
                    if object_ is Read:
                        one = one._replace(text=f"{one.text} {_ALONE}")
                    one = one._replace(annotation=list[str], default=None, text=one.said, flag=Flag(kind=list[str]))
                flag = Flag(metavar=metavar, panel=PREDICTED if self.prefix else one.flag.panel, kind=one.flag.kind)
                prefix = "" if name in self.bare else self.prefix
                keys = (argument, "read" if object_ is Read else "sources")
                yield Option(f"{prefix}{name}", one._replace(flag=flag), flag.panel, keys)

    def attach(self, argument: str, data: Any, given: Mapping[str, Any], first: Mapping[str, Any] | None) -> Any:
        """Return a file, or a text in a list, as `mo.reports` attaches to it what was given, by names of arguments.

        `first` is what was given for the references or test reports, None if these are they. With `is_many` `data` has
        files by their names, and a dict is returned. Without a file, None, nothing may be given for it.
        """
        if data is None:
            usual = {name: one.default for name, one in declarations(Read).items()}
            names = [option(f"{self.prefix}{name}") for name in given if given[name] != usual.get(name)]
            if names:
                rule = f"must be given with {', '.join(names)}"
                raise InputError(argument, rule, "none", "Add the file of reports that they belong to.")
            return None
        first = first or {}
        if not self.is_many:
            return _attached(data, given, first)
        own: dict[str, dict[str, Any]] = {name: {} for name in data}
        for name, values in given.items():
            of_source = name in self.sources
            of_all = [] if of_source else [value for value in values if "=" not in value]
            argument = f"{self.prefix}{name}"
            if of_all[1:]:
                raise InputError(
                    argument,
                    "must be given once for all models",
                    f"{len(of_all)} values without NAME=",
                    "Write NAME=VALUE.",
                )
            form = "NAME=FILE" if of_source else "NAME=VALUE, or one VALUE for all models"
            pairs = named([value for value in values if value not in of_all], argument, form)
            for model, _ in pairs:
                if model not in own:
                    raise InputError(
                        argument,
                        "must name a model",
                        f"{shown(model)}, which has no file",
                        f"Add its file{', or choose one of ' * bool(own)}{', '.join(own)}.",
                    )
            for model, value in [*((model, value) for model in own for value in of_all), *pairs]:
                if name == "section":
                    check_declared(argument, value, choices.Section)
                own[model][name] = value if name in ("id_column", "text_column", "section") else Path(value)
        return {name: _attached(Path(file), own[name], first) for name, file in data.items()}


def _attached(data: Any, given: Mapping[str, Any], first: Mapping[str, Any]) -> Any:
    """Return reports with what was given for them; see `Role.attach`.

    Options of text files that were given for the first reports apply to these as well, and so does the split of ids.
    """
    from metric_oracle.corpora.tables import text_options
    from metric_oracle.reading import reports

    both = {}
    if first:
        shared = [*text_options(data), *(["split"] if "ids" in given else [])]
        both = {name: first[name] for name in shared if name in first}
    own = {name: value for name, value in {**both, **given}.items() if value is not None}
    read = Read(**{name: own.pop(name) for name in declarations(Read) if name in own})
    return reports(data, read, **own, tell=note)


_SOURCES = tuple(name for record in ATTACHED for name in record.arguments)
_IDS = tuple(name for record in ATTACHED for name in record.arguments[1:])
_MODELS = ("encoder", "radgraph_encoder", "vocabulary", "entity_encoder", "device")
_OF_FILE = ("id_column", "text_column", "encoding", "separator")
TEXTS = Role(("section", "id_column", "text_column", "split", "split_file", "profile", "encoding", "separator"))
TESTS = Role(TEXTS.fields, (*_SOURCES, "uncertain", *_MODELS))
REFERENCES = Role(TEXTS.fields, (*TESTS.sources, "layer", "rescale_table"))
CORPUS = Role(TEXTS.fields, (*TESTS.sources, "layer", "states", "bf16", "rescale_table"))
SAMPLES = Role(_OF_FILE, REFERENCES.sources)
ANNOTATED = Role(TEXTS.fields, ("radgraph", "chexbert", "entities", *_MODELS[1:]), remark=_MODEL)
_BARE = ("ids", "metadata", "after_impression")
PREDICTED_TEXTS = Role(("id_column", "text_column", "section", *_BARE), (), "predicted_", _BARE)
PREDICTIONS = Role((*PREDICTED_TEXTS.fields, "seed"), _SOURCES, "predicted_", (*_BARE, "seed"), _TOO)
PREDICTED_SAMPLES = Role(("id_column", "text_column"), _SOURCES, "predicted_", remark=_TOO)
MODELS_TEXTS = Role(("id_column", "text_column", "ids", "metadata", "section"), (), "model_", is_many=True)
MODELS = Role(MODELS_TEXTS.fields, _SOURCES, "model_", remark=_TOO, is_many=True)


def check_models(reports: Any, *others: object) -> None:
    """Raise BackendError if a model cannot run here; see `reading.check_models`."""
    from metric_oracle.reading import check_models

    check_models(reports, *others)


def checkpoint(crepe: Any, config: Path | None, vocabulary: Path | None) -> dict[str, Any]:
    """Return a checkpoint of CREPE in the form of the public functions, an empty dict if no file of it is given."""
    named = {"path": crepe, "config": config, "vocabulary": vocabulary}
    return {name: path for name, path in named.items() if path is not None}


def with_ids(given: Mapping[str, Any], **ids: Path | None) -> dict[str, Any]:
    """Return files of vectors, by their arguments, each in a pair with the file of its ids if that was given."""
    return {name: (given.get(name), path) for name, path in ids.items() if path is not None}


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
