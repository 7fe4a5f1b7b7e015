"""Sets of shards on disk: built, shared, killed and resumed; what is wrong with one is one line."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import IndexFormatError, InputError
from metric_oracle.base.files import checksum
from metric_oracle.base.job import Job
from metric_oracle.base.locks import exclusive
from metric_oracle.indexes import build, shard_build, shards
from metric_oracle.indexes.shard_build import SharedInputs, Slice, build_set
from metric_oracle.indexes.shards import NAME, PLAN, ShardSet, shard_name
from support import HANG, write
from support.power import Power, kinds_of

METRIC = "temporal"  # the least to build and search
WORDS = ("new", "stable", "worse", "no", "edema")


def texts(n):
    rng = np.random.default_rng(4)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 4))) for _ in range(n)]


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "reports.csv", {f"r{i}": text for i, text in enumerate(texts(23))})


def killed(*given):
    raise KeyboardInterrupt


def make(table, folder, **options):
    return mo.build_index(table, folder / "set", metrics=METRIC, **{"shard_rows": 10, **options})


def test_a_set_says_what_its_shards_hold(table, tmp_path):
    found, one = make(table, tmp_path), mo.build_index(table, tmp_path / "one", metrics=METRIC)
    assert isinstance(found, ShardSet)
    assert found.n_shards == 3
    assert sorted(path.name for path in found.folder.iterdir()) == [NAME, *map(shard_name, range(3))]
    assert [entry["first_row"] for entry in found.content["shards"]] == [0, 10, 20]
    assert found.n_reports == 23
    assert found.metrics == one.metrics == [METRIC]
    assert found.content["representations"][METRIC]["rows"] == 23
    frequent = max(one.distinct.to_pylist(), key=lambda text: (text["multiplicity"], -text["first_row"]))
    assert found.content["most_frequent"] == {METRIC: frequent["first_row"]}
    rows = np.array([22, 0, 9, 10, 10, 3])
    for column in ("study_id", "text"):
        assert found.take(column, rows).to_pylist() == one.take(column, rows).to_pylist()
    assert found.take("text", rows[:0]).to_pylist() == []
    assert repr(found) == f"<ShardSet {found.folder}: 23 reports in 3 shards, {found.fingerprint[:12]}>"
    again = mo.open_index(tmp_path / "set")
    again.verify_files()
    assert again.fingerprint == found.fingerprint == make(table, tmp_path / "other").fingerprint
    queries = mo.reports(texts(30)[23:]).load()
    assert mo.retrieve(again, queries, METRIC, k=12).table.equals(mo.retrieve(one, queries, METRIC, k=12).table)


def test_what_killed_workers_were_writing_is_removed(table, tmp_path, monkeypatch):
    """Seen once in 200 kills: a worker died after it had written a file beside, before it renamed it."""
    folder, replace = tmp_path / "set", Path.replace
    for i, name in enumerate((PLAN, NAME)):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", lambda a, b, name=name: killed() if name in b.name else replace(a, b))
            with pytest.raises(KeyboardInterrupt):
                make(table, tmp_path)
        assert [*folder.glob(f".{name}.*.tmp")] == []  # an interruption leaves none, a kill does
        (folder / f".{name}.{i}.tmp").write_text("half")
    make(table, tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == [NAME, *map(shard_name, range(3))]


def test_reports_in_memory_and_prepared_ones_are_cut_the_same(table, tmp_path):
    streamed = make(table, tmp_path)
    held = mo.read_reports(table)
    one = mo.build_index(table, tmp_path / "one", metrics=METRIC)
    for name, given in (("memory", held), ("prepared", one)):
        assert make(given, tmp_path / name).fingerprint == streamed.fingerprint
    n_shards = mo.build_index(table, tmp_path / "single", metrics=METRIC, shard_rows=100).n_shards
    assert n_shards == 1


def test_power_cut(table, tmp_path, monkeypatch):
    """When the set is announced, all of it is on the disk."""
    root = tmp_path / "root"
    root.mkdir()
    with monkeypatch.context() as patch:
        power = Power(patch, root)
        many = make(table, root)
        power.cut(tmp_path / "cut", kinds_of(root))
    left = mo.open_index(tmp_path / "cut/set")
    left.verify_files()
    assert left.fingerprint == many.fingerprint


@pytest.mark.usefixtures("fake_encoder")
def test_token_frequencies_count_reports_that_stand_twice(tmp_path):
    """Rows, not distinct texts: those of a set are those of one index, and so are the answers."""
    corpus = ["no edema", "no edema", "heart size", "no edema", "no effusion", "heart size", "edema"]
    one = mo.build_index(mo.reports(corpus, encoder="bert"), tmp_path / "one", metrics="bertscore")
    many = mo.build_index(mo.reports(corpus, encoder="bert"), tmp_path / "set", metrics="bertscore", shard_rows=3)
    assert many.n_shards == 3
    n_rows, frequency = many.token_frequency("bertscore")
    assert n_rows == len(corpus)
    assert frequency.tolist() == one.part("bertscore").frequency.tolist()
    asked = ["no edema now", "heart"]
    found, expected = (
        mo.retrieve(index, asked, "bertscore", k=3, options=mo.SearchOptions(idf="corpus")).table
        for index in (many, one)
    )
    assert found.equals(expected)


def test_the_files_of_every_shard_are_read(table, tmp_path):
    many = make(table, tmp_path)
    assert many.n_shards == 3
    many.verify_files()
    for shard in many.shards():
        path = shard.folder / "reports.arrow"
        held = path.read_bytes()
        path.write_bytes(held[:-1] + bytes([held[-1] ^ 1]))
        with pytest.raises(mo.MetricOracleError, match=r"^.*reports\.arrow"):
            mo.open_index(many.folder).verify_files()
        path.write_bytes(held)


def test_many_shards_are_opened_in_turn(table, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "OPEN", 2)
    found = make(table, tmp_path, shard_rows=3)
    one = mo.build_index(table, tmp_path / "one", metrics=METRIC)
    assert found.n_shards == 8
    for k in (1, 23):
        a, b = (mo.retrieve(index, ["new edema", "stable"], METRIC, k=k) for index in (found, one))
        assert a.table.equals(b.table)
    assert len(found._open_shards) == 2


def test_a_killed_build_goes_on(table, tmp_path, monkeypatch):
    made = []
    real = shard_build.build_index

    def counted(inputs, out, **options):
        made.append(out.name)
        if len(made) == 2:
            raise KeyboardInterrupt
        return real(inputs, out, **options)

    monkeypatch.setattr(shard_build, "build_index", counted)
    with pytest.raises(KeyboardInterrupt):
        make(table, tmp_path)
    with pytest.raises(
        IndexFormatError,
        match=r"^open_index: index must be finished; got .*, a set of shards whose build is running",
    ):
        mo.open_index(tmp_path / "set")
    found = make(table, tmp_path)
    assert made == [shard_name(0), shard_name(1), shard_name(1), shard_name(2)]
    assert found.fingerprint == make(table, tmp_path / "other").fingerprint
    with pytest.raises(InputError, match=r"^build_index: out must be a new folder; got .*, which exists\."):
        make(table, tmp_path, shard_rows=11)


def test_a_worker_may_start_when_the_set_is_finished(table, tmp_path, monkeypatch):
    first = make(table, tmp_path)
    monkeypatch.setattr(shard_build, "build_index", None)  # nothing is built again
    assert make(table, tmp_path).manifest == first.manifest


def test_a_kill_before_the_manifest_costs_nothing(table, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(shard_build, "write_set", killed)
        with pytest.raises(KeyboardInterrupt):
            make(table, tmp_path)
    monkeypatch.setattr(shard_build, "build_index", None)  # nothing is built again
    assert make(table, tmp_path).n_shards == 3


def test_workers_share_the_work(table, tmp_path):
    # One of them may finish the set before the other has started.
    build = "import sys; import metric_oracle as mo; mo.build_index(*sys.argv[1:], metrics='temporal', shard_rows=3)"
    command = [sys.executable, "-c", build, table, tmp_path / "set"]
    workers = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    for worker in workers:
        assert (worker.communicate(timeout=HANG)[1], worker.returncode) == (b"", 0)
    found = mo.open_index(tmp_path / "set")
    assert found.fingerprint == make(table, tmp_path / "other", shard_rows=3).fingerprint
    assert sorted(path.name for path in found.folder.iterdir()) == [NAME, *map(shard_name, range(8))]


def test_a_worker_that_comes_too_late_leaves_no_folder(table, tmp_path, monkeypatch):
    """Another worker finishes a shard just before this one makes the folder to build it in."""
    finished = make(table, tmp_path / "other").folder / shard_name(1)
    mkdir = Path.mkdir

    def late(folder, *given, **options):
        if folder.name == shard_name(1) + build.BUILDING:
            finished.rename(folder.with_name(shard_name(1)))
        mkdir(folder, *given, **options)

    monkeypatch.setattr(Path, "mkdir", late)
    found = make(table, tmp_path)
    assert not finished.exists()
    assert sorted(path.name for path in found.folder.iterdir()) == [NAME, *map(shard_name, range(3))]


def test_what_another_worker_left_is_taken_over(table, tmp_path, monkeypatch):
    building = tmp_path / "set" / (shard_name(1) + build.BUILDING)
    with monkeypatch.context() as patch:
        patch.setattr(shard_build, "write_set", killed)
        with pytest.raises(KeyboardInterrupt):
            make(table, tmp_path)
    shutil.rmtree(tmp_path / "set" / shard_name(1))
    building.mkdir()
    other = exclusive(building, "build")
    other.__enter__()
    waited = []

    def sleep(seconds):
        waited.append(seconds)
        if len(waited) == 3:
            other.__exit__(None, None, None)

    monkeypatch.setattr(shard_build.time, "sleep", sleep)
    assert make(table, tmp_path).n_shards == 3
    assert len(waited) == 3


def test_another_command_is_no_worker(table, tmp_path, monkeypatch):
    monkeypatch.setattr(shard_build, "write_set", killed)
    with pytest.raises(KeyboardInterrupt):
        make(table, tmp_path)
    match = (
        r"^build_index: out must be a new folder, or an unfinished set of the same reports, files and options; got .*, "
        r"which was begun w"
    )
    for given, options in ((table, {"shard_rows": 11}), (mo.reports(table, mo.Read(keep_empty=True)), {})):
        with pytest.raises(InputError, match=match):
            make(given, tmp_path, **options)
    for damaged in ("{", (tmp_path / "set" / PLAN).read_text().replace("made_of", "made_in")):
        (tmp_path / "set" / PLAN).write_text(damaged)
        with pytest.raises(InputError, match=match):
            make(table, tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes").touch()
    with pytest.raises(InputError, match=r"^build_index: out must be a new folder; got .*, which exists\."):
        mo.build_index(table, tmp_path / "folder", shard_rows=3)
    for wrong in (0, True, "3"):
        rule = r"^build_index: shard_rows must be an int of at least 1( or None)?; got "
        with pytest.raises(InputError, match=rule):
            make(table, tmp_path, shard_rows=wrong)


def test_of_two_plans_at_one_moment_one_begins(table, tmp_path, monkeypatch):
    """Another worker begins another set in the same new folder, after this one has found it empty."""
    lock = shard_build.only_writer

    def late(path):
        Job(path.parent, path.name).claim(NAME, made_of="another set")
        return lock(path)

    monkeypatch.setattr(shard_build, "only_writer", late)
    with pytest.raises(
        InputError, match=r"^build_index: out must be a new folder, or an unfinished .*, which was begun"
    ):
        make(table, tmp_path)
    assert Job(tmp_path / "set", PLAN).pieces[NAME].made_of == "another set"
    assert [path.name for path in (tmp_path / "set").iterdir()] == [PLAN]


def test_a_finished_shard_of_other_reports_is_refused(table, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(shard_build, "write_set", killed)
        with pytest.raises(KeyboardInterrupt):
            make(table, tmp_path)
    first, second = (tmp_path / "set" / shard_name(place) for place in (0, 1))
    ids = mo.open_index(second).reports["study_id"].to_pylist()
    shutil.rmtree(second)
    for put in (
        lambda: shutil.copytree(first, second),
        lambda: mo.build_index(dict.fromkeys(ids, "Other words."), second, metrics=["rouge-l"]),
    ):
        put()
        with pytest.raises(InputError, match=r"^.*shard-00001 must hold the reports of this shard; got other r"):
            make(table, tmp_path)
        shutil.rmtree(second)


def test_shards_must_agree(table, tmp_path):
    inputs = mo.reports(table).load()
    half = [inputs.take(np.arange(0, 12)), inputs.take(np.arange(12, 23))]

    def built(name, parts, metrics=None):
        slices = [Slice(p.ids, p.texts, lambda *beside, p=p: p) for p in parts]
        return build_set(lambda: slices, tmp_path / name, name, SharedInputs(metrics=metrics))

    doubled = replace(half[1], ids=["r3", *half[1].ids[1:]])
    match = r"^reports must have unique ids over all shards; got 'r3' in shard-00000 and shard-00001\."
    with pytest.raises(InputError, match=match):
        built("doubled", [half[0], doubled], metrics=[METRIC])
    labels = [
        mo.reports(
            mo.Reports.from_texts(p.texts, p.ids), chexbert_labels=np.ones((len(p.ids), 14), int), uncertain=how
        ).load()
        for p, how in zip(half, ("positive", "blank"), strict=True)
    ]
    match = r"^shards of .* must be built .* with the same options; got other uncertain of labels in shard-00001 "
    with pytest.raises(InputError, match=match):
        built("labels", labels, metrics=["chexbert:labels"])


def test_a_set_that_was_changed_is_refused(table, tmp_path):
    folder = make(table, tmp_path).folder
    right = json.loads((folder / NAME).read_text())

    def opened(content, match, *, key="content"):
        (folder / NAME).write_text(json.dumps(content) if isinstance(content, dict) else content)
        with pytest.raises(IndexFormatError, match=match):
            mo.open_index(folder)

    opened("{", r"^open_index: set\.json in .* is not that of a set of shards\.")
    opened({**right, "format_version": 9}, r"^open_index: format_version of a set must be 1; got 9 in ")
    changed = {**right["content"], "counts": {}}
    opened({**right, "content": changed}, r"^open_index: set\.json must match its own checksum; got an altered one in ")
    moved = {**right["content"], "shards": right["content"]["shards"][:2]}
    opened(
        {**right, "content": moved, "checksum": checksum(moved)}, r"^open_index: set\.json must match its own checks"
    )
    (folder / NAME).write_text(json.dumps(right))
    shutil.rmtree(folder / shard_name(2))
    with pytest.raises(IndexFormatError, match=r"^open_index: shard-00002 must be in the set; got no such index in "):
        mo.open_index(folder)
    shutil.copytree(folder / shard_name(1), folder / shard_name(2))
    with pytest.raises(IndexFormatError, match=r"^retrieve: shard-00002 must be the shard that .* was made of, finge"):
        mo.retrieve(folder, ["new"], METRIC)


def test_what_takes_one_index_says_so(table, tmp_path, fails):
    found = make(table, tmp_path)
    line = (
        r"an index here must be a single one, not a set of shards; got .*set\. Build one index of these reports, or "
        "pass one"
    )
    for look in (lambda: found.reports, lambda: found.distinct, lambda: found.part(METRIC)):
        with pytest.raises(InputError, match=f"^{line}"):
            look()
    for given in (found, found.folder):
        with pytest.raises(InputError, match=rf"^AttachedReports\.load: {line}"):
            mo.reports(given).load()
        with pytest.raises(InputError, match=f"^score: {line}"):
            mo.score(table, given)
    fails("retrieve", found.folder, found.folder, "-m", METRIC, match=f"retrieve: {line}")
    fails("score", found.folder, table, match=f"score: {line}")
    fails("study", found.folder, table, f"A={found.folder}", "-m", METRIC, match=f"study: {line}")
