"""A corpus of real sentences: IU X-ray's findings, and as many more as are asked for, recombined from them.

The files lie beside the repository (CC BY-NC-ND): what is made of them stays in the folder of the benchmarks' data.
"""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.machine import ROOT
from metric_oracle.base.option_types import Section
from metric_oracle.corpora.read import Read
from metric_oracle.corpora.reports import read_reports

SOURCE = ROOT.parent / "shared/data/iu_xray"
# The customary section of this collection; its impressions have eight words, half of them the same.
SECTION: Section = "findings"
SPLITS = {"train": "train+val", "test": "test"}
EXCHANGED = 0.5  # sentences of a recombined report that come from others
_SENTENCE = re.compile(r"(?<=[.?!])\s+")


def write_recombined(folder: Path, n_reports: int, n_tests: int, *, seed: int = 0, source: Path = SOURCE) -> None:
    """Write train.csv and test.csv of R2Gen's split: real reports first, then recombined ones, up to the numbers.

    A recombined report is a real one of its side, each of whose sentences is exchanged, at random, for the sentence at
    the same place of another: lengths, order and frequencies of sentences are the collection's. Test reports are made
    of test reports alone.
    """
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for (side, split), n in zip(SPLITS.items(), (n_reports, n_tests), strict=True):
        real = read_reports(
            source / "indiana_reports.csv", Read(section=SECTION, split=split, split_file=source / "r2gen_split.csv")
        )
        texts = [*real.texts[:n], *recombined(real.texts, n - len(real.texts), rng)]
        with (folder / f"{side}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("study_id", "report"))
            writer.writerows((f"{side}-{i}", text) for i, text in enumerate(texts))


def recombined(texts: Sequence[str], n: int, rng: np.random.Generator) -> list[str]:
    """Return n texts, or none where n is negative, made of the sentences of others."""
    reports = [_SENTENCE.split(text) for text in texts]
    made = []
    for own in rng.integers(len(reports), size=max(n, 0)).tolist():
        sentences = list(reports[own])
        for place in np.flatnonzero(rng.random(len(sentences)) < EXCHANGED).tolist():
            other = reports[int(rng.integers(len(reports)))]
            if place < len(other):
                sentences[place] = other[place]
        made.append(" ".join(sentences))
    return made
