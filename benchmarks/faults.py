"""Break builds, indexes and journals on purpose, and count what comes of it: ``python -m benchmarks.faults``.

Small sets of shards are built and killed, shared by two writers, built on a disk that fills up; finished ones are
damaged. So are kept answers of judges and logs of surveys, which grow while work goes on. Nothing may be lost, wrong or
hung. Each kind of fault is a row of a JSON Lines file, written when it ends; a run that was stopped goes on with the
same --out.
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import metric_oracle as mo
from benchmarks import machine
from benchmarks.journal_faults import Answers, Saves, attack
from metric_oracle.base.errors import InputError, MetricOracleError
from metric_oracle.bench.timing import timed
from metric_oracle.indexes.index import Index
from metric_oracle.synthetic.corpus import write_synthetic

METRICS = ("bleu", "rouge-l", "radgraph", "chexbert:labels")
REPORTS, TESTS, SHARD_ROWS = 240, 8, 80
PATIENCE = 120.0  # seconds after which a build or a search counts as hung
BAD = ("wrong", "lost", "hung", "unfit", "crashed")  # what must not be counted
Count = Counter[str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the kinds of faults that have no row yet; return the exit code, 1 if anything was lost, wrong or hung."""
    options = _options(arguments)
    results = machine.Results("faults", options.out, resume=True, seed=options.seed)
    known = {row["name"] for row in results.rows}
    with tempfile.TemporaryDirectory() as scratch:
        campaign: Campaign | None = None  # made when a kind needs it
        for kind, run in (*KINDS.items(), *((kind, None) for kind in JOURNALS)):
            n = getattr(options, kind)
            if not n or f"faults-{kind}" in known:
                continue
            begin = time.perf_counter()
            if kind in JOURNALS:
                folder = Path(scratch) / kind
                folder.mkdir()
                count = attack(JOURNALS[kind], folder, random.Random(options.seed), n, 10 * n, n)
            else:
                campaign = campaign or Campaign(Path(scratch), random.Random(options.seed))
                assert run is not None
                count = run(campaign, n)
            row = {"name": f"faults-{kind}", "value": n, "unit": "faults", **dict(sorted(count.items()))}
            row |= {"bad": sum(count[name] for name in BAD), "seconds": time.perf_counter() - begin}
            results.add(row)
            print(", ".join(f"{name} {value}" for name, value in row.items() if name != "unit"), flush=True)
    print(f"rows: {results.path}")
    return int(any(row["bad"] for row in results.rows))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.faults", description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="of builds, with SIGKILL (%(default)s)")
    parser.add_argument("--damages", type=int, default=1000, help="flipped bits and cut files (%(default)s)")
    parser.add_argument("--full", type=int, default=50, help="builds on a disk that fills up (%(default)s)")
    parser.add_argument("--writers", type=int, default=50, help="builds by two processes (%(default)s)")
    of_journals = "50 stand for 50 kills, 500 flips, 50 short writes (%(default)s)"
    parser.add_argument("--answers", type=int, default=50, help=f"kept answers of judges; {of_journals}")
    parser.add_argument("--saves", type=int, default=50, help=f"logs of surveys; {of_journals}")
    parser.add_argument("--seed", type=int, default=0, help="of what is broken when (%(default)s)")
    machine.add_out(parser, "faults")
    return parser.parse_args(arguments)


