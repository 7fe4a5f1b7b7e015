"""Writes a synthetic corpus: chest X-ray impressions with gold RadGraph graphs and gold CheXbert labels.

Credentialed report collections cannot be shipped, so demos, tests and benchmarks use this corpus. It has the properties
of real corpora that matter for retrieval: a few impressions occur very often and many only once, sentences have
Zipf-like frequencies, and texts are short. Graphs and labels are not predicted, but follow from the grammar in
`grammar.toml`.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from metric_oracle.base.argument_checks import check_in_range, check_new_folder, check_one_of
from metric_oracle.base.errors import InputError
from metric_oracle.base.files import new_folder
from metric_oracle.base.progress import Advance, Progress, counter
from metric_oracle.corpora.label_tables import LABELS
from metric_oracle.synthetic.drafts import Draft, drafts_of, edited
from metric_oracle.synthetic.wrong_reports import with_errors

FIRST_ID = 50_000_000
BLOCK_SIZE = 10_000

# CheXbert's classes as its CSV files write them.
_CELLS = ("", "1.0", "0.0", "-1.0")
_RATINGS_HEADER = ("study_id", "error_category", "rater_index", "clinically_significant", "num_errors")
# Simulated models: the share of a test report's sentences that each of them reproduces.
MODELS = {"strong": 0.9, "fair": 0.6, "weak": 0.3}


@dataclass(frozen=True)
class SyntheticReport:
    """One impression with its gold graph and gold labels."""

    study_id: str
    text: str
    graph: dict[str, Any]  # in PhysioNet's schema
    labels: tuple[int, ...]  # the 14 CheXbert classes, in the order of `corpora.label_tables.LABELS`


def synthesize(
    n_reports: int, *, seed: int = 0, split: str = "train", first_id: int = FIRST_ID
) -> Iterator[SyntheticReport]:
    """Return an iterator over the first reports of the corpus of a seed and split ("train" or "test").

    A shorter corpus is the beginning of a longer one. Both splits of a seed share their common impressions. The first
    report has the study id `first_id`; the others count up from it.
    """
    check_in_range("n_reports", n_reports, ge=1, step="Pass the number of reports.")
    check_one_of("split", split, ("train", "test"))
    drafts = islice(drafts_of(seed, split), n_reports)
    return (
        SyntheticReport(str(study_id), draft.text, json.loads(_graph_json(draft, split)), draft.labels)
        for study_id, draft in enumerate(drafts, start=first_id)
    )


def write_synthetic(
    out: Path,
    n_reports: int,
    n_tests: int,
    *,
    seed: int = 0,
    models: bool = False,
    errors: bool = False,
    progress: Progress | None = None,
) -> dict[str, Path]:
    """Write reports, gold graphs and gold labels of a train and a test split; return the files by name.

    `out` must be new or an empty folder. Its files appear all at once, when the last one is complete; memory does not
    grow with the corpus. `models` adds the reports of `MODELS` for the test studies, `errors` a candidate with errors
    for every report, see `wrong_reports`. `progress` is called as ``progress("", done, total)`` with numbers of
    reports. The names are ``train``, ``train_graphs`` and ``train_labels``, likewise for ``test``, for each model, and
    for ``train_candidates`` and ``test_candidates``; the errors of these are ``train_errors`` and ``test_errors``.
    """
    check_in_range("n_reports", n_reports, ge=1, step="Pass the number of reports.")
    check_in_range("n_tests", n_tests, ge=1, step="Pass the number of reports.")
    out = Path(out)
    check_new_folder("out", out, may_be_empty=True)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{out} cannot be made: a file is in the way.", "Name another folder.") from None
    with new_folder(out) as folder:
        n = n_reports + n_tests * (1 + len(MODELS) * models) + (n_reports + n_tests) * errors
        count = counter(progress, "", n)
        files = write_corpus(folder, n_reports, n_tests, seed=seed, models=models, errors=errors, progress=count)
    return {name: out / file for name, file in files.items()}


def write_corpus(
    folder: Path,
    n_reports: int,
    n_tests: int,
    *,
    seed: int,
    models: bool = False,
    errors: bool = False,
    progress: Advance | None = None,
) -> dict[str, str]:
    """Write the files of `write_synthetic` into a folder; return name -> file name. `progress` counts reports."""
    train, test = Split("train", n_reports, FIRST_ID), Split("test", n_tests, FIRST_ID + n_reports)
    files = write_split(folder, "train", train, drafts_of(seed, "train"), progress)
    files |= write_split(folder, "test", test, drafts_of(seed, "test"), progress)
    for model, share in MODELS.items() if models else ():
        draw = Random(f"{seed}/{model}").random
        drafts = (edited(draft, share, draw) for draft in drafts_of(seed, "test"))
        files |= write_split(folder, model, test, drafts, progress)
    if errors:
        for split in (train, test):
            files |= _write_candidates(folder, split, seed, progress)
    return files


def write_samples(folder: Path, n_tests: int, n_samples: int, first_id: int, *, seed: int) -> dict[str, str]:
    """Write `n_samples` samples of a simulated model for each test report, and their graphs; return name -> file name.

    Each sample keeps a random share of the sentences. Its log-probability increases with this share, with noise. One in
    fifty samples is empty, as a failed generation, and has no graph. `first_id` is that of the first test report.
    """
    files = {"samples": "samples.jsonl", "samples_graphs": "samples_graphs.json"}
    draw = Random(f"{seed}/samples").random
    graphs = []
    with open(folder / files["samples"], "w", encoding="utf-8", newline="") as file:
        for study, draft in enumerate(islice(drafts_of(seed, "test"), n_tests), start=first_id):
            texts, logprobs = [], []
            for sample in range(n_samples):
                share = 0.2 + 0.75 * draw()
                written = edited(draft, share, draw)
                is_failure = draw() < 0.02
                texts.append("" if is_failure else written.text)
                logprobs.append(round(-20 * (1 - share) - 12 * draw(), 3))
                if not is_failure:
                    graphs.append(f'"{study}/{sample}": {_graph_json(written, "test")}')
            file.write(json.dumps({"id": str(study), "candidates": texts, "logprobs": logprobs}) + "\n")
    content = ",\n".join(graphs)
    (folder / files["samples_graphs"]).write_text(f"{{\n{content}\n}}\n", encoding="utf-8")
    return files


@dataclass(frozen=True)
class Split:
    """A split of the corpus."""

    name: str  # "train" or "test"
    n_reports: int
    first_id: int  # ids count up from it


def write_split(
    folder: Path, name: str, split: Split, drafts: Iterator[Draft], progress: Advance | None = None
) -> dict[str, str]:
    """Write the next reports of `drafts`, as many as `split` has, with graphs and labels; return name -> file name.

    The files are called after `name`; the graphs say that the reports are of the split. `progress` is called with the
    number of reports of each block.
    """
    files = {name: f"{name}.csv", f"{name}_graphs": f"{name}_graphs.json", f"{name}_labels": f"{name}_labels.csv"}
    with (
        open(folder / files[name], "w", encoding="utf-8", newline="") as report_file,
        open(folder / files[f"{name}_graphs"], "w", encoding="utf-8", newline="") as graph_file,
        open(folder / files[f"{name}_labels"], "w", encoding="utf-8", newline="") as label_file,
    ):
        report_rows = csv.writer(report_file, lineterminator="\n")
        report_rows.writerow(["study_id", "report"])
        label_rows = csv.writer(label_file, lineterminator="\n")
        label_rows.writerow(["study_id", *LABELS])
        graph_file.write("{")
        for start in range(0, split.n_reports, BLOCK_SIZE):
            block = list(islice(drafts, min(BLOCK_SIZE, split.n_reports - start)))
            ids = range(split.first_id + start, split.first_id + start + len(block))
            pairs = list(zip(ids, block, strict=True))
            report_rows.writerows((study_id, draft.text) for study_id, draft in pairs)
            label_rows.writerows((study_id, *[_CELLS[state] for state in draft.labels]) for study_id, draft in pairs)
            graph_file.write(",\n" if start else "\n")
            graph_file.write(
                ",\n".join([f'"{study_id}": {_graph_json(draft, split.name)}' for study_id, draft in pairs])
            )
            if progress is not None:
                progress(len(block))
        graph_file.write("\n}\n")
    return files


def _write_candidates(folder: Path, split: Split, seed: int, progress: Advance | None) -> dict[str, str]:
    """Write the candidates with errors of a split, and their error counts; return name -> file name.

    They are of the split of the corpus of `seed`. The counts are written as the ratings of one rater, all of them
    significant, which align, fit-composite and train-crepe read.
    """
    name = f"{split.name}_errors"
    with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_RATINGS_HEADER)

        def drafts() -> Iterator[Draft]:
            candidates = with_errors(drafts_of(seed, split.name), seed, split.name)
            for study_id, candidate in enumerate(candidates, start=split.first_id):
                for category, n in enumerate(candidate.counts, start=1):
                    writer.writerows(
                        ((study_id, category, "gold", "true", n), (study_id, category, "gold", "false", 0))
                    )
                yield candidate.draft

        files = write_split(folder, f"{split.name}_candidates", split, drafts(), progress)
    return {**files, name: f"{name}.csv"}


def _graph_json(draft: Draft, split: str) -> str:
    """Return the graph of a draft as JSON, completed by its split."""
    return f'{draft.graph}"data_split": "{split}"}}'
