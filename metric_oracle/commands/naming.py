"""The command reports."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from annotated_doc import Doc

from metric_oracle.base.declarations import OUTPUT, Flag
from metric_oracle.base.errors import InputError
from metric_oracle.commands.command import Call, command
from metric_oracle.commands.inputs import ENTRY
from metric_oracle.commands.output import Destination, note

app = typer.Typer(rich_markup_mode="rich")


def _described() -> Callable[..., Any]:
    """Return what makes the rows of the list."""
    from metric_oracle.projects import described

    return described


@command(
    app,
    "oracle reports",
    "oracle reports test radiologists.csv --id-column ExamNo --text-column txt",
    "oracle reports strong out_A.csv --title 'Strong (ours)' \\\n--radgraph strong_graphs.json",
    of=_described,
    reports={"file": ENTRY},
    formats=("table", "jsonl"),
)
def reports(
    call: Call,
    to: Destination,
    *,
    dry_run: Annotated[
        bool, Doc("Show what is understood of the file, and write nothing."), Flag("--dry-run", panel=OUTPUT)
    ] = False,
) -> None:
    """Give a file of reports a name in oracle.toml, and say how it is read. Without arguments, list all names.

    Every other command then takes the name in the place of a file. The entry is written or replaced, and the rest of
    the file stays as it is. Paths in it are relative to its folder.
    """
    from metric_oracle.projects import current, entry_of, place_of, write_entry
    from metric_oracle.sources.contract import ignore

    name, given, title = (call.values.get(argument) for argument in ("name", "file", "title"))
    project, place = current(call.project), place_of(call.project)
    if given is not None:
        if given.title:
            raise InputError("file", "must be a file or folder", f"the name {given.title}", "Give its file.")
        records = [call()]
        if not dry_run:
            write_entry(place, records[0]["name"], entry_of(given, place, title))
            note(f"{place}: {name} written")
    elif project is None:
        raise InputError(f"there is no {place} yet.", "Name a file: oracle reports NAME FILE.")
    else:
        if name is not None and name not in project:
            names = ", ".join(project) or "none"
            raise InputError("name", f"must be one of {place}: {names}", repr(name), "Give it a file, or choose one.")
        chosen = [*project] if name is None else [name]
        records = [call.function(one, project.reports(one, tell=ignore)) for one in chosen]
        for kind in ("judges", "encoders") if name is None else ():
            records += [{"name": f"{kind}.{one}", **entry} for one, entry in project.entries(kind).items()]
    to.deliver(lambda: shown(records, name is None), {"jsonl": lambda: map(json.dumps, records)})


def shown(records: Sequence[Mapping[str, Any]], is_list: bool) -> Iterator[Any]:
    """Yield what a terminal shows of reports: a line for each set of a list, all that is known of one."""
    from metric_oracle.findings.views import block

    for record in records:
        title = ": ".join(dict.fromkeys(filter(None, (record["name"], record.get("title")))))
        names = [name for name in record if name not in ("name", "title", *(("columns", "metrics") if is_list else ()))]
        lines = [(name, text_of(record[name])) for name in names]
        yield block(title, [(name, text) for name, text in lines if text])


def text_of(value: Any) -> str:
    """Return a value of a description as text: a number with commas, or a list of names."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} ({count:,})" for name, count in value.items())
    if isinstance(value, list):
        return ", ".join(value)
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if is_count else str(value)
