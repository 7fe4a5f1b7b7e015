"""What came of a survey: how far its raters are, and their counts as ``oracle align`` and ``failure-modes`` read them.

An absent answer is never a 0: raters who have not finished are left out and named, or only the pairs count that all
raters finished.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv

from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import InputError, option
from metric_oracle.files import new_folder, write_json
from metric_oracle.retrieval.pairs import score
from metric_oracle.retrieval.results import Scores
from metric_oracle.survey.folder import Survey, open_cells, open_survey, read_key
from metric_oracle.survey.log import Counts, History
from metric_oracle.tables.study_steps import check_folder

_FUNCTION = "export_survey"


@dataclass(frozen=True)
class Export:
    """The folder of an export.

    Attributes
    ----------
    folder : Path
    notes : dict
        What was left out and why, and what the survey was; as in ``notes.json``.
    """

    folder: Path
    notes: dict[str, Any]

    def summary(self) -> str:
        """Return one line: what was exported."""
        n = self.notes
        return f"{n['pairs']} pairs of {n['studies']} studies, {len(n['raters'])} raters: {', '.join(n['raters'])}"

    def warnings(self) -> list[str]:
        """Return a sentence for everything that was left out or does not fit."""
        found = [f"{rater} is left out: {reason}." for rater, reason in self.notes["left_out"].items()]
        found += [f"{rater} is left out: {n:,} cells are open." for rater, n in self.notes["unfinished"].items()]
        if self.notes["pairs_left_out"]:
            found.append(f"{self.notes['pairs_left_out']} pairs are left out: not all raters finished them.")
        found += [
            f"{rater} gave different counts to {n} pairs of identical candidates."
            for rater, n in self.notes["contradictions"].items()
        ]
        return found


@dataclass(frozen=True)
class _Pair:
    """One candidate type of one study: where raters saw it, and what it is."""

    place: tuple[int, int]
    study_id: str
    candidate: str
    texts: tuple[str, str]


def survey_status(folder: str | Path) -> list[dict[str, Any]]:
    """Return how far each rater of a survey has come.

    Parameters
    ----------
    folder : str or path
        Folder of the survey.

    Returns
    -------
    list of dict
        A record for each rater: finished ``studies`` of ``of_studies``, finished ``candidates``, ``open_cells``, the
        number of ``saves``, the time of the last one (None before the first), and ``torn_bytes``, the length of an
        unfinished last line of the log.

    Raises
    ------
    InputError
        If the folder is not a survey, or one of its files was altered.

    Examples
    --------
    >>> candidates = {"strong": "strong.csv", "weak": "weak.csv"}
    >>> survey = mo.create_survey("test.csv", candidates, "survey", raters=["ann", "bob"], studies=5)
    >>> [(record["rater"], record["studies"], record["of_studies"]) for record in mo.survey_status("survey")]
    [('ann', 0, 5), ('bob', 0, 5)]
    """
    survey = open_survey(folder, "survey_status")
    records = []
    for rater in survey.raters:
        history = survey.log(rater).read()
        done = {place for place, event in history.latest.items() if not event.open_cells}
        complete = [
            all((place, i) in done for i in range(len(study.candidates))) for place, study in enumerate(survey.studies)
        ]
        records.append(
            {
                "rater": rater,
                "studies": sum(complete),
                "of_studies": len(survey.studies),
                "candidates": len(done),
                "open_cells": open_cells(survey, history),
                "saves": len(history.by_id),
                "last_save": max((event.time for event in history.by_id.values()), default=None),
                "torn_bytes": history.torn,
            }
        )
    return records


def export_survey(
    folder: str | Path, out: str | Path, *, partial: bool = False, leave_out: Mapping[str, str] | None = None
) -> Export:
    """Write the counts of a survey as tables.

    Parameters
    ----------
    folder : str or path
        Folder of the survey.
    out : str or path
        New folder, which contains report text.
    partial : bool
        Keep raters who have not finished, and only the pairs that all of them have finished.
    leave_out : mapping of str to str, optional
        Rater -> reason for leaving him out, which is written into the notes.

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
        If nobody has finished, or nothing is left.

    Examples
    --------
    >>> candidates = {"strong": "strong.csv", "weak": "weak.csv"}
    >>> survey = mo.create_survey("test.csv", candidates, "survey", raters=["ann", "bob"], studies=5)
    >>> try:
    ...     mo.export_survey("survey", "export")
    ... except mo.MetricOracleError as error:
    ...     print(error)
    export_survey: there are no finished ratings to export; not finished: ann (120 open cells), bob (120 open cells).
    Wait, or add partial=True.
    """
    survey, out = open_survey(folder, _FUNCTION), Path(out)
    check_folder(out, _FUNCTION)
    key = read_key(survey, _FUNCTION)
    reasons = dict(leave_out or {})
    wrong = [rater for rater, reason in reasons.items() if rater not in survey.raters or not reason.strip()]
    if wrong:
        got = shown_names(wrong[:1]) + (", without a reason" if wrong[0] in survey.raters else "")
        raise InputError(
            argument="leave_out",
            rule=f"must name raters of {', '.join(survey.raters)}, each with a reason",
            value=got,
            step="Correct it.",
        )
    main, again = (list(_pairs(survey, key, is_repeat)) for is_repeat in (False, True))
    histories = {rater: survey.log(rater).read() for rater in survey.raters if rater not in reasons}
    counts = {rater: _finished(history) for rater, history in histories.items()}
    unfinished = {
        rater: open_cells(survey, histories[rater])
        for rater, done in counts.items()
        if any(pair.place not in done for pair in main)
    }
    kept = {rater: done for rater, done in counts.items() if partial or rater not in unfinished}
    pairs = [pair for pair in main if all(pair.place in done for done in kept.values())]
    if not kept or not pairs:
        shown = ", ".join(f"{rater} ({n:,} open cells)" for rater, n in unfinished.items()) or "no rater"
        leaving = option("leave_out", "NAME=REASON", python="leave_out={NAME: REASON}")
        step = (
            f"Leave out who has hardly begun with {leaving}." if partial else f"Wait, or add {option('partial', True)}."
        )
        raise InputError(f"there are no finished ratings to export; not finished: {shown}.", step)
    repeated = [pair for pair in again if all(pair.place in done for done in kept.values())]
    is_balanced = len(pairs) == len({pair.study_id for pair in main}) * len(key["candidates"])
    number = {study: place for place, study in enumerate(dict.fromkeys(pair.study_id for pair in pairs))}
    notes = {
        "survey": survey.fingerprint,
        "exported": datetime.now(UTC).isoformat(timespec="seconds"),
        "made_by": f"metric-oracle {version('metric-oracle')}",
        "raters": list(kept),
        "left_out": reasons,
        "unfinished": {} if partial else unfinished,
        "pairs": len(pairs),
        "pairs_left_out": len(main) - len(pairs),
        "studies": len(number),
        "repeated_pairs": len(repeated),
        "contradictions": {rater: n for rater, done in kept.items() if (n := _contradictions(pairs, done))},
        "categories": survey.categories,
        **{name: key[name] for name in ("candidates", "sources", "references", "seed", "identical")},
        "order": key.get("order", "shared"),
        "strata": _strata(key),
    }

    with new_folder(out, 0o700) as beside:
        labels = list(survey.categories)
        _write(beside / "ratings.csv", _ratings(pairs, kept, labels, number, is_balanced))
        if repeated:
            _write(beside / "repeats.csv", _ratings(repeated, kept, labels, number, is_balanced))
        ids = [_pair_id(pair, number, is_balanced) for pair in pairs]
        references, predictions = ([pair.texts[side] for pair in pairs] for side in (0, 1))
        _write(beside / "pairs_references.csv", {"query_id": ids, "report": references})
        _write(beside / "pairs_candidates.csv", {"query_id": ids, "report": predictions})
        samples = {"pair_id": ids, "reference": references, "prediction": predictions}
        if is_balanced:
            of_study = {pair.study_id: pair.texts[0] for pair in pairs}
            texts = {(pair.study_id, pair.candidate): pair.texts[1] for pair in pairs}
            samples = {"study_id": list(of_study), "gt_report": list(of_study.values())}
            samples |= {name: [texts[study, name] for study in of_study] for name in key["candidates"]}
        _write(beside / "samples.csv", samples)
        _scored(pairs, ids, key).write(beside / "scores.csv")
        write_json(beside / "notes.json", notes)
        for path in beside.iterdir():
            path.chmod(0o600)
    return Export(out, notes)


def _strata(key: Mapping[str, Any]) -> dict[str, dict[str, int]] | None:
    """Return of each stratum how many studies were drawn of how many: what weights a mean over all references."""
    if not key.get("strata"):
        return None
    drawn = [study["stratum"] for study in key["studies"] if not study["is_repeat"]]
    return {name: {"drawn": drawn.count(name), "of": n} for name, n in key["strata"].items()}


def _scored(pairs: Sequence[_Pair], ids: Sequence[str], key: Mapping[str, Any]) -> Scores:
    """Return the scores of the pairs: of their texts, and those that came with the candidates where all have them."""
    sides = [Reports(list(ids), [pair.texts[side] for pair in pairs], "survey", {}, {}) for side in (0, 1)]
    found = score(sides[0], sides[1], system="survey")
    table, known = found.table, key.get("scores", {})
    place = {study["study_id"]: i for i, study in enumerate(key["studies"]) if not study["is_repeat"]}
    for metric in next(iter(known.values()), ()):
        if metric not in found.metrics and all(metric in of_type for of_type in known.values()):
            values = [known[pair.candidate][metric][place[pair.study_id]] for pair in pairs]
            if None not in values:
                table = table.append_column(metric, pa.array(values, pa.float64()))
    return replace(found, table=table)


def _pairs(survey: Survey, key: Mapping[str, Any], is_repeat: bool) -> Iterator[_Pair]:
    """Yield the pairs of the studies, or of those that were shown again, in the order of the candidate types."""
    for place, (shown, of_study) in enumerate(zip(survey.studies, key["studies"], strict=True)):
        if of_study["is_repeat"] == is_repeat:
            for name in key["candidates"]:
                if name in of_study["positions"]:
                    i = of_study["positions"][name]
                    yield _Pair((place, i), of_study["study_id"], name, (shown.reference, shown.candidates[i]))


def _finished(history: History) -> dict[tuple[int, int], Counts]:
    return {place: event.counts for place, event in history.latest.items() if not event.open_cells}


def _contradictions(pairs: Sequence[_Pair], counts: Mapping[tuple[int, int], Counts]) -> int:
    """Return how many pairs of candidates of one study have equal texts and other counts."""
    groups: dict[tuple[str, str], list[Counts]] = {}
    for pair in pairs:
        groups.setdefault((pair.study_id, " ".join(pair.texts[1].split())), []).append(counts[pair.place])
    return sum(a != b for group in groups.values() for a, b in combinations(group, 2))


def _pair_id(pair: _Pair, number: Mapping[str, int], is_balanced: bool) -> str:
    return f"{number[pair.study_id] if is_balanced else pair.study_id}/{pair.candidate}"


def _ratings(
    pairs: Sequence[_Pair],
    kept: Mapping[str, Mapping[tuple[int, int], Counts]],
    labels: Sequence[str],
    number: Mapping[str, int],
    is_balanced: bool,
) -> dict[str, list[Any]]:
    """Return the columns of the long table: one row a pair, category, rater and significance."""
    rows = [
        (pair, label, rater, significant, done[pair.place][place][0 if significant else 1])
        for pair in pairs
        for place, label in enumerate(labels)
        for rater, done in kept.items()
        for significant in (True, False)
    ]
    by_pair = {
        "pair_id": [_pair_id(pair, number, is_balanced) for pair, *_ in rows],
        "study_id": [pair.study_id for pair, *_ in rows],
    }
    return {
        **({"study_number": [number[pair.study_id] for pair, *_ in rows]} if is_balanced else by_pair),
        "candidate_type": [pair.candidate for pair, *_ in rows],
        "error_category": [label for _, label, *_ in rows],
        "rater_index" if is_balanced else "rater_id": [rater for _, _, rater, *_ in rows],
        "clinically_significant": [str(significant) for *_, significant, _ in rows],
        "num_errors": [count for *_, count in rows],
    }


def _write(path: Path, columns: Mapping[str, list[Any]]) -> None:
    csv.write_csv(pa.table(dict(columns)), path)
