"""What a study reads: the index, the test reports and the reports of models, checked before the long work."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
from annotated_doc import Doc

from metric_oracle.base.argument_checks import check_left_out
from metric_oracle.base.declarations import Flag
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.progress import Progress
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.tables import check_unique
from metric_oracle.indexes import manifest
from metric_oracle.indexes.index import AnyIndex, Index, open_index
from metric_oracle.indexes.shards import is_set, not_one_index
from metric_oracle.metrics import METRICS, REPRESENTATIONS, get_metric, names_of, shown_in
from metric_oracle.pools.candidate_pools import ALL, read_pool
from metric_oracle.pools.pooled_oracle import RANDOM as DRAWN
from metric_oracle.reading import AttachedReports, Given, loaded
from metric_oracle.retrieval.checks import check_section
from metric_oracle.retrieval.corpus_index import corpus_of
from metric_oracle.retrieval.document_pairs import scorable_rows
from metric_oracle.retrieval.fall_back import most_frequent_row
from metric_oracle.retrieval.options import DEFAULTS
from metric_oracle.retrieval.plan import asked
from metric_oracle.sides import Nouns, Sides
from metric_oracle.sources.attaching import attached_sources
from metric_oracle.sources.contract import source_of
from metric_oracle.tables.study_folder import file_name
from metric_oracle.tables.systems import IDENTITY, MOST_FREQUENT, RANDOM, oracle_name

BASELINES = (MOST_FREQUENT, IDENTITY, RANDOM)  # rows that need no search, the last of the table
CHANCE_SEED = 0  # of reports drawn at random

# The inputs of a study.
TestReports: TypeAlias = Annotated[
    Given,
    Doc(
        "Test reports, with the sources that the metrics read, in any form that [`reports`][metric_oracle.reports] "
        "takes. By default their section is that of the index; another section is an error."
    ),
]
ModelReports: TypeAlias = Annotated[
    Mapping[str, Any] | None,
    Doc(
        "Reports that models wrote for the test reports, by name, with their sources as files: each in any form that "
        "[`reports`][metric_oracle.reports] takes. Each model is a row of the table."
    ),
    Flag(metavar="[NAME=]FILE"),
]


OF_STUDY = Nouns("test reports", "model {shown}", is_of_index=True, may_have_more=True, has_inner=True)


def index_of(model: AttachedReports) -> Index | None:
    """Return the index of a model's reports, if they were given as a folder made by build-index; otherwise None."""
    data = model.data
    if isinstance(data, str | Path) and is_set(Path(data)):
        raise not_one_index(Path(data))
    is_index = isinstance(data, str | Path) and (Path(data) / manifest.NAME).is_file()
    return open_index(data) if is_index else None


def _kinds_of(model: AttachedReports, queries: Reports) -> set[str]:
    """Return the names of the representations that a model's reports have or that can be made of them.

    A model that is attached to the test reports, `queries`, serves them, too.
    """
    index = index_of(model)
    if index is not None:
        return set(index.content["representations"])
    names = {name for name, kind in REPRESENTATIONS.items() if kind.is_of_texts or kind.is_encoded}
    for source in attached_sources():
        if source.argument in model.sources:
            names.add(source.name)
        elif source.record.made_by and source.name in queries.attached:
            maker = source_of(source.record.made_by)
            names |= {source.name} if maker.is_model(model.sources.get(maker.argument)) else set()
    return names


@dataclass(frozen=True)
class StudyInputs:
    """What a study reads, checked."""

    index: Index
    queries: Reports  # test reports, those that all models have
    models: Mapping[str, AttachedReports]
    read: Mapping[str, Reports]  # predictions of each model
    rows: Mapping[str, Mapping[str, int]]  # of each model: id of a test report -> row of its prediction
    metrics: list[str]
    listener: Callable[[str], None] | None  # which gets notes, such as that of a command

    @cached_property
    def scorable(self) -> dict[str, np.ndarray]:
        """The corpus rows that each metric can score."""
        return {name: scorable_rows(self.index, METRICS[name]) for name in self.metrics}

    def most_frequent_row(self) -> int:
        """Return the corpus row of the most frequent report of those that every metric can score.

        Raise InputError if there is none.
        """
        common = reduce(np.intersect1d, self.scorable.values())
        if not len(common):
            raise InputError(
                "the index has no report that every metric can score.", "Name fewer metrics with `metrics`."
            )
        return most_frequent_row(self.index, common)

    def texts(self, oracles: Mapping[str, np.ndarray]) -> dict[str, list[str]]:
        """Return the report of each row of the table for each test report; `oracles` has corpus rows by metric."""
        ids, index = self.queries.ids, self.index
        of_models = {name: [self.read[name].texts[rows[i]] for i in ids] for name, rows in self.rows.items()}
        of_oracles = {oracle_name(metric): index.take("text", rows).to_pylist() for metric, rows in oracles.items()}
        frequent = index.take("text", np.full(len(ids), self.most_frequent_row())).to_pylist()
        return {**of_models, **of_oracles, MOST_FREQUENT: frequent, IDENTITY: self.queries.texts}


