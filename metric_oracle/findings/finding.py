"""What every subject's result is: numbers, a signature, notes; shown as tables and a figure, written as any of them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metric_oracle.base.argument_checks import check_left_out
from metric_oracle.base.errors import InputError
from metric_oracle.base.files import replacing
from metric_oracle.base.option_types import FIGURES, RESULTS, TABLES, Millimetres
from metric_oracle.base.reprs import OneLine
from metric_oracle.base.validation import public
from metric_oracle.findings.figures import write_figure
from metric_oracle.findings.notebook import InNotebook
from metric_oracle.findings.printed_tables import SCORES, PaperTable, latex, markdown
from metric_oracle.findings.signature import signature_line
from metric_oracle.findings.writing import check_out, csv_text, json_lines, write_numbers

if TYPE_CHECKING:
    import pyarrow as pa


class Frames(InNotebook):
    """Base of results with a `table`: frames of other libraries, and what a terminal and a notebook show."""

    if TYPE_CHECKING:  # fields or properties of the class

        @property
        def table(self) -> pa.Table:
            """All numbers."""

        @property
        def signature(self) -> dict[str, Any]:
            """What is needed to compute the same numbers again."""

    def to_polars(self) -> Any:
        """Return the numbers as a Polars frame."""
        import polars

        return polars.from_arrow(self.table)

    def to_pandas(self) -> Any:
        """Return the numbers as a pandas frame."""
        return self.table.to_pandas()

    def records(self) -> list[dict[str, Any]]:
        """Return the rows of the numbers, each a dict of the columns."""
        return self.table.to_pylist()

    def json_lines(self) -> Iterator[str]:
        """Yield one line of JSON for each row of the numbers."""
        return json_lines(self.table)


class Finding(Frames, OneLine):
    """Base of the results of a subject, dataclasses with ``repr=False``.

    A subclass has `table`, all its numbers, which a file of numbers holds, and `signature`, which `signed` makes;
    `summary()`, one line; `tables()`, made by `listing` and `pivot` from cells of `findings.cells`; and `figure()`, if
    it has one.
    """

    def tables(self) -> list[PaperTable]:
        """Return the printed tables, with the notes below them."""
        raise NotImplementedError

    def tables_in(self, form: str) -> list[PaperTable]:
        """Return the tables that a text of a form, "md" or "tex", has; by default those of a terminal."""
        return self.tables()

    def figure(self, width: float | None = None) -> Any:
        """Return the Matplotlib figure, of a width in millimetres; a result that has none raises InputError."""
        raise InputError(f"{type(self).__name__} has no figure.", f"Write tables or numbers: {', '.join(TABLES)}.")

    def warnings(self) -> list[str]:
        """Return a sentence for each reason to read the numbers with care."""
        return []

    def shown(self, tables: Sequence[PaperTable] | None = None) -> list[Any]:
        """Return what a terminal shows: tables, by default all of its own, and the line of the signature."""
        from rich.text import Text

        return [
            *(self.tables() if tables is None else tables),
            Text(signature_line(self.signature), style="dim", overflow="fold"),
        ]

    @public
    def text(self, form: str, label: str = SCORES) -> str:
        """Return the result as text, by the ending of a file of that form: "md", "tex", "csv" or "jsonl".

        LaTeX refers to a table for a paper by ``tab:`` and the letters and digits of `label`.
        """
        if form == "md":
            return markdown(self.tables_in(form), self.signature)
        if form == "tex":
            return latex(self.tables_in(form), self.signature, label)
        return csv_text(self.table) if form == "csv" else "".join(f"{line}\n" for line in self.json_lines())

    @public
    def write(self, path: str | Path, width: Millimetres | None = None) -> None:
        """Write the tables, all numbers or the figure, by the ending of the path.

        Parameters
        ----------
        path : str or path
            File that ends in ``.md`` or ``.tex`` (tables, rounded), ``.csv``, ``.parquet`` or ``.jsonl`` (numbers,
            unrounded), or ``.png``, ``.svg`` or ``.pdf`` (the figure). An existing one is replaced only when the new
            one is complete. The signature is in the file, or beside it in ``<path>.signature.json``.
        width : float, optional
            Width of the figure in millimetres. By default that of the figure's kind, at most 180.
        """
        path = Path(path)
        ending = path.suffix.lower()
        if ending in FIGURES:
            write_figure(path, self.figure(width))
            return
        check_left_out({"width": width}, "for a file that is no figure")
        check_out(path, endings=(*TABLES, *FIGURES))
        if ending in RESULTS:
            write_numbers(path, self.table, self.signature)
        else:
            with replacing(path) as temporary:
                label = SCORES if path.stem == "table" else path.stem  # a study has a table.tex
                temporary.write_bytes(self.text(ending[1:], label).encode("utf-8", "surrogateescape"))
