"""Names that columns of ids and of reports usually have, by what they mean.

Names are compared as `bare_name` writes them: "Case No." is `case_no`.
"""

import re
from collections.abc import Collection, Iterable


def _names(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


STUDY_IDS = frozenset({"study_id", "study", "uid", "id", "doc_id", "query_id"})  # query_id: files of results
# Of these, one is used only where the file has none of STUDY_IDS, of which `id` alone may be any number.
OTHER_IDS = _names(
    "studyid study_uid study_no study_nr study_number study_instance_uid studyinstanceuid "
    "case case_id caseid case_no case_nr case_num case_number case_name case_uid "
    "accession accession_id accession_no accession_nr accession_num accession_number accessionnumber "
    "exam_id examid exam_no exam_number examination_id "
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
GENERATED = _names(
    "model_prediction prediction predictions predicted pred preds predicted_report predicted_text report_predicted "
    "report_generated generated generated_report generated_text generated_findings generated_finding "
    "generated_impression generation generations model_report model_output model_response model_text "
    "output output_text outputs response responses answer answer_text completion hypothesis decoded "
    "system_output ai_report"
)
REFERENCE = _names(
    "reference references reference_report reference_text ref refs ground_truth groundtruth ground_truth_report gt "
    "gt_report gt_text gold gold_report target target_text label_text true_report original_report actual_report "
    "human_report radiologist_report"
)
TEXTS = PLAIN | GENERATED | REFERENCE | frozenset.union(*SECTIONS.values())


def bare_name(name: str) -> str:
    """Return the name of a column in lower case, with one underscore for what is neither a letter nor a digit."""
    return re.sub(r"[\W_]+", "_", name.lower()).strip("_")


def matching(names: Iterable[str], usual: Collection[str]) -> list[str]:
    """Return those names that mean the same as one of the usual ones."""
    return [name for name in names if bare_name(name) in usual]


def id_names(names: Iterable[str]) -> list[str]:
    """Return the names of the columns that can hold the ids of studies; several if nothing decides between them."""
    names = list(names)
    known, others = matching(names, STUDY_IDS), matching(names, OTHER_IDS)
    return [*known, *others] if [*map(bare_name, known)] in ([], ["id"]) else known


def section_of_column(name: str) -> str | None:
    """Return the section that the name of a column means, or None."""
    bare = bare_name(name).removeprefix("generated_")
    return next((section for section, usual in SECTIONS.items() if bare in usual), None)
