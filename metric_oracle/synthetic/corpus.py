"""Synthetic chest X-ray impressions with gold RadGraph graphs and gold CheXbert labels.

Credentialed report collections cannot be shipped, so demos, tests and benchmarks use this corpus. It has the properties
of real corpora that matter for retrieval: a few impressions occur very often and many only once, sentences have
Zipf-like frequencies, and texts are short. Graphs and labels are not predicted, but follow from the grammar in
`grammar.toml`.

A report is either drawn from a *stock* of whole impressions, with Zipf-like frequencies, or newly composed. Stock items
depend on the seed alone, so train and test share them; everything else also depends on the split.
"""

from __future__ import annotations

import csv
import json
import math
from bisect import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from metric_oracle.arguments import check_int
from metric_oracle.corpora.vectors import LABELS
from metric_oracle.errors import InputError
from metric_oracle.files import check_new, new_folder
from metric_oracle.progress import Count, Progress, counter
from metric_oracle.synthetic.grammar import IMPRESSIONS
from metric_oracle.synthetic.notation import (
    BLANK,
    POSITIVE,
    PRIORITY,
    SUPPORT_DEVICES,
    UNCERTAIN,
    Part,
    Sentence,
    alternatives_of,
    compile_sentence,
    expand,
    table_of,
)

FIRST_ID = 50_000_000
BLOCK_SIZE = 10_000

# CheXbert's classes as its CSV files write them.
_CELLS = ("", "1.0", "0.0", "-1.0")

# Properties of the corpus. The stock has the hand-written impressions first, then composed ones.
_STOCK_SHARE = 0.40
_STOCK_SIZE = 40_000
_COMMONEST_SHARE = 0.06
_STOCK_EXPONENT = 1.0
_STOCK_LENGTHS = (0.16, 0.32, 0.30, 0.16, 0.06)  # share of reports with 1, 2, ... sentences
_FREE_LENGTHS = (0.08, 0.24, 0.27, 0.20, 0.11, 0.06, 0.03, 0.01)
# Sentence tables, each with its share of the sentences and its position in a report.
_SECTIONS = (
    ("compare", 0.08, 1),
    ("airway", 0.035, 0),
    ("gastric", 0.035, 0),
    ("venous", 0.045, 0),
    ("drained", 0.03, 0),
    ("implanted", 0.03, 1),
    ("finding", 0.385, 1),
    ("uncertain", 0.10, 2),
    ("negative", 0.15, 3),
    ("normal", 0.06, 3),
    ("advice", 0.035, 4),
    ("notice", 0.015, 5),
)
_REPEATABLE_SECTIONS = ("finding", "uncertain", "negative")
_NUMBERED_SHARE = 0.13
_WRAPPED_SHARE = 0.30
_UPPER_SHARE = 0.01
_UNSTOPPED_SHARE = 0.03
_TYPO_SHARE = 0.02
_LINE_WIDTH = 79
# Simulated models: the share of a test report's sentences that each of them reproduces.
MODELS = {"strong": 0.9, "fair": 0.6, "weak": 0.3}


@dataclass(frozen=True)
class SyntheticReport:
    """One impression with its gold graph (PhysioNet schema) and its 14 CheXbert classes."""

    study_id: str
    text: str
    graph: dict[str, Any]
    labels: tuple[int, ...]


class Draft(NamedTuple):
    """One report before it has an id; the graph lacks only its split."""

    text: str
    graph: str
    labels: tuple[int, ...]
    sentences: tuple[Sentence, ...]


# ---- reports ---------------------------------------------------------------------------------------------------------


@cache
def _common_impressions() -> list[list[str]]:
    """Return the hand-written impressions as lists of sentence notations."""
    return [impression.split(" . ") for impression in alternatives_of(IMPRESSIONS)]


@cache
def _section_tables() -> tuple[list[float], list[tuple[str, int, list[tuple[Part, ...]]]]]:
    shares = list(accumulate(share for _, share, _ in _SECTIONS))
    return shares, [(name, position, table_of(name, "")) for name, _, position in _SECTIONS]


