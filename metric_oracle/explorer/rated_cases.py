"""What radiologists counted, found again by test report and by the text that they saw."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from metric_oracle.corpora.tables import canonical_ids
from metric_oracle.errors import InputError, option
from metric_oracle.raters.ratings import Ratings


def plain_text(text: str) -> str:
    """Return a text by which two that differ in white space alone are the same, as in a survey."""
    return " ".join(text.split())


@dataclass(frozen=True)
class Counted:
    """Errors that radiologists counted in one candidate.

    Attributes
    ----------
    name : str
        Candidate type.
    text : str
    counts : int64[R, C, 2]
        Of each rater and category: significant, insignificant.
    """

    name: str
    text: str
    counts: np.ndarray


@dataclass(frozen=True)
class RatedCases:
    """Ratings of candidates for test reports.

    Attributes
    ----------
    ratings : Ratings
        With the texts of its pairs.
    scores : tuple of paths
        Tables of scores of the pairs, as `align` reads them; without one, the texts are scored.
    """

    ratings: Ratings
    scores: tuple[Path, ...] = ()
    _pairs: dict[str, list[int]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        pairs: dict[str, list[int]] = {}
        for place, study in enumerate(_ids(self.ratings.study_ids or self.ratings.studies)):
            pairs.setdefault(study, []).append(place)
        object.__setattr__(self, "_pairs", pairs)

    def check(self, ids: Sequence[str], function: str) -> None:
        """Raise unless the texts are known and some of the rated studies are among the test reports."""
        if self.ratings.predictions is None:
            raise InputError("ratings need the texts that were rated.", f"Add {option('samples', 'FILE')}.")
        if self._pairs.keys().isdisjoint(_ids(ids)):
            raise InputError(
                f"none of the {len(self._pairs)} rated studies is among the {len(ids):,} test reports.",
                "Pass the files that were rated.",
            )

    def has(self, ids: Sequence[str]) -> np.ndarray:
        """Return whether a candidate for each test report was rated: bool[Q]."""
        return np.array([study in self._pairs for study in _ids(ids)], bool)

    def of(self, study: str) -> list[Counted]:
        """Return what was counted in the candidates for a test report."""
        rated = self.ratings
        found = []
        for place in self._pairs.get(_ids([study])[0], ()):
            text = (rated.predictions or [])[place]
            if text is not None:
                name = rated.candidates[place] if rated.candidates is not None else rated.pairs[place]
                found.append(Counted(name, text, rated.counts[place][..., ::-1]))
        return found


def _ids(studies: Sequence[str]) -> list[str]:
    return canonical_ids(studies, "read_ratings", "studies")
