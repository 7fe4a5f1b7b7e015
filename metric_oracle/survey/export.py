"""The state of a survey, and the export of its counts for ``oracle align`` and ``oracle failure-modes``.

A missing answer is never counted as 0. Raters who have not finished are left out and named, or the export has only the
pairs that all raters finished.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from annotated_doc import Doc
from pyarrow import csv

from metric_oracle.base import option_types
from metric_oracle.base.checksum import sign, write_sealed
from metric_oracle.base.declarations import Flag
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import new_folder
from metric_oracle.base.validation import public
from metric_oracle.corpora.reports import Reports
from metric_oracle.findings.cells import NOTHING, Format, number_of
from metric_oracle.findings.printed_tables import PaperTable, listing
from metric_oracle.findings.results import Scores
from metric_oracle.findings.writing import check_folder
from metric_oracle.raters.names import rater_name
from metric_oracle.scores.scoring import score
from metric_oracle.survey.folder import Survey, SurveyFolder, open_cells, open_survey, read_key
from metric_oracle.survey.log import Counts


@dataclass(frozen=True)
class Export:
    """The folder of an export.

    Attributes
    ----------
    folder : Path
    notes : dict
        Content of ``notes.json``: what was left out and why, and the settings of the survey.
    """

    folder: Path
    notes: dict[str, Any]

    def summary(self) -> str:
        """Return one line with the numbers of exported pairs, studies and raters."""
        n = self.notes
        return f"{n['pairs']} pairs of {n['studies']} studies, {len(n['raters'])} raters: {', '.join(n['raters'])}"

    def warnings(self) -> list[str]:
        """Return a sentence for each rater that was left out, for pairs, and for each rater with contradictions."""
        lines = [f"{rater} is left out: {reason}." for rater, reason in self.notes["left_out"].items()]
        lines += [f"{rater} is left out: {n:,} cells are open." for rater, n in self.notes["unfinished"].items()]
        lines += [f"{line}." for line in self.notes["unsure"]]
        if self.notes["pairs_left_out"]:
            lines.append(f"{self.notes['pairs_left_out']} pairs are left out: not all raters finished them.")
        lines += [
            f"{rater} gave different counts to {n} pairs of identical candidates."
            for rater, n in self.notes["contradictions"].items()
        ]
        return lines


@dataclass(frozen=True)
class _Pair:
    """One candidate type of one study."""

    position: tuple[int, int]  # of the study in the survey, and of the candidate in the study
    study_id: str
    candidate: str  # candidate type
    texts: tuple[str, str]  # reference and candidate


@public
def survey_status(folder: SurveyFolder) -> list[dict[str, Any]]:
    """Show how many studies each rater has finished.

    Returns
    -------
    list of dict
        A record for each rater: finished ``studies`` of ``of_studies``, finished ``candidates``, ``open_cells``, the
        number of ``saves``, the time of the last one (None before the first), ``torn_bytes``, the length of an
        unfinished last line of the log, and ``unsure``, a sentence if the log may lack its last saves, else "".

    Raises
    ------
    InputError
        If the folder is not a survey, or one of its files was altered.

    Examples
    --------
    >>> candidates = {"strong": "strong.csv", "weak": "weak.csv"}
    >>> options = mo.SurveyOptions(studies=5)
    >>> survey = mo.create_survey("test.csv", candidates, "survey", raters=["ann", "bob"], options=options)
    >>> [(record["rater"], record["studies"], record["of_studies"]) for record in mo.survey_status("survey")]
    [('ann', 0, 5), ('bob', 0, 5)]
    """
    survey = open_survey(folder)
    rows = []
    for rater in survey.raters:
        history = survey.log(rater).read()
        done = {position for position, event in history.latest.items() if not event.open_cells}
        complete = [
            all((position, i) in done for i in range(len(study.candidates)))
            for position, study in enumerate(survey.studies)
        ]
        rows.append(
            {
                "rater": rater,
                "studies": sum(complete),
                "of_studies": len(survey.studies),
                "candidates": len(done),
                "open_cells": open_cells(survey, history),
                "saves": len(history.by_id),
                "last_save": max((event.time for event in history.by_id.values()), default=None),
                "torn_bytes": history.torn,
                "unsure": survey.log(rater).unsure if history.is_unsure else "",
            }
        )
    return rows


def status_table(rows: list[dict[str, Any]]) -> PaperTable:
    """Return the table of what `survey_status` returned, a row for each rater."""
    torn = [f"{r['rater']}: a torn line of {r['torn_bytes']} bytes, never saved." for r in rows if r["torn_bytes"]]
    torn += [f"{row['unsure']}." for row in rows if row["unsure"]]
    columns: dict[str, Format] = {
        "finished studies": _studies,
        "open cells": number_of("open_cells", ","),
        "saves": number_of("saves", ","),
        "last save (UTC)": _last_save,
    }
    return listing("Survey", rows, lambda row: rater_name(row["rater"]), columns, torn, "rater")


def _studies(row: Mapping[str, Any]) -> str:
    return f"{row['studies']} of {row['of_studies']}"


def _last_save(row: Mapping[str, Any]) -> str:
    return row["last_save"][:16].replace("T", " ") if row["last_save"] else NOTHING


@public
def export_survey(
    folder: SurveyFolder,
    out: option_types.NewFolder,
    *,
    partial: Annotated[
        bool,
        Doc(
            "Keep the raters who have not finished, and export only the pairs that all raters have finished. By "
            "default raters who have not finished are left out of the export."
        ),
    ] = False,
    leave_out: Annotated[
        Mapping[str, str] | None,
        Doc("Raters to leave out of the export, each with the reason, which is recorded."),
        Flag(metavar="NAME=REASON"),
    ] = None,
) -> Export:
    """Write the counted errors in files that align, failure-modes, agreement and fit-composite read.

    A missing answer is never counted as 0 errors.

    Returns
    -------
    Export
        ``ratings.csv`` and ``samples.csv``, which [`read_ratings`][metric_oracle.read_ratings] reads: in ReXVal's
        layout if every study has every candidate type, otherwise by pair; ``scores.csv`` for ``oracle align`` and
        ``fit-composite``: the pairs scored under the metrics that need text alone, and under those for which all
        candidates had files; ``pairs_references.csv`` and ``pairs_candidates.csv`` for ``oracle score``;
        ``repeats.csv``, if studies were shown again; ``notes.json``.

    Raises
    ------
    InputError
        If no rater has finished, or no pair is left.

    Examples
    --------
    >>> candidates = {"strong": "strong.csv", "weak": "weak.csv"}
    >>> options = mo.SurveyOptions(studies=5)
    >>> survey = mo.create_survey("test.csv", candidates, "survey", raters=["ann", "bob"], options=options)
    >>> try:
    ...     mo.export_survey("survey", "export")
    ... except mo.MetricOracleError as error:
    ...     print(error)
    export_survey: there are no finished ratings to export; not finished: ann (120 open cells), bob (120 open cells).
    Wait, or add `partial=True`.
    """
    survey, out = open_survey(folder), Path(out)
    check_folder(out)
    key = read_key(survey)
    reasons = _checked_reasons(leave_out or {}, survey)
    main, again = (list(_pairs(survey, key, is_repeat)) for is_repeat in (False, True))
    answers = _Answers.of(survey, main, reasons, partial)
    pairs = answers.complete(main)
    if not answers.counts or not pairs:
        listed = ", ".join(f"{rater} ({n:,} open cells)" for rater, n in answers.unfinished.items()) or "no rater"
        waiting = "Wait, or add `partial=True`."
        step = "Leave out the raters who have hardly begun, with `leave_out={NAME: REASON}`." if partial else waiting
        raise InputError(f"there are no finished ratings to export; not finished: {listed}.", step)
    layout = _Layout.of(pairs, len({pair.study_id for pair in main}) * len(key["candidates"]))
    repeated = answers.complete(again)
    notes = {
        "survey": survey.fingerprint,
        "exported": datetime.now(UTC).isoformat(timespec="seconds"),
        "made_by": f"metric-oracle {version('metric-oracle')}",
        "raters": list(answers.counts),
        "left_out": reasons,
        "unfinished": {} if partial else answers.unfinished,
        "unsure": answers.unsure,
        "pairs": len(pairs),
        "pairs_left_out": len(main) - len(pairs),
        "studies": len(layout.number_of),
        "repeated_pairs": len(repeated),
        "contradictions": {rater: n for rater, done in answers.counts.items() if (n := _contradictions(pairs, done))},
        "categories": survey.categories,
        **{name: key[name] for name in ("candidates", "sources", "references", "seed", "identical")},
        "order": key.get("order", "shared"),
        "strata": _strata(key),
    }
    tables = {"ratings.csv": _ratings(pairs, answers.counts, list(survey.categories), layout)}
    if repeated:
        tables["repeats.csv"] = _ratings(repeated, answers.counts, list(survey.categories), layout)
    tables |= _texts(pairs, layout, key["candidates"])
    with new_folder(out, 0o700) as temporary:
        for name, columns in tables.items():
            _write_csv(temporary / name, columns)
            sign(temporary / name, {"command": "survey export", **{n: notes[n] for n in ("survey", "made_by")}})
        _scored(pairs, layout.ids(pairs), key).write(temporary / "scores.csv")  # has a signature of its own
        write_sealed(temporary / "notes.json", notes)
        for path in temporary.iterdir():
            path.chmod(0o600)
    return Export(out, notes)


def _checked_reasons(leave_out: Mapping[str, str], survey: Survey) -> dict[str, str]:
    """Return rater -> reason to leave them out; raise InputError for an unknown rater, or without a reason."""
    wrong = [rater for rater, reason in leave_out.items() if rater not in survey.raters or not reason.strip()]
    if wrong:
        value = shown(*wrong[:1]) + (", without a reason" if wrong[0] in survey.raters else "")
        raise InputError(
            "leave_out", f"must name raters of {', '.join(survey.raters)}, each with a reason", value, "Correct it."
        )
    return dict(leave_out)


@dataclass(frozen=True)
class _Answers:
    """What the raters of an export have answered."""

    counts: dict[str, dict[tuple[int, int], Counts]]  # rater -> position of a finished pair -> counts
    unfinished: dict[str, int]  # open cells of the raters who have not finished
    unsure: list[str]  # a sentence for each log that may lack its last saves

    @classmethod
    def of(cls, survey: Survey, pairs: Sequence[_Pair], left_out: Container[str], partial: bool) -> "_Answers":
        """Read the logs of all raters but `left_out`; those who have not finished `pairs` count only if `partial`."""
        histories = {rater: survey.log(rater).read() for rater in survey.raters if rater not in left_out}
        counts = {
            rater: {position: event.counts for position, event in history.latest.items() if not event.open_cells}
            for rater, history in histories.items()
        }
        unfinished = {
            rater: open_cells(survey, histories[rater])
            for rater, done in counts.items()
            if any(pair.position not in done for pair in pairs)
        }
        used = {rater: done for rater, done in counts.items() if partial or rater not in unfinished}
        return cls(used, unfinished, [survey.log(rater).unsure for rater in used if histories[rater].is_unsure])

    def complete(self, pairs: Sequence[_Pair]) -> list[_Pair]:
        """Return those of the pairs that all raters have finished."""
        return [pair for pair in pairs if all(pair.position in done for done in self.counts.values())]


@dataclass(frozen=True)
class _Layout:
    """How the files name studies and pairs."""

    number_of: dict[str, int]  # number of each study
    # Whether every study has every candidate type: the files then are as ReXVal's, which has numbers of studies.
    is_balanced: bool

    @classmethod
    def of(cls, pairs: Sequence[_Pair], n_all: int) -> "_Layout":
        """Return the layout of the exported pairs; `n_all` is the number of studies by that of candidate types."""
        number_of = {study: i for i, study in enumerate(dict.fromkeys(pair.study_id for pair in pairs))}
        return cls(number_of, len(pairs) == n_all)

    def ids(self, pairs: Iterable[_Pair]) -> list[str]:
        """Return "study/candidate type" of each pair, where the study is its number or, if unbalanced, its id."""
        return [
            f"{self.number_of[pair.study_id] if self.is_balanced else pair.study_id}/{pair.candidate}" for pair in pairs
        ]


def _texts(pairs: Sequence[_Pair], layout: _Layout, candidates: Sequence[str]) -> dict[str, dict[str, list[Any]]]:
    """Return the columns of the files with the texts of the pairs, by the name of the file."""
    ids = layout.ids(pairs)
    references, predictions = ([pair.texts[side] for pair in pairs] for side in (0, 1))
    samples = {"pair_id": ids, "reference": references, "prediction": predictions}
    if layout.is_balanced:
        of_study = {pair.study_id: pair.texts[0] for pair in pairs}
        texts = {(pair.study_id, pair.candidate): pair.texts[1] for pair in pairs}
        samples = {"study_id": list(of_study), "gt_report": list(of_study.values())}
        samples |= {name: [texts[study, name] for study in of_study] for name in candidates}
    return {
        "pairs_references.csv": {"query_id": ids, "report": references},
        "pairs_candidates.csv": {"query_id": ids, "report": predictions},
        "samples.csv": samples,
    }


def _strata(key: Mapping[str, Any]) -> dict[str, dict[str, int]] | None:
    """Return stratum -> numbers of drawn and of all studies, with which a mean over all studies is weighted.

    `key` is the content of `key.json`. Return None for a survey without strata.
    """
    if not key.get("strata"):
        return None
    drawn = [study["stratum"] for study in key["studies"] if not study["is_repeat"]]
    return {name: {"drawn": drawn.count(name), "of": n} for name, n in key["strata"].items()}


def _scored(pairs: Sequence[_Pair], ids: Sequence[str], key: Mapping[str, Any]) -> Scores:
    """Score the pairs, whose ids are `ids`, under the metrics that need text alone, and add the scores in the key.

    These are of metrics for which the files of all candidate types had scores, of every pair.
    """
    sides = [Reports(list(ids), [pair.texts[side] for pair in pairs], "survey") for side in (0, 1)]
    scored = score(sides[0], sides[1], system="survey")
    table, given_scores = scored.table, key.get("scores", {})
    position_of_study = {study["study_id"]: i for i, study in enumerate(key["studies"]) if not study["is_repeat"]}
    for metric in next(iter(given_scores.values()), ()):
        if metric not in scored.metrics and all(metric in of_type for of_type in given_scores.values()):
            values = [given_scores[pair.candidate][metric][position_of_study[pair.study_id]] for pair in pairs]
            if None not in values:
                table = table.append_column(metric, pa.array(values, pa.float64()))
    return replace(scored, table=table)


def _pairs(survey: Survey, key: Mapping[str, Any], is_repeat: bool) -> Iterator[_Pair]:
    """Yield the pairs of each study or, if `is_repeat`, of each repeated one, in the order of the key's types."""
    for position, (presented, of_study) in enumerate(zip(survey.studies, key["studies"], strict=True)):
        if of_study["is_repeat"] == is_repeat:
            for name in key["candidates"]:
                if name in of_study["positions"]:
                    i = of_study["positions"][name]
                    yield _Pair(
                        (position, i), of_study["study_id"], name, (presented.reference, presented.candidates[i])
                    )


