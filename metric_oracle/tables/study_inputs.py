"""What a study reads: the index, the test reports and the reports of models, checked before the long work."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
from annotated_doc import Doc

from metric_oracle.base.argument_checks import check_left_out
from metric_oracle.base.declarations import Flag
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import checksum
from metric_oracle.base.progress import Progress
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.tables import check_unique
from metric_oracle.indexes import manifest
from metric_oracle.indexes.build import inputs_digest
from metric_oracle.indexes.index import AnyIndex, Index, open_index
from metric_oracle.indexes.shards import is_set, not_one_index
from metric_oracle.metrics import METRICS, REPRESENTATIONS, get_metric, names_of, shown_in
from metric_oracle.pools.candidate_pools import ALL, read_pool
from metric_oracle.pools.pooled_oracle import RANDOM as DRAWN
from metric_oracle.reading import AttachedReports, Given, loaded
from metric_oracle.retrieval.checks import check_section
from metric_oracle.retrieval.corpus_index import corpus_of
from metric_oracle.retrieval.options import DEFAULTS
from metric_oracle.retrieval.plan import asked
from metric_oracle.sides import Nouns, Sides
from metric_oracle.sources.attaching import attached_sources
from metric_oracle.sources.contract import source_of
from metric_oracle.tables.study_folder import checksum_of, file_name
from metric_oracle.tables.systems import BASELINES, RANDOM, oracle_name

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


class FurtherRows(NamedTuple):
    """What the table of a study has beside the rows of its models, oracles and baselines."""

    of_scores: Sequence[str] = ()  # names of the rows of scores that are given
    of_judges: Sequence[str] = ()  # names that the rows of the judges can have
    pool: str | None = None  # of the judges; the index serves its lists, too


@dataclass(frozen=True)
class StudyModel:
    """The reports of a model of a study, read."""

    given: AttachedReports
    reports: Reports
    index: Index | None  # the index, if they were given as a folder made by build-index
    rows: np.ndarray  # int64[Q], the row of the report of each test report

    @property
    def texts(self) -> list[str]:
        """The report of each test report."""
        return [self.reports.texts[row] for row in self.rows.tolist()]

    def made_of(self) -> list[Any]:
        """Return checksums of all that scores depend on: ids and texts, sources, and the index if there is one.

        Raise InputError if a source is not a file.
        """
        for name, value in self.given.sources.items():
            if not isinstance(value, str | Path):
                raise InputError(
                    f"{name} of a model",
                    "must be a file, so that a study that was killed can go on",
                    type(value).__name__,
                    "Write it to a file, or prepare the reports with `mo.build_index`.",
                )
        files = {name: checksum_of(Path(path)) for name, path in sorted(self.given.sources.items())}
        texts = checksum([self.reports.ids, self.reports.texts])
        return [texts, files, None if self.index is None else self.index.fingerprint]


def _index_of(model: AttachedReports) -> Index | None:
    """Return the index of a model's reports, if they were given as a folder made by build-index; otherwise None."""
    data = model.data
    if isinstance(data, str | Path) and is_set(Path(data)):
        raise not_one_index(Path(data))
    is_index = isinstance(data, str | Path) and (Path(data) / manifest.NAME).is_file()
    return open_index(data) if is_index else None


def _kinds_of(model: AttachedReports, index: Index | None, queries: Reports) -> set[str]:
    """Return the names of the representations that a model's reports have or that can be made of them.

    A model that is attached to the test reports, `queries`, serves them, too.
    """
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
    models: Mapping[str, StudyModel]
    metrics: list[str]
    listener: Callable[[str], None] | None  # which gets notes, such as that of a command

    @property
    def made_of(self) -> list[Any]:
        """What all steps are made of: JSON values."""
        return [version("metric-oracle"), self.index.fingerprint, inputs_digest(self.queries), self.metrics]


def study_inputs(
    index: AnyIndex,
    sides: Sides,
    metrics: str | Sequence[str] | None,
    *,
    inner: bool,
    further: FurtherRows,
    progress: Progress | None = None,
) -> StudyInputs:
    """Read the test reports and the reports of the models, and check that they fit the index and one another.

    `sides` are both, called as in `OF_STUDY`.
    """
    names = names_of(metrics)
    listed = [name for name in read_pool(further.pool or ALL, is_chosen=False) if name != DRAWN]
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
    indexes = {name: _index_of(model) for name, model in sides.predictions.items()}
    names = [get_metric(name).name for name in names] if names else _usual_metrics(index, sides, indexes)
    _check_models([*sides.predictions, *further.of_scores], names, further.of_judges)
    sides.tell_wordless([METRICS[name] for name in names])
    positions, rows = _rows_by_position(sides, inner)
    queries, given = sides.read_truth, sides.predictions
    queries = queries if len(positions) == len(queries.ids) else queries.take(positions)
    models = {name: StudyModel(given[name], sides.written[name], indexes[name], rows[name]) for name in given}
    return StudyInputs(index, queries, models, names, sides.listener)


def _rows_by_position(sides: Sides, inner: bool) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the positions of the test reports of the study, and for each model the rows of its reports: int64[Q] each.

    These are the test reports that all models have. Others are left out if `inner`, else they are an error.
    """
    row_at = dict[str, dict[int, int]]()
    for name in sides.predictions:
        joined = sides.join(name, inner)
        row_at[name] = dict(zip(joined.references, joined.predictions, strict=True))
    n = len(sides.read_truth.ids)
    common = [i for i in range(n) if all(i in rows for rows in row_at.values())]
    if not common:
        raise InputError(f"no test report is predicted by every model; there are {n}.", "Leave a model out.")
    return np.array(common), {name: np.array([rows[i] for i in common]) for name, rows in row_at.items()}


def _usual_metrics(index: Index, sides: Sides, indexes: Mapping[str, Index | None]) -> list[str]:
    """Return the standard metrics that all sides allow; `indexes` are those of models that were given as one."""
    queries = sides.read_truth
    of_queries = {name for name, kind in REPRESENTATIONS.items() if not kind.is_attached} | set(queries.attached)
    given = sides.predictions.items()
    available = [of_queries, *(_kinds_of(model, indexes[name], queries) for name, model in given)]
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
