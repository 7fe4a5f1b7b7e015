"""Exact metric-oracle retrieval for radiology reports.

>>> import metric_oracle as mo
>>> index = mo.build_index("train.csv", "INDEX")        # doctest: +SKIP
>>> results = mo.retrieve(index, "test.csv", "bleu")    # doctest: +SKIP
>>> scores = mo.score("test.csv", "generated.csv")      # doctest: +SKIP
>>> mo.compute(predictions=["a b"], references=["a c"], metrics="rouge-l")  # doctest: +SKIP

A study compares the oracle of every metric, random retrieval, the most frequent report and models under every metric.

>>> corpus = mo.reports("train.csv", radgraph="train_graphs.json")  # doctest: +SKIP
>>> index = mo.build_index(corpus, "INDEX")             # doctest: +SKIP
>>> models = {                                          # doctest: +SKIP
...     "strong": mo.reports("strong.csv", radgraph="strong_graphs.json"),
...     "weak": mo.reports("weak.csv", radgraph="weak_graphs.json"),
... }
>>> tests = mo.reports("test.csv", radgraph="test_graphs.json")  # doctest: +SKIP
>>> systems = mo.study(index, tests, models, metrics="bleu,radgraph", out="study")  # doctest: +SKIP
>>> table = mo.compare_study(systems)                   # doctest: +SKIP
>>> mo.write_study(systems, table, "study")             # doctest: +SKIP

The public names are imported when they are first used, so that importing the package is fast.
"""

from importlib import import_module
from typing import Any

# Where each public name stands. `tests/generated.py` writes `__init__.pyi` for type checkers from it.
MODULES = {
    "BestOf": "samples.best_of",
    "Consensus": "samples.consensus",
    "Layout": "tables.layout",
    "MetricOracleError": "base.errors",
    "RatedFiles": "raters.metric_comparison",
    "Read": "corpora.read",
    "Reports": "corpora.reports",
    "Samples": "corpora.samples",
    "SearchOptions": "retrieval.options",
    "Selection": "mining.selection",
    "SurveyOptions": "survey.create",
    "agreement": "raters.interrater",
    "align": "raters.alignment",
    "annotate": "annotating",
    "baseline": "scores.baselines",
    "best_of": "samples.best_of",
    "build_index": "retrieval.building",
    "compare": "tables.compare",
    "compare_metrics": "raters.metric_comparison",
    "compare_study": "tables.study",
    "compute": "scores.scoring",
    "consensus": "samples.consensus",
    "consensus_reward": "scores.rewards",
    "create_survey": "survey.create",
    "expectation": "scores.expectation",
    "export_survey": "survey.export",
    "failure_modes": "raters.failure_modes",
    "fit_composite": "raters.fit_composite",
    "interval": "statistics",
    "judge": "judges.given",
    "list_metrics": "metrics",
    "merge": "retrieval.part_files",
    "merge_mined": "mining.mine",
    "mine": "mining.mine",
    "open_index": "indexes.shards",
    "overlap": "copies.overlap",
    "pairs": "mining.pairs",
    "pairwise": "scores.groups",
    "pool": "pools.pair_files",
    "project": "projects",
    "read_foreign": "tables.foreign",
    "read_predictions": "corpora.predictions",
    "read_rated_set": "raters.rated_sets",
    "read_ratings": "raters.ratings",
    "read_reports": "corpora.reports",
    "read_results": "findings.results",
    "read_samples": "corpora.samples",
    "read_scores": "findings.results",
    "reports": "reading",
    "rerank": "pools.rerank",
    "retrieve": "retrieval.plan",
    "reward": "scores.rewards",
    "score": "scores.scoring",
    "score_crg": "tables.crg",
    "score_f1_chexbert": "tables.f1_chexbert",
    "score_f1_srr": "tables.f1_chexbert",
    "study": "tables.study",
    "study_pairs": "tables.study",
    "survey_status": "survey.export",
    "verify": "verification.verify",
    "write_study": "tables.study_folder",
}
__all__ = [*MODULES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("metric-oracle")
    if name in ("Model", "load_queries"):
        msg = f"module {__name__!r} has no attribute {name!r}. Write mo.reports(...)"
        raise AttributeError(msg)
    if name not in MODULES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = globals()[name] = getattr(import_module(f"metric_oracle.{MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
