"""BERTScore: matching of the tokens of two reports by the cosine of their vectors from a language model."""

from metric_oracle.records import USUAL, Metric, RepresentationRecord, SourceRecord

_SOURCE = SourceRecord(
    "bertscore",
    "metric_oracle.sources.token_states:TokenStateSource",
    "token states",
    "token states",
    ("encoder",),
    "`mo.reports(..., encoder=NAME|FOLDER)`",
    made="encoded",
)
_STATES = RepresentationRecord(
    "bertscore", "metric_oracle.indexes.bertscore:StateDocuments", _SOURCE, settings=("idf", "rescale"), by_default=True
)
_CITATION = "Zhang et al., ICLR 2020, as in bert_score 0.3.13 without padding"
_TOOL = "bert-score-0.3.13"
METRICS = (
    Metric(
        "bertscore",
        _STATES,
        "bertscore",
        _CITATION,
        {"part": 2},
        cheap=False,
        shown_in=USUAL,
        tool=_TOOL,
        title="BERTScore",
        column="bertscore",
    ),
    *(
        Metric(
            f"bertscore:{name}",
            _STATES,
            "bertscore",
            _CITATION,
            {"part": part},
            cheap=False,
            composable=False,
            tool=_TOOL,
            title=f"BERTScore {name}",
        )
        for part, name in enumerate(("precision", "recall"))
    ),
)
