"""Printed tables, with rounded cells: for a terminal of any width, in Markdown and in LaTeX.

A table is for reading, with all that is to be said below it, or for a paper (`Print`), with a line for each row.
All Markdown and LaTeX of the package is made here, and here alone names are escaped. On a terminal, no line of a cell
is ever broken or cut, because a number that is cut is a wrong number. A table that is too wide is shown in several
parts, one below the other, each with the names of the rows.
"""

import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from metric_oracle.findings.cells import NOTHING, Format, Row
from metric_oracle.findings.signature import short_signature


@dataclass(frozen=True)
class Entry:
    """The lines of one cell. If it is `best`, the first line is printed in bold; if it is `second`, underlined."""

    lines: tuple[str, ...]
    best: bool = False
    second: bool = False
    mark: str = ""  # a sign behind the first line, such as "≈"


@dataclass(frozen=True)
class Print:
    """What a table has that goes into a paper as it is."""

    legend: list[str]  # sentences behind the title; those of `notes` are for who writes the paper
    rule: int  # number of rows above the rule
    beside: bool = False  # whether the second line of a cell stands beside the first


@dataclass(frozen=True)
class PaperTable:
    """A printed table."""

    title: str
    columns: list[str]  # heads of the columns, without the column of names
    rows: list[tuple[str, list[Entry]]]  # a name and its cells; the name may have several lines
    notes: list[str] = field(default_factory=list)  # sentences below the table
    first: str = ""  # head of the column of names
    print: Print | None = None  # None for a table with cells of many lines and all that is to be said, for reading

    @property
    def sentences(self) -> list[str]:
        """All sentences below the table on a terminal, in a notebook and in Markdown."""
        return [*(self.print.legend if self.print else ()), *self.notes]

    def lines(self, column: int) -> list[list[str]]:
        """Return the lines of each cell of a column, as a text shows them, with the marks behind the numbers.

        Where a cell of the column has a mark, the others have a blank, so that the numbers stay one below the other.
        """
        cells = [of_row[column] for _, of_row in self.rows]
        room = max((len(cell.mark) for cell in cells), default=0)
        lines = [[f"{plain(cell.lines[0])}{cell.mark:{room}}", *map(plain, cell.lines[1:])] for cell in cells]
        if self.print is not None and self.print.beside:
            lines = [[" ".join(of_cell)] for of_cell in lines]
        return lines

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        """Yield the table for Rich, in parts that fit the width of the console, and its notes."""
        yield from _rich(self, options.max_width)


def entry(text: str, best: bool = False, second: bool = False) -> Entry:
    """Return a cell with the lines of a text."""
    return Entry(tuple(text.split("\n")), best, second)


def listing(
    title: str,
    rows: Iterable[Row],
    name: str | Format,
    columns: Mapping[str, Format],
    notes: Sequence[str] = (),
    first: str = "",
) -> PaperTable:
    """Return a table of rows: the name of each (a field, or a function of it) and a cell in each column.

    `columns` has the function that prints a cell by the head of its column; `first` is the head of the names.
    """
    cells = [
        (row[name] if isinstance(name, str) else name(row), [entry(cell(row)) for cell in columns.values()])
        for row in rows
    ]
    return PaperTable(title, [*columns], cells, [*notes], first)


def named(title: str, columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> PaperTable:
    """Return a table of the texts of cells, by the name of their row."""
    return PaperTable(title, [*columns], [(name, [*map(entry, texts)]) for name, texts in rows.items()])


def pivot(
    title: str,
    rows: Iterable[Row],
    down: str,
    across: str,
    cell: Format,
    notes: Sequence[str] = (),
    first: str = "",
    *,
    named: Callable[[str], str] = str,
    best: str = "",
    second: str = "",
    lines: Sequence[str] = (),
) -> PaperTable:
    """Return a table with a line for each value of the field `down` and a column for each of `across`, in their order.

    `cell` prints a row, and `named` makes the head of a column from the value of its field. A line and a column without
    a row have a dash; of several rows the last counts. Cells of rows whose field `best` is true are bold, and those
    whose field `second` is true underlined; without a name of that field none are. There is a line for each of `lines`
    where these are given. `first` is the head of the column of names.
    """

    def entry_of(row: Row | None) -> Entry:
        if row is None:
            return entry(NOTHING)
        return entry(cell(row), bool(best and row[best]), bool(second and row[second]))

    row_at = {(row[down], row[across]): row for row in rows}
    names, heads = (list(dict.fromkeys(values)) for values in zip(*row_at, strict=True)) if row_at else ([], [])
    cells = [(name, [entry_of(row_at.get((name, head))) for head in heads]) for name in lines or names]
    return PaperTable(title, [*map(named, heads)], cells, [*notes], first)


def plain(text: str) -> str:
    """Return a text on one line: a blank for each run of white space, U+FFFD for a character that cannot be printed."""
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))