def _contradictions(pairs: Sequence[_Pair], counts: Mapping[tuple[int, int], Counts]) -> int:
    """Return how often two candidates of a study have equal texts, up to blanks, and different counts.

    `counts` is position of a pair -> counts of one rater.
    """
    groups: dict[tuple[str, str], list[Counts]] = {}
    for pair in pairs:
        groups.setdefault((pair.study_id, " ".join(pair.texts[1].split())), []).append(counts[pair.position])
    return sum(a != b for group in groups.values() for a, b in combinations(group, 2))


def _ratings(
    pairs: Sequence[_Pair],
    counts: Mapping[str, Mapping[tuple[int, int], Counts]],
    labels: Sequence[str],
    layout: _Layout,
) -> dict[str, list[Any]]:
    """Return the columns of the table of ratings, with one row per pair, category, rater and significance.

    `counts` is rater -> position of a pair -> counts, and `labels` are those of the categories. A balanced table has
    ReXVal's columns, with numbers of studies; another one has ids of pairs and studies.
    """
    rows = [
        (pair, label, rater, significant, of_rater[pair.position][category][0 if significant else 1])
        for pair in pairs
        for category, label in enumerate(labels)
        for rater, of_rater in counts.items()
        for significant in (True, False)
    ]
    of_row = [pair for pair, *_ in rows]
    is_balanced = layout.is_balanced
    by_pair = {"pair_id": layout.ids(of_row), "study_id": [pair.study_id for pair in of_row]}
    return {
        **({"study_number": [layout.number_of[pair.study_id] for pair in of_row]} if is_balanced else by_pair),
        "candidate_type": [pair.candidate for pair in of_row],
        "error_category": [label for _, label, *_ in rows],
        "rater_index" if is_balanced else "rater_id": [rater for _, _, rater, *_ in rows],
        "clinically_significant": [str(significant) for *_, significant, _ in rows],
        "num_errors": [count for *_, count in rows],
    }


def _write_csv(path: Path, columns: Mapping[str, list[Any]]) -> None:
    """Write columns, name -> cells, as a CSV file."""
    csv.write_csv(pa.table(dict(columns)), path)
