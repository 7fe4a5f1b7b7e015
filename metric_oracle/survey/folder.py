"""Reads the folder of a survey, which `survey.create` makes, for pages, status and export.

This module imports little, so that the server starts at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_doc import Doc

from metric_oracle.base.checksum import read_sealed
from metric_oracle.base.declarations import Flag
from metric_oracle.base.errors import InputError
from metric_oracle.base.files import checksum
from metric_oracle.survey.log import History, Log

FORMAT, VERSION = "metric-oracle survey", 1
_MADE = "Name the folder that `mo.create_survey` made."
# The argument of functions that read a survey.
SurveyFolder = Annotated[
    str | Path,
    Doc("Folder of the survey, which [`create_survey`][metric_oracle.create_survey] wrote."),
    Flag(metavar="SURVEY"),
]
_RESTORE = "Restore it from a backup of the folder."


@dataclass(frozen=True)
class Shown:
    """The texts of one study."""

    reference: str
    candidates: list[str]  # in the order that raters share


@dataclass(frozen=True)
class Survey:
    """A survey as raters see it.

    Attributes
    ----------
    folder : Path
    fingerprint : str
        SHA-256 of the content of ``survey.json``. Every save contains it.
    studies : list of Shown
    categories : dict of str
        Label in the ratings -> description.
    instructions : str
    raters : list of str
        Names of the raters.
    orders : dict
        Rater -> that rater's order, as `order` returns it; empty if all raters have the same order.
    """

    folder: Path
    fingerprint: str
    studies: list[Shown]
    categories: dict[str, str]
    instructions: str
    raters: list[str]
    orders: dict[str, list[tuple[int, list[int]]]] = field(default_factory=dict)

    def __repr__(self) -> str:
        # Texts are left out, because they are patient data.
        return f"<Survey: {len(self.studies):,} studies, {len(self.raters)} raters; {self.folder}>"

    @property
    def cells(self) -> int:
        """Number of counts that a rater has to enter."""
        return sum(len(study.candidates) for study in self.studies) * len(self.categories) * 2

    def order(self, rater: str) -> list[tuple[int, list[int]]]:
        """Return the studies in the order in which a rater sees them, each with the order of its candidates.

        Studies and candidates are given as positions in `studies`. Saves use these positions too, whatever the order.
        """
        shared = [(position, list(range(len(study.candidates)))) for position, study in enumerate(self.studies)]
        return self.orders.get(rater, shared)

    def log(self, rater: str) -> Log:
        """Return the log of a rater; raise InputError if there is no such rater."""
        if rater not in self.raters:
            raise InputError(f"there is no such rater; raters are {', '.join(self.raters)}.", "Correct the name.")
        path = self.folder / "ratings" / f"{rater}.jsonl"
        return Log(path, [len(study.candidates) for study in self.studies], len(self.categories), self.fingerprint)

    def links(self) -> dict[str, str]:
        """Return rater -> secret of the rater's address."""
        links = read_sealed(self.folder / "links.json", _RESTORE)
        try:
            return {rater: str(links[rater]) for rater in self.raters}
        except KeyError as error:
            raise InputError(f"{self.folder / 'links.json'} lacks a rater: {error.args[0]}.", _RESTORE) from None

    def summary(self) -> str:
        """Return one line with the numbers of studies, candidates, categories and cells, and the raters."""
        n = sum(len(study.candidates) for study in self.studies)
        return (
            f"{len(self.studies)} studies, {n} candidates, {len(self.categories)} categories, {self.cells:,} cells a "
            f"rater; raters: {', '.join(self.raters)}"
        )


def open_survey(folder: str | Path) -> Survey:
    """Open the folder of a survey; raise InputError if it is another folder, or was altered. The key is not read."""
    folder = Path(folder)
    content = read_sealed(folder / "survey.json", _MADE)
    claimed = content.pop("fingerprint", None)
    if content.get("format") != FORMAT or content.get("version") != VERSION or claimed != checksum(content):
        raise InputError(
            f"{folder / 'survey.json'} was altered since `mo.create_survey` made it, or is of another version.",
            "Restore it, or create a new survey.",
        )
    studies = [Shown(**study) for study in content["studies"]]
    orders = {
        rater: [(position, candidates) for position, candidates in order]
        for rater, order in content.get("orders", {}).items()
    }
    return Survey(folder, claimed, studies, content["categories"], content["instructions"], content["raters"], orders)


def read_key(survey: Survey) -> dict[str, Any]:
    """Return the content of ``key.json``, the origin of each candidate. Only the export may call this.

    Raise InputError if it is damaged, or belongs to another survey.
    """
    path = survey.folder / "key.json"
    key = read_sealed(path, _RESTORE)
    if key.get("survey") != survey.fingerprint:
        raise InputError(f"key.json in {survey.folder} belongs to another survey.", "Restore the folder.")
    if not _is_key(key, survey):  # of an earlier version, whose keys have no checksum
        raise InputError(f"{path} is damaged.", _RESTORE)
    return key


def _is_key(key: Mapping[str, Any], survey: Survey) -> bool:
    """Return whether a key has what the export reads, for each study of the survey."""
    types = {"candidates": list, "studies": list, "sources": dict, "seed": int, "identical": str, "scores": dict}
    if not all(isinstance(key.get(name), kind) for name, kind in types.items() if name != "scores" or name in key):
        return False
    if "references" not in key or len(key["studies"]) != len(survey.studies):
        return False
    for study, of_page in zip(key["studies"], survey.studies, strict=True):
        positions = study.get("positions") if isinstance(study, dict) else None
        if not isinstance(positions, dict) or not isinstance(study.get("study_id"), str) or "is_repeat" not in study:
            return False
        places = range(len(of_page.candidates))
        if not positions.keys() <= {*key["candidates"]} or any(place not in places for place in positions.values()):
            return False
    return True


def open_cells(survey: Survey, history: History) -> int:
    """Return the number of cells of a survey that the rater of a history has not answered."""
    answered = [len(survey.categories) * 2 - event.open_cells for event in history.latest.values()]
    return survey.cells - sum(answered)
