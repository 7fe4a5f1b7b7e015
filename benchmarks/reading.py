"""How long reports are read, at once and in pieces, and the memory of it: ``python -m benchmarks.reading``."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pyarrow as pa
from pyarrow import csv, parquet

from benchmarks import gate, machine
from benchmarks.data import SEED
from benchmarks.machine import Row
from benchmarks.workloads import FULL_SIZE
from metric_oracle.base.operating_system import peak_memory
from metric_oracle.corpora.reports import read_reports
from metric_oracle.corpora.streams import stream_reports
from metric_oracle.corpora.texts import state_of
from metric_oracle.synthetic.corpus import FIRST_ID
from metric_oracle.synthetic.drafts import drafts_of

KINDS = {"csv": "CSV", "parquet": "Parquet", "jsonl": "JSON Lines"}
PER_PIECE = 1_000_000  # reports, as in the example of `build-index --shard-rows`
DISTINCT = 20_000  # texts that the reports have again and again
_SCHEMA = pa.schema([("study_id", pa.int64()), ("report", pa.string())])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code, 1 if a file was not read as it was written."""
    parser = argparse.ArgumentParser("python -m benchmarks.reading", description=__doc__)
    parser.add_argument("--reports", type=int, default=FULL_SIZE[0], help="of a file that is read whole (%(default)s)")
    parser.add_argument("--largest", type=int, default=10_000_000, help="of one read in pieces (%(default)s)")
    parser.add_argument("--per-piece", type=int, default=PER_PIECE, help="reports to a piece (%(default)s)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=[*KINDS], help="of files")
    parser.add_argument("--repetitions", type=int, default=3, help="of the smaller files (%(default)s)")
    machine.add_out(parser, "reading")
    options = parser.parse_args(arguments)
    results = machine.Results("reading", options.out, seed=SEED)
    drafts = islice(drafts_of(SEED, "train"), min(DISTINCT, options.reports))
    texts = [draft.text for draft in drafts if not state_of(draft.text)]  # blank ones are not read
    return results.measure(_measure(options, texts), "{name}: {value:.2f} s of a processor, {peak_gb:.2f} GB")


def _measure(options: argparse.Namespace, texts: Sequence[str]) -> Iterator[Row]:
    """Yield the rows: each kind of file whole and in pieces, then the largest one in pieces."""
    runs = [(options.reports, 0, options.repetitions), (options.reports, -(-options.reports // 4), options.repetitions)]
    for kind in options.kinds:
        with tempfile.TemporaryDirectory() as folder:
            path = write(Path(folder) / f"reports.{kind}", texts, options.reports)
            for n, per_piece, repetitions in runs:
                yield _row(path, texts, n, per_piece, repetitions)
            if options.largest > options.reports:
                path = write(path, texts, options.largest)
                yield _row(path, texts, options.largest, options.per_piece, 1)


def write(path: Path, texts: Sequence[str], n: int) -> Path:
    """Write a file of n reports, which have the texts again and again, by the ending of its name; return its path."""
    blocks = (range(first, min(first + len(texts), n)) for first in range(0, n, len(texts)))
    tables = (pa.table([[FIRST_ID + i for i in block], texts[: len(block)]], schema=_SCHEMA) for block in blocks)
    if path.suffix == ".jsonl":
        with path.open("w", encoding="utf-8") as file:
            for table in tables:
                file.writelines(f"{json.dumps(row)}\n" for row in table.to_pylist())
        return path
    writer = csv.CSVWriter if path.suffix == ".csv" else parquet.ParquetWriter
    with writer(str(path), _SCHEMA) as file:
        for table in tables:
            file.write_table(table)
    return path


def _row(path: Path, texts: Sequence[str], n: int, per_piece: int, repetitions: int) -> Row:
    """Return one measurement, the least of several; raise GateError unless all characters of all reports were read."""
    load = os.getloadavg()[0]
    command = [sys.executable, "-c", "from benchmarks.reading import read; read()", str(path), str(per_piece)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(machine.ROOT), os.environ.get("PYTHONPATH", "")])}
    found = [
        json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
        for _ in range(repetitions)
    ]
    whole, rest = divmod(n, len(texts))
    written = {"n": n, "characters": whole * sum(map(len, texts)) + sum(map(len, texts[:rest]))}
    if any({name: one[name] for name in written} != written for one in found):
        msg = f"{path.name}: read {found}, written {written}"
        raise gate.GateError(msg)
    kind = path.suffix[1:]
    return {
        "name": f"read-{kind}-{n}{'-in-pieces' * bool(per_piece)}",
        "kind": kind,
        "reports": n,
        "per_piece": per_piece,
        "bytes": path.stat().st_size,
        "value": min(one["cpu_s"] for one in found),
        "unit": "s of a processor",
        "wall_s": min(one["wall_s"] for one in found),
        "peak_gb": max(one["peak"] for one in found) / 1e9,
        "load": load,  # processes that wanted a processor in the minute before
        "repetitions": repetitions,
    }


def read() -> None:
    """Read the file of `sys.argv` in this process, and print what it took and what was read as JSON."""
    path, per_piece = Path(sys.argv[1]), int(sys.argv[2])
    n = characters = 0
    wall, cpu = time.perf_counter(), time.process_time()
    for reports in stream_reports(path, per_piece) if per_piece else [read_reports(path)]:
        n += len(reports.ids)
        characters += sum(map(len, reports.texts))
    took = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall, "peak": peak_memory()}
    print(json.dumps({**took, "n": n, "characters": characters}))


if __name__ == "__main__":
    sys.exit(main())
