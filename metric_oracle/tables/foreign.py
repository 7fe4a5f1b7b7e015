"""Scores of other tools (GREEN, CheXprompt, CRIMSON, RadFact, FineRadScore, any table) as files of scores.

A table has one row a report, its id, and columns of numbers. Which way a column is better is known of the tool that
owns its name, or said by the caller; it is never guessed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.corpora.tables import (
    canonical_ids,
    check_unique,
    existing_file,
    number_of,
    read_table,
)
from metric_oracle.errors import InputError, option
from metric_oracle.files import identify
from metric_oracle.retrieval.results import Scores
from metric_oracle.tables.score_names import DIRECTIONS, direction_of


def read_foreign(
    name: str, path: str | Path, directions: Mapping[str, str] | None = None, function: str = "read_foreign"
) -> Scores:
    r"""Read a table of another tool as the scores of a system.

    Parameters
    ----------
    name : str
        Name of the system.
    path : str or path
        A table with an id column and a row for each report. A cell without a number is a report that the tool could not
        score.
    directions : mapping of str to {"higher", "lower"}, optional
        Which values of a column are better; needed for columns whose names are not known.
    function : str
        Name of the caller, with which error messages begin.

    Returns
    -------
    Scores
        The columns whose direction is known, under their own names; ``foreign`` in the signature is the file. The
        references of the tool are not known.

    Raises
    ------
    InputError
        If the file cannot be read, has no ids or no such column, an id occurs twice, or no direction is known.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("other.csv").write_text("study_id,my_score\n50000400,0.5\n50000401,1.0\n")
    >>> mo.read_foreign("other", "other.csv", {"my_score": "higher"}).mean()
    {'my_score': 0.75}
    """
    path = Path(path)
    table = read_table(existing_file(path, function, "foreign"), function)
    found = table.id_cells(function)
    if found is None:
        raise InputError(
            f"{path} has no column of ids, such as study_id; columns: {table.header}.", "Add the ids of the reports."
        )
    cells, id_name = found
    ids = canonical_ids(cells, function, f"the ids of {path}")
    check_unique(ids, function, f"the ids of {path}")
    stated = {column: way for column, way in (directions or {}).items() if column in table.names}
    columns: dict[str, pa.Array] = {}
    how: dict[str, dict[str, Any]] = {}
    for column in table.names:
        numbers = map(number_of, table.column(column, function, "foreign"))
        values = [value if np.isfinite(value) else None for value in numbers]
        known = direction_of(column)
        direction = stated.get(column) or known
        if column == id_name or direction is None or all(value is None for value in values):
            continue
        if direction not in DIRECTIONS or known not in (None, direction):
            raise InputError(
                argument="direction",
                rule="must be higher or lower, and as a known name has it",
                value=f"{column!r}={direction}{('' if known is None else f', of which {known} is better')}",
                step="Correct it.",
            )
        columns[column] = pa.array(values, pa.float64())
        how[column] = {"source": "a column of another tool", "direction": direction}
    if not columns:
        raise InputError(
            f"{path} has no column of numbers whose direction is known; columns: {table.header}.",
            f"Add {option('direction', 'NAME=higher')} or NAME=lower.",
        )
    signature = {
        "kind": "scores",
        "system": name,
        "metrics": how,
        "references": None,
        "n": len(ids),
        "version": None,
        "foreign": [identify(path)],
    }
    return Scores(pa.table({"query_id": pa.array(ids, pa.large_string()), **columns}), signature)
