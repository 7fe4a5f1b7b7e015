"""Names that columns of ids and of reports usually have, by what they mean.

Names are compared as `bare_name` writes them: "Case No." is `case_no`.
"""

import re
from collections.abc import Callable, Collection, Iterable


def _names(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


STUDY_IDS = frozenset({"study_id", "study", "uid", "id", "doc_id", "query_id"})  # query_id: files of results
# Of these, one is used only where the file has none of STUDY_IDS, of which `id` alone may be any number.
OTHER_IDS = _names(
    "studyid study_uid study_no study_nr study_number study_instance_uid studyinstanceuid "
    "case case_id caseid case_no case_nr case_num case_number case_name case_uid "
    "accession accession_id accession_no accession_nr accession_num accession_number accessionnumber "
    "exam exam_id examid exam_no examno exam_number examination_id custom_id "
    "report_id reportid report_no report_nr report_number report_uid "
    "sample_id example_id instance_id item_id record_id entry_id document_id order_id uuid guid qid question_id"
)
IMAGE_IDS = frozenset({"dicom_id", "image_id", "imageid", "path_to_image"})
IDS = STUDY_IDS | OTHER_IDS | IMAGE_IDS

SECTIONS = {
    "impression": _names(
        "impression impressions impression_text impression_section section_impression report_impression "
        "conclusion conclusions"
    ),
    "findings": _names("findings finding findings_text finding_text findings_section section_findings report_findings"),
}
PLAIN = _names("report reports report_text text reporttext full_report full_text caption filtered")
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
    "reference references reference_report reference_text ref refs ground_truth groundtruth ground_truth_report gt "
    "gt_report gt_text gt_findings gt_impression gold gold_report target target_text label_text true_report "
    "original_report actual_report human_report radiologist_report"
)
_OF_SECTIONS = frozenset.union(*SECTIONS.values())
TEXTS = PLAIN | GENERATED | REFERENCE | _OF_SECTIONS
# Columns of words that are no reports.
_NO_REPORTS = _names(
    "indication indications history clinical_history clinical_information comparison technique examination procedure "
    "view views view_position viewposition study_description studydescription split mesh problems labels image images "
    "image_path path file filename prompt question instruction context system model gender sex modality"
)


def bare_name(name: str) -> str:
    """Return the name of a column in lower case, with one underscore for what is neither a letter nor a digit."""
    return re.sub(r"[\W_]+", "_", name.lower()).strip("_")


def matching(names: Iterable[str], usual: Collection[str]) -> list[str]:
    """Return those names that mean the same as one of the usual ones."""
    return [name for name in names if bare_name(name) in usual]


def has_other(names: Iterable[str], usual: Collection[str], taken: Collection[str]) -> bool:
    """Return whether a column that was not taken has one of the usual names, so that it could have been."""
    return any(name not in taken for name in matching(names, usual))


def id_names(names: Iterable[str]) -> list[str]:
    """Return the names of the columns that can hold the ids of studies; several if nothing decides between them."""
    names = list(names)
    of_studies, others = matching(names, STUDY_IDS), matching(names, OTHER_IDS)
    return [*of_studies, *others] if [*map(bare_name, of_studies)] in ([], ["id"]) else of_studies


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