class Campaign:
    """A small corpus, its set as it must be, and processes that are forked from one that has everything imported."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self.rng = folder, rng
        self.processes = multiprocessing.get_context("forkserver")
        self.processes.set_forkserver_preload(["__main__", "metric_oracle.retrieval.plan"])
        self.corpus = folder / "corpus"
        write_synthetic(self.corpus, REPORTS, TESTS, seed=1)
        code = self.run(build, self.corpus, folder / "right")  # compiles, and keeps that
        code = code or self.run(build, self.corpus, folder / "again")
        if code:
            msg = f"faults: a build without a fault must end well; got exit code {code}."
            raise SystemExit(msg)
        self.right = mo.open_index(folder / "right")
        self.seconds = timed(lambda: self.run(build, self.corpus, folder / "timed"))
        self.answers = answers(self.right, self.corpus)

    def start(self, work: Callable[..., None], *arguments: Any) -> Any:
        """Start a process."""
        process = self.processes.Process(target=work, args=arguments)
        process.start()
        return process

    def run(self, work: Callable[..., None], *arguments: Any) -> int | None:
        """Return the exit code of a process; None if it hung and was killed."""
        return ended(self.start(work, *arguments))

    def new(self) -> Path:
        """Return a folder that is not there."""
        path = self.folder / "set"
        shutil.rmtree(path, ignore_errors=True)
        return path

    def check(self, path: Path, count: Count) -> None:
        """Count a finished set as right, or as wrong."""
        found = mo.open_index(path)
        names = sorted(entry.name for entry in path.iterdir())
        try:
            found.verify_files()
            is_right = found.fingerprint == self.right.fingerprint and answers(found, self.corpus) == self.answers
        except MetricOracleError:
            is_right = False
        is_clean = names == sorted(entry.name for entry in self.right.folder.iterdir())
        count["right" if is_right and is_clean else "wrong"] += 1
        if not (is_right and is_clean):
            print(f"wrong: {'' if is_right else 'other answers or files, '}entries {', '.join(names)}", flush=True)


def build(corpus: Path, out: Path, most: int | None = None) -> None:
    """Build the set; exit code 3 where it refuses in one line. No file may grow beyond `most` bytes."""
    if most is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    try:
        mo.build_index(
            mo.reports(
                corpus / "train.csv",
                radgraph=corpus / "train_graphs.json",
                chexbert_labels=corpus / "train_labels.csv",
                uncertain="positive",
            ),
            out,
            shard_rows=SHARD_ROWS,
            metrics=list(METRICS),
        )
    except InputError as error:
        os._exit(3 if "must be a folder that can be written" in str(error) else 4)


def answers(index: Index, corpus: Path) -> list[Any]:
    """Return what the set answers under each metric."""
    queries = mo.reports(
        corpus / "test.csv",
        radgraph=corpus / "test_graphs.json",
        chexbert_labels=corpus / "test_labels.csv",
        uncertain="positive",
    ).load()
    return [mo.retrieve(index, queries, metric, k=3, threads=1).table.to_pydict() for metric in METRICS]


def ended(process: Any) -> int | None:
    """Return the exit code of a process; None if it hung."""
    process.join(PATIENCE)
    if process.exitcode is None:
        process.kill()
        process.join()
        return None
    return process.exitcode


# ---- kinds of faults -------------------------------------------------------------------------------------------------


def kills(campaign: Campaign, n: int) -> Count:
    """Kill builds at random moments, again and again, until one ends; finished shards must stay as they are."""
    count: Count = Counter()
    path = campaign.new()
    while count["killed"] < n:
        before = finished(path)
        process = campaign.start(build, campaign.corpus, path)
        process.join(campaign.rng.uniform(0, 1.2 * campaign.seconds))
        if process.exitcode is None:
            process.kill()
            process.join()
            count["killed"] += 1
            count["lost"] += sum(finished(path).get(shard) != stamp for shard, stamp in before.items())
        if process.exitcode == 0 or count["killed"] == n:
            resume(campaign, path, count)
            path = campaign.new()
    return count


def resume(campaign: Campaign, path: Path, count: Count) -> None:
    """Let a build end, if it has not, and count how the set is."""
    if not (path / "set.json").exists():
        code = campaign.run(build, campaign.corpus, path)
        count["resumed"] += 1
        if code != 0:
            count["hung" if code is None else "unfit"] += 1
            return
    campaign.check(path, count)


def finished(path: Path) -> dict[str, tuple[int, int]]:
    """Return the finished shards: inode and time of their manifests."""
    manifests = [shard / "manifest.json" for shard in path.glob("shard-?????")]
    found = [(manifest.parent.name, manifest.stat()) for manifest in manifests if manifest.exists()]
    return {name: (status.st_ino, status.st_mtime_ns) for name, status in found}


def writers(campaign: Campaign, n: int) -> Count:
    """Let two processes build one set; one of them is killed every other time."""
    count: Count = Counter()
    for i in range(n):
        path = campaign.new()
        first, second = (campaign.start(build, campaign.corpus, path) for _ in range(2))
        if i % 2:
            first.join(campaign.rng.uniform(0, 1.2 * campaign.seconds))
            if first.exitcode is None:
                first.kill()
                count["killed"] += 1
        codes = [ended(first), ended(second)]
        count["hung"] += codes.count(None)
        # Who comes when all is done finds the folder there, and says so.
        count["late"] += codes.count(4)
        resume(campaign, path, count)
    return count


def full(campaign: Campaign, n: int) -> Count:
    """Let builds meet the end of the room for a file; with room the same command must end well."""
    count: Count = Counter()
    largest = max(file.stat().st_size for file in campaign.right.folder.rglob("*") if file.is_file())
    for _ in range(n):
        path = campaign.new()
        code = campaign.run(build, campaign.corpus, path, campaign.rng.randrange(1, largest))
        names = {0: "fitted", 3: "refused", None: "hung"}
        count[names.get(code, "crashed")] += 1
        resume(campaign, path, count)
    return count


def damages(campaign: Campaign, n: int) -> Count:
    """Flip a bit, or cut a file, of a finished set: it must be found by opening and searching, or else by the check.

    Where a fault keeps size and time of the file, as a failing disk may, only the check reads all bytes.
    """
    count: Count = Counter()
    path = campaign.new()
    shutil.copytree(campaign.right.folder, path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    results = campaign.folder / "results"
    begun = 0
    while begun < n:
        results.write_text("")
        seed = campaign.rng.randrange(2**32)
        code = campaign.run(damage, (campaign.corpus, campaign.answers), path, files, n - begun, seed, results)
        found = [json.loads(line) for line in results.read_text().splitlines()]
        count.update(kind for kind, _ in found)
        for kind, what in found:
            if kind in BAD:
                print(f"{kind}: {what}", flush=True)
        begun += len(found)
        if code != 0:  # the fault under way ended the process
            count["hung" if code is None else "crashed"] += 1
            begun += 1
            shutil.rmtree(path)
            shutil.copytree(campaign.right.folder, path)
    return count


def damage(campaign: tuple[Path, list[Any]], path: Path, files: list[Path], n: int, seed: int, results: Path) -> None:
    """Make faults one after another in a process of their own, and note what became of each."""
    corpus, right = campaign
    rng = random.Random(seed)
    with results.open("a") as noted:
        for _ in range(n):
            file = rng.choice(files)
            content, status = file.read_bytes(), file.stat()
            is_kept = False
            if rng.random() < 0.5 and content:
                place = rng.randrange(len(content))
                changed = bytearray(content)
                changed[place] ^= 1 << rng.randrange(8)
                file.write_bytes(changed)
                is_kept = rng.random() < 0.5
                if is_kept:
                    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
            else:
                file.write_bytes(content[: rng.randrange(max(len(content), 1))])
            what = f"{file.relative_to(path)}, {len(content)} bytes, time kept: {is_kept}"
            noted.write(json.dumps([outcome(path, corpus, right, is_kept), what]) + "\n")
            noted.flush()
            file.write_bytes(content)
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def outcome(path: Path, corpus: Path, right: list[Any], is_kept: bool) -> str:
    """Return what becomes of a damaged set."""
    try:
        found = mo.open_index(path)
        given = None if is_kept else answers(found, corpus)
    except MetricOracleError:
        return "refused"
    try:
        found.verify_files()
    except MetricOracleError:
        return "checked" if given in (None, right) else "wrong"
    return "harmless" if answers(found, corpus) == right else "wrong"


KINDS: dict[str, Callable[[Campaign, int], Count]] = {
    "kills": kills, "writers": writers, "full": full, "damages": damages
}  # fmt: skip
JOURNALS: dict[str, type[Answers | Saves]] = {"answers": Answers, "saves": Saves}


if __name__ == "__main__":
    sys.exit(main())
