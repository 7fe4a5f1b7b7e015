"""Agreement of radiologists: with one another, by candidate type, and with themselves where studies were shown again.

Figure S3 of Yu et al. (Patterns 2023) prints an intraclass correlation for each metric-oracle and does not name its
form. Here it is of the two-way model with random raters and absolute agreement: ICC(A,1) of one rater and ICC(A,k) of
the mean of all (McGraw and Wong, Psychological Methods 1996); Shrout and Fleiss (1979) call them ICC(2,1) and ICC(2,k).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metric_oracle.corpora.shown import OneLine
from metric_oracle.errors import InputError
from metric_oracle.files import identify
from metric_oracle.raters.alignment import RESAMPLES
from metric_oracle.raters.alignment import agreement as record_of
from metric_oracle.raters.rank_agreement import draw
from metric_oracle.raters.rater_agreement import ICC, intraclass
from metric_oracle.raters.ratings import KINDS, Ratings, read_ratings
from metric_oracle.statistics import FEW, LEVEL, checked_resamples

BETWEEN, EVERY = "between raters", "all"
EXACT, SHIFT = "exact agreement", "mean difference"
_FUNCTION = "agreement"
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("candidate", "errors", "rater", "statistic")),
        *((name, pa.float64()) for name in ("value", "low", "high", "bca_low", "bca_high", "effective")),
        ("degenerate", pa.int64()),
    ]
)


@dataclass(frozen=True, repr=False)
class Agreement(OneLine):
    """Agreement of raters.

    Attributes
    ----------
    table : pyarrow.Table
        One row for each candidate type ("all": of all together), kind of errors, rater ("between raters", or one with
        himself) and statistic: the value, its percentile and BCa intervals over studies, the studies that these rest
        on (`statistics.effective_studies`), and the number of resamples without a value. Null is a
        value that does not exist: where all counts are equal.
    signature : dict
        What is needed to compute the same numbers again.
    """

    table: pa.Table
    signature: dict[str, Any]

    def records(self) -> list[dict[str, Any]]:
        """Return the rows."""
        return self.table.to_pylist()

    def summary(self) -> str:
        """Return one line: what was compared on what."""
        n = self.signature
        again = f"; {n['repeated_pairs']} pairs rated twice" if n["repeated_pairs"] else ""
        return f"{n['pairs']:,} pairs of {n['studies']:,} studies, {n['raters']} raters{again}"

    def warnings(self) -> list[str]:
        """Return a sentence for each reason to read the numbers with care."""
        if self.signature["studies"] < FEW:
            return [f"Fewer than {FEW} studies ({self.signature['studies']}): the intervals are too short."]
        few = [record["effective"] for record in self.records() if 0 < (record["effective"] or 0) < FEW]
        if not few:
            return []
        n = "interval rests" if len(few) == 1 else "intervals rest"
        return [
            f"{len(few)} {n} on fewer than {FEW} effective studies (the least on {min(few):.0f}, see the column "
            "`effective`) and are too short: a few studies with many errors decide them."
        ]


def agreement(
    ratings: str | Path | Ratings,
    repeated: str | Path | Ratings | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Agreement:
    """Measure how well radiologists agree with one another, and with themselves.

    Parameters
    ----------
    ratings : path or Ratings
        Counted errors, see [`read_ratings`][metric_oracle.read_ratings]; of at least two raters, unless `repeated` is
        given.
    repeated : path or Ratings, optional
        What the same raters counted when pairs were shown again, as the export of a survey has it.
    resamples : int
        Number of bootstrap resamples of the studies; the raters are fixed.
    seed : int
        Seed of the resamples.

    Returns
    -------
    Agreement
        Intraclass correlations ICC(A,1) and ICC(A,k); ``exact agreement``, the share of pairs for which two raters have
        the same number of errors; of a rater with himself also ``mean difference``, second minus first.

    Raises
    ------
    InputError
        If a file cannot be read, there are fewer than two raters or studies, or an option breaks its rule.

    Examples
    --------
    >>> mo.agreement("ratings.csv", resamples=200)
    <Agreement: 96 pairs of 24 studies, 3 raters>
    """
    rated = ratings if isinstance(ratings, Ratings) else read_ratings(ratings)
    again = repeated if isinstance(repeated, Ratings) or repeated is None else read_ratings(repeated)
    if len(rated.raters) < 2 and again is None:
        msg = f"{_FUNCTION}: ratings must be of 2 raters at least; got {len(rated.raters)}. Add raters, or --repeated."
        raise InputError(msg)
    n_resamples = checked_resamples(resamples, _FUNCTION, RESAMPLES)
    records: list[dict[str, Any]] = []
    candidates = [EVERY, *dict.fromkeys(rated.candidates or ())]
    for candidate in candidates if len(rated.raters) > 1 else ():
        some = _of(rated, candidate)
        for kind in KINDS:
            by_rater = some.errors(kind).sum(axis=2).T
            names = {"candidate": candidate, "errors": kind, "rater": BETWEEN}
            records += [{**names, **one} for one in _records(by_rater, some.studies, n_resamples, seed)]
    for rater, first, second, studies, kind in _twice(rated, again) if again is not None else ():
        names = {"candidate": EVERY, "errors": kind, "rater": rater}
        both = np.array([first, second])
        records += [{**names, **one} for one in _records(both, studies, n_resamples, seed, is_one=True)]
    signature = {
        "command": _FUNCTION,
        "ratings": identify(Path(ratings)) if isinstance(ratings, str | Path) else rated.source,
        "repeated": identify(Path(repeated)) if isinstance(repeated, str | Path) else again and again.source,
        "icc": "two-way random raters, absolute agreement (McGraw and Wong 1996); ICC(2,1), ICC(2,k) of Shrout, Fleiss",
        "pairs": len(rated.pairs),
        "studies": len(set(rated.studies)),
        "raters": len(rated.raters),
        "repeated_pairs": 0 if again is None else len(again.pairs),
        "bootstrap": {"unit": "study", "resamples": n_resamples, "seed": seed, "level": LEVEL},
        "version": version("metric-oracle"),
    }
    return Agreement(pa.Table.from_pylist(records, _SCHEMA), signature)


def _of(rated: Ratings, candidate: str) -> Ratings:
    return rated if candidate == EVERY else rated.subset(np.array([c == candidate for c in rated.candidates or ()]))


def _records(
    counts: npt.NDArray[np.int64], studies: list[str], resamples: int, seed: int, *, is_one: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the statistics of int64[k, P]: of k raters, or of the first and the second time of one."""
    drawn = draw(studies, resamples, seed)
    n = np.maximum(drawn.pairs.sum(axis=1), 1)
    with np.errstate(divide="ignore", invalid="ignore"):  # one pair alone varies in nothing
        of_one, of_mean = intraclass(counts, drawn.pairs)
    same = np.mean([a == b for a, b in combinations(counts, 2)], axis=0)
    found = {ICC[0]: of_one, ICC[1]: of_mean, EXACT: drawn.pairs @ same / n}
    if is_one:
        del found[ICC[1]]
        found[SHIFT] = drawn.pairs @ (counts[1] - counts[0]) / n
    for name, values in found.items():
        yield record_of(name, values, drawn)


def _twice(
    rated: Ratings, again: Ratings
) -> Iterator[tuple[str, npt.NDArray[np.int64], npt.NDArray[np.int64], list[str], str]]:
    """Yield, for each rater and kind of errors, the errors of the first and of the second time."""
    row_of = {pair: row for row, pair in enumerate(rated.pairs)}
    if not set(again.pairs) <= row_of.keys() or not set(again.raters) <= set(rated.raters):
        msg = (
            f"{_FUNCTION}: repeated must be pairs and raters of the ratings; got others. Give both files of one export."
        )
        raise InputError(msg)
    rows = [row_of[pair] for pair in again.pairs]
    for place, rater in enumerate(again.raters):
        own = rated.raters.index(rater)
        for kind in KINDS:
            first = rated.errors(kind)[rows, own].sum(axis=1)
            second = again.errors(kind)[:, place].sum(axis=1)
            yield rater, first, second, again.studies, kind
