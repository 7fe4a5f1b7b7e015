"""Helpers that several commands share: checks of models and libraries, and reading of test reports."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from metric_oracle import choices
from metric_oracle.arguments import check_declared
from metric_oracle.commands.old_command import given, named, used
from metric_oracle.commands.old_options import (
    CrepeFiles,
    Inputs,
    Models,
    ModelsReading,
    PredictedReading,
    Reading,
)
from metric_oracle.commands.output import note, progress
from metric_oracle.corpora.read import Read
from metric_oracle.declared import declarations
from metric_oracle.errors import InputError, not_installed, option


def check_installed(files: Any, *models: object) -> None:
    """Raise BackendError if a model in the option group `files`, or one of `models`, needs a library that is missing.

    A model that is None is not given.
    """
    from metric_oracle.sources.availability import check_installed, named_models

    check_installed([*named_models(given(files)), *models])


def check_owner(argument: str, options: Iterable[str], other: str = "") -> None:
    """Raise InputError if `options` of a file are given but not the file, `argument`; `other` ends the next step."""
    names = [option(name) for name in options]
    if names:
        raise InputError(
            argument,
            f"must be given with {', '.join(names)}",
            "none",
            f"Add {option(argument)}, whose reports they belong to{other}.",
        )


def check_device(inputs: Inputs) -> None:
    """Raise BackendError if --device cuda is given, a model would run on it, and this machine has no GPU."""
    from metric_oracle.sources.availability import check_device, named_models

    check_device(inputs.models.device, [inputs.models.encoder, *named_models(given(inputs.files))])


def check_models(inputs: Inputs, *others: object) -> None:
    """Raise BackendError if a library or device of the models that `inputs` or `others` name is missing."""
    check_installed(inputs.files, inputs.models.encoder, *others)
    check_device(inputs)


def check_web() -> None:
    """Raise BackendError if a library of the web pages is not installed."""
    missing = [library for library in ("starlette", "uvicorn", "jinja2") if find_spec(library) is None]
    if missing:
        raise not_installed("a page", missing[0], "web")


def load_tests(
    queries: Path | str, inputs: Inputs, *results: Any, keep: Sequence[str] = (), metrics: Sequence[Any] = ()
) -> Any:
    """Return the test reports in a file (a path) or one text, with their sources; print what was recognised.

    By default their section is that of `results`, which are indexes or results. `keep` names columns to read; a note
    says which reports have no word for one of `metrics`.
    """
    from metric_oracle.indexes.shards import is_prepared, section_of
    from metric_oracle.reading import reports, say_wordless
    from metric_oracle.sources.availability import named_models

    check_device(inputs)
    reading = inputs.reading
    read: Any = queries
    options: dict[str, Any] = {**used(inputs.files), **used(inputs.models)}
    if isinstance(queries, str):
        read = [queries]
        options |= {"read": Read(section=reading.section)}
    elif is_prepared(queries):
        options |= {"read": Read(**used(reading))}
    else:
        of_file = reports(queries, Read(**used(reading)), tell=note)
        read = of_file.read(default_section=section_of(*results), is_shown=True, keep=keep)
        if not read.left_out:  # that line says it, too
            note(f"test reports: {read.source}")
    tests = reports(read, **options, tell=note)
    if not named_models(given(inputs.files)):
        loaded = tests.load()
    else:
        with progress("test reports") as step:
            loaded = tests.load(progress=step)
    say_wordless(metrics, {"test reports": loaded.texts}, note)
    return loaded


def attached(file: Path, inputs: Inputs, **options: Any) -> Any:
    """Return a file of reports with its sources and `options` of `reports`."""
    from metric_oracle.reading import reports

    of_models = used(inputs.models)
    return reports(file, Read(**used(inputs.reading)), **given(inputs.files), **of_models, tell=note, **options)


def given_options(inputs: Inputs) -> dict[str, Any]:
    """Return the options of a file of reports that were given, by the names of their arguments in Python."""
    read = Read(**used(inputs.reading))
    return {**used(inputs.files), **used(inputs.models), **({"read": read} if read.given else {})}


def written(file: Path, of_file: PredictedReading, reading: Reading, seed: int = 0, **sources: Any) -> Any:
    """Return the reports of a model with their sources; `reading` is that of the references."""
    from metric_oracle.reading import reports

    own = {name.removeprefix("predicted_"): value for name, value in used(of_file, PredictedReading()).items()}
    read = Read(**own, **_of_both(file, own, reading), seed=seed)
    return reports(file, read, tell=note, **sources)


def written_by(
    files: Sequence[tuple[str, str]], of_files: ModelsReading, reading: Reading, sources: Any = None
) -> dict[str, Any]:
    """Return the reports of each model by its name, from pairs of a name and a file.

    The options in `of_files` have the form [NAME=]VALUE, those of the group `sources` NAME=FILE. `reading` is that of
    the references.
    """
    from metric_oracle.reading import reports

    twice = [name for name, count in Counter(name for name, _ in files).items() if count > 1]
    if twice:
        raise InputError(f"two files have the name {twice[0]!r}.", "Write NAME=FILE with another name.")
    of_sources = {} if sources is None else given(sources)
    options: dict[str, dict[str, Any]] = {name: {} for name, _ in files}
    for argument, values in {**of_sources, **given(of_files)}.items():
        of_all = [] if argument in of_sources else [value for value in values or () if "=" not in value]
        of_one = [value for value in values or () if value not in of_all]
        if of_all[1:]:
            raise InputError(
                argument,
                "must be given once for all models",
                f"{len(of_all)} values without NAME=",
                "Write NAME=VALUE.",
            )
        setting = argument.removeprefix("model_")
        form = "NAME=FILE" if argument in of_sources else "NAME=VALUE, or one VALUE for all models"
        pairs = named(of_one, argument, form)
        for name, _ in pairs:
            if name not in options:
                raise InputError(
                    argument,
                    "must name a model",
                    f"{name!r}, which has no file",
                    f"Add its file{', or choose one of ' * bool(options)}{', '.join(options)}.",
                )
        for name, value in [*((name, value) for name in options for value in of_all), *pairs]:
            if setting == "section":
                check_declared(argument, value, choices.Section)
            options[name][setting] = value if setting in ("id_column", "text_column", "section") else Path(value)
    written: dict[str, Any] = {}
    for name, file in files:
        own = {**options[name], **_of_both(Path(file), options[name], reading)}
        read = Read(**{field: own.pop(field) for field in declarations(Read) if field in own})
        written[name] = reports(Path(file), read, **own, tell=note)
    return written


def _of_both(file: Path, own: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """Return the options of the references that apply to a model's file, too: of text files, and the split of its ids.

    `own` are the options of the file itself.
    """
    from metric_oracle.corpora.tables import text_options

    both = {name: getattr(reading, name) for name in text_options(file)}
    return {**both, "split": reading.split} if own.get("ids") is not None else both


def checkpoint(crepe: Path | None, files: CrepeFiles, models: Models) -> dict[str, Any]:
    """Return a checkpoint of CREPE in the form of the public functions, an empty dict if no file of it is given."""
    named = {"path": crepe, **{name.removeprefix("crepe_"): path for name, path in given(files).items()}}
    return {**named, "device": models.device} if any(named.values()) else {}


def with_ids(vectors: Path | None, ids: Path | None) -> Any:
    """Return a file of vectors or, if the file of their ids is given, the pair of both paths."""
    return vectors if ids is None else (vectors, ids)


def old_check_encoder(plan: Any, queries: Path | str, inputs: Inputs) -> None:
    """Raise if the encoder of a plan's metric, or a model among the files, cannot run on this machine."""
    from metric_oracle.indexes.shards import is_prepared

    needs_encoder = plan.metric.needs_encoder and (isinstance(queries, str) or not is_prepared(queries))
    check_installed(inputs.files, f"metric {plan.metric.name!r}" if needs_encoder else None)
