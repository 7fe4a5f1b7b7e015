"""Break what grows while work goes on: kept answers of a judge, and logs of a survey; see `benchmarks.faults`."""

import multiprocessing
import random
import resource
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from metric_oracle.base.errors import MetricOracleError
from metric_oracle.judges.judgements import Judgements
from metric_oracle.survey.log import Log

Count = Counter[str]
Told = dict[str, float]  # what was acknowledged: a number by name
LINES = 12


class Answers:
    """Kept answers of a judge in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def append(self, names: list[str], tell: Callable[[str], object], limit: Callable[[], object] = bool) -> None:
        """Keep an answer for each name, whose number `number_of` gives; `tell` is called with what was acknowledged."""
        with Judgements.open(self.folder, "judge", "1") as kept:
            for name in names:
                limit()
                try:
                    kept.add(name, {"score": number_of(name)})
                except OSError:
                    continue
                finally:
                    _unlimited()
                tell(name)

    def read(self) -> Told:
        """Return what the folder has."""
        with Judgements.open(self.folder, "judge", "1") as kept:
            return {name: numbers["score"] for name, numbers in kept.of.items()}

    def file(self) -> Path:
        """Return the file that grows."""
        return max(self.folder.glob("*.jsonl"))


class Saves:
    """The log of a rater."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.log = Log(folder / "anna.jsonl", [1000], 1, "f" * 64)
        if not self.log.path.exists():
            self.log.start()

    def append(self, names: list[str], tell: Callable[[str], object], limit: Callable[[], object] = bool) -> None:
        """Save a count for each name; see `Answers.append`."""
        for name in names:
            asked = {"id": f"save-{name}", "study": 0, "candidate": int(name), "survey": "f" * 64, "base": 0}
            limit()
            try:
                self.log.save({**asked, "counts": [[round(number_of(name) * 90), 0]]})
            except MetricOracleError:
                continue
            finally:
                _unlimited()
            tell(name)

    def read(self) -> Told:
        """Return what the log has."""
        latest = Log(self.log.path, [1000], 1, "f" * 64).read().latest.values()
        return {f"{event.candidate:03}": (event.counts[0][0] or 0) / 90 for event in latest}

    def file(self) -> Path:
        """Return the file that grows."""
        return self.log.path


def number_of(name: str) -> float:
    """Return the number that belongs to a name."""
    return (int(name) * 37 % 90) / 90


def attack(kind: type[Answers | Saves], folder: Path, rng: random.Random, kills: int, flips: int, shorts: int) -> Count:
    """Kill writers, flip bits and cut writes short; count what came of it: "lost", "wrong" and "unclear" are bad."""
    count: Count = Counter()
    for i in range(kills):
        there = kind(folder / f"kill-{i}")
        told = _killed(there, rng)
        count["killed"] += 1
        _compare(there, told, count, may_tell=False)
    whole = kind(folder / "whole")
    told = []
    whole.append([f"{i:03}" for i in range(LINES)], told.append)
    for _ in range(flips):
        shutil.rmtree(folder / "flipped", ignore_errors=True)
        shutil.copytree(whole.folder, folder / "flipped")
        there = kind(folder / "flipped")
        content = bytearray(there.file().read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        there.file().write_bytes(content)
        count["flipped"] += 1
        _compare(there, told, count, may_tell=True)
    for i in range(shorts):
        there = kind(folder / f"short-{i}")
        written: list[str] = []
        there.append([f"{n:03}" for n in range(LINES)], written.append, partial(_limited, there, rng))
        count["cut short"] += LINES - len(written)
        _compare(there, written, count, may_tell=False)
    return count


def _killed(there: Answers | Saves, rng: random.Random) -> list[str]:
    """Let a process append until it is killed at a random moment; return what it acknowledged."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=there.append, args=([f"{i:03}" for i in range(900)], theirs.send)
    )
    process.start()
    theirs.close()
    told = [ours.recv()]
    end = time.monotonic() + rng.uniform(0, 0.1)
    try:
        while time.monotonic() < end:
            told.append(ours.recv())
        process.kill()
        while True:
            told.append(ours.recv())
    except EOFError:
        process.join()
    return told


def _compare(there: Answers | Saves, told: list[str], count: Count, *, may_tell: bool) -> None:
    """Count how what is read differs from what was acknowledged."""
    with warnings.catch_warnings(record=True) as lines:
        warnings.simplefilter("always")
        try:
            found = there.read()
        except MetricOracleError as error:
            count["refused" if may_tell and "\n" not in str(error) else "lost"] += 1
            return
    if any(found[name] != number_of(name) for name in found):
        count["wrong"] += 1
    elif {*told} <= found.keys():
        count["whole"] += 1
    else:
        count["told" if may_tell and len(lines) == 1 else "lost"] += 1


def _limited(there: Answers | Saves, rng: random.Random) -> None:
    """Let the disk be full within the next line, every other time."""
    if rng.random() < 0.5 and [*there.folder.glob("*.jsonl")]:
        most = there.file().stat().st_size + rng.randrange(150)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def _unlimited() -> None:
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
