"""`oracle.toml`: names for sets of reports, judges and encoders, with how each is read, said once beside the data."""

import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from annotated_doc import Doc

from metric_oracle.base.declarations import IN_PYTHON, OUTPUT, Declaration, Flag, alternatives, declarations
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import only_writer, sha256, write_bytes
from metric_oracle.base.validation import check_declared, public
from metric_oracle.corpora.read import Read
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.samples import Samples
from metric_oracle.corpora.tables import existing_file
from metric_oracle.judges.given import GivenJudge, judge
from metric_oracle.metrics import METRICS, REPRESENTATIONS
from metric_oracle.reading import AttachedReports, attached, reports
from metric_oracle.sources.attaching import attach_sources, attached_sources, can_make, is_model
from metric_oracle.sources.contract import Source, source_of
from metric_oracle.sources.keywords import OF_ENCODER, Sources

FILE = "oracle.toml"
VARIABLE = "ORACLE_PROJECT"  # the environment variable that names another file
LARGEST = 2**20  # bytes: names and options take some kilobytes
_NAME = r"[^\s=,+/\\.:]{1,80}"
_TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "text in quotes"}


def keys_of(kind: str) -> dict[str, Declaration]:
    """Return the declarations of the keys of an entry [kind.NAME], beside its file or model, by their names in Python.

    They are the parameters of `mo.reports` and of `mo.judge`; those on token states belong to the encoder.
    """
    if kind == "judges":
        return {name: one for name, one in declarations(judge).items() if name != "name" and one.flag is not IN_PYTHON}
    sources = declarations(Sources)
    if kind == "encoders":
        return {name: sources[name] for name in OF_ENCODER}
    return {
        **declarations(Read),
        **{name: one for name, one in sources.items() if name not in (*OF_ENCODER, "encoder")},
    }


STUDY = "study"  # the table in a study's folder that says what the study was made of
KINDS = ("reports", "judges", "encoders")
FIRST = {"reports": "file", "encoders": "model"}  # what an entry of each kind must have


class Project(Mapping[str, AttachedReports]):
    """The sets of reports that an oracle.toml names, with its judges and encoders. Made by `project`.

    Attributes
    ----------
    path : path
        The file.
    judges : dict of str to GivenJudge
        The judges, as `mo.judge` describes them. A command runs in the folder of the file, when its judge is asked.
    encoders : dict of str to dict
        The arguments of `mo.reports` that the name of an encoder stands for, such as `encoder` and `layer`.
    study : dict
        What a study was made of, in the file of its folder; empty in others. Its keys are index, reports (the names
        in this file) and files (the checksum of each by its path).
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._text = _text(self.path)
        self._entries = _read_entries(self.path, self._text)
        self.study = tomllib.loads(self._text).get(STUDY, {})
        self.judges = {name: self._judge(name) for name in self._entries["judges"]}
        self.encoders = {name: self._encoder(name) for name in self._entries["encoders"]}
        self._reports: dict[str, AttachedReports] = {}

    def __len__(self) -> int:
        return len(self._entries["reports"])

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries["reports"])

    def __contains__(self, name: object) -> bool:
        return name in self._entries["reports"]

    def __repr__(self) -> str:
        return f"<Project: {self.path} with {', '.join(self) or 'no reports'}>"

    def __getitem__(self, name: str) -> AttachedReports:
        if name not in self._reports:
            self._reports[name] = self.reports(name)
        return self._reports[name]

    @public
    def reports(self, name: str, **more: Any) -> AttachedReports:
        """Return the reports of an entry, with further arguments of `mo.reports`; KeyError if there is no entry."""
        entry = self._entries["reports"][name]
        arguments = {
            key: self._value("reports", key, value) for key, value in entry.items() if key not in ("file", "title")
        }
        read = Read(**{key: arguments.pop(key) for key in declarations(Read) if key in arguments})
        file = self._path(entry["file"])
        if not Path(file).exists():
            place = _Place(self.path, self._text, ("reports", name, "file"))
            raise place.error(
                "file", "must be an existing file or folder", shown(Path(file)), "It is relative to this file."
            )
        attached_reports = reports(file, read, **arguments, **more)
        return replace(attached_reports, title=entry.get("title", name))

    def entries(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return the entries of a kind, such as "judges", by name, with the keys and values that the file has."""
        written = tomllib.loads(self._text).get(kind, {})
        return {name: dict(entry) for name, entry in written.items()}

    def _judge(self, name: str) -> GivenJudge:
        """Return a named judge; raise InputError if its entry describes none."""
        entry = self._entries["judges"][name]
        arguments = {key: self._value("judges", key, value) for key, value in entry.items()}
        place = _Place(self.path, self._text, ("judges", name))
        try:
            named_judge = judge(name=name, **arguments)
        except InputError as error:
            if not error.argument:
                raise InputError(f"{place.shown(name)}: {error.sentence}", error.step) from None
            at = place.at(error.argument.replace("_", "-"))
            raise InputError(at.shown(at.keys[-1]), error.rule, error.value, error.step) from None
        return replace(named_judge, folder=self.path.parent)

    def _encoder(self, name: str) -> dict[str, Any]:
        """Return the arguments of `mo.reports` for a named encoder."""
        entry = dict(self._entries["encoders"][name])
        model = self._path(entry.pop("model"), is_name=True)
        return {"encoder": model, **{key: self._value("encoders", key, value) for key, value in entry.items()}}

    def _value(self, kind: str, key: str, value: Any) -> Any:
        """Return the value of a key; paths are relative to the file."""
        if not _is_path(keys_of(kind)[key]):
            return value
        return [self._path(each) for each in value] if isinstance(value, list) else self._path(value)

    def _path(self, value: str, *, is_name: bool = False) -> str:
        """Return a path that is relative to the folder of the file; `is_name` if it may be the name of a model."""
        path = self.path.parent / Path(value).expanduser()
        return value if is_name and not path.exists() else str(path)