@cache
def _stock_shares() -> list[float]:
    """Return the cumulative share of each stock item among all reports."""
    tail = [(rank + 2) ** -_STOCK_EXPONENT for rank in range(_STOCK_SIZE - 1)]
    scale = (_STOCK_SHARE - _COMMONEST_SHARE) / math.fsum(tail)
    return list(accumulate([_COMMONEST_SHARE, *(scale * weight for weight in tail)]))


def drafts_of(seed: int, split: str) -> Iterator[Draft]:
    """Yield an endless sequence of reports for a seed and split."""
    draw = Random(f"{seed}/{split}").random
    shares = _stock_shares()
    stock: dict[int, Draft] = {}  # at most _STOCK_SIZE items, made when first drawn
    while True:
        rank = bisect(shares, draw())
        if rank >= _STOCK_SIZE:
            yield compose(draw, _FREE_LENGTHS)
            continue
        if rank not in stock:
            stock[rank] = _stock_item(seed, rank)
        yield stock[rank]


def _stock_item(seed: int, rank: int) -> Draft:
    common = _common_impressions()
    if rank < len(common):
        return assemble([compile_sentence(notation) for notation in common[rank]])
    return compose(Random(f"{seed}/stock/{rank}").random, _STOCK_LENGTHS)


def compose(draw: Callable[[], float], lengths: tuple[float, ...]) -> Draft:
    """Compose a report: draw sentences on different topics, then the typography."""
    u = draw()
    length = 1
    for share in lengths[:-1]:
        u -= share
        if u < 0:
            break
        length += 1
    is_upper, has_typo = draw() < _UPPER_SHARE, draw() < _TYPO_SHARE
    shares, sections = _section_tables()
    chosen: list[tuple[int, Sentence]] = []
    used: set[str | int] = set()  # sections and labels that occur
    for _ in range(4 * length):
        name, position, table = sections[bisect(shares, draw() * shares[-1])]
        if name in used:
            continue
        words: list[str] = []
        expand(table[int(draw() * len(table))], draw, words)
        if has_typo:
            has_typo = not _misspell(words, draw)
        sentence = compile_sentence(" ".join(_shout(words) if is_upper else words))
        if not sentence.topics.isdisjoint(used):
            continue
        used |= sentence.topics
        if name not in _REPEATABLE_SECTIONS:
            used.add(name)
        chosen.append((position, sentence))
        if len(chosen) == length:
            break
    chosen.sort(key=lambda item: item[0])
    sentences = [sentence for _, sentence in chosen]
    return assemble(
        sentences,
        is_numbered=len(sentences) > 1 and draw() < _NUMBERED_SHARE,
        is_wrapped=draw() < _WRAPPED_SHARE,
        is_stopped=draw() >= _UNSTOPPED_SHARE,
    )


def _misspell(words: list[str], draw: Callable[[], float]) -> bool:
    """Swap two inner letters of one long word, in place; return whether a word was long enough."""
    w = int(draw() * len(words))
    word = words[w]
    letters = word.partition(":")[0]
    if len(letters) < 6 or not letters.isalpha():
        return False
    i = 1 + int(draw() * (len(letters) - 3))
    words[w] = word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    return True


def _shout(words: list[str]) -> list[str]:
    """Return the words in capital letters; the suffix after a colon keeps its case."""
    return [word[:-2].upper() + word[-2:] if word[-2:-1] == ":" else word.upper() for word in words]


