"""`Read`: how reports are read, the same for references, test reports, predictions and samples."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_left_out
from metric_oracle.base.declarations import IN_PYTHON, PREDICTED, READING, Flag
from metric_oracle.base.validation import Checked


@dataclass(frozen=True)
class Read(Checked, call="mo.reports(..., mo.Read({}))"):
    """How reports are read from a file or a container.

    An option that does not fit the reports, such as `ids` for references, is an error.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> mo.read_reports("test.csv", mo.Read(section="impression", text_column="report")).section
    'impression'
    """

    section: Annotated[
        option_types.Section | None,
        Doc(
            "Section of the reports to use; findings+impression joins both, findings first. Texts with both Findings: "
            "and Impression: are cut to it. By default that of the index, or of the reports that these are compared "
            "with, or else the impression or the only section that a table has."
        ),
        Flag(panel=READING),
    ] = None
    id_column: option_types.IdColumn | None = None
    text_column: Annotated[
        str | None,
        Doc("Column with the texts of the reports. By default it is recognized by its name."),
        Flag(panel=READING),
    ] = None
    split: Annotated[
        str | None,
        Doc(
            'Split to read, such as "test", or several, such as "train+validate", from the column split of the reports '
            "or from `split_file`. By default all reports are read."
        ),
        Flag(panel=READING),
    ] = None
    split_file: Annotated[
        str | Path | None,
        Doc(
            "Table with an id column and a column split, which says which reports are in `split`. Needs `split`. By "
            "default the reports' own column split is used."
        ),
        Flag(panel=READING),
    ] = None
    profile: Annotated[
        option_types.Profile,
        Doc(
            "Published rules that cut sections out of MIMIC-CXR report files: yu2023 is that of CXR-RePaiR and Yu et "
            "al., mit that of the repository MIT-LCP/mimic-cxr."
        ),
        Flag(panel=READING),
    ] = "yu2023"
    keep_empty: Annotated[
        bool,
        Doc(
            "Keep reports that are empty or have no letter or digit. Missing ones are always left out, and empty "
            "predictions are always kept."
        ),
        IN_PYTHON,
    ] = False
    encoding: Annotated[
        str | None,
        Doc("Character encoding of text files, such as cp1252. By default it is detected."),
        Flag(panel=READING),
    ] = None
    separator: Annotated[
        str | None,
        Doc(
            "Separator between the columns of CSV and TSV files: one character, or the word tab. By default it is "
            "detected."
        ),
        Flag(panel=READING),
    ] = None
    ids: Annotated[
        str | Path | None,
        Doc(
            "Ids of predictions in their order, if their file has none: R2Gen's annotation.json, a table, or a text "
            "file with one id per line. Of a file with splits, the ids of `split` count, by default those of test."
        ),
        Flag(panel=PREDICTED),
    ] = None
    metadata: Annotated[
        str | Path | None,
        Doc(
            "Metadata of MIMIC-CXR (mimic-cxr-2.0.0-metadata.csv.gz). Needed for predictions with one row per image; "
            "one image of each study is then used, an AP or PA image if there is one."
        ),
        Flag(panel=PREDICTED),
    ] = None
    seed: Annotated[
        option_types.Seed,
        Doc(
            "Seed of the choice among several images of a study, which `metadata` makes. It depends only on the seed "
            "and on the images of the study."
        ),
        IN_PYTHON,
    ] = 0
    after_impression: Annotated[
        bool,
        Doc(
            'Use only the text that follows "Impression:" in each prediction; one without it counts as missing. Not '
            'needed where most have "Findings:", too, and `section` says which.'
        ),
        Flag(panel=PREDICTED),
    ] = False

    @property
    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {field.name: values[field.name] for field in fields(self) if values[field.name] != field.default}


DEFAULT = Read()
OF_SAMPLES = ("section", "id_column", "text_column", "encoding", "separator")
OF_REPORTS = (*OF_SAMPLES, "split", "split_file", "profile", "keep_empty")
OF_PREDICTIONS = (*OF_SAMPLES, "split", "ids", "metadata", "seed", "after_impression")
# The options that apply to reports of a role, or in a form.
APPLYING = {
    "reports that are no predictions": OF_REPORTS,
    "predictions": OF_PREDICTIONS,
    "samples": OF_SAMPLES,
    "report files": ("section", "split", "split_file", "profile", "keep_empty"),
    "a table in memory": tuple({*OF_REPORTS, *OF_PREDICTIONS} - {"profile", "encoding", "separator"}),
    "texts without columns": ("section", "keep_empty", "seed", "after_impression"),
    "samples in memory": ("section", "id_column", "text_column"),
    "samples that are read": (),
    "Reports, which are read already": (),
    "a prepared set": (),
}


def check_applies(read: Read, what: str, where: str = "", step: str = "", *, got: str = "a value") -> None:
    """Raise InputError if an option was given that does not apply to what is read, a key of `APPLYING`.

    `where` stands in the message, by default "for" and that key; `step` and `got` are those of `check_left_out`.
    """
    check_left_out(read.given, where or f"for {what}", step, allowed=APPLYING[what], got=got)