# A terminal

_BETWEEN, _EDGES = 3, 2  # characters between two columns, and at both edges together
_MIN_NAME_WIDTH = 8  # of the column of names


def _rich(table: PaperTable, width: int) -> Iterator[Any]:
    """Yield the parts of a table for a terminal of `width` characters, then its notes."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    lines = [table.lines(i) for i in range(len(table.columns))]

    def column_width(head: str, of_column: list[list[str]]) -> int:
        return max(map(len, (*_folded(plain(head), 0, len), *(line for of_cell in of_column for line in of_cell))))

    def text(cell: Entry, of_cell: list[str], column: int) -> Any:
        """Return the lines of a cell, each as wide as its column; the number has the style of the cell."""
        first = of_cell[0].rjust(column)
        styled = Text("\n".join([first, *(line.rjust(column) for line in of_cell[1:])]))
        start = len(first) - len(of_cell[0])
        styled.stylize(
            "bold" if cell.best else "underline" if cell.second else "", start, start + len(plain(cell.lines[0]))
        )
        return styled

    widths = [column_width(*both) for both in zip(table.columns, lines, strict=True)]
    names = [plain(line) for name, _ in table.rows for line in name.split("\n")] + [plain(table.first)]
    longest, word = max(map(len, names)), max(len(word) for name in names for word in _folded(name, 0, len))
    available = max(width - _EDGES - _BETWEEN - max(widths, default=0), _MIN_NAME_WIDTH)
    name_width = min(longest, max(width // 3, word), available)
    room = width - _EDGES - sum(widths) - _BETWEEN * len(widths)
    if max(word, _MIN_NAME_WIDTH) <= room:  # folded names rather than a table in two parts, but none without need
        name_width = min(longest, room)
    begin = 0
    while begin < max(len(table.columns), 1):
        end, left = begin + 1, width - _EDGES - name_width - _BETWEEN - (widths[begin] if widths else 0)
        while end < len(table.columns) and left >= widths[end] + _BETWEEN:
            left -= widths[end] + _BETWEEN
            end += 1
        part = Table(
            title=Text(plain(table.title)) if begin == 0 else None,
            title_justify="left",
            title_style="bold",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
        )
        part.add_column(Text(plain(table.first)), min_width=name_width, max_width=name_width, overflow="fold")
        for head, column in zip(table.columns[begin:end], widths[begin:end], strict=True):
            lines_of_head = Text("\n".join(_folded(plain(head), column, len)))
            part.add_column(lines_of_head, justify="right", min_width=column, max_width=column, overflow="fold")
        for number, (name, cells) in enumerate(table.rows, 1):
            texts = [text(cells[i], lines[i][number - 1], widths[i]) for i in range(begin, end)]
            lines_of_name = [line for part in name.split("\n") for line in _folded(plain(part), name_width, len)]
            label = Text("\n".join(lines_of_name))
            is_tall = max((len(cell.lines) for cell in cells), default=1) > 1
            part.add_row(label, *texts, end_section=is_tall if table.print is None else number == table.print.rule)
        yield part
        begin = end
    yield from (Text(plain(note), style="dim") for note in table.sentences)


# Markdown

_MARKDOWN = re.compile(r"([\\`*_{}\[\]#|~$!])")


def _markdown_text(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", html.escape(plain(text), quote=False))


def _markdown_cell(line: str) -> str:
    """Return a line of a cell. Brackets, as of intervals, are not escaped unless they could begin a link."""
    text = _markdown_text(line)
    return text if "](" in line else text.replace(r"\[", "[").replace(r"\]", "]")


def markdown(tables: Sequence[PaperTable], signature: dict[str, Any]) -> str:
    """Return tables as Markdown. At the end is the signature, in one short line and in full in a comment."""
    lines = []
    for table in tables:
        lines += [f"**{_markdown_text(table.title)}**", ""]
        lines.append("| " + " | ".join(map(_markdown_text, [table.first, *table.columns])) + " |")
        lines.append("|---|" + "--:|" * len(table.columns))
        for name, cells in table.rows:
            texts = []
            for cell in cells:
                first, *others = map(_markdown_cell, cell.lines)
                marked = f"**{first}**" if cell.best else f"<u>{first}</u>" if cell.second else first
                texts.append(" ".join([f"{marked}{cell.mark}", *others]))
            lines.append(f"| {_markdown_text(name)} | " + " | ".join(texts) + " |")
        lines.append("")
        lines += [f"- {_markdown_text(note)}" for note in table.sentences]
        lines += [""] if table.sentences else []
    lines.append(f"Signature: {_markdown_text(short_signature(signature))}")
    # Escaped, so that no name can end the comment.
    full = json.dumps(signature).replace("<", "\\u003c").replace(">", "\\u003e")
    return "\n".join([*lines, "", f"<!-- signature: {full} -->", ""])


# LaTeX

SCORES = "scores"  # label of a table in a file that has no name of its own
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "↑": r"$\uparrow$",
        "↓": r"$\downarrow$",
        "≈": r"$\approx$",
        "−": "$-$",
        "–": "--",
        "†": r"\textdagger{}",
        "‡": r"\textdaggerdbl{}",
        **{c: "\\" + c for c in "{}$&#%_"},
    }
)
_MINUS = re.compile(r"(?<![\w.])-(?=\d)")


def _latex_text(text: str) -> str:
    return plain(text).translate(_LATEX)


def latex(tables: Sequence[PaperTable], signature: dict[str, Any], label: str = SCORES) -> str:
    r"""Return tables as LaTeX, which needs booktabs and no other package.

    LaTeX refers to a table for a paper by ``tab:`` and the letters and digits of `label`. At the end is the signature,
    in one short line and in full in a comment; that of a table for a paper is a comment.
    """
    lines = [r"% \usepackage{booktabs}"]
    short = f"Signature: {short_signature(signature)}"
    for table in tables:
        if table.print is not None:
            lines += [*_printed(table, table.print, label), *(f"% {plain(note)}" for note in (*table.notes, short))]
            continue
        lines += _whole(table)
        if table is tables[-1]:
            lines.append(rf"\par\smallskip\raggedright {_latex_text(short)}")
        lines += [r"\end{table}", ""]
    lines.append(f"% signature: {json.dumps(signature)}")
    return "\n".join(line for line in lines if line) + "\n"


def _whole(table: PaperTable) -> list[str]:
    """Return the lines of a table with all that is to be said; the lines of a cell are rows of their own."""
    lines = [
        r"\begin{table}",
        r"\centering\footnotesize",
        rf"\caption{{{_latex_text(table.title)}}}",
        rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
        r"\toprule",
        " & ".join(map(_latex_text, [table.first, *table.columns])) + r" \\",
    ]
    is_tall = any(len(cell.lines) > 1 for _, cells in table.rows for cell in cells)
    for i, (name, cells) in enumerate(table.rows):
        names = name.split("\n")
        lines.append(r"\midrule" if i == 0 else r"\addlinespace" if is_tall else "")
        for row in range(max(len(names), *(len(cell.lines) for cell in cells), 1)):
            texts = [_row_name(names[row] if row < len(names) else "")]
            for cell in cells:
                text = _latex_number(cell.lines[row]) if row < len(cell.lines) else ""
                texts.append(text if row else _marked(cell, text))
            lines.append(" & ".join(texts) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    return [*lines, *(rf"\par\smallskip\raggedright {_latex_text(note)}" for note in table.notes)]


def _row_name(name: str) -> str:
    r"""Return a name at the begin of a row. Directly after \\, a bracket or a star would be read as an argument."""
    return ("{}" if plain(name).startswith(("[", "*")) else "") + _latex_text(name)


def _latex_number(text: str) -> str:
    """Return a number or an interval with signs that LaTeX sets as minus."""
    return _MINUS.sub("$-$", _latex_text(text))


def _marked(cell: Entry, text: str) -> str:
    """Return the first line of a cell in bold or underlined."""
    mark = "textbf" if cell.best else "underline" if cell.second else ""
    return rf"\{mark}{{{text}}}" if mark else text


# LaTeX for a paper: widths in points, about those of Computer Modern

_ONE, _BOTH = 219.0, 469.0  # of one column and of both, in the narrowest usual articles of two columns
_DIGIT, _SMALL_DIGIT = 4.25, 3.99  # of 8 points, and of 7 for second lines
_THIN = frozenset(".,:;'!|[]()ijlt ")
_BOLD = 1.15  # how much wider bold digits are
_SEP = 3.0  # on both sides of a column
_BESIDE, _MARK = 3.0, 3.5  # between a number and its interval beside it, and more where marks stand there
_NAME = 130.0  # greatest width of the column of names; longer names are folded
_FOLDED_NAME = 60.0  # least width of that column, where names are folded to make the table fit
_INDENT = 6.0  # of the further lines of a folded name
_NO_LABEL = re.compile("[^A-Za-z0-9]+")
_WHOLE = re.compile(r"(-?)(\d+)")
_WORD = re.compile(r"\S+(?: [↑↓])?")


@dataclass(frozen=True)
class _PrintedColumn:
    """A column of a table for a paper, in LaTeX."""

    head: str
    kind: str  # in the preamble of the tabular
    numbers: list[str]  # of each row
    small: list[str]  # what each row has below the number; "" for nothing
    width: float


def _width(text: str, digit: float = _DIGIT) -> float:
    """Return about how wide a text is printed."""
    return sum(digit * (0.55 if c in _THIN else 1.4 if c.isupper() or c in "mw%↑↓" else 1.0) for c in text)


def _printed(table: PaperTable, how: Print, label: str) -> list[str]:
    """Return the lines of a table for a paper: in one column where it fits, or else over both.

    Heads and then names are folded where that makes it fit. A table that is wider has several parts, one below the
    other, each with the names.
    """
    names = [plain(name) for name in (table.first, *(name for name, _ in table.rows))]
    longest = min(max(map(_width, names)), _NAME)
    least = max(_FOLDED_NAME, *(_width(word) + _INDENT for name in names for word in name.split()))
    tried = ((kind, room, folded) for kind, room in (("table", _ONE), ("table*", _BOTH)) for folded in (False, True))
    for kind, room, is_folded in tried:  # noqa: B007 - heads are folded only where that makes the table fit
        columns = [_column(table, i, how, is_folded=is_folded) for i in range(len(table.columns))]
        name_width = longest + 2 * _SEP
        total = name_width + sum(column.width for column in columns)
        if is_folded and room < total <= room + longest - least:
            name_width, total = name_width - (total - room), room
        if total <= room:
            break
    most = max(int((room - name_width) // max(column.width for column in columns)), 1)
    size = len(columns) if total <= room else -(-len(columns) // -(-len(columns) // most))
    parts = [columns[i : i + size] for i in range(0, len(columns), size)]
    lines = [
        rf"\begin{{{kind}}}[t]",
        r"\centering",
        rf"\caption{{{' '.join(map(_latex_text, (f'{table.title}.', *how.legend)))}}}",
        rf"\label{{tab:{_NO_LABEL.sub('-', label).strip('-') or SCORES}}}",
        rf"\par\smallskip\footnotesize\setlength{{\tabcolsep}}{{{_SEP:g}pt}}",
    ]
    for part in parts:
        lines += [r"\par\medskip"] if part is not parts[0] else []
        lines += _part(table, how, part, name_width - 2 * _SEP)
    return [*lines, rf"\end{{{kind}}}"]


def _part(table: PaperTable, how: Print, columns: Sequence[_PrintedColumn], name_width: float) -> Iterator[str]:
    """Yield the lines of a tabular with some columns of a table for a paper; names that are wider are folded."""
    yield rf"\begin{{tabular}}{{l{''.join(column.kind for column in columns)}}}"
    yield r"\toprule"
    yield " & ".join([_latex_text(table.first), *(column.head for column in columns)]) + r" \\"
    yield r"\midrule"
    for i, (name, _) in enumerate(table.rows):
        if i:
            is_tall = any(any(column.small) for column in columns)
            yield r"\midrule" if i == how.rule else r"\addlinespace[2pt]" if is_tall else ""
        is_whole = _width(plain(name)) <= name_width
        label, *others = [plain(name)] if is_whole else _folded(plain(name), name_width - _INDENT, _width)
        others = [rf"\hspace{{{_INDENT:g}pt}}{_latex_text(line)}" for line in others]
        yield " & ".join([_row_name(label), *(column.numbers[i] for column in columns)]) + r" \\"
        small = [column.small[i] for column in columns]
        if any(small):
            yield " & ".join(["".join(others[:1]), *small]) + r" \\"
            others = others[1:]
        yield from (rf"{line} \\" for line in others)
    yield r"\bottomrule"
    yield r"\end{tabular}"


def _column(table: PaperTable, place: int, how: Print, *, is_folded: bool) -> _PrintedColumn:
    """Return a column of a table for a paper, with a head that is folded or not.

    All numbers have the same decimal places, so that they are aligned once each has space for the digits and the sign
    that another one has. Marks take no space.
    """
    cells = [of_row[place] for _, of_row in table.rows]
    firsts, seconds = [plain(cell.lines[0]) for cell in cells], [plain(" ".join(cell.lines[1:])) for cell in cells]
    wide = [_width(text) * (_BOLD if cell.best else 1) for cell, text in zip(cells, firsts, strict=True)]
    widths = max(wide), max(_width(text, _SMALL_DIGIT) for text in seconds)
    small = [rf"{{\scriptsize {_latex_number(text)}}}".replace(", ", r",\,") if text else "" for text in seconds]
    numbers = [
        _phantom(text, firsts)
        + _marked(cell, _latex_number(text))
        + (rf"\rlap{{$^{{{_latex_text(cell.mark).strip('$')}}}$}}" if cell.mark else "")
        for cell, text in zip(cells, firsts, strict=True)
    ]
    is_pair = how.beside and any(seconds)
    gap = _BESIDE + _MARK * any(cell.mark for cell in cells)
    body = sum(widths) + gap if is_pair else max(widths)
    lines = _folded(plain(table.columns[place]), body, _width) if is_folded else [plain(table.columns[place])]
    head = _latex_text(lines[0])
    if len(lines) > 1:
        head = rf"\shortstack{{{(chr(92) * 2).join(rf'{chr(92)}strut {_latex_text(line)}' for line in lines)}}}"
    kind, width = "c", max(body, *map(_width, lines)) + 2 * _SEP
    if is_pair:
        kind, head = rf"r@{{\hspace{{{gap:g}pt}}}}l", rf"\multicolumn{{2}}{{c}}{{{head}}}"
        numbers, small = [" & ".join(both) for both in zip(numbers, small, strict=True)], [""] * len(small)
    return _PrintedColumn(head, kind, numbers, small, width)


def _folded(text: str, width: float, measure: Callable[[str], float]) -> list[str]:
    """Return a head as lines not wider than `width`, broken between words; an arrow stays beside its word."""
    lines: list[str] = []
    for word in _WORD.findall(text) or [""]:
        if lines and measure(f"{lines[-1]} {word}") <= width:
            lines[-1] = f"{lines[-1]} {word}"
        else:
            lines.append(word)
    return lines


def _phantom(number: str, column: Sequence[str]) -> str:
    """Return the space for the sign and the digits that other numbers of a column have before the point."""
    own = _WHOLE.match(number)
    if own is None:
        return ""
    others = [found for text in column if (found := _WHOLE.match(text))]
    sign = "$-$" if any(found[1] for found in others) and not own[1] else ""
    digits = "0" * (max(len(found[2]) for found in others) - len(own[2]))
    return rf"\phantom{{{sign}{digits}}}" if sign or digits else ""
