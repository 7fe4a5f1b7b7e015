"""Exact metric-oracle retrieval for radiology reports.

>>> import metric_oracle as mo
>>> index = mo.build_index("train.csv", "INDEX")        # doctest: +SKIP
>>> results = mo.retrieve(index, "test.csv", "bleu")    # doctest: +SKIP
>>> scores = mo.score("test.csv", "generated.csv")      # doctest: +SKIP
>>> mo.compute(predictions=["a b"], references=["a c"], metrics="rouge-l")  # doctest: +SKIP

A study: every oracle, chance, the most frequent report and models under every metric, in a table and a folder.

>>> index = mo.build_index("train.csv", "INDEX", radgraph="train_graphs.json")  # doctest: +SKIP
>>> models = {                                          # doctest: +SKIP
...     "strong": mo.Model("strong.csv", {"radgraph": "strong_graphs.json"}),
...     "weak": mo.Model("weak.csv", {"radgraph": "weak_graphs.json"}),
... }
>>> tests = mo.load_queries("test.csv", radgraph="test_graphs.json")  # doctest: +SKIP
>>> systems = mo.study(index, tests, models, metrics="bleu,radgraph", out="study")  # doctest: +SKIP
>>> table = mo.compare_study(systems)                   # doctest: +SKIP
>>> mo.write_study(systems, table, "study")             # doctest: +SKIP

The names below are loaded when first used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metric_oracle.api import (
        SearchOptions,
        annotate,
        baseline,
        build_index,
        compute,
        expectation,
        list_metrics,
        load_queries,
        merge,
        open_index,
        pairwise,
        read_results,
        read_scores,
        rerank,
        retrieve,
        reward,
        score,
        verify,
    )
    from metric_oracle.corpora.predictions import read_predictions
    from metric_oracle.corpora.reports import Reports, read_reports
    from metric_oracle.errors import MetricOracleError
    from metric_oracle.presentation.expectation_plot import plot_histogram
    from metric_oracle.raters.failure_modes import failure_modes
    from metric_oracle.raters.fit_composite import fit_composite
    from metric_oracle.raters.interrater import agreement
    from metric_oracle.raters.metric_agreement import RatedFiles, align, compare_metrics
    from metric_oracle.raters.plots import plot_alignment, plot_failure_modes
    from metric_oracle.raters.rated_sets import read_rated_set
    from metric_oracle.raters.ratings import read_ratings
    from metric_oracle.statistics import interval
    from metric_oracle.survey.create import create_survey
    from metric_oracle.survey.export import export_survey, survey_status
    from metric_oracle.tables.comparison import compare
    from metric_oracle.tables.comparison_layout import write as write_table
    from metric_oracle.tables.comparison_plot import write_plot
    from metric_oracle.tables.crg import score_crg
    from metric_oracle.tables.f1_chexbert import score_f1_chexbert, score_f1_srr
    from metric_oracle.tables.foreign import read_foreign
    from metric_oracle.tables.study import Model, compare_study
    from metric_oracle.tables.study import run_study as study
    from metric_oracle.tables.study_folder import write_study

_HOMES = {
    **dict.fromkeys(
        (
            *("annotate", "baseline", "build_index", "compute", "expectation", "list_metrics", "load_queries", "merge"),
            *("SearchOptions", "open_index", "pairwise", "read_results", "read_scores", "rerank", "retrieve", "reward"),
            *("score", "verify"),
        ),
        "metric_oracle.api",
    ),
    "MetricOracleError": "metric_oracle.errors",
    "Model": "metric_oracle.tables.study",
    "RatedFiles": "metric_oracle.raters.metric_agreement",
    "Reports": "metric_oracle.corpora.reports",
    "agreement": "metric_oracle.raters.interrater",
    "align": "metric_oracle.raters.metric_agreement",
    "compare": "metric_oracle.tables.comparison",
    "compare_metrics": "metric_oracle.raters.metric_agreement",
    "compare_study": "metric_oracle.tables.study",
    "create_survey": "metric_oracle.survey.create",
    "export_survey": "metric_oracle.survey.export",
    "failure_modes": "metric_oracle.raters.failure_modes",
    "fit_composite": "metric_oracle.raters.fit_composite",
    "interval": "metric_oracle.statistics",
    "plot_alignment": "metric_oracle.raters.plots",
    "plot_failure_modes": "metric_oracle.raters.plots",
    "plot_histogram": "metric_oracle.presentation.expectation_plot",
    "read_foreign": "metric_oracle.tables.foreign",
    "read_predictions": "metric_oracle.corpora.predictions",
    "read_rated_set": "metric_oracle.raters.rated_sets",
    "read_ratings": "metric_oracle.raters.ratings",
    "read_reports": "metric_oracle.corpora.reports",
    "score_crg": "metric_oracle.tables.crg",
    "score_f1_chexbert": "metric_oracle.tables.f1_chexbert",
    "score_f1_srr": "metric_oracle.tables.f1_chexbert",
    "study": "metric_oracle.tables.study:run_study",
    "survey_status": "metric_oracle.survey.export",
    "write_plot": "metric_oracle.tables.comparison_plot",
    "write_study": "metric_oracle.tables.study_folder",
    "write_table": "metric_oracle.tables.comparison_layout:write",
}
__all__ = [
    "MetricOracleError",
    "Model",
    "RatedFiles",
    "Reports",
    "SearchOptions",
    "agreement",
    "align",
    "annotate",
    "baseline",
    "build_index",
    "compare",
    "compare_metrics",
    "compare_study",
    "compute",
    "create_survey",
    "expectation",
    "export_survey",
    "failure_modes",
    "fit_composite",
    "interval",
    "list_metrics",
    "load_queries",
    "merge",
    "open_index",
    "pairwise",
    "plot_alignment",
    "plot_failure_modes",
    "plot_histogram",
    "read_foreign",
    "read_predictions",
    "read_rated_set",
    "read_ratings",
    "read_reports",
    "read_results",
    "read_scores",
    "rerank",
    "retrieve",
    "reward",
    "score",
    "score_crg",
    "score_f1_chexbert",
    "score_f1_srr",
    "study",
    "survey_status",
    "verify",
    "write_plot",
    "write_study",
    "write_table",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        home, _, other_name = _HOMES[name].partition(":")
        found = getattr(import_module(home), other_name or name)
        if not isinstance(found, type):
            from metric_oracle.public import public

            found = globals()[name] = public(name, found)
        return found
    if name == "__version__":
        return import_module("importlib.metadata").version("metric-oracle")
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return __all__
