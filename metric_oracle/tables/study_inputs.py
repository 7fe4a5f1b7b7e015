"""What a study reads: the index, the test reports and the reports of models, checked before the long work."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
from annotated_doc import Doc

from metric_oracle.base.arguments import check_left_out
from metric_oracle.base.declared import ROWS, Flag
from metric_oracle.base.errors import InputError, option, shown
from metric_oracle.base.progress import say
from metric_oracle.corpora.joining import IdSource, check_joined, check_two_columns, shared_column
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.sections import check_sections
from metric_oracle.corpora.tables import check_unique, together
from metric_oracle.indexes import manifest
from metric_oracle.indexes.index import AnyIndex, Index, open_index
from metric_oracle.indexes.shards import is_set, not_one_index, opened
from metric_oracle.judges.judge import Judge
from metric_oracle.metrics import METRICS, REPRESENTATIONS, get_metric, names_of, shown_in
from metric_oracle.reading import AttachedReports, Given, attached, loaded, say_wordless
from metric_oracle.retrieval.checks import check_section
from metric_oracle.retrieval.document_pairs import scorable_rows
from metric_oracle.retrieval.result_table import most_frequent_row
from metric_oracle.retrieval.scoring import join_ids
from metric_oracle.sources.attaching import attached_sources
from metric_oracle.sources.contract import source_of
from metric_oracle.tables.study_folder import file_name
from metric_oracle.tables.systems import IDENTITY, MOST_FREQUENT, POOL, RANDOM, oracle_name

BASELINES = (MOST_FREQUENT, IDENTITY, RANDOM)  # rows that need no search, the last of the table
CHANCE_SEED = 0  # of reports drawn at random

# The inputs of a study.
TestReports: TypeAlias = Annotated[
    Given,
    Doc(
        "Test reports: in any form that [`reports`][metric_oracle.reports] takes, which attaches the sources that "
        "the metrics read. By default their section is that of the index; another section is an error."
    ),
]
ModelReports: TypeAlias = Annotated[
    Mapping[str, Any] | None,
    Doc(
        "Reports that models wrote for the test reports, by name: each in any form that "
        "[`reports`][metric_oracle.reports] takes, which attaches their sources, as files. Each model is a row of "
        "the table."
    ),
    Flag("--model", metavar="NAME=FILE", panel=ROWS),
]


@dataclass(frozen=True)
class GivenModel:
    """The reports that a model wrote for the test reports."""

    given: AttachedReports  # a file, a container or a folder made by build-index, with their sources

    def __post_init__(self) -> None:
        check_left_out(self.given.of_encoder, "for a model's reports, which the encoder of the index encodes")

    @property
    def files(self) -> Mapping[str, Any]:
        """Argument -> value of each source that was given with the predictions."""
        return self.given.sources

    @property
    def index(self) -> Index | None:
        """The index, if the predictions were given as a folder made by build-index; otherwise None."""
        data = self.given.data
        if isinstance(data, str | Path) and is_set(Path(data)):
            raise not_one_index(Path(data))
        is_index = isinstance(data, str | Path) and (Path(data) / manifest.NAME).is_file()
        return open_index(data) if is_index else None

    def read(self, section: str | None, ids_from: IdSource) -> Reports:
        """Return the predictions; `section` is that of the test reports, `ids_from` where these have their ids from.

        If both files have a column of ids by which they can be joined, it is read, see `shared_column`.
        """
        index = self.index
        if index is None:
            reports = self.given.read(predictions=True, default_section=section)
            names = shared_column(ids_from, reports.ids_from)
            if names is None or names[0] != ids_from.name:
                return reports
            return self.given.with_ids(names[1]).read(predictions=True, default_section=section)
        texts = {name: index.strings(name).to_pylist() for name in ("study_id", "text")}
        return Reports(texts["study_id"], texts["text"], str(self.given.data), {}, {}, *index.section)

    def holds(self, queries: Reports) -> set[str]:
        """Return the names of the representations that the predictions have or that can be made of them.

        A model that is attached to the test reports, `queries`, serves the predictions, too.
        """
        index = self.index
        if index is not None:
            return set(index.content["representations"])
        names = {kind for kind, record in REPRESENTATIONS.items() if record.is_of_texts or record.is_encoded}
        for source in attached_sources():
            if source.argument in self.files:
                names.add(source.name)
            elif source.record.made_by and source.name in queries.attached:
                maker = source_of(source.record.made_by)
                names |= {source.name} if maker.is_model(self.files.get(maker.argument)) else set()
        return names


@dataclass(frozen=True)
class StudyInputs:
    """What a study reads, checked."""

    index: Index
    queries: Reports  # test reports, those that all models have
    given: Mapping[str, GivenModel]
    read: Mapping[str, Reports]  # predictions of each model
    rows: Mapping[str, Mapping[str, int]]  # of each model: id of a test report -> row of its prediction
    metrics: list[str]
    tell: Callable[[str], None] | None

    @cached_property
    def scorable(self) -> dict[str, np.ndarray]:
        """The corpus rows that each metric can score."""
        return {name: scorable_rows(self.index, METRICS[name]) for name in self.metrics}

    def most_frequent_row(self) -> int:
        """Return the corpus row of the most frequent report of those that every metric can score."""
        common = reduce(np.intersect1d, self.scorable.values())
        if not len(common):
            raise InputError(
                "the index has no report that every metric can score.", f"Name fewer metrics with {option('metrics')}."
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
    queries: Given,
    models: Mapping[str, Any] | None,
    metrics: str | Sequence[str] | None,
    inner: bool,
    further: Sequence[str],
    judge: Judge | None,
) -> StudyInputs:
    """Read the test reports and the models, and check that they fit the index and one another.

    `further` are the names of other rows.
    """
    index = opened(index)
    sides = [side for side in (queries, *(models or {}).values()) if isinstance(side, AttachedReports)]
    tell = next((side.models["tell"] for side in sides if "tell" in side.models), None)
    tests, queries = attached(queries), loaded(queries, index)
    check_unique(queries.ids, "ids")  # those of loaded reports may repeat
    check_section(queries, index)
    section = index.section if index.section[0] else queries.known_section
    # All steps keep token states in one place.
    queries = replace(queries, section=section[0], section_by=section[1], kept={})
    given = {name: GivenModel(attached(model).beside(tests)) for name, model in (models or {}).items()}
    names = _metrics(index, queries, given, names_of(metrics))
    _check_models([*given, *further], names, judge)
    # Read now, so that a bad file is an error before the long work.
    reads = (lambda _, model=model: model.read(section[0], queries.ids_from) for model in given.values())
    read = dict(zip(given, together(lambda: None, *reads)[1:], strict=True))
    for name, reports in read.items():
        passed = option(
            "model_section", f"{name}={section[0]}", python=f"mo.reports(..., read=mo.Read(section={section[0]}))"
        )
        step = f"Say by {passed} what it writes, or search an index of its section"
        warning = check_sections(section, reports.known_section, ("test reports", f"model {shown(name)}"), step)
        if warning:
            say(warning, tell)
    texts = {
        "test reports": queries.texts,
        **{f"reports of {shown(name)}": reports.texts for name, reports in read.items()},
    }
    say_wordless([METRICS[name] for name in names], texts, tell)
    rows, queries = _rows(read, queries, inner, lambda line: say(line, tell))
    return StudyInputs(index, queries, given, read, rows, names, tell)


def _rows(
    read: Mapping[str, Reports], queries: Reports, inner: bool, tell: Callable[[str], None]
) -> tuple[dict[str, dict[str, int]], Reports]:
    """Return, for each model, the row of the prediction of each test report; and the test reports of the study.

    These are the test reports that all models have. Others are left out if `inner`, else they are an error.
    """
    row_of_study: dict[str, dict[str, int]] = {}
    for name, reports in read.items():
        called = ("test reports", f"model {shown(name)}")
        check_joined(queries.ids_from, reports.ids_from, tell, called)
        check_two_columns(queries, reports, called)
        positions, prediction_rows, _ = join_ids(queries, reports, True, lambda line: None)
        row_of_study[name] = {queries.ids[i]: row for i, row in zip(positions, prediction_rows, strict=True)}
        missing = [study for study in queries.ids if study not in row_of_study[name]]
        if missing and not inner:
            raise InputError(
                f"model {shown(name)} has no prediction for {len(missing)} of {len(queries.ids)} test reports "
                f"({shown(*missing[:3])}).",
                f"Complete its file, or pass {option('inner', True)} to leave these reports out.",
            )
    common = [i for i, study in enumerate(queries.ids) if all(study in rows for rows in row_of_study.values())]
    if not common:
        raise InputError(
            f"no test report is predicted by every model; there are {len(queries.ids)}.", "Leave a model out."
        )
    return row_of_study, queries if len(common) == len(queries.ids) else queries.take(np.array(common))


def _metrics(index: Index, queries: Reports, models: Mapping[str, GivenModel], metrics: list[str] | None) -> list[str]:
    """Return the full names of the metrics, or if they are None, of the standard ones that all sides allow."""
    if metrics:
        return [get_metric(name).name for name in metrics]
    given = {kind for kind, record in REPRESENTATIONS.items() if not record.is_attached} | set(queries.attached)
    available = [given, *(model.holds(queries) for model in models.values())]
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


def _check_models(models: Sequence[str], metrics: list[str], judge: Judge | None) -> None:
    """Raise InputError unless the name of each model or further row is of no other row, also when made a file name."""
    of_judge = [] if judge is None else [oracle_name(judge.name), f"{judge.name}{POOL}"]
    found = [*map(oracle_name, metrics), *of_judge]
    row_names = [*found, *BASELINES]
    used_twice = sorted({*row_names} & {*models})
    if used_twice:
        raise InputError(
            "models", "must have names that no other row has", shown(used_twice[0]), "Choose another name."
        )
    files = [file_name(name) for name in models]
    reserved = [file_name(name) for name in row_names] + [f"{file_name(name)}-reports" for name in found]
    for name, file in zip(models, files, strict=True):
        if not file or (files + reserved).count(file) > 1 or file.startswith(f"{file_name(RANDOM)}-"):
            raise InputError(
                "models",
                "must have names that give different file names",
                f"{shown(name)}, whose file name {shown(file)} is empty or taken",
                "Choose another name.",
            )
