"""The folder of a survey, as pages, status and export read it; `survey.create` makes it.

Light: a server starts at once.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metric_oracle.errors import InputError
from metric_oracle.files import checksum
from metric_oracle.survey.log import History, Log

FORMAT, VERSION = "metric-oracle survey", 1


@dataclass(frozen=True)
class Shown:
    """What raters see of one study: the reference, and the candidates in their order."""

    reference: str
    candidates: list[str]


@dataclass(frozen=True)
class Survey:
    """A survey as raters see it.

    Attributes
    ----------
    folder : Path
    fingerprint : str
        SHA-256 of what raters see; every save carries it.
    studies : list of Shown
    categories : dict of str
        Label in the ratings -> what it means.
    instructions : str
    raters : list of str
    orders : dict
        Rater -> what `order` returns, where raters have different orders; else empty.
    """

    folder: Path
    fingerprint: str
    studies: list[Shown]
    categories: dict[str, str]
    instructions: str
    raters: list[str]
    orders: dict[str, list[tuple[int, list[int]]]] = field(default_factory=dict)

    def __repr__(self) -> str:
        # Without texts, which are patient data.
        return f"<Survey: {len(self.studies):,} studies, {len(self.raters)} raters; {self.folder}>"

    @property
    def cells(self) -> int:
        """How many numbers a rater is asked for."""
        return sum(len(study.candidates) for study in self.studies) * len(self.categories) * 2

    def order(self, rater: str) -> list[tuple[int, list[int]]]:
        """Return the studies in the order in which a rater sees them, each with the order of its candidates.

        Studies and candidates are positions in `studies`; saves name them so, whatever the order.
        """
        shared = [(place, list(range(len(study.candidates)))) for place, study in enumerate(self.studies)]
        return self.orders.get(rater, shared)

    def log(self, rater: str) -> Log:
        """Return the log of a rater."""
        if rater not in self.raters:
            raise InputError(f"there is no such rater; raters are {', '.join(self.raters)}.", "Correct the name.")
        path = self.folder / "ratings" / f"{rater}.jsonl"
        return Log(path, [len(one.candidates) for one in self.studies], len(self.categories), self.fingerprint)

    def links(self) -> dict[str, str]:
        """Return the secret of each rater's address."""
        return read_json(self.folder / "links.json")

    def summary(self) -> str:
        """Return one line: what raters are asked for."""
        n = sum(len(study.candidates) for study in self.studies)
        return (
            f"{len(self.studies)} studies, {n} candidates, {len(self.categories)} categories, {self.cells:,} cells a "
            f"rater; raters: {', '.join(self.raters)}"
        )


def open_survey(folder: str | Path, function: str = "survey") -> Survey:
    """Open the folder of a survey: what raters see, never the key."""
    folder = Path(folder)
    content = read_json(folder / "survey.json", function)
    claimed = content.pop("fingerprint", None)
    if content.get("format") != FORMAT or content.get("version") != VERSION or claimed != checksum(content):
        raise InputError(
            f"{folder} was altered since oracle survey create made it.", "Restore it, or create a new survey."
        )
    studies = [Shown(**study) for study in content["studies"]]
    orders = {rater: [(place, own) for place, own in order] for rater, order in content.get("orders", {}).items()}
    return Survey(folder, claimed, studies, content["categories"], content["instructions"], content["raters"], orders)


def read_key(survey: Survey, function: str) -> dict[str, Any]:
    """Return which candidate is whose; for the export alone."""
    key = read_json(survey.folder / "key.json", function)
    if key.get("survey") != survey.fingerprint:
        raise InputError(f"key.json in {survey.folder} belongs to another survey.", "Restore the folder.")
    return key


def read_json(path: Path, function: str = "survey") -> dict[str, Any]:
    """Return what a file of a survey's folder holds."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        content = None
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise InputError(f"{path} is missing or not readable.", "Name the folder that oracle survey create made.")
    return content


def open_cells(survey: Survey, history: History) -> int:
    """Return how many cells of a survey have no answer."""
    answered = [len(survey.categories) * 2 - event.open_cells for event in history.latest.values()]
    return survey.cells - sum(answered)
