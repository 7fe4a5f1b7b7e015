# The public names: this list alone is read, by type checkers and by `metric_oracle.lazy`.
from metric_oracle.api.annotating import annotate as annotate, check_annotation as check_annotation
from metric_oracle.api.attached import reports as reports
from metric_oracle.api.given import is_prepared as is_prepared, say_wordless as say_wordless, section_of as section_of
from metric_oracle.api.groups import pairwise as pairwise
from metric_oracle.api.rewards import consensus_reward as consensus_reward, reward as reward
from metric_oracle.api.reranking import plan_rerank as plan_rerank, rerank as rerank
from metric_oracle.api.scoring import compute as compute, score as score
from metric_oracle.api.searching import baseline as baseline, build_index as build_index, expectation as expectation
from metric_oracle.api.searching import merge as merge, open_index as open_index
from metric_oracle.api.searching import retrieve as retrieve, verify as verify
from metric_oracle.corpora.predictions import read_predictions as read_predictions
from metric_oracle.corpora.reports import read_reports as read_reports
from metric_oracle.corpora.samples import read_samples as read_samples
from metric_oracle.corpora.tables import text_options as text_options, together as together
from metric_oracle.files import without_nan as without_nan
from metric_oracle.metrics import list_metrics as list_metrics
from metric_oracle.retrieval.baselines import plan_baseline as plan_baseline
from metric_oracle.retrieval.expectation import plan_expectation as plan_expectation
from metric_oracle.retrieval.options import SearchOptions as SearchOptions
from metric_oracle.retrieval.plan import plan as plan
from metric_oracle.findings.results import Results as Results
from metric_oracle.findings.writing import check_out as check_out
from metric_oracle.findings.results import read_results as read_results, read_scores as read_scores
from metric_oracle.sources.availability import (
    check_device as check_device,
    check_installed as check_installed,
    named_models as named_models,
)
