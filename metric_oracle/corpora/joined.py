"""References and predictions joined on ids: which belong together, and which are left out."""

import re
from dataclasses import dataclass

from metric_oracle.base.errors import InputError, shown
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.tables import are_mimic_images, ids_hint

# R2Gen's id of an IU X-ray study; the number is its uid in the Kaggle tables.
_IU_XRAY = re.compile(r"CXR(\d+)(?:_IM-.*)?")
# Reasons why a report is left out.
UNPREDICTED, MISSING = "without a prediction", "with a missing prediction"
UNREFERENCED, UNSCORABLE = "without a reference", "with a missing or empty reference"


@dataclass(frozen=True)
class JoinedIds:
    """The ids of references and predictions, which are joined where they are equal."""

    references: list[str]
    predictions: list[str]
    unusable: set[str]  # ids of references without a text that can be scored
    missing: set[str]  # ids of predictions without a text
    is_plain: bool = False  # whether ids such as CXR1_IM-0001 became 1

    @classmethod
    def of(cls, truth: Reports, written: Reports) -> "JoinedIds":
        """Return the ids of reports; those of R2Gen's files of IU X-ray as numbers where only these are in both."""
        usable = set(truth.ids)
        unusable = {study for studies in truth.states.values() for study in studies if study not in usable}
        joined = cls([*truth.ids], [*written.ids], unusable, {*written.states.get("missing", ())})
        if {*joined.references} & {*joined.predictions}:
            return joined
        one, other = ([_IU_XRAY.sub(r"\1", key) for key in ids] for ids in (joined.references, joined.predictions))
        if not {*one} & {*other} or any(len({*ids}) < len(ids) for ids in (one, other)):
            return joined
        unusable, missing = ({_IU_XRAY.sub(r"\1", key) for key in ids} for ids in (joined.unusable, joined.missing))
        return cls(one, other, unusable, missing, is_plain=True)

    def pairs(self) -> tuple[list[int], list[int]]:
        """Return the positions of the references, in their order, and of the predictions of each pair."""
        place = {key: i for i, key in enumerate(self.predictions)}
        rows = [i for i, key in enumerate(self.references) if key in place]
        return rows, [place[self.references[i]] for i in rows]

    def left_out(self) -> dict[str, list[str]]:
        """Return the ids that are not joined, by reason."""
        predicted, referenced = {*self.predictions}, {*self.references}
        alone = [key for key in self.references if key not in predicted]
        return {
            UNPREDICTED: [key for key in alone if key not in self.missing],
            MISSING: [key for key in self.references if key in self.missing],
            UNREFERENCED: [key for key in self.predictions if key not in referenced and key not in self.unusable],
            UNSCORABLE: [key for key in self.predictions if key in self.unusable],
        }

    def check_shared(self, nouns: tuple[str, str], read: tuple[Reports, Reports]) -> None:
        """Raise InputError if less than half of the shorter side is in both, or no id has a text on both sides."""
        of_references, of_predictions = {*self.references} | self.unusable, {*self.predictions} | self.missing
        n_shared, n_fewer = len(of_references & of_predictions), min(len(of_references), len(of_predictions))
        is_answered, is_half = not {*self.references}.isdisjoint(self.predictions), 2 * n_shared >= n_fewer
        if is_answered and is_half:
            return
        both = " and ".join(nouns)
        if n_shared and is_half:
            rule, step = "must both have a text for at least one id", "Check which columns the texts are read from."
            raise InputError(both, rule, f"none for the {n_shared} in common", step)
        keys = (self.references, self.predictions)
        examples = " and ".join(
            f"{shown(*ids[:3])}{f' (column {source.name})' if source.by in ('name', 'caller') else ''}"
            for ids, source in zip(keys, (reports.ids_from for reports in read), strict=True)
        )
        is_taken = are_mimic_images(self.predictions) and not are_mimic_images(self.references)
        of_images = ", or `mo.reports(..., mo.Read(metadata=FILE))`, which joins images to studies" if is_taken else ""
        raise InputError(
            both,
            "must share at least half of the ids of the side with fewer",
            f"{f'{n_shared} of {n_fewer}' if n_shared else 'none'} in common, such as {examples}",
            f"Name the column of the ids: `mo.reports(..., mo.Read(id_column=NAME))` for the {nouns[0]}, or "
            f"`mo.reports(predictions, mo.Read(id_column=NAME))` for the {nouns[1]}{of_images}.{ids_hint(*keys)}",
        )


def check_lengths(truth: Reports, written: Reports) -> None:
    """Raise InputError unless texts that are joined by their place are as many on both sides."""
    lengths = [reports.counts.get("rows", len(reports.ids)) for reports in (truth, written)]
    if lengths[0] != lengths[1]:
        raise InputError(
            "texts without ids",
            "must be as many on both sides",
            f"{lengths[0]} references and {lengths[1]} predictions",
            "They belong together by their place: complete the shorter list, or pass ids.",
        )