def study_inputs(
    index: AnyIndex,
    sides: Sides,
    metrics: str | Sequence[str] | None,
    *,
    inner: bool,
    pool: str | None = None,
    further: tuple[Sequence[str], Sequence[str]] = ((), ()),
    progress: Progress | None = None,
) -> StudyInputs:
    """Read the test reports and the reports of the models, and check that they fit the index and one another.

    `sides` are both, called as in `OF_STUDY`. `pool` is that of a judge, whose lists the index serves, too. `further`
    are the names of other rows of the table: those of scores that are given, and those of a judge.
    """
    names = names_of(metrics)
    listed = [name for name in read_pool(pool or ALL, is_chosen=False) if name != DRAWN]
    wanted = [asked(name, DEFAULTS)[0] for name in [*(names or shown_in("study")), *listed]]
    index = corpus_of(index, wanted, progress, usual=not names)
    for model in sides.predictions.values():
        check_left_out(model.of_encoder, "for a model's reports, which the encoder of the index encodes")

    def load(side: AttachedReports) -> Reports:
        """Return the test reports with their sources, in the section of the index."""
        tests = loaded(side, index, progress)
        check_unique(tests.ids, "ids")  # those of loaded reports may repeat
        check_section(tests, index)
        section = index.section if index.section[0] else tests.known_section
        # All steps keep token states in one place.
        return replace(tests, section=section[0], section_by=section[1], kept={})

    # Read now, so that a bad file is an error before the long work.
    sides = sides.read(index.section[0], as_truth=load)
    names = _metrics(index, sides, names)
    _check_models([*sides.predictions, *further[0]], names, further[1])
    sides.tell_wordless([METRICS[name] for name in names])
    rows, queries = _rows_by_id(sides, inner)
    return StudyInputs(index, queries, sides.predictions, sides.written, rows, names, sides.listener)


def _rows_by_id(sides: Sides, inner: bool) -> tuple[dict[str, dict[str, int]], Reports]:
    """Return, for each model, the row of the prediction of each test report; and the test reports of the study.

    These are the test reports that all models have. Others are left out if `inner`, else they are an error.
    """
    queries, row_of_study = sides.read_truth, dict[str, dict[str, int]]()
    for name in sides.predictions:
        joined = sides.join(name, inner)
        pairs = zip(joined.references, joined.predictions, strict=True)
        row_of_study[name] = {queries.ids[i]: row for i, row in pairs}
    common = [i for i, study in enumerate(queries.ids) if all(study in rows for rows in row_of_study.values())]
    if not common:
        raise InputError(
            f"no test report is predicted by every model; there are {len(queries.ids)}.", "Leave a model out."
        )
    return row_of_study, queries if len(common) == len(queries.ids) else queries.take(np.array(common))


def _metrics(index: Index, sides: Sides, metrics: list[str] | None) -> list[str]:
    """Return the full names of the metrics, or if they are None, of the standard ones that all sides allow."""
    if metrics:
        return [get_metric(name).name for name in metrics]
    queries = sides.read_truth
    of_queries = {name for name, kind in REPRESENTATIONS.items() if not kind.is_attached} | set(queries.attached)
    available = [of_queries, *(_kinds_of(model, queries) for model in sides.predictions.values())]
    names = [
        name
        for name in shown_in("study")
        if name in index.metrics and all(set(METRICS[name].representations) <= side for side in available)
    ]
    if not names:
        raise InputError(
            "index, test reports and models allow no metric of a study.",
            f"Build the index for one of {', '.join(shown_in('study'))}.",
        )
    return names


def _check_models(models: Sequence[str], metrics: list[str], of_judge: Sequence[str]) -> None:
    """Raise InputError unless the name of each model or further row is of no other row, also when made a file name.

    `of_judge` are the names of the rows of a judge.
    """
    oracles = [*map(oracle_name, metrics), *of_judge]
    row_names = [*oracles, *BASELINES]
    used_twice = sorted({*row_names} & {*models})
    if used_twice:
        raise InputError(
            "models", "must have names that no other row has", shown(used_twice[0]), "Choose another name."
        )
    files = [file_name(name) for name in models]
    reserved = [file_name(name) for name in row_names] + [f"{file_name(name)}-reports" for name in oracles]
    for name, file in zip(models, files, strict=True):
        if not file or (files + reserved).count(file) > 1 or file.startswith(f"{file_name(RANDOM)}-"):
            raise InputError(
                "models",
                "must have names that give different file names",
                f"{shown(name)}, whose file name {shown(file)} is empty or taken",
                "Choose another name.",
            )
