"""Tables as a paper prints them, cells already rounded, for a terminal, Markdown and LaTeX; pictures; the files."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich import box
from rich.table import Table
from rich.text import Text

from metric_oracle.retrieval.results import Results, check_out, replacing

DATA_ENDINGS = (".csv", ".parquet", ".jsonl")
ENDINGS = (".md", ".tex", *DATA_ENDINGS)
_LATEX = str.maketrans(
    {
        **{c: f"\\{c}" for c in "&%$#_{}"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
        **{"<": "$<$", ">": "$>$"},
    }
)


@dataclass(frozen=True)
class Sheet:
    """A printed table.

    Attributes
    ----------
    title : str
    header : sequence of str
        The first column names the rows.
    rows : sequence of sequences of str
        A line break within a cell is for the terminal only.
    notes : sequence of str
        Sentences below the table.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def rich(self) -> list[Any]:
        """Return what Rich prints: the table and its notes."""
        table = Table(title=_harmless(self.title, "bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for place, name in enumerate(self.header):
            # Cells wrap on a narrow terminal: a number that is cut would be another number.
            table.add_column(_harmless(name), justify="right" if place else "left", no_wrap=not place)
        for row in self.rows:
            table.add_row(*map(_harmless, row))
        return [table, *(_harmless(note, "dim") for note in self.notes)]

    def markdown(self) -> str:
        """Return the table in Markdown, its title in bold above it."""
        lines = [self.header, ["---", *["--:"] * (len(self.header) - 1)], *self.rows]
        body = ["| " + " | ".join(_flat(cell).replace("|", r"\|") for cell in line) + " |" for line in lines]
        notes = [f"\n{_flat(note)}" for note in self.notes]
        return "\n".join([f"**{_flat(self.title)}**", "", *body, *notes, ""])

    def latex(self) -> str:
        """Return a LaTeX table with the rules of booktabs."""

        def line(cells: Iterable[str]) -> str:
            return " & ".join(_flat(cell).translate(_LATEX) for cell in cells) + r" \\"

        caption = " ".join(_flat(text) for text in (f"{self.title}.", *self.notes)).translate(_LATEX)
        return "\n".join(
            [
                r"\begin{table}",
                rf"\caption{{{caption}}}",
                rf"\begin{{tabular}}{{l{'r' * (len(self.header) - 1)}}}",
                r"\toprule",
                line(self.header),
                r"\midrule",
                *map(line, self.rows),
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )


def write_sheets(
    path: Path, sheets: Sequence[Sheet], table: pa.Table, signature: dict[str, Any], function: str
) -> None:
    """Write the sheets (.md, .tex) or the table of all numbers (.csv, .parquet, .jsonl), by the ending of `path`."""
    check_out(path, function=function, endings=ENDINGS)
    if path.suffix.lower() in DATA_ENDINGS:
        Results(table, signature).write(path, function=function)
    else:
        markdown = path.suffix.lower() == ".md"
        said = json.dumps(signature)
        text = "\n".join(sheet.markdown() if markdown else sheet.latex() for sheet in sheets)
        text += f"\n<!-- signature: {said} -->\n" if markdown else f"% signature: {said}\n"
        with replacing(function, path) as (beside,):
            beside.write_text(text, encoding="utf-8")


def fingerprint(path: Path) -> dict[str, str]:
    """Return what tells an input file in a signature: its name and checksum."""
    with path.open("rb") as file:
        return {"file": path.name, "sha256": file_digest(file, "sha256").hexdigest()}


def sources_line(signature: dict[str, Any]) -> str:
    """Return one line that names the input files of a result by name and checksum, and the version."""
    inputs = [signature["ratings"], signature.get("samples"), *signature.get("scores", [])]
    named = [f"{i['file']} ({i['sha256'][:12]})" if isinstance(i, dict) else i for i in inputs if i]
    return "; ".join([*named, f"metric-oracle {signature['version']}"])


def _flat(text: str) -> str:
    return " ".join(text.split())


def _harmless(text: str, style: str = "") -> Text:
    """Return a cell without markup and control characters; only line breaks remain."""
    return Text("".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text), style)
