import errno
import fcntl
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.base.files import sync
from metric_oracle.corpora.reports import Reports
from metric_oracle.findings.results import AFTER, FIXED, Results, Scores, read_results, read_scores
from metric_oracle.findings.writing import check_out
from support import AT_ONCE, HANG
from support.power import Power, kinds_of

ENDINGS = (".parquet", ".csv", ".jsonl")
ODD = [
    "", " a ", "007", "1.0", "NA", "null", "true", "a,b", 'quote"', "'", "line\nbreak", "carriage\r\nreturn", "\r",
    "tab\t",    "\u2028", "\x85", "\x1b[31m", "[red]", "\u202e", "é" * 50, "日本", "=1+1", "-", "\ufeff",
]  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return results whose ids and texts are as odd as they can be."""
    corpus = Reports(ODD, [f"text {i} {odd}" for i, odd in enumerate(ODD)], "test")
    index = mo.build_index(corpus, tmp_path_factory.mktemp("index") / "I")
    queries = Reports([odd + "q" for odd in ODD], [f"text {i}" for i in range(len(ODD))], "test")
    return mo.retrieve(index, queries, "bleu", k=2)


def same(table):
    """Return the rows of a table, for comparison across string types."""
    return table.to_pylist()


@pytest.mark.parametrize("ending", [*ENDINGS, ".JSONL", ".Csv"])
def test_round_trip_with_odd_ids_and_texts(results, tmp_path, ending):
    path = tmp_path / f"r{ending}"
    results.write(path)
    again = read_results(path)
    assert same(again.table) == same(results.table)
    assert again.signature == results.signature
    assert again.components == results.components == ["precision_1", "precision_2", "brevity_penalty"]
    wanted = {path.name, f"{path.name}.signature.json"} if ending.lower() != ".parquet" else {path.name}
    assert set(os.listdir(tmp_path)) == wanted


@pytest.mark.parametrize("ending", ENDINGS)
def test_power_cut(results, tmp_path, monkeypatch, ending):
    """A name never stands for a file that is not on the disk, and what was announced is there."""
    root = tmp_path / "root"
    root.mkdir()
    name = f"r{ending}"
    results.write(root / name)
    with monkeypatch.context() as patch:
        power = Power(patch, root)
        for path in (*root.iterdir(), root):  # the old files are on the disk
            sync(path)
        cuts, replace = [], Path.replace

        def replaced(self, target):
            found = replace(self, target)
            if target == root / name:
                cuts.append(tmp_path / f"cut{len(cuts)}")
                power.cut(cuts[-1], kinds_of(root), {path.name: path.stat().st_ino for path in root.iterdir()})
            return found

        patch.setattr(Path, "replace", replaced)
        new = Results(results.table.slice(2), results.signature)
        new.write(root / name)
        cuts.append(tmp_path / "announced")
        power.cut(cuts[-1], kinds_of(root))
    assert len(cuts) == 2
    for cut in cuts:
        assert same(read_results(cut / name).table) == same(new.table)


def test_columns(results):
    names = [*FIXED, "precision_1", "precision_2", "brevity_penalty", *AFTER, "text"]
    assert results.table.column_names == names


def test_signature_says_how_to_do_it_again(results):
    names = "metric options source tool direction representation index backend k ties version references stages"
    assert list(results.signature) == [*names.split(), "closest_call"]
    assert json.loads(json.dumps(results.signature)) == results.signature


@pytest.mark.parametrize("ending", ENDINGS)
def test_long_reports_come_back(tmp_path, ending):
    corpus = Reports(["a", "b"], ["long " * 500_000, "short"], "test")
    index = mo.build_index(corpus, tmp_path / "I", metrics=["bleu"])
    found = mo.retrieve(index, ["long long", "short"], "bleu")
    found.write(tmp_path / f"r{ending}")
    assert same(read_results(tmp_path / f"r{ending}").table) == same(found.table)


@pytest.mark.parametrize("ending", ENDINGS)
def test_scores_keep_every_bit(results, tmp_path, ending):
    scores = np.random.default_rng(0).random(results.table.num_rows)
    scores[:4] = 0.0, 1.0, 5e-324, 1 / 3
    table = results.table.set_column(4, "score", pa.array(scores))
    Results(table, results.signature).write(tmp_path / f"r{ending}")
    assert read_results(tmp_path / f"r{ending}").table["score"].to_pylist() == scores.tolist()


# Where results may go


@pytest.mark.parametrize("name", ["r", "r.txt", "r.json", "r.csv.gz", ".csv"])
def test_unknown_ending(results, tmp_path, name):
    with pytest.raises(
        InputError, match=r"^Results\.write: out must end with .parquet, .csv or .jsonl; got .*\. Name one of th"
    ):
        results.write(tmp_path / name)
    assert not os.listdir(tmp_path)


def test_missing_folder(results, tmp_path):
    with pytest.raises(
        InputError, match=r"^Results\.write: out must be in an existing folder; got .*no/r.csv\. Make the folder"
    ):
        results.write(tmp_path / "no/r.csv")


def test_folder_in_the_way(results, tmp_path):
    (tmp_path / "r.csv").mkdir()
    with pytest.raises(
        InputError, match=r"^Results\.write: out must be a file; got the folder .*r.csv\. Name a file in it\.$"
    ):
        results.write(tmp_path / "r.csv")


def test_out_that_is_an_input(tmp_path):
    path = tmp_path / "test.csv"
    path.write_text("mine")
    (tmp_path / "link.csv").symlink_to(path)
    for out in (path, tmp_path / "link.csv"):
        match = rf"^out must be another file than the inputs; got {out}, which is one\. Name another file\.$"
        with pytest.raises(InputError, match=match):
            check_out(out, [tmp_path / "absent", path])


@pytest.mark.parametrize("name", ["idf.csv", "queries.csv", "w.csv.signature.json", "r.csv.signature.json"])
def test_out_that_harms_an_input(tmp_path, name):
    """Tables of weights, queries, and the signature files that inputs have and that a CSV result gets."""
    (tmp_path / name).write_text("mine")
    if name == "idf.csv":
        out, given = name, name
    elif name == "queries.csv":
        out, given = "Q.csv", name
        (tmp_path / "Q.csv").hardlink_to(tmp_path / name)
    elif name == "w.csv.signature.json":
        out, given = name, "w.csv"
    else:
        out, given = "r.csv", name
    inputs = [None, "tests", "", str(tmp_path / given)]
    with pytest.raises(InputError, match=r"^out must be another file than the inputs; got .*, which is one.*\. Name"):
        check_out(tmp_path / out, inputs, endings=(".csv", ".json"))
    check_out(tmp_path / "other.csv", inputs, endings=(".csv", ".json"))


@pytest.mark.parametrize("given", [".", "/", "..", "./"])
def test_an_input_without_a_name_harms_no_output(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    check_out(Path("r.csv"), [given, Path(given)])


@pytest.mark.parametrize("shard_rows", [None, 10])
def test_out_in_an_index(results, tmp_path, monkeypatch, shard_rows):
    """Whatever the path says, and below the index too; a set of shards is an index."""
    index = tmp_path / "I"
    mo.build_index(Reports(["a", *ODD], ["text"] * (len(ODD) + 1), "test"), index, shard_rows=shard_rows)
    (tmp_path / "link").symlink_to(index)
    before = sorted(index.rglob("*"))
    monkeypatch.chdir(index)
    below = next(path for path in before if path.is_dir())
    for path in (index / "r.csv", tmp_path / "link/r.csv", Path("r.csv"), below / "r.parquet"):
        with pytest.raises(
            InputError,
            match=rf"^Results\.write: out must be outside of an index; got {path}, which is in the index /.*I",
        ):
            results.write(path)
    assert sorted(index.rglob("*")) == before
    results.write(tmp_path / "r.csv")
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    results.write(tmp_path / "r.csv")


@AT_ONCE
def test_out_that_is_no_regular_file(results, tmp_path):
    (tmp_path / "target.csv").write_text("mine")
    (tmp_path / "link.csv").symlink_to(tmp_path / "target.csv")
    (tmp_path / "dangling.csv").symlink_to(tmp_path / "absent")
    (tmp_path / "beside.csv.signature.json").symlink_to(tmp_path / "target.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    before = sorted(os.listdir(tmp_path))
    for name in ("link", "dangling", "beside", "pipe"):
        match = (
            r"^Results\.write: out must be a new name or a regular file; got .*, a link, pipe or device\. Name another"
        )
        with pytest.raises(InputError, match=match):
            results.write(tmp_path / f"{name}.csv")
    assert sorted(os.listdir(tmp_path)) == before
    assert (tmp_path / "target.csv").read_text() == "mine"


KILLED = """
import os, sys
from pathlib import Path
from metric_oracle.findings.results import Results, read_results
found = read_results(sys.argv[1])
renames = 0
replace = Path.replace
def counted(self, target):
    global renames
    if renames == int(sys.argv[3]):
        os._exit(9)
    renames += 1
    return replace(self, target)
