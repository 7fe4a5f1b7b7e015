# The public names: this list alone is read, by type checkers and by `metric_oracle.base.lazy`.
from metric_oracle.annotating import annotate as annotate
from metric_oracle.projects import project as project
from metric_oracle.judges.given import judge as judge
from metric_oracle.reading import reports as reports
from metric_oracle.retrieval.groups import pairwise as pairwise
from metric_oracle.retrieval.rewards import consensus_reward as consensus_reward, reward as reward
from metric_oracle.retrieval.pair_files import pool as pool
from metric_oracle.retrieval.rerank import rerank as rerank
from metric_oracle.retrieval.scoring import compute as compute, score as score
from metric_oracle.retrieval.baselines import baseline as baseline
from metric_oracle.retrieval.building import build_index as build_index
from metric_oracle.retrieval.expectation import expectation as expectation
from metric_oracle.retrieval.part_files import merge as merge
from metric_oracle.indexes.shards import open_index as open_index
from metric_oracle.retrieval.plan import retrieve as retrieve
from metric_oracle.retrieval.verification import verify as verify
from metric_oracle.copies.overlap import overlap as overlap
from metric_oracle.corpora.predictions import read_predictions as read_predictions
from metric_oracle.corpora.read import Read as Read
from metric_oracle.corpora.reports import Reports as Reports, read_reports as read_reports
from metric_oracle.corpora.samples import Samples as Samples, read_samples as read_samples
from metric_oracle.base.errors import MetricOracleError as MetricOracleError
from metric_oracle.metrics import list_metrics as list_metrics
from metric_oracle.mining.mine import merge_mined as merge_mined, mine as mine
from metric_oracle.mining.pairs import pairs as pairs
from metric_oracle.mining.selection import Selection as Selection
from metric_oracle.raters.alignment import align as align
from metric_oracle.raters.failure_modes import failure_modes as failure_modes
from metric_oracle.raters.fit_composite import fit_composite as fit_composite
from metric_oracle.raters.interrater import agreement as agreement
from metric_oracle.raters.metric_comparison import RatedFiles as RatedFiles, compare_metrics as compare_metrics
from metric_oracle.raters.rated_sets import read_rated_set as read_rated_set
from metric_oracle.raters.ratings import read_ratings as read_ratings
from metric_oracle.retrieval.options import SearchOptions as SearchOptions
from metric_oracle.findings.results import read_results as read_results, read_scores as read_scores
from metric_oracle.samples.best_of import BestOf as BestOf, best_of as best_of
from metric_oracle.samples.consensus import Consensus as Consensus, consensus as consensus
from metric_oracle.statistics import interval as interval
from metric_oracle.survey.create import SurveyOptions as SurveyOptions
from metric_oracle.survey.create import create_survey as create_survey
from metric_oracle.survey.export import export_survey as export_survey, survey_status as survey_status
from metric_oracle.tables.compare import compare as compare
from metric_oracle.tables.crg import score_crg as score_crg
from metric_oracle.tables.f1_chexbert import score_f1_chexbert as score_f1_chexbert, score_f1_srr as score_f1_srr
from metric_oracle.tables.foreign import read_foreign as read_foreign
from metric_oracle.tables.judged_study import study_pairs as study_pairs
from metric_oracle.tables.study import compare_study as compare_study, study as study
from metric_oracle.tables.study_folder import write_study as write_study

__version__: str
