"""Options that several commands share and Python does not have."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_doc import Doc

from metric_oracle.base.declarations import FILES, OUTPUT, READING, ROWS, Flag, listed
from metric_oracle.base.option_types import Millimetres

FORMATS = ("table", "jsonl", "csv", "md", "tex")
PLAIN = FORMATS[:3]
PRINTED = "By default the result is printed."
_PATH = Flag(metavar="PATH", panel=OUTPUT)
Plot = Annotated[Path | None, Doc("Figure to write: .png, .svg or .pdf."), Flag(panel=OUTPUT)]
Width = Annotated[
    Millimetres | None,
    Doc("Width of the figure in millimetres, such as 88 for a column. By default at most 180. Needs `plot`."),
    Flag(metavar="MM", panel=OUTPUT),
]
Project = Annotated[
    Path | None,
    Doc(
        "File that names sets of reports, see oracle reports. By default that of the variable ORACLE_PROJECT, or "
        "oracle.toml if there is one."
    ),
    Flag(metavar="FILE", panel=READING),
]
Quiet = Annotated[
    bool,
    Doc("Print no notes and show no progress bar. Errors are still printed."),
    Flag("--quiet", "-q", panel=OUTPUT),
]
Components = Annotated[
    bool,
    Doc("Show in the table the terms of which a composite score such as RadCliQ is the sum; files have them anyway."),
    Flag(panel=OUTPUT),
]
_IDS = "if that file has none: a text file with one id per line, or a table with an id column."
CorpusVectorIds = Annotated[Path | None, Doc(f"Ids of the vectors in `corpus_vectors`, {_IDS}"), Flag(panel=FILES)]
QueryVectorIds = Annotated[Path | None, Doc(f"Ids of the vectors in `query_vectors`, {_IDS}"), Flag(panel=FILES)]
Foreign = Annotated[
    Mapping[str, Sequence[str | Path]],
    Doc(
        "Scores of the system NAME by another tool, which are added to those of NAME, if there are any: a table with "
        "an id column and one column per metric. Columns of unknown metrics need `direction`, or else are left out."
    ),
    Flag(metavar="NAME=FILE", panel=ROWS),
]


def print_format(formats: Sequence[str], *, has_out: bool) -> Any:
    """Return the type of --format for a command that prints these formats; `has_out` if it can write files instead."""
    with_out = " With --out, the whole result is printed only if this option is given." if has_out else ""
    return Annotated[
        Literal[tuple(formats)] | None,
        Doc(
            "Format of what is printed: {}. By default a table on a terminal, and jsonl (JSON Lines) where the output "
            f"is redirected.{with_out}"
        ),
        Flag(panel=OUTPUT),
    ]


def out(endings: Sequence[str], *, is_needed: bool) -> Any:
    """Return the type of --out for a command that writes a file with one of these endings, or prints the result."""
    text = f"File to write: {listed(endings)}. The ending chooses the format."
    if len(endings) == 1:
        text = f"File to write, with the ending {endings[0]}."
    return Annotated[Path | None, Doc(f"{text} {'It must be given.' if is_needed else PRINTED}"), _PATH]
