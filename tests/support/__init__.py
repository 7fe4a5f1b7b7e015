"""What tests of several folders share: files, refusals, the published tools, how much Hypothesis draws, commands."""

import csv
import json
import os
import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
import pytest
import typer
from hypothesis import settings

from metric_oracle import cli
from metric_oracle.base.validation import name_of_type
from metric_oracle.corpora.entities import TYPES
from metric_oracle.corpora.label_tables import LABELS, read_labels
from metric_oracle.synthetic.corpus import write_synthetic
from support.orders import in_another_order

# Seconds after which a process or a thread counts as one that hangs. Nothing else has a limit on the clock: the slowest
# machine, with all its processors at other work, needs a tenth of it. A run of pytest ends after twice this time.
HANG = 300
# A test of what must not wait for the other end of a pipe: what breaks it hangs, which ends the test, not the run.
AT_ONCE = pytest.mark.timeout(HANG, method="signal")
SECRET = "Zzsecret finding"  # stands for report text, which no message may quote
PROFILES = {
    "ci": settings(deadline=None, derandomize=True, database=None),
    "nightly": settings(deadline=None, derandomize=False, database=None, print_blob=True),
}
NIGHTLY = 20  # times as many examples
PROFILE = os.environ.get("ORACLE_HYPOTHESIS", "ci")


def examples(n: int) -> settings:
    """Return the settings of a property: `n` examples, always the same; ORACLE_HYPOTHESIS=nightly: 20 n, drawn anew."""
    return settings(PROFILES[PROFILE], max_examples=n * (NIGHTLY if PROFILE == "nightly" else 1))


def lacking(reason: str) -> NoReturn:
    """Skip a test for want of published files or tools; with ORACLE_REQUIRE_DATA=1, as in CI, fail instead."""
    if os.environ.get("ORACLE_REQUIRE_DATA") == "1":
        pytest.fail(f"ORACLE_REQUIRE_DATA=1, but {reason}")
    pytest.skip(reason, allow_module_level=True)


def published(name: str) -> ModuleType:
    """Return a module of a published tool; see `lacking` for where there is none."""
    try:
        return import_module(name)
    except ImportError:
        lacking(f"there is no {name}")


def write(path: Path, reports: Mapping[str, str] | Iterable[Iterable[Any]], header=("study_id", "report")) -> Path:
    """Write a CSV of reports by id, or of other rows under another header, and return its path."""
    rows = reports.items() if isinstance(reports, Mapping) else reports
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def write_srr(path: Path, ids: Iterable[str], classes: Iterable[Iterable[int]]) -> Path:
    """Write labels as SRR-BERT has them, a column for each finding with a status, of CheXbert's classes 0 to 3."""
    statuses = ("Present", "Absent", "Uncertain")
    names = [f"{label} ({status})" for label in LABELS for status in statuses]
    rows = [[i, *(int(c == n) for c in some for n in (1, 2, 3))] for i, some in zip(ids, classes, strict=True)]
    return write(path, rows, ("study_id", *names))


def write_partial(path: Path, ids: Iterable[str], classes: Iterable[Iterable[int]]) -> Path:
    """Write labels of any names, of CheXbert's classes 0 to 3: blank and uncertain ones are missing."""
    rows = [[i, *({1: 1, 2: 0}.get(int(c), "") for c in some)] for i, some in zip(ids, classes, strict=True)]
    return write(path, rows, ("study_id", *(f"{label} of any kind" for label in LABELS)))


def write_entities(path: Path, ids: Iterable[str], classes: Iterable[Iterable[int]]) -> Path:
    """Write an entity with a type and a vector for each label of CheXbert's that is not blank, classes 0 to 3."""
    # Above 0, so that no mean of cosines is below it.
    pool = np.random.default_rng(9).uniform(0.01, 1, (len(LABELS), 4, 6)).round(3).tolist()
    records = {}
    for i, some in zip(ids, classes, strict=True):
        found = [(place, int(c)) for place, c in enumerate(some) if c]
        types = [TYPES[(place + c) % len(TYPES)] for place, c in found]
        records[i] = {"types": types, "vectors": [pool[place][c] for place, c in found]}
    path.write_text(json.dumps(records), encoding="utf-8")
    return path