def _is_path(one: Declaration) -> bool:
    """Return whether the value of a key is a path, or several."""
    inside = [alternatives(get_args(kind)[0]) if get_origin(kind) is Sequence else [kind] for kind in one.kinds]
    return not {Path, Any}.isdisjoint(chain.from_iterable(inside))


@public
def project(
    path: Annotated[str | Path, Doc("The file, such as oracle.toml. Paths in it are relative to its folder.")] = FILE,
) -> Project:
    """Open an oracle.toml, which says once how files of reports are read and what lies beside them.

    Returns
    -------
    Project
        Name -> reports, as [`reports`][metric_oracle.reports] makes them, read when they are used.

    Raises
    ------
    InputError
        If the file is no TOML, or has an unknown key or a value of a wrong type.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> sets = mo.project("oracle.toml")
    >>> mo.score(sets["test"], sets["strong"], "rouge-l").mean()["rouge-l"] > 0
    True
    """
    return Project(path)


def current(path: Path | None = None) -> Project | None:
    """Return the project of a command: that of `path`, else of ORACLE_PROJECT, else oracle.toml if there is one."""
    place = place_of(path)
    return Project(place) if str(place) != FILE or os.path.lexists(FILE) else None


def place_of(path: Path | None = None) -> Path:
    """Return the path of the oracle.toml that a command uses, also if there is none yet; see `current`."""
    return path or Path(os.environ.get(VARIABLE) or FILE)


# Reading


def _text(path: Path) -> str:
    """Return the text of an oracle.toml."""
    if not path.is_file():
        got = "a folder" if path.is_dir() else "no such file"
        raise InputError("project", "must be a file such as oracle.toml", f"{path}, {got}", "Check the name.")
    if path.stat().st_size > LARGEST:
        raise InputError(f"{path} has more than {LARGEST // 2**20} MiB.", "Name the file that names your reports.")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}: not UTF-8.", "Save the file as UTF-8.") from None


