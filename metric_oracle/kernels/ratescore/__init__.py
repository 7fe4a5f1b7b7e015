"""RaTEScore of two lists of entities with their vectors.

The models that find and encode entities run elsewhere, before.
"""

from metric_oracle.records import Metric, RepresentationRecord, SourceRecord

_SOURCE = SourceRecord(
    "entities",
    "metric_oracle.sources.entities:EntitySource",
    "entities",
    "entities",
    ("entities",),
    "`mo.reports(..., entities=FILE)`",
    model="the folder of the model RaTE-NER",
    model_arguments=("entity_encoder",),
)
_ENTITIES = RepresentationRecord("entities", "metric_oracle.indexes.entities:EntityDocuments", _SOURCE, by_default=True)
METRICS = tuple(
    Metric(
        "ratescore" if matrix == "long" else f"ratescore:{matrix}",
        _ENTITIES,
        "ratescore",
        f"Zhao et al., EMNLP 2024, as in ratescore 0.6.0 ({matrix} weights), of given entities",
        {"matrix": matrix},
        cheap=False,
        composable=False,
        tool="ratescore-0.6.0",
        title="RaTEScore" if matrix == "long" else f"RaTEScore ({matrix})",
    )
    for matrix in ("long", "short")
)