Path.replace = counted
Results(found.table, {**found.signature, "n": sys.argv[2]}).write(sys.argv[1])
"""


@pytest.mark.parametrize("with_checksum", [True, False])
def test_a_kill_between_the_renames_of_a_csv_loses_no_pair(results, tmp_path, with_checksum):
    path = tmp_path / "r.csv"
    first = Results(results.table.slice(0, 4), results.signature)
    seen = []
    for renames in range(4):
        Results(first.table, {**results.signature, "n": "old"}).write(path)
        if not with_checksum:  # as version 0.1 wrote it
            (tmp_path / "r.csv.signature.json").write_text(json.dumps({**results.signature, "n": "old"}))
        for n in ("new", "newer"):  # the second finds what the first left
            child = [sys.executable, "-c", KILLED, str(path), n, str(renames)]
            code = subprocess.run(child, check=False, timeout=HANG).returncode
            assert code == (9 if renames < 3 else 0)
            again = read_results(path)
            assert same(again.table) == same(first.table)
            assert list(again.signature) == [*results.signature, "n"]
            seen.append(again.signature["n"])
            left = {name for name in os.listdir(tmp_path) if name.endswith(".tmp")}
            assert bool(left) == (renames < 3)
        first.write(path)
        assert sorted(os.listdir(tmp_path)) == ["r.csv", "r.csv.signature.json"]
        fields = list(json.loads((tmp_path / "r.csv.signature.json").read_text()))
        assert fields == [*results.signature, "table_sha256", "signature_sha256"]
    # The same table bears either signature: what counts is that one is always there.
    assert seen[:2] == ["old", "old"]
    assert seen[-2:] == ["new", "newer"]


def test_a_kill_between_the_renames_keeps_the_signature_of_the_old_table(results, tmp_path):
    path = tmp_path / "r.csv"
    old = Results(results.table.slice(0, 4), {**results.signature, "k": 1})
    old.write(path)
    replace = Path.replace

    def failing(self, target):
        if Path(target) == path:
            raise KeyboardInterrupt
        return replace(self, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", failing)
        with pytest.raises(KeyboardInterrupt):
            results.write(path)
    again = read_results(path)
    assert same(again.table) == same(old.table)
    assert again.signature == old.signature
    results.write(path)
    assert read_results(path).signature == results.signature


def test_a_table_beside_the_signature_of_another_is_named(results, tmp_path):
    path = tmp_path / "r.csv"
    results.write(path)
    path.write_bytes(path.read_bytes().replace(b"1.0", b"0.9", 1))
    match = (
        rf"^read_results: results must be the table that its signature was written for; got {path}, altered or of "
        r"another time than r\.csv\.signature\.json\. Write it again\.$"
    )
    with pytest.raises(InputError, match=match):
        read_results(path)
    results.write(path)
    assert read_results(path).signature == results.signature


def flips(content, n, seed=0):
    """Yield copies of some bytes with one bit flipped, of n bits drawn at random."""
    for bit in np.random.default_rng(seed).permutation(8 * len(content))[:n].tolist():
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bytes(flipped)


@pytest.mark.parametrize("n_rows", [4, 48])
def test_a_flipped_bit_of_a_parquet_file_changes_no_number(results, tmp_path, n_rows):
    """Of the data, the headers of the pages, the statistics and the signature: it is refused, or changes nothing."""
    path = tmp_path / "r.parquet"
    written = Results(results.table.slice(0, n_rows), results.signature)
    written.write(path)
    wanted = same(read_results(path).table)
    refused = 0
    for content in flips(path.read_bytes(), 1500):
        path.write_bytes(content)
        try:
            again = read_results(path)
        except InputError:
            refused += 1
        else:
            assert (same(again.table), again.signature) == (wanted, written.signature)
    assert refused > 500


@pytest.mark.parametrize("name", ["score", "candidate_id", "signature"])
def test_an_altered_parquet_file_is_refused(results, tmp_path, name):
    """By a program that writes Parquet well: the checksums of the pages fit, those of the result do not."""
    path = tmp_path / "r.parquet"
    results.write(path)
    table = parquet.read_table(path)
    if name == "signature":
        kept = table.schema.metadata[b"metric_oracle.signature"].replace(b"bleu-2", b"bleu-3")
        table = table.replace_schema_metadata({"metric_oracle.signature": kept})
    else:
        values = table[name].to_pylist()
        values[0] = values[1] = "b" if name == "candidate_id" else 0.25
        place = table.column_names.index(name)
        table = table.set_column(place, table.schema.field(name), pa.array(values, table.schema.field(name).type))
    parquet.write_table(table, path, write_page_checksum=True)
    match = (
        rf"^read_results: results must be as `mo\.retrieve` wrote it; got {path}, which was altered\. Write it again\.$"
    )
    with pytest.raises(InputError, match=match):
        read_results(path)


@pytest.mark.parametrize(("before", "after"), [(None, 0.0), (0.0, None), (None, 0.5), (0.5, None)])
def test_a_score_that_appears_or_disappears_is_noticed(tmp_path, before, after):
    """A pair that could not be scored has no score, which is another thing than the score 0."""
    path = tmp_path / "s.parquet"
    made = mo.score({"a": "no edema", "b": "edema"}, {"a": "no edema", "b": "edema"}, "rouge-l")

    def holding(value):
        return made.table.set_column(1, "rouge-l", pa.array([1.0, value]))

    Scores(holding(before), made.signature).write(path)
    assert read_scores(path).table["rouge-l"].to_pylist() == [1.0, before]
    kept = parquet.read_schema(path)
    parquet.write_table(holding(after).cast(kept), path, write_page_checksum=True)
    match = rf"^read_scores: scores must be as `mo\.score` wrote it; got {path}, which was altered\. "
    with pytest.raises(InputError, match=match):
        read_scores(path)


@pytest.mark.parametrize("ending", ENDINGS)
def test_results_of_earlier_versions_are_read(results, tmp_path, ending):
    """0.2 wrote no checksum into Parquet, and none of the signature beside a CSV file."""
    path = tmp_path / f"r{ending}"
    results.write(path)
    if ending == ".parquet":
        old = {"metric_oracle.signature": json.dumps(results.signature)}
        parquet.write_table(results.table.replace_schema_metadata(old), path)
    else:
        beside = tmp_path / f"r{ending}.signature.json"
        record = json.loads(beside.read_text())
        del record["signature_sha256"]
        beside.write_text(json.dumps(record))
    again = read_results(path)
    assert same(again.table) == same(results.table)
    assert again.signature == results.signature


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("representation", True), ("representation", {"ngrams": 3}), ("index", 10**11), ("metric", ["bleu-2"]),
        ("options", "x"), ("direction", True), ("references", 1), ("draws", "3"), ("draws", True), ("stages", [1]),
        ("closest_call", {"filter": [1]}), ("stages", {"scored": True}),
        ("foreign", "x"), ("metrics", {"bleu-2": 1}),
    ],
)  # fmt: skip
def test_a_field_of_another_type_is_named(results, tmp_path, field, value):
    """As a program may write it that computes no checksum."""
    path = tmp_path / "r.csv"
    results.write(path)
    beside = tmp_path / "r.csv.signature.json"
    record = {**json.loads(beside.read_text()), field: value}
    del record["signature_sha256"]
    beside.write_text(json.dumps(record))
    match = (
        r"^read_results: results must be a file that `mo\.retrieve` wrote, .*; got .*, in whose signature "
        rf"'{field}' has another type"
    )
    with pytest.raises(InputError, match=match):
        read_results(path)
    beside.write_text(json.dumps({**record, field: None}))
    read_results(path)


@pytest.mark.parametrize("draws", [1, 4, 10**11, 0, -2])
def test_a_number_of_draws_that_the_rows_do_not_have(results, tmp_path, draws):
    """There are two answers to each query: other draws would be averaged over several queries."""
    path = tmp_path / "r.csv"
    Results(results.table, {**results.signature, "draws": 2}).write(path)
    read_results(path)
    Results(results.table, {**results.signature, "draws": draws}).write(path)
    with pytest.raises(InputError, match=FOREIGN):
        read_results(path)


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_a_flipped_bit_of_a_signature_file_changes_nothing(results, tmp_path, ending):
    path = tmp_path / f"r{ending}"
    results.write(path)
    beside = tmp_path / f"r{ending}.signature.json"
    refused = 0
    for content in flips(beside.read_bytes(), 1000):
        beside.write_bytes(content)
        try:
            again = read_results(path)
        except InputError:
            refused += 1
        else:
            assert {name: again.signature.get(name) for name in results.signature} == results.signature
    assert refused > 800


@pytest.mark.parametrize("ending", ENDINGS)
def test_leftovers_of_killed_writers_go(results, tmp_path, ending):
    path = tmp_path / f"r[1]{ending}"
    of_another = tmp_path / f".r1{ending}.123.tmp"
    held, dead = (tmp_path / f".r[1]{ending}.{pid}.tmp" for pid in (4_000_001, 4_000_002))
    for file in (held, dead, of_another):
        file.write_text("half")
    with held.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        results.write(path)
    signature = set() if ending == ".parquet" else {f"{path.name}.signature.json"}
    wanted = {path.name, held.name, of_another.name} | signature
    assert set(os.listdir(tmp_path)) == wanted
    results.write(path)
    assert set(os.listdir(tmp_path)) == wanted - {held.name}


@pytest.mark.parametrize("ending", ENDINGS)
def test_files_of_a_user_beside_ours_stay(results, tmp_path, ending):
    """Only a name with a number in it is that of a writer."""
    path = tmp_path / f"r{ending}"
    names = [f".{path.name}.{middle}.tmp" for middle in ("mine", "", "12a", "1.2", "-1")]
    for name in names:
        (tmp_path / name).write_text("a user's")
    for _ in range(2):
        results.write(path)
        assert {name: (tmp_path / name).read_text() for name in names} == dict.fromkeys(names, "a user's")


@pytest.mark.parametrize("ending", ENDINGS)
def test_full_disk_leaves_the_old_file(results, tmp_path, ending):
    path = tmp_path / f"r{ending}"
    results.write(path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    shorter = Results(results.table.slice(0, 4), {**results.signature, "k": 9})
    for n in range(1, 100):
        count = 0

        class File(io.FileIO):
            def write(self, content):
                nonlocal count
                count += 1
                if count == n:  # noqa: B023
                    super().write(bytes(content)[: len(content) // 2])
                    raise OSError(errno.ENOSPC, "No space left on device")
                return super().write(content)

        def opened(path, mode="r", *args, encoding=None, **kwargs):
            if "r" in mode:
                return open(path, mode, *args, encoding=encoding, **kwargs)
            return File(path, "w") if "b" in mode else io.TextIOWrapper(File(path, "w"), encoding=encoding)

        said = ""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "open", opened)
            try:
                shorter.write(path)
            except InputError as error:
                said = str(error)
        if not said:
            break
        assert said == f"Results.write: {path} cannot be written (No space left on device). Name another file."
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    assert n > 1
    assert read_results(path).signature["k"] == 9


def test_a_file_of_the_user_beside_is_left_alone(results, tmp_path):
    (tmp_path / "r.csv.tmp").write_text("mine")
    results.write(tmp_path / "r.csv")
    assert (tmp_path / "r.csv.tmp").read_text() == "mine"


# Reading


def test_absent_file(tmp_path):
    for path in (tmp_path / "r.csv", tmp_path):
        match = (
            rf"^read_results: results must be an existing file; got (the folder )?{path}\. "
            r"Write one with `mo\.retrieve`\.$"
        )
        with pytest.raises(InputError, match=match):
            read_results(path)


FOREIGN = (
    r"^read_results: results must be a file that `mo\.retrieve` wrote, with its signature; got .*, which is another "
    r"file or damaged\. Write it again with `mo\.retrieve`\.$"
)


@pytest.mark.parametrize("ending", [*ENDINGS, ".txt", ""])
@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"a,b\n1,2\n", bytes(range(256)), b"{}", b"[]", b"5\n5", b"[" * 10_000, b"PAR1", b'{"signature":5}'],
)
def test_foreign_files(tmp_path, ending, content):
    path = tmp_path / f"r{ending}"
    path.write_bytes(content)
    (tmp_path / f"r{ending}.signature.json").write_text("{}")
    with pytest.raises(InputError, match=FOREIGN):
        read_results(path)


@pytest.mark.parametrize("ending", ENDINGS)
def test_file_without_signature(results, tmp_path, ending):
    path = tmp_path / f"r{ending}"
    if ending == ".parquet":
        parquet.write_table(results.table, path)
    else:
        results.write(path)
        (tmp_path / f"r{ending}.signature.json").unlink()
    match = rf"^read_results: results must be a file .*; got .* without r{ending}\.signature\.json\. Copy both, or "
    with pytest.raises(InputError, match=FOREIGN if ending == ".parquet" else match):
        read_results(path)


@pytest.mark.parametrize("ending", ENDINGS)
def test_file_cut_inside_a_row(results, tmp_path, ending):
    path = tmp_path / f"r{ending}"
    results.write(path)
    raw = path.read_bytes()
    path.write_bytes(raw[: -len(raw) // 10])
    if ending == ".csv":
        path.write_bytes(raw[: raw.rindex(b",")])
    with pytest.raises(InputError, match=FOREIGN):
        read_results(path)
    if ending != ".parquet":  # a cut between rows
        path.write_bytes(raw[: raw.rindex(b"\n", 0, -1) + 1])
        with pytest.raises(
            InputError, match=rf"must be the table that its signature was written for; got .*r\{ending}, alter"
        ):
            read_results(path)


@pytest.mark.parametrize("column", [*FIXED, *AFTER])
def test_column_that_lacks_or_holds_something_else(results, tmp_path, column):
    path = tmp_path / "r.parquet"
    place = results.table.column_names.index(column)
    rows = results.table.num_rows
    for table in (
        results.table.drop_columns([column]),
        results.table.set_column(place, column, pa.nulls(rows, results.table[column].type)),
        results.table.set_column(place, column, pa.array([[1]] * rows)),
    ):
        Results(table, results.signature).write(path)
        with pytest.raises(InputError, match=FOREIGN):
            read_results(path)


def test_processes_that_read_parquet_end_well(results, tmp_path):
    """A Python file in the hands of Arrow aborted one in ten short processes at their end."""
    path = tmp_path / "r.parquet"
    results.write(path)
    code = "import sys; from metric_oracle.findings.results import read_results; read_results(sys.argv[1])"
    for _ in range(4):
        running = [
            subprocess.Popen([sys.executable, "-c", code, str(path)], stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        for process in running:
            said = process.communicate(timeout=HANG)[1]
            assert (said, process.returncode) == ("", 0)


@AT_ONCE
def test_a_pipe_as_signature_is_refused_at_once(results, tmp_path):
    results.write(tmp_path / "r.csv")
    (tmp_path / "r.csv.signature.json").unlink()
    os.mkfifo(tmp_path / "r.csv.signature.json")
    with pytest.raises(InputError, match=FOREIGN):
        read_results(tmp_path / "r.csv")


def test_unreadable_file_is_not_called_foreign(results, open_folder, request):
    for ending in ENDINGS:
        results.write(open_folder / f"r{ending}")
        (open_folder / f"r{ending}").chmod(0)
    request.getfixturevalue("unprivileged")
    for ending in ENDINGS:
        match = (
            rf"^read_results: files and folders must be open to this user, .*; got .*r{ending} \(Permission denied\)\."
        )
        with pytest.raises(InputError, match=match):
            read_results(open_folder / f"r{ending}")


# Scores of pairs


@pytest.fixture
def scores():
    sides = [Reports(ODD[1:], [side + odd for odd in ODD[1:]], "test") for side in ("a ", "b ")]
    found = mo.score(*sides, ["bleu-2", "rouge-l"], text=True)
    holes = pa.array([None, 0.1 + 0.2, *found.table["bleu-2"].to_pylist()[2:]])
    return Scores(found.table.set_column(1, "bleu-2", holes), found.signature)


@pytest.mark.parametrize("ending", ENDINGS)
def test_scores_come_back(scores, tmp_path, ending):
    path = tmp_path / f"s{ending}"
    scores.write(path)
    again = read_scores(path)
    assert same(again.table) == same(scores.table)
    assert again.table.schema.types == scores.table.schema.types
    assert again.signature == scores.signature
    assert again.metrics == ["bleu-2", "rouge-l"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_columns_of_nothing_but_null_come_back(scores, tmp_path, ending):
    table = scores.table.set_column(1, "bleu-2", pa.nulls(scores.table.num_rows, pa.float64()))
    Scores(table, scores.signature).write(tmp_path / f"s{ending}")
    again = read_scores(tmp_path / f"s{ending}")
    assert same(again.table) == same(table)
    assert again.table.schema.field("bleu-2").type == pa.float64()


def test_published_names_are_for_csv(scores, tmp_path):
    path = tmp_path / "s.csv"
    scores.write(path, published_names=True)
    names = path.read_text("utf-8").split("\n", 1)[0].replace('"', "").split(",")
    assert names[:3] == ["study_id", "report", "bleu_score"]
    assert set(names[3:]) == {n for n in scores.table.column_names if n not in ("query_id", "prediction", "bleu-2")}
    with pytest.raises(
        InputError, match=r"^Scores\.write: out must end with \.csv; got .*s\.jsonl\. Name such a file\.$"
    ):
        scores.write(tmp_path / "s.jsonl", published_names=True)
    with pytest.raises(InputError, match=r"^read_scores: scores must be a file that `mo\.score` wrote, with its sig"):
        read_scores(path)


@pytest.mark.parametrize("ending", ENDINGS)
def test_files_that_hold_no_scores(results, scores, tmp_path, ending, monkeypatch):
    missing = scores.table.set_column(1, "bleu-2", pa.array([float("nan")] * scores.table.num_rows))
    Scores(missing, scores.signature).write(tmp_path / f"missing{ending}")
    assert read_scores(tmp_path / f"missing{ending}").table["bleu-2"].null_count == missing.num_rows
    monkeypatch.setattr("metric_oracle.findings.writing.without_nan", lambda table: table)  # as others write
    path = tmp_path / f"s{ending}"
    foreign = (
        r"^read_scores: scores must be a file that `mo\.score` wrote, with its signature; got .*, which is another "
    )
    absent = r"^read_scores: scores must be an existing file; got .*\. Write one with `mo\.score`\."
    with pytest.raises(InputError, match=absent):
        read_scores(path)
    results.write(path)
    with pytest.raises(InputError, match=foreign):
        read_scores(path)
    columns = scores.table
    for table, signature in (
        (columns.drop_columns(["bleu-2"]), scores.signature),
        (columns.select([0, 2, 1, *range(3, columns.num_columns)]), scores.signature),
        (columns.set_column(1, "bleu-2", pa.array(["x"] * columns.num_rows)), scores.signature),
        (columns.set_column(1, "bleu-2", pa.array([float("inf")] * columns.num_rows)), scores.signature),
        (columns.set_column(1, "bleu-2", pa.array([float("nan")] * columns.num_rows)), scores.signature),
        (columns, {**scores.signature, "kind": "results"}),
        (columns, {**scores.signature, "metrics": {**scores.signature["metrics"], "radgraph": {}}}),
    ):
        Scores(table, signature).write(path)
        with pytest.raises(InputError, match=foreign):
            read_scores(path)
    scores.write(path)
    with pytest.raises(InputError, match=FOREIGN):
        read_results(path)


@pytest.mark.parametrize("ending", ENDINGS)
def test_scores_that_cannot_be_written(scores, tmp_path, ending):
    for path, match in (
        (tmp_path / "s.txt", r"^Scores\.write: out must end with .parquet, .csv or .jsonl; got"),
        (tmp_path / f"no/s{ending}", r"^Scores\.write: out must be in an existing folder; got"),
    ):
        with pytest.raises(InputError, match=match):
            scores.write(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space")))
        with pytest.raises(InputError, match=r"^Scores\.write: .* cannot be written \(No space\)\. Name another"):
            scores.write(tmp_path / f"s{ending}")
    assert not os.listdir(tmp_path)