def _read_entries(path: Path, text: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the entries of an oracle.toml by kind and name, with keys as Python writes them; raise InputError."""
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        reason, _, position = str(error).partition(" (at ")
        line = re.match(r"line (\d+)", position)
        where = f"{path}, line {line[1]}" if line else str(path)
        raise InputError(f"{where}: not TOML ({reason[:80]}).", "Mend this line.") from None
    entries_of: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in KINDS}
    for kind, entries in content.items():
        place = _Place(path, text, (kind,))
        if kind == STUDY:
            place.check_table(entries, f"[{STUDY}]")
            continue
        place.check_known(kind, [f"[{one}.NAME]" for one in KINDS], KINDS)
        place.check_table(entries, f"[{kind}.NAME]")
        for name, entry in entries.items():
            entries_of[kind][name] = _read_entry(place.at(name), kind, name, entry)
    return entries_of


def _read_entry(place: "_Place", kind: str, name: str, entry: Any) -> dict[str, Any]:
    """Return an entry with its keys as Python writes them; raise InputError for a wrong name, key or value."""
    place.check_table(entry, f"[{kind}.NAME]")
    if not re.fullmatch(_NAME, name):
        raise place.error("the name", "must have no blank and none of = , + / \\ . :", shown(name), "Choose another.")
    first, declared = FIRST.get(kind), keys_of(kind)
    own_keys = ([first] if first else []) + ["title"] * (kind == "reports")
    written = [*own_keys, *(key.replace("_", "-") for key in declared)]
    for key, value in entry.items():
        at = place.at(key)
        at.check_known(key, written, written)
        kinds = (str,) if key in own_keys else declared[key.replace("-", "_")].kinds
        at.check_type(key, value, kinds)
        if key not in own_keys:
            check_declared(at.shown(key), value, declared[key.replace("-", "_")].annotation)
    if first and not entry.get(first):
        raise place.at(first).error(first, "must be given", "none", f'Add {first} = "...".')
    return {key.replace("-", "_"): value for key, value in entry.items()}


class _Place:
    """A place in an oracle.toml, for messages: the keys that lead to it."""

    def __init__(self, path: Path, text: str, keys: tuple[str, ...]) -> None:
        self.path, self.text, self.keys = path, text, keys

    def at(self, key: str) -> "_Place":
        """Return the place of a key within this one."""
        return _Place(self.path, self.text, (*self.keys, key))

    def shown(self, key: str) -> str:
        """Return file, line and key."""
        name = key if shown(key) == repr(key) else shown(key)
        return f"{self.path}, line {self.line}: {name}"

    @property
    def line(self) -> int:
        """The line on which the keys are, or the nearest table around them begins."""
        here: tuple[str, ...] = ()
        best = (0, 1)
        for number, line in enumerate(self.text.split("\n"), 1):
            header = re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line)
            key = re.match(r"\s*([^=#\[]+?)\s*=", line)
            here = _parts(header[1]) if header else here
            reached = here if header else (*here, *_parts(key[1])) if key else ()
            if self.keys[: len(reached)] == reached and len(reached) > best[0]:
                best = (len(reached), number)
        return best[1]

    def error(self, key: str, rule: str, value: object, step: str) -> InputError:
        """Return an error about a key here."""
        return InputError(self.shown(key), rule, value, step)

    def check_known(self, key: str, forms: list[str], keys: Any) -> None:
        """Raise InputError unless a key is known."""
        if key not in keys:
            near = get_close_matches(key, [*keys], n=1)
            step = f"Did you mean {near[0]}?" if near else f"Known are {', '.join(forms)}."
            raise InputError(f"{self.shown(key)} is not known.", step)

    def check_table(self, value: Any, form: str) -> None:
        """Raise InputError unless a value is a table."""
        if not isinstance(value, dict):
            raise self.error(self.keys[-1], f"must be a table {form}", type(value).__name__, f"Write {form}.")

    def check_type(self, key: str, value: Any, kinds: tuple[Any, ...]) -> None:
        """Raise InputError unless a value has one of some types; a path, a choice and any value are written as text."""
        allowed = {kind if kind in (bool, int, float) else str for kind in kinds}
        is_list = isinstance(value, list) and any(get_origin(kind) is Sequence for kind in kinds)
        values = value if is_list else [value]
        if not all(type(one) in allowed or (type(one) is int and float in allowed) for one in values):
            rule = f"must be {' or '.join(_TYPES[kind] for kind in allowed)}"
            raise self.error(key, rule, shown(value), "Write it so.")


def _parts(keys: str) -> tuple[str, ...]:
    """Return the parts of dotted keys, without their quotes."""
    return tuple(part[0] or part[1] or part[2] for part in re.findall(r"\"([^\"]*)\"|'([^']*)'|([\w-]+)", keys))


# Writing


def write_entry(path: Path, name: str, entry: Mapping[str, Any], kind: str = "reports") -> None:
    """Write or replace the entry [kind.NAME]; the rest of the file, comments and order stay as they are."""
    import tomlkit

    with only_writer(path):
        document = tomlkit.parse(_text(path) if path.exists() else "")
        tables = document.setdefault(kind, tomlkit.table(is_super_table=True))
        table = tables.get(name)
        if table is None:
            table = tables[name] = tomlkit.table()
        for key in [key for key in table if key not in entry]:
            del table[key]
        for key, value in entry.items():
            table[key] = value
        text = tomlkit.dumps(document)
        _read_entries(path, text)
        write_bytes(path, text.encode())


def write_study_project(
    folder: Path,
    index: Path,
    tests: AttachedReports,
    models: Mapping[str, AttachedReports],
    judges: Sequence[GivenJudge] = (),
) -> None:
    """Write the oracle.toml of a study's folder: its index, its reports with all that was said of them, checksums.

    Reports in memory have no file and are left out. The judges are those of an oracle.toml.
    """
    import tomlkit

    named = {"tests": ("", tests)} | {f"model-{i}": pair for i, pair in enumerate(models.items(), 1)}
    entries = {
        name: entry_of(one, folder / FILE, title or None)
        for name, (title, one) in named.items()
        if isinstance(one.data, str | Path)
    }
    paths = dict.fromkeys(path for entry in entries.values() for path in _paths_in(entry))
    files = {path: sha256(folder / path) for path in paths if (folder / path).is_file()}
    document = tomlkit.document()
    document.add(tomlkit.comment("What this study was made of: oracle explore and oracle report read it."))
    document[STUDY] = {"index": _relative(index, folder / FILE), "reports": [*entries], "files": files}
    document["reports"] = entries
    if judges:
        document["judges"] = {one.name: entry_of_judge(one, folder / FILE) for one in judges}
    write_bytes(folder / FILE, tomlkit.dumps(document).encode())


@dataclass(frozen=True)
class OpenedStudy:
    """What the pages show of a study's folder."""

    results: list[Path]  # the files of its rows
    index: str
    tests: AttachedReports | None  # None if they were in memory
    changed: list[str]  # files that are missing, or are not what they were when the study was made


def opened_study(folder: Path, **more: Any) -> OpenedStudy | None:
    """Return the study of a folder, whose reports take the further arguments `more`; None if it is no study's."""
    path = folder / FILE
    project = Project(path) if path.is_file() else None
    if project is None or not project.study:
        return None
    files = project.study.get("files", {})
    changed = [
        str(folder / name)
        for name, digest in files.items()
        if not (folder / name).is_file() or sha256(folder / name) != digest
    ]
    tests = project.reports("tests", **more) if "tests" in project else None
    return OpenedStudy(sorted(folder.glob("*.parquet")), str(folder / project.study["index"]), tests, changed)


def _paths_in(entry: Mapping[str, Any]) -> list[str]:
    """Return the paths of an entry with paths."""
    paths = {"file", *(key.replace("_", "-") for key, one in keys_of("reports").items() if _is_path(one))}
    return [str(entry[key]) for key in entry if key in paths]


# Showing


def entry_of(reports: AttachedReports, place: Path, title: str | None = None) -> dict[str, Any]:
    """Return the entry for reports in the project at `place`: how they are read and what lies beside them."""
    models = {name: value for name, value in reports.models.items() if name != "tell"}
    entry = {"title": title, "file": _relative(reports.data, place)}
    for name, value in {**reports.options.given, **reports.sources, **models}.items():
        is_path = _is_path(keys_of("reports")[name])
        entry[name.replace("_", "-")] = _relative(value, place) if is_path else value
    return {name: value for name, value in entry.items() if value is not None}


def entry_of_judge(judge: GivenJudge, place: Path) -> dict[str, Any]:
    """Return the entry for a judge in the project at `place`; one that is a function has no command there.

    Files among the words of a command are named from there.
    """
    words = () if judge.command is None or callable(judge.command) else judge.command
    at = judge.folder or Path()
    moved = [
        _relative(at / word, place) if (at / word).is_file() and not Path(word).is_absolute() else word
        for word in words
    ]
    entry = {name: getattr(judge, name) for name in keys_of("judges")}
    entry["command"] = shlex.join(moved)
    entry["files"] = [_relative(path, place) for path in judge.files]
    entry["keep"] = judge.keep and _relative(judge.keep, place)
    return {name.replace("_", "-"): value for name, value in entry.items() if value not in (None, "", [])}


def _relative(path: str | Path, place: Path) -> str:
    """Return a path relative to the folder of `place`, the oracle.toml; absolute if the two share only the root."""
    folder, whole = place.parent.resolve(), Path(path).resolve()
    shared = os.path.commonpath([folder, whole])
    return str(whole) if shared == whole.anchor else os.path.relpath(whole, folder)


def described(
    name: Annotated[
        str | None, Doc("Name of the reports, which the other commands take. By default all entries are listed.")
    ] = None,
    file: Annotated[
        Any, Doc("File or folder of reports, predictions or samples. By default that of the entry, which is shown.")
    ] = None,
    *,
    title: Annotated[
        str | None, Doc("Name in tables and figures. By default NAME."), Flag(metavar="TEXT", panel=OUTPUT)
    ] = None,
) -> dict[str, Any]:
    """Read reports and return what was understood of them, by what it is.

    A file that is no file of reports by the rules for them is read as predictions and then as samples.
    """
    side = attached(file)
    description = {"name": name, "title": title or side.title or name, "file": str(side.data)}
    readings: list[Callable[[], Any]] = [side.read, partial(side.read, predictions=True), side.read_samples]
    if not {"ids", "metadata"}.isdisjoint(side.options.given):  # of predictions alone
        readings = readings[1:2]
    errors = []
    for read in readings:
        try:
            data = read()
        except InputError as error:
            errors.append(error)
        else:
            of_kind = _of_samples(data) if isinstance(data, Samples) else _of_reports(data, side)
            return {**description, **of_kind}
    raise errors[0]


def _of_reports(read: Reports, side: AttachedReports) -> dict[str, Any]:
    """Return what is known of reports that were read, with their sources; models among these are not run."""
    models = {name: str(value) for name, value in side.sources.items() if is_model(name, value)}
    files = {name: value for name, value in side.sources.items() if name not in models}
    for value in models.values():
        if Path(value).suffix:  # others are names
            existing_file(Path(value))
    with_sources = attach_sources(read, **side.models, **files)
    attached = {kind: int((one.of_row >= 0).sum()) for kind, one in with_sources.attached.items()}
    by_models = {source.name for source in attached_sources() if _maker(source) in models}
    kinds = {kind for kind in REPRESENTATIONS if can_make(with_sources, kind)} | by_models
    names = [one.name for one in METRICS.values() if kinds.issuperset(one.representations)]
    metrics = [*dict.fromkeys(name.partition(":")[0] for name in names)]
    return {
        "read as": with_sources.source,
        "reports": len(with_sources.ids),
        **{state: len(ids) for state, ids in with_sources.states.items() if ids},
        "marks": with_sources.marks,
        "section": with_sources.section or "not known",
        "ids from": with_sources.ids_from.name or with_sources.ids_from.by,
        "columns": list(with_sources.ids_from.columns),
        "sources": attached,
        "models": [*models.values()],
        "metrics": metrics,
    }


def _maker(source: Source) -> str:
    """Return the argument whose model makes a source."""
    return source_of(source.record.made_by).argument if source.record.made_by else source.argument


def _of_samples(samples: Samples) -> dict[str, Any]:
    """Return what is known of samples that were read."""
    return {
        "read as": samples.source,
        "studies": len(samples.ids),
        "samples": sum(samples.sizes),
        "section": samples.section[0] or "not known",
        "ids from": samples.ids_from.name or samples.ids_from.by,
    }
