"""Error counts of radiologists, looked up by test report and by the text that they rated."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from metric_oracle.base.errors import InputError
from metric_oracle.corpora.tables import canonical_ids
from metric_oracle.raters.ratings import Ratings


def plain_text(text: str) -> str:
    """Return a text with single blanks, so that texts that differ only in white space are equal, as in a survey."""
    return " ".join(text.split())


@dataclass(frozen=True)
class Counted:
    """Errors that radiologists counted in one candidate."""

    name: str  # candidate type
    text: str  # text that was rated
    counts: np.ndarray  # int64[R, C, 2], number of significant and of insignificant errors, by rater and category


@dataclass(frozen=True)
class RatedCases:
    """Ratings of candidates for test reports."""

    ratings: Ratings  # with the texts of the rated pairs
    # Tables of the pairs' scores, as `align` takes them; without any the texts are scored.
    scores: tuple[Path, ...] = ()
    _pairs: dict[str, list[int]] = field(init=False, repr=False)  # positions of the pairs of each study

    def __post_init__(self) -> None:
        pairs: dict[str, list[int]] = {}
        for position, study in enumerate(_ids(self.ratings.study_ids or self.ratings.studies)):
            pairs.setdefault(study, []).append(position)
        object.__setattr__(self, "_pairs", pairs)

    def check(self, ids: Sequence[str]) -> None:
        """Raise InputError unless the ratings have texts and a rated study is among the test reports `ids`."""
        if self.ratings.predictions is None:
            raise InputError("ratings need the texts that were rated.", "Add `samples=FILE`.")
        if self._pairs.keys().isdisjoint(_ids(ids)):
            raise InputError(
                f"none of the {len(self._pairs)} rated studies is among the {len(ids):,} test reports.",
                "Pass the files that were rated.",
            )

    def has(self, ids: Sequence[str]) -> np.ndarray:
        """Return, for each of the test reports `ids`, whether any candidate for it was rated: bool[Q]."""
        return np.array([study in self._pairs for study in _ids(ids)], bool)

    def of(self, study: str) -> list[Counted]:
        """Return the rated candidates for the test report with the id `study`, with their error counts."""
        rated = self.ratings
        counted = []
        for position in self._pairs.get(_ids([study])[0], ()):
            text = (rated.predictions or [])[position]
            if text is not None:
                name = rated.candidates[position] if rated.candidates is not None else rated.pairs[position]
                counted.append(Counted(name, text, rated.counts[position][..., ::-1]))
        return counted


def _ids(studies: Sequence[str]) -> list[str]:
    return canonical_ids(studies, "studies")
