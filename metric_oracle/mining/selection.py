"""Which candidates of an anchor's list `mine` keeps: a window of ranks, limits of the score, the best or a draw."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_given, check_in_range
from metric_oracle.base.declarations import Flag
from metric_oracle.base.errors import InputError
from metric_oracle.base.files import identify
from metric_oracle.base.validation import Checked
from metric_oracle.indexes.store import to_numpy
from metric_oracle.mining.mined_files import MinedFile
from metric_oracle.statistics import difference

MARGINS = ("absolute_margin", "relative_margin")
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)


@dataclass(frozen=True)
class Selection(Checked, call="selection=mo.Selection({})"):
    """Which candidates of an anchor's list `mine` keeps, with the names of sentence-transformers.

    The list has all candidates that `SearchOptions` allows, best first. First the window of ranks is cut out of it,
    then candidates with too good a score are left out, and k of the others are kept. The number k, an argument of
    `mine`, is called `num_negatives` in sentence-transformers.

    Parameters
    ----------
    range_min : int, default 0
        Number of the best candidates to leave out.
    range_max : int, optional
        Last rank that may be kept, at least `range_min` + k. By default there is no last rank.
    max_score : float, optional
        The best score that may be kept: the greatest, or the least under a metric where lower is better.
    positives : path, optional
        File that [`mine`][metric_oracle.mine] wrote in the same index: the positives of each anchor, for the margins.
        Only anchors that have a positive are searched. Of several positives, the one with the worst score by the metric
        of this search counts.
    absolute_margin : float, optional
        Minimum difference by which a candidate's score must be worse than its positive's.
    relative_margin : float, optional
        The same minimum as a share of the positive's score.
    sampling_strategy : {"top", "random"}, default "top"
        "top" keeps the k best, "random" draws k, each with equal probability; it needs `range_max`.
    seed : int, default 0
        Seed of the draws. The draw of an anchor depends only on the seed, its row and its candidates.

    Examples
    --------
    >>> from metric_oracle import Selection
    >>> Selection(range_min=10, max_score=0.8).recorded
    {'range_min': 10, 'max_score': 0.8}
    """

    range_min: Annotated[
        option_types.Count,
        Doc(
            "Number of the best candidates to leave out of the list of each report, after `exclude`, `where` and "
            "`min_score`."
        ),
    ] = 0
    range_max: Annotated[
        option_types.Positive | None,
        Doc("Last rank that may be kept, at least `range_min` plus `k`. By default there is no last rank."),
    ] = None
    max_score: Annotated[
        option_types.MaxScore | None,
        Doc("Leave out candidates that score better than X. By default all scores count."),
        Flag(metavar="X"),
    ] = None
    positives: Annotated[
        str | Path | None,
        Doc(
            "File that [`mine`][metric_oracle.mine] wrote in the same index, with the positives of each report. Only "
            "reports that have a positive are then searched for; of several positives, the one with the worst score "
            "counts. Needed for `absolute_margin` and `relative_margin`, and only for them."
        ),
    ] = None
    absolute_margin: Annotated[
        option_types.Margin | None,
        Doc(
            "Leave out candidates whose score is not worse by X or more than that of the worst of the report's "
            "`positives`, which it needs. By default there is no such margin."
        ),
        Flag(metavar="X"),
    ] = None
    relative_margin: Annotated[
        option_types.Margin | None,
        Doc(
            "Leave out candidates whose score is not worse by this share or more than that of the worst of the "
            "report's `positives`, which it needs: at 0.05, by 5 % of the positive's score. By default there is no "
            "such margin."
        ),
        Flag(metavar="SHARE"),
    ] = None
    sampling_strategy: Annotated[
        option_types.Strategy,
        Doc(
            "How the `k` candidates are chosen from those that are not left out: {}. top takes the best, random draws "
            "them with equal probability and needs `range_max`. The draw of an anchor depends only on the seed, its "
            "row and its candidates."
        ),
    ] = "top"
    seed: option_types.Seed = 0

    @property
    def recorded(self) -> dict[str, Any]:
        """The options for the signature: `range_min`, and the others that differ from their defaults."""
        values = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name == "range_min" or getattr(self, field.name) != field.default
        }
        if self.positives is not None:
            values["positives"] = identify(Path(self.positives))
        return values

    @property
    def margins(self) -> list[str]:
        """The names of the margins that were chosen."""
        return [name for name in MARGINS if getattr(self, name) is not None]


def check_selection(selection: Selection, k: int) -> None:
    """Raise InputError unless the values are valid and fit k candidates for each anchor."""
    if selection.range_max is not None:
        check_in_range("range_max", selection.range_max, ge=selection.range_min + k, note=" (`range_min` + `k`)")
    if selection.sampling_strategy == "random":
        step = "Say how many of the best candidates to draw from."
        check_given("range_max", selection.range_max, "for random sampling", step)
    if (selection.positives is None) == bool(selection.margins):
        raise InputError(
            "positives",
            "must be given with a margin, and only then",
            "None" if selection.positives is None else "no margin",
            "Give both, or neither: a margin is the least distance to the score of a positive.",
        )


def allowed(selection: Selection, positive: np.ndarray, scores: np.ndarray, sign: float) -> dict[str, np.ndarray]:
    """Return whether `max_score` and each margin allow the scores of candidates: name -> bool[n].

    All scores, float64[n], are multiplied by `sign`, -1.0 where lower ones are better; `positive` has that of the worst
    positive of each candidate's anchor. Limits that were not chosen are left out.

    What a margin compares is computed, and 0.6 - 0.4 is not 0.2 in float64: what differs from it by rounding alone is
    worse by the margin. `max_score` is compared with the scores as they are, as `min_score` is.
    """
    fits = {}
    if selection.absolute_margin is not None:
        fits["absolute_margin"] = difference(positive, scores + selection.absolute_margin) >= 0
    if selection.relative_margin is not None:
        fits["relative_margin"] = difference(positive - selection.relative_margin * np.abs(positive), scores) >= 0
    if selection.max_score is not None:
        fits["max_score"] = scores <= sign * selection.max_score
    return fits


def choose_lines(
    selection: Selection, anchor: np.ndarray, candidate: np.ndarray, rank: np.ndarray, fits: np.ndarray, k: int
) -> np.ndarray:
    """Return which lines of lists are kept, at most k of each list: bool[n].

    Lines stand list after list, best first: `anchor` and `candidate` are their rows, `rank` their rank from 1, and
    `fits` says whether their score is allowed.
    """
    last = np.inf if selection.range_max is None else selection.range_max
    lines = np.flatnonzero(fits & (rank > selection.range_min) & (rank <= last))
    _, number = np.unique(anchor[lines], return_inverse=True)
    number = number.reshape(-1)
    order = np.argsort(number, kind="stable")
    if selection.sampling_strategy == "random":
        order = np.lexsort((_random_keys(selection.seed, anchor[lines], candidate[lines]), number))
    size = np.bincount(number)
    is_kept = np.zeros(len(anchor), bool)
    is_kept[lines[order[np.arange(len(lines)) - np.repeat(np.cumsum(size) - size, size) < k]]] = True
    return is_kept


def _random_keys(seed: int, anchor: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Return a random number for each pair, by which pairs are drawn: uint64[n], a hash of seed and rows."""
    mixed = np.full(len(anchor), seed % (1 << 64), np.uint64)
    for values in (anchor, candidate):
        mixed = mixed + values.astype(np.uint64) * _FACTORS[0] + _FACTORS[0]
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _FACTORS[1]
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _FACTORS[2]
        mixed = mixed ^ (mixed >> np.uint64(31))
    return mixed


def pairs_of(path: str | Path, fingerprint: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of anchors and candidates in a file of `mine`: int64[n] each, anchors ascending.

    Raise InputError if it is another file, of an index of another fingerprint, or has no pair.
    """
    file = MinedFile(Path(path), "positives")
    if file.signature["index"] != fingerprint:
        raise InputError(
            "positives",
            "must be mined in the index that is searched",
            f"{path}, which is of another index",
            "Mine them in this index.",
        )
    names = ["anchor_row", "candidate_row"]
    tables = [file.block(number, names).replace_schema_metadata(None) for number in range(len(file))]
    if not tables:
        raise InputError("positives", "must have a pair", f"{path}, which is empty", "Mine others.")
    table = pa.concat_tables(tables)
    anchor, candidate = (to_numpy(table[name]) for name in names)
    return anchor, candidate
