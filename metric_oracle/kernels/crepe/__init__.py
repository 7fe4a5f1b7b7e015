"""CREPE: errors of a report as a model counts them. It has no kernel, because the model reads both reports at once."""

from metric_oracle.records import Metric, RepresentationRecord, SourceRecord

_SOURCE = SourceRecord(
    "crepe",
    "metric_oracle.encoders.crepe:Crepe",
    "a checkpoint",
    "checkpoints",
    ("crepe", "crepe_config", "crepe_vocabulary"),
    "`crepe=FOLDER`",
    made="pairs",
)
METRICS = (
    Metric(
        "crepe",
        RepresentationRecord(_SOURCE.name, _SOURCE.home, _SOURCE),
        "",
        "Cho et al., EMNLP 2025, each pair alone in float64",
        higher_is_better=False,
        cheap=False,
        composable=False,
        shown_in=("score",),
        tool="gihuncho/crepe",
        title="CREPE",
    ),
)
