"""CRG, a score of abnormality labels that weights them by their frequency, and each report's contribution to it.

Source: Hamamci et al., MIDL 2025.
"""

from metric_oracle.kernels.chexbert_labels import LABELS
from metric_oracle.records import Metric, RepresentationRecord

METRICS = (
    Metric(
        "crg",
        RepresentationRecord(
            "crg",
            "metric_oracle.indexes.crg:PositiveDocuments",
            parts=(LABELS,),
            counts_queries=True,
            settings=("prevalence",),
        ),
        "crg",
        "Hamamci et al., MIDL 2025, weights of the test set",
        composable=False,
        tool="ibrahimethemhamamci/crg",
        title="CRG",
    ),
)