def write_sentences(path: Path, ids: Iterable[str], classes: Iterable[Iterable[int]]) -> Path:
    """Write a sentence vector for each label of CheXbert's that is not blank, classes 0 to 3; many are shared."""
    pool = np.random.default_rng(11).standard_normal((len(LABELS), 4, 5)).round(2).tolist()
    records = {
        i: {"vectors": [pool[place // 2][int(c)] for place, c in enumerate(some) if c]}
        for i, some in zip(ids, classes, strict=True)
    }
    path.write_text(json.dumps(records), encoding="utf-8")
    return path


def write_corpus(folder: Path, n_reports: int, n_tests: int, *, seed: int) -> dict[str, Path]:
    """Write a synthetic corpus and all that metrics read beside the reports; return the paths by side and kind.

    Labels of the test reports stand in another order than these, as to rows and columns.
    """
    paths = write_synthetic(folder / "corpus", n_reports, n_tests, seed=seed)
    rng = np.random.default_rng(seed)
    for side in ("train", "test"):
        labels = read_labels(paths[f"{side}_labels"])
        paths[f"{side}_srr"] = write_srr(folder / f"{side}_srr.csv", labels.ids, labels.values)
        paths[f"{side}_table"] = write_partial(folder / f"{side}_table.csv", labels.ids, labels.values)
        if side == "test":
            for kind in ("labels", "srr", "table"):
                in_another_order(paths[f"{side}_{kind}"]).replace(paths[f"{side}_{kind}"])
        paths[f"{side}_entities"] = write_entities(folder / f"{side}_entities.json", labels.ids, labels.values)
        paths[f"{side}_sentences"] = write_sentences(folder / f"{side}_sentences.json", labels.ids, labels.values)
        # Few distinct vectors, so that scores tie; the last component keeps them from zero.
        vectors = np.c_[labels.values[:, :6], np.ones(len(labels.ids))].astype(np.float32)
        paths[f"{side}_embeddings"] = folder / f"{side}.npz"
        np.savez(
            paths[f"{side}_embeddings"], ids=np.array(labels.ids), embeddings=vectors[rng.permutation(len(vectors))]
        )
    return paths


def beside(corpus: Mapping[str, Path], side: str, uncertain: str = "positive") -> dict[str, Any]:
    """Return the options that name the files beside the reports of one side of `write_corpus`."""
    return {
        "radgraph": corpus[f"{side}_graphs"],
        "chexbert": corpus[f"{side}_embeddings"],
        "embeddings": corpus[f"{side}_embeddings"],
        "chexbert_labels": corpus[f"{side}_labels"],
        "labels": corpus[f"{side}_table"],
        "srr_labels": corpus[f"{side}_srr"],
        "entities": corpus[f"{side}_entities"],
        "sentences": corpus[f"{side}_sentences"],
        "uncertain": uncertain,
    }


def as_opened(index: Any) -> Any:
    """Make the arrays of an index in memory read-only, as those of an opened one are: a device keeps them by identity.

    Returns
    -------
    The index.
    """
    fields = index._asdict() if isinstance(index, tuple) else index if isinstance(index, dict) else vars(index)
    for value in fields.values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
        elif hasattr(value, "_asdict") or isinstance(value, dict):
            as_opened(value)
    return index


def assert_refused(outcome: tuple[int, str, str], match: str, notes: str = r"(?!)") -> None:
    """Assert that a command ended with code 2 and one error line that matches, without report text.

    Parameters
    ----------
    outcome : exit code, stdout, stderr
    match : pattern of the line from its begin, without "error: "
    notes : pattern of lines that may stand before it; by default there are none
    """
    code, out, err = outcome
    assert (code, out) == (2, ""), err
    assert err.endswith("\n")
    *before, line = err[:-1].split("\n")
    assert SECRET.split()[0] not in err
    assert re.match("error: " + match, line), line
    assert all(re.match(notes, note) for note in before), before


def rule_of(kind: Any) -> str:
    """Return, as a pattern, what a message says of a value that is not of an annotated type: "must be an int"."""
    return re.escape(f"must be {name_of_type(kind)}")


def parse_command(words):
    """Parse the words of a command line after `oracle` through the app, without running it."""
    command, path = typer.main.get_command(cli.app), []
    while hasattr(command, "commands"):
        command, path, words = command.get_command(None, words[0]), [*path, words[0]], words[1:]
        assert command is not None, path
    command.make_context(" ".join(path), [*words])