def assemble(
    sentences: list[Sentence], *, is_numbered: bool = False, is_wrapped: bool = False, is_stopped: bool = True
) -> Draft:
    """Join sentences into a report: shift their token numbers and entity keys, and combine their labels."""
    texts: list[str] = []
    tokens: list[str] = []
    entities: list[str] = []
    labels = list(sentences[0].labels)
    n_tokens, next_key = 0, 1
    for i, sentence in enumerate(sentences):
        number = f"{i + 1}. " if is_numbered else ""
        if number:
            tokens.append(f"{i + 1} .")
            n_tokens += 2
        texts.append(number + sentence.text)
        if sentence.n_entities:
            numbers = tuple([n + (next_key if is_key else n_tokens) for n, is_key in sentence.numbers])
            entities.append(sentence.entities % numbers)
        tokens.append(sentence.tokens)
        n_tokens += sentence.n_tokens + 1
        next_key += sentence.n_entities
        if i:
            labels = [a if PRIORITY[a] >= PRIORITY[b] else b for a, b in zip(labels, sentence.labels, strict=True)]
        # A sentence that ends in "a.m." needs no further full stop.
        if sentence.text.endswith("."):
            n_tokens -= 1
        elif is_stopped or i + 1 < len(sentences):
            texts[-1] += "."
            tokens.append(".")
    has_finding = any(state in (POSITIVE, UNCERTAIN) for state in labels[:SUPPORT_DEVICES])
    labels[-1] = BLANK if has_finding else POSITIVE
    text = ("\n" if is_numbered and is_wrapped else " ").join(texts)
    graph = f'{{"text": {json.dumps(" ".join(tokens))}, "entities": {{{", ".join(entities)}}}, "data_source": null, '
    return Draft(_wrap(text) if is_wrapped else text, graph, tuple(labels), tuple(sentences))


def _edit(draft: Draft, kept: float, draw: Callable[[], float]) -> Draft:
    """Return a report in which each sentence is kept with probability `kept`, and otherwise replaced or left out."""
    sentences = []
    for sentence in draft.sentences:
        if draw() < kept:
            sentences.append(sentence)
        elif draw() < 0.5:
            sentences += compose(draw, (1.0,)).sentences
    return assemble(sentences or list(compose(draw, (1.0,)).sentences))


def _wrap(text: str) -> str:
    """Break each line at the last blank before the margin; no word of the grammar is longer than a line."""
    lines = []
    for line in text.split("\n"):
        while len(line) > _LINE_WIDTH:
            cut = line.rfind(" ", 0, _LINE_WIDTH + 1)
            lines.append(line[:cut])
            line = line[cut + 1 :]
        lines.append(line)
    return "\n".join(lines)


# ---- writing a corpus ------------------------------------------------------------------------------------------------


def synthesize(
    n_reports: int, *, seed: int = 0, split: str = "train", first_id: int = FIRST_ID
) -> Iterator[SyntheticReport]:
    """Return the first reports of the synthetic corpus of one seed and split, one at a time.

    Parameters
    ----------
    n_reports
        Number of reports, at least 1. A shorter corpus is the beginning of a longer one.
    seed
        Chooses the corpus; train and test of one seed share their common impressions.
    split
        ``"train"`` or ``"test"``: independent draws from the same distribution.
    first_id
        Study id of the first report; the others count up from it.

    Returns
    -------
    Iterator[SyntheticReport]
        Reports with text, gold graph and gold labels.

    Raises
    ------
    InputError
        If `n_reports` or `split` is out of range.
    """
    check_int("n_reports", n_reports, 1, "Pass the number of reports.")
    if split not in ("train", "test"):
        raise InputError("split", 'must be "train" or "test"', repr(split), "Name one of the two.")
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
    """Write a synthetic corpus: reports, gold graphs and gold labels of a train and a test split.

    The files appear in `out` all at once, when the last one is complete; memory does not grow with the corpus.

    Parameters
    ----------
    out
        A new or empty folder.
    n_reports, n_tests
        Number of train and of test reports, at least 1 each.
    seed
        Chooses the corpus; the same seed gives the same bytes.
    models
        Whether to also write the reports of the simulated models in `MODELS` for the test studies.
    errors
        Whether to also write a candidate with errors for every report, and its number of errors of each category, see
        `synthetic.errors`.
    progress
        Called as ``progress("", done, total)`` with numbers of reports.

    Returns
    -------
    dict[str, Path]
        Name -> file. The names are ``train``, ``train_graphs`` and ``train_labels``, likewise for ``test``, for each
        model, and for ``train_candidates`` and ``test_candidates``; the numbers of errors of these candidates are
        ``train_errors`` and ``test_errors``.

    Raises
    ------
    InputError
        If a number is out of range, or `out` exists and is not an empty folder.
    """
    check_int("n_reports", n_reports, 1, "Pass the number of reports.")
    check_int("n_tests", n_tests, 1, "Pass the number of reports.")
    out = Path(out)
    check_new(out, "out")
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
    progress: Count | None = None,
) -> dict[str, str]:
    """Write the files of `write_synthetic` into a folder; return the dict name -> file name."""
    first_test = FIRST_ID + n_reports
    drafts = drafts_of(seed, "train")
    files = write_split(folder, "train", "train", drafts, n_reports, FIRST_ID, progress)
    files |= write_split(folder, "test", "test", drafts_of(seed, "test"), n_tests, first_test, progress)
    for model, kept in MODELS.items() if models else ():
        draw = Random(f"{seed}/{model}").random
        drafts = (_edit(draft, kept, draw) for draft in drafts_of(seed, "test"))
        files |= write_split(folder, model, "test", drafts, n_tests, first_test, progress)
    if errors:
        from metric_oracle.synthetic.errors import write_candidates

        for split, n, first_id in (("train", n_reports, FIRST_ID), ("test", n_tests, first_test)):
            files |= write_candidates(folder, split, seed, n, first_id, progress)
    return files


