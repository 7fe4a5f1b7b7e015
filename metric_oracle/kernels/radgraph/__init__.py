"""RadGraph F1: entities and relations that the graphs of two reports share."""

from metric_oracle.records import USUAL, Metric, RepresentationRecord, SourceRecord

_SOURCE = SourceRecord(
    "radgraph",
    "metric_oracle.sources.radgraph:RadGraphSource",
    "a graph",
    "graphs",
    ("radgraph",),
    "`mo.reports(..., radgraph=GRAPHS.json)`",
    model="a RadGraph model (.tar.gz)",
    model_arguments=("radgraph_encoder",),
)
_GRAPHS = RepresentationRecord("radgraph", "metric_oracle.indexes.radgraph:GraphIndex", _SOURCE, by_default=True)
_LOWER = RepresentationRecord("radgraph_lower", "metric_oracle.indexes.radgraph:LowerCaseIndex", parts=(_GRAPHS,))
_PACKAGE = "Delbrouck et al., EMNLP Findings 2022, as in radgraph 0.1.18"
# Variant of the package, its reward level, and the family of features whose F1 it is.
_VARIANTS = (("rg_e", "simple", 0), ("rg_er", "partial", 2), ("rg_er-bar", "complete", 3))
METRICS = (
    Metric(
        "radgraph",
        _GRAPHS,
        "radgraph",
        "Yu et al., Patterns 2023",
        {"family_a": 0, "family_b": 1},  # the mean F1 of two families of features
        fallback=True,
        is_symmetric=True,
        shown_in=USUAL,
        tool="cxr-report-metric",
        title="RadGraph F1",
        column="radgraph_combined",
    ),
    *(
        Metric(
            f"radgraph:{variant}",
            _GRAPHS,
            "radgraph",
            f"{_PACKAGE}, reward level {level}",
            {"family_a": family, "family_b": -1},  # there is no second family
            fallback=True,
            is_symmetric=True,
            shown_in=("score",),
            tool="radgraph-0.1.18",
            title=f"RadGraph F1 ({level})",
        )
        for variant, level, family in _VARIANTS
    ),
    *(
        Metric(
            f"radgraph:{variant}-lower",
            _LOWER,
            "radgraph",
            f"{_PACKAGE} since July 2026 (b5ab8d0), tokens lower-cased, reward level {level}",
            {"family_a": family, "family_b": -1},
            fallback=True,
            is_symmetric=True,
            tool="radgraph-b5ab8d0",
            title=f"RadGraph F1 ({level}, lower case)",
        )
        for variant, level, family in _VARIANTS
    ),
)
