"""Scores of other tools (GREEN, CheXprompt, CRIMSON, RadFact, FineRadScore, any table) as files of scores.

A table has one row per report, with an id and columns of numbers. Whether higher or lower values of a column are better
is known from its name (`score_names`) or stated by the caller; it is never guessed.
"""

from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import identify
from metric_oracle.base.validation import public
from metric_oracle.corpora.tables import canonical_ids, check_unique, read_table
from metric_oracle.findings.results import Scores
from metric_oracle.findings.score_names import DIRECTIONS, FOREIGN, direction_of


@public
def read_foreign(
    name: Annotated[str, Doc("Name of the system.")],
    path: Annotated[
        str | Path,
        Doc(
            "A table with an id column and one row per report. An empty cell means that the tool could not score the "
            "report."
        ),
    ],
    directions: option_types.Directions | None = None,
) -> Scores:
    r"""Read a table of another tool as the scores of a system.

    Returns
    -------
    Scores
        The columns whose direction is known, under their own names. The entry ``foreign`` of the signature identifies
        the file. The signature has no references, because the table does not say what the tool compared with.

    Raises
    ------
    InputError
        If the file cannot be read, has no ids or no such column, an id occurs twice, no direction is known, or a cell
        has text that is no number, such as "0,25".

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("other.csv").write_text("study_id,my_score\n50000400,0.5\n50000401,1.0\n")
    >>> mo.read_foreign("other", "other.csv", {"my_score": "higher"}).mean()
    {'my_score': 0.75}
    """
    path = Path(path)
    table = read_table(path)
    id_cells = table.id_cells()
    if id_cells is None:
        raise InputError(
            f"{path} has no column of ids, such as study_id; columns: {table.header}.", "Add the ids of the reports."
        )
    ids = canonical_ids(id_cells, f"the ids of {path}")
    check_unique(ids, f"the ids of {path}")
    stated = {column: way for column, way in (directions or {}).items() if column in table.names}
    columns: dict[str, pa.Array] = {}
    entries: dict[str, dict[str, Any]] = {}
    for column in table.names:
        usual = direction_of(column)
        direction = stated.get(column) or usual
        if column == id_cells.name or direction is None:
            continue
        numbers = table.scores(column)
        assert numbers is not None
        values = numbers.set(numbers.is_infinite(), None)
        if values.null_count() == len(values):
            continue
        if direction not in DIRECTIONS or usual not in (None, direction):
            raise InputError(
                "directions",
                "must be higher or lower, and that of the metric if the column has the name of a known one",
                f"{shown(column)}={direction}{('' if usual is None else f', of which {usual} is better')}",
                "Correct it.",
            )
        columns[column] = values.to_arrow()
        entries[column] = {"source": FOREIGN, "direction": direction}
    if not columns:
        raise InputError(
            f"{path} has no column of numbers whose direction is known; columns: {table.header}.",
            "Add `directions={NAME: 'higher'}`, or 'lower'.",
        )
    signature = {
        "kind": "scores",
        "system": name,
        "metrics": entries,
        "references": None,
        "n": len(ids),
        "version": None,
        "foreign": [identify(path)],
    }
    return Scores(pa.table({"query_id": pa.array(ids, pa.large_string()), **columns}), signature)
