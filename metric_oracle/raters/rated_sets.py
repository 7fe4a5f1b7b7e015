"""Rated sets of every kind in their common form, `Rated`: one reader for each layout of a file."""

from collections.abc import Callable, Sequence
from pathlib import Path

from metric_oracle.base.validation import public
from metric_oracle.corpora.tables import Table, read_table
from metric_oracle.raters.grades import BETTER, REFISCO, WORSE, read_grades, read_refisco
from metric_oracle.raters.orders import ORDER, PREFERENCE, read_orders, read_preferences
from metric_oracle.raters.ratings import Rated, ratings_of_table, with_texts

# What reads each layout, and the columns by which it is known: one of these sets. The first layout that fits is taken;
# other tables hold counted errors.
_LAYOUTS: dict[Callable[[Table], Rated], Sequence[set[str]]] = {
    read_refisco: [{*names.values()} for names in REFISCO],
    read_grades: [{WORSE}, {BETTER}],
    read_preferences: [{PREFERENCE}],
    read_orders: [{ORDER}],
}


@public
def read_rated_set(path: str | Path, *, samples: str | Path | None = None) -> Rated:
    """Read a rated set. The header of the file says which layout it has.

    Parameters
    ----------
    path : path
        One of these:

        - Counted errors in any layout of [`read_ratings`][metric_oracle.read_ratings].
        - ReFiSco, version 0 or 1, with one row for each line of a report: the number of lines with an error (as Cho et
          al. 2025 count), the maximum (MES) and the average (AES) of their severities from 0 to 4. Each annotation is a
          pair of its own with one rater.
        - Grades: a table with one row for each pair (or pair and rater) and a number, ``errors`` where larger is worse
          or ``quality`` where larger is better, such as RaTE-Eval's errors of each sentence.

        - Preferences: a table with one row for each comparison of two candidates of a study (and each rater):
          ``study_id``, ``preference`` (a, b or tie), and if the candidates have names ``candidate_a`` and
          ``candidate_b``. Texts: ``reference``, ``prediction_a``, ``prediction_b``.
        - Orders: a table with one row for each candidate (and each rater): ``study_id`` and ``order``, a number that is
          larger where the candidate is worse, with equal numbers for ties. ``chain`` names several chains of a study,
          ``candidate_type`` the candidates.

        Tables of grades and of orders may hold the texts in the columns ``reference`` and ``prediction``.
    samples : path, optional
        The texts, where `path` does not hold them.

    Returns
    -------
    Rated
        Pairs of a reference and a candidate report, and what each rater says of each pair.

    Raises
    ------
    InputError
        If the file has no known layout, a cell breaks its rule, a row is doubled, or a pair lacks a rater.

    Examples
    --------
    >>> rated = mo.read_rated_set("ratings.csv", samples="samples.csv")
    >>> len(rated.pairs), len(set(rated.studies)), rated.raters, rated.kinds
    (96, 24, ['0', '1', '2'], ('total', 'significant'))
    """
    table = read_table(Path(path))
    is_counted = bool({"category", "error_category"} & {name.lower() for name in table.names})
    fitting = [read for read, headers in _LAYOUTS.items() if any(header <= {*table.names} for header in headers)]
    rated = (ratings_of_table if is_counted or not fitting else fitting[0])(table)
    return rated if samples is None else with_texts(rated, read_table(Path(samples)))
