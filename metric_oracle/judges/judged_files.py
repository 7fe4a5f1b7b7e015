"""Files of scores that a judge gave to pairs."""

import re
from collections.abc import Sequence
from pathlib import Path

from metric_oracle.base.errors import InputError
from metric_oracle.corpora.tables import read_table
from metric_oracle.judges.judge import SCORE, numbers_in
from metric_oracle.judges.judgements import DIGITS

RANK = "rank."  # before the name of a metric: a column of a file of pairs
_PAIR = re.compile(rf"[0-9a-f]{{{2 * DIGITS}}}")


def read_judged(paths: Sequence[Path], name: str) -> dict[str, dict[str, float]]:
    """Return what a judge gave to the pairs of files: score and components by the id of the pair.

    A pair without a number is left out. Raise InputError for a table without the columns, for text among the scores,
    and for a pair that has different scores.
    """
    numbers_of: dict[str, dict[str, float]] = {}
    for path in paths:
        table = read_table(path)
        ids = table.texts("pair")
        wrong = next((row for row, pair in enumerate(ids) if not _PAIR.fullmatch(pair or "")), None)
        if wrong is not None:
            raise InputError(
                "pair",
                "must be an id of 64 digits, as `mo.pool` writes it",
                f"another in {table.place_of(wrong)}",
                "Leave that column as it was.",
            )
        scores = table.scores(name if name in table.names else SCORE)
        others = {
            other: table.scores(other, may_be_words=True)
            for other in {*table.names} - {name, SCORE, "pair"}
            if not other.startswith(RANK)
        }
        columns = {
            column: [None] * table.n_rows if numbers is None else numbers.to_list()
            for column, numbers in {SCORE: scores, **others}.items()
        }
        for row, pair in enumerate(ids):
            numbers = numbers_in({column: cells[row] for column, cells in columns.items()})
            if numbers is not None and numbers_of.setdefault(str(pair), numbers)[SCORE] != numbers[SCORE]:
                raise InputError(
                    "files", "must have one score for a pair", f"another in {table.place_of(row)}", "Leave one out."
                )
    return numbers_of
