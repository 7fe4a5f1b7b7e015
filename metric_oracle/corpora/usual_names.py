"""Names that columns of ids and of reports usually have, by what they mean.

Names are compared as `bare_name` writes them: "Case No." and "CaseNo" are `case_no`.
"""

import re
from collections.abc import Callable, Collection, Iterable


def _names(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


# query_id is that of files of results.
STUDY_IDS = _names("study_id study uid id doc_id query_id")
IMAGE_IDS = _names("dicom_id image_id path_to_image")
# What ids number, and the usual names of their columns. A table is read by the first that it has: names of the second
# entry count only where there is none of the first, of which `id` alone may be any number.
ID_NAMES = (
    ("studies", STUDY_IDS),
    (
        "studies",
        _names(
            "study_uid study_no study_nr study_number study_instance_uid "
            "case case_id case_no case_nr case_num case_number case_name case_uid "
            "accession accession_id accession_no accession_nr accession_num accession_number "
            "exam exam_id exam_no exam_number examination_id custom_id "
            "report_id report_no report_nr report_number report_uid "
            "sample_id example_id instance_id item_id record_id entry_id document_id order_id uuid guid qid question_id"
        ),
    ),
    ("images", IMAGE_IDS),
)
# The kinds that come before the keys of records. Ids of another kind, such as patients, would count only where a table
# has neither, and are not told beside them.
OF_REPORTS = ("studies", "images")
IDS = frozenset().union(*(names for _, names in ID_NAMES))

SECTIONS = {
    "impression": _names(
        "impression impressions impression_text impression_section section_impression report_impression "
        "conclusion conclusions"
    ),
    "findings": _names("findings finding findings_text finding_text findings_section section_findings report_findings"),
}
PLAIN = _names("report reports report_text text full_report full_text caption filtered")
_OF_MODELS = _names(
    "model_prediction prediction predictions predicted pred preds predicted_report predicted_text report_predicted "
    "pred_report pred_text pred_findings pred_impression predicted_findings predicted_impression "
    "report_generated generated generated_report generated_text generated_findings generated_finding "
    "generated_impression generation generations model_report model_output model_response model_text "
    "hypothesis hypotheses hyp hyps candidate candidate_report predict filtered_resps llm_output decoded "
    "system_output ai_report"
)
# In data for training these are what a radiologist wrote.
_OF_EITHER = _names("output output_text outputs response responses answer answer_text completion")
GENERATED = _OF_MODELS | _OF_EITHER
REFERENCE = _names(
    "reference references reference_report reference_text ref refs ground_truth ground_truth_report gt "
    "gt_report gt_text gt_findings gt_impression gold gold_report target target_text label_text true_report "
    "original_report actual_report human_report radiologist_report"
)
_OF_SECTIONS = frozenset.union(*SECTIONS.values())
TEXTS = PLAIN | GENERATED | REFERENCE | _OF_SECTIONS
# Columns of words that are no reports.
_NO_REPORTS = _names(
    "indication indications history clinical_history clinical_information comparison technique examination procedure "
    "view views view_position study_description split mesh problems labels image images "
    "image_path path file filename prompt question instruction context system model gender sex modality"
)
# The names above by what counts in them: "caseno" is `case_no`.
_USUAL = {name.replace("_", ""): name for name in IDS | TEXTS | _NO_REPORTS}


def bare_name(name: str) -> str:
    """Return the usual name that a column has, whatever its case, blanks, hyphens and underscores.

    Of a name that is not usual, the lower case, with one underscore for what is neither a letter nor a digit.
    """
    bare = _spelled(name)
    return _USUAL.get(bare.replace("_", ""), bare)


def _spelled(name: str) -> str:
    """Return a name in lower case, with one underscore for what is neither a letter nor a digit."""
    return re.sub(r"[\W_]+", "_", name.lower()).strip("_")


def matching(names: Iterable[str], usual: Collection[str]) -> list[str]:
    """Return those names that mean the same as one of the usual ones.

    If some are written with its underscores, those without them ("StudyID" beside "study_id") are left out, unless `id`
    alone would remain.
    """
    names = [name for name in names if bare_name(name) in usual]
    spelled = [name for name in names if _spelled(name) in usual]
    return names if [*map(_spelled, spelled)] in ([], ["id"]) else spelled


def has_other(names: Iterable[str], usual: Collection[str], taken: Collection[str]) -> bool:
    """Return whether a column that was not taken has one of the usual names, so that it could have been."""
    return any(name not in taken and bare_name(name) in usual for name in names)


def id_columns(names: Iterable[str], *, of_reports: bool = False) -> list[tuple[str, list[str]]]:
    """Return what ids number, and the columns of such ids, in the order in which a table is read by them.

    Where the first entry has several columns, nothing decides between them. With `of_reports`, the kinds are those of
    `OF_REPORTS` alone.
    """
    names = list(names)
    by_names = [(kind, matching(names, usual)) for kind, usual in ID_NAMES if kind in OF_REPORTS or not of_reports]
    found = [(kind, columns) for kind, columns in by_names if columns]
    if [kind for kind, _ in found[:2]] == ["studies", "studies"] and [*map(bare_name, found[0][1])] == ["id"]:
        found[:2] = [("studies", [*found[0][1], *found[1][1]])]
    return found


def has_other_ids(names: Iterable[str], taken: str) -> bool:
    """Return whether another column than that taken has a usual name of ids of studies or images."""
    of_reports = frozenset().union(*(usual for kind, usual in ID_NAMES if kind in OF_REPORTS))
    return has_other(names, of_reports, [taken])


def kind_of_ids(name: str) -> str | None:
    """Return what the ids of a column number by its name; None for `id`, and for paths, read as those of studies."""
    bare = bare_name(name)
    kinds = (kind for kind, usual in ID_NAMES if bare in usual)
    return None if bare in ("id", "path_to_image") else next(kinds, None)


def is_report(name: str) -> bool:
    """Return whether a column of a name that is not usual may hold reports, by its name."""
    bare = bare_name(name)
    return bool(bare) and bare not in IDS | _NO_REPORTS and not name.startswith("Unnamed: ")


def generated_names(
    names: Collection[str], section: str | None, unknown: Callable[[], list[str]]
) -> tuple[list[str], bool]:
    """Return which columns may hold what a model wrote, the likeliest first, and whether nothing else can be meant.

    `section` is the wanted one, None if that is not known. `unknown` returns the columns of words without a usual name:
    beside one, only a name that no radiologist's reports have is certain.
    """
    for columns in (matching(names, _OF_MODELS), matching(names, _OF_EITHER), matching(names, PLAIN | _OF_SECTIONS)):
        of_section = [name for name in columns if section_of_column(name) == section]
        columns = of_section if section is not None and len(of_section) == 1 else columns
        if columns:
            break
    if columns and bare_name(columns[0]) in _OF_MODELS:
        return columns, len(columns) == 1
    others, written = unknown(), matching(names, REFERENCE)
    if columns:
        return [*others, *columns, *(written if others else [])], len(columns) == 1 and not others
    return [*others, *written], len([*others, *written]) == 1


def written_names(names: Collection[str], unknown: Callable[[], list[str]]) -> tuple[list[str], bool]:
    """Return which columns may hold what a radiologist wrote, as `generated_names` does for a model's reports."""
    columns = matching(names, PLAIN | REFERENCE | _OF_SECTIONS)
    if not columns or matching(columns, PLAIN):  # a report may be the generated one
        columns += matching(names, GENERATED)
    if not matching(columns, PLAIN | REFERENCE | _OF_SECTIONS):
        columns = [*unknown(), *columns]
    return columns, len(columns) == 1


def section_of_column(name: str) -> str | None:
    """Return the section that the name of a column means, or None."""
    bare = re.sub("^(?:generated|predicted|pred|gt)_", "", bare_name(name))
    return next((section for section, usual in SECTIONS.items() if bare in usual), None)
