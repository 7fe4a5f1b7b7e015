"""Whether higher or lower scores are better, for columns of other tools.

The direction of a column comes from the registry of metrics or the lists of column names below. It is never guessed.
"""

import re

from metric_oracle.metrics import ALIASES, METRICS, folded
from metric_oracle.records import Direction

DIRECTIONS = ("higher", "lower")
FOREIGN = "a column of another tool"  # the source of such scores in a signature

# Tool -> column names as the tool writes them. Case, blanks and punctuation are ignored. The directions hold for scores
# of single reports; in tables of means over a test set, RadEval and ReXrank print 1/RadCliQ under the name of RadCliQ.
_HIGHER = {
    "CXR-Report-Metric": ("bleu_score", "bertscore", "semb_score", "radgraph_combined"),
    "ReXrank": ("BLEU", "BLEU-2", "BertScore", "SembScore", "RadGraph", "RaTEScore", "GREEN"),
    "RadEval": (
        "bleu",
        "bleu_1",
        "bleu_2",
        "bleu_3",
        "bleu_4",
        "rouge1",
        "rouge2",
        "rougeL",
        "bertscore",
        "radeval_bertscore",
        "radgraph_simple",
        "radgraph_partial",
        "radgraph_complete",
        "radgraph_radcliq",
        "ratescore",
        "f1chexbert_sample_acc_5",
        "f1chexbert_sample_acc_all",
        "f1radbert_ct_sample_acc",
        "srrbert_weighted_f1",
        "srrbert_weighted_precision",
        "srrbert_weighted_recall",
        "srr_bert_weighted_f1",
        "srr_bert_weighted_precision",
        "srr_bert_weighted_recall",
        "temporal_f1",
        "green",
        "mammo_green",
        "crimson",
        "radfact_ct_precision",
        "radfact_ct_recall",
        "radfact_ct_f1",
    ),
    "GREEN": ("green_score", "Matched Findings"),
    "CRIMSON": ("crimson_score",),
    "pycocoevalcap": ("METEOR", "ROUGE_L", "CIDEr", "SPICE"),
    "in papers": ("bertscore_f1", "radgraph_f1", "f1radgraph", "radgraph-xl", "radgraph_xl_f1", "semb", "s_emb"),
}
_LOWER = {
    "CXR-Report-Metric": ("RadCliQ-v0", "RadCliQ-v1"),
    "RadEval": ("radcliq_v1",),
    "in papers": ("RadCliQ", "radcliq_score"),
    "CREPE": ("crepe", "crepe_score"),
    "GREEN": (
        "(a) False report of a finding in the candidate",
        "(b) Missing a finding present in the reference",
        "(c) Misidentification of a finding's anatomic location/position",
        "(d) Misassessment of the severity of a finding",
        "(e) Mentioning a comparison that isn't in the reference",
        "(f) Omitting a comparison detailing a change from a prior study",
        "green_ec",  # the number of significant errors that it finds
    ),
}


_DIRECTIONS: dict[str, Direction] = {
    **{folded(name): "higher" for names in _HIGHER.values() for name in names},
    **{folded(name): "lower" for names in _LOWER.values() for name in names},
    **{folded(name): METRICS[of].direction for name, of in ALIASES.items()},
    **{folded(name): metric.direction for name, metric in METRICS.items()},
}


def direction_of(name: str) -> Direction | None:
    """Return which scores of a column are better, by its name; None if no known tool writes a column of this name.

    `RadCliQ-v1`, `radcliq_v1` and `RadCliQ V1` are one name. ``1/`` before a name reverses the direction, as in
    ReXrank's ``1/RadCliQ-v1``.
    """
    inverted = re.match(r"\s*1\s*/(.+)", name)
    direction = _DIRECTIONS.get(folded(inverted[1] if inverted else name))
    if direction is None or not inverted:
        return direction
    return "lower" if direction == "higher" else "higher"