def write_samples(folder: Path, n_tests: int, n_samples: int, first_id: int, *, seed: int) -> dict[str, str]:
    """Write several samples of a simulated model for each test report; return the dict name -> file name.

    Each sample keeps a random share of the sentences. Its log-probability increases with this share, with noise. One in
    fifty samples is empty, as a failed generation.

    Parameters
    ----------
    folder : path
    n_tests, n_samples : int
    first_id : int
        Study id of the first test report.
    seed : int
        Random seed. The same seed gives the same bytes.
    """
    files = {"samples": "samples.jsonl", "samples_graphs": "samples_graphs.json"}
    draw = Random(f"{seed}/samples").random
    graphs = []
    with open(folder / files["samples"], "w", encoding="utf-8", newline="") as file:
        for study, draft in enumerate(islice(drafts_of(seed, "test"), n_tests), start=first_id):
            texts, logprobs = [], []
            for sample in range(n_samples):
                kept = 0.2 + 0.75 * draw()
                edited = _edit(draft, kept, draw)
                is_failure = draw() < 0.02
                texts.append("" if is_failure else edited.text)
                logprobs.append(round(-20 * (1 - kept) - 12 * draw(), 3))
                if not is_failure:
                    graphs.append(f'"{study}/{sample}": {_graph_json(edited, "test")}')
            file.write(json.dumps({"id": str(study), "candidates": texts, "logprobs": logprobs}) + "\n")
    content = ",\n".join(graphs)
    (folder / files["samples_graphs"]).write_text(f"{{\n{content}\n}}\n", encoding="utf-8")
    return files


def write_split(
    folder: Path, name: str, split: str, drafts: Iterator[Draft], n_reports: int, first_id: int, progress: Count | None
) -> dict[str, str]:
    """Write reports, gold graphs and gold labels; return the dict name -> file name."""
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
        for start in range(0, n_reports, BLOCK_SIZE):
            block = list(islice(drafts, min(BLOCK_SIZE, n_reports - start)))
            ids = range(first_id + start, first_id + start + len(block))
            pairs = list(zip(ids, block, strict=True))
            report_rows.writerows((study_id, draft.text) for study_id, draft in pairs)
            label_rows.writerows((study_id, *[_CELLS[state] for state in draft.labels]) for study_id, draft in pairs)
            graph_file.write(",\n" if start else "\n")
            graph_file.write(",\n".join([f'"{study_id}": {_graph_json(draft, split)}' for study_id, draft in pairs]))
            if progress is not None:
                progress(len(block))
        graph_file.write("\n}\n")
    return files


def _graph_json(draft: Draft, split: str) -> str:
    return f'{draft.graph}"data_split": "{split}"}}'
