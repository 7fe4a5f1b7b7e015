"""Run tasks, one per shard, in the workers of a Ray cluster on this machine or on several.

Ray assigns tasks to workers, and runs a task again if its worker or machine was lost. This module adds what Ray leaves
open: an error in a task is returned as a value, so that Ray writes none of it into a log; workers with another version
of the package are refused; each worker sends a sign of life with its progress every second, and a worker that stops
sending is killed, so that Ray runs its task again. Arguments and results are pickled as a whole, because arrays from
Ray's own store are read-only, for which Numba would compile every kernel once more, and become invalid when the
connection ends.
"""

import os
import pickle
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from metric_oracle.base.errors import BackendError, InputError, MetricOracleError, not_installed
from metric_oracle.base.operating_system import command_line

RETRIES = 3  # times that Ray runs a task again
BEAT = 1.0  # seconds between two signs of life
SILENT = 60.0  # seconds without one after which a worker is killed
LOOK = 0.5  # seconds between two looks at the workers
ANSWER = 60.0  # seconds to wait for an answer of Ray's own processes
CONNECT = 5.0  # seconds to wait for a connection to an address
COMPARED = ("metric-oracle", "numpy", "numba", "pyarrow")  # packages whose versions workers must share
SWITCHES = {
    "RAY_USAGE_STATS_ENABLED": "0",  # otherwise Ray sends usage statistics
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_task_oom_retries": str(RETRIES),  # else a task that does not fit the memory is run again for ever
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # else Ray writes to stdout that a worker died
}


@dataclass(frozen=True)
class Cluster:
    """The cluster that runs tasks, and the resources that each task needs."""

    # "local" starts Ray on this machine and ends it afterwards; "auto" and HOST:PORT connect to a running cluster.
    address: str | None = None  # None is the connection that this process has, or else "local"
    num_cpus: float = 1  # CPU cores of each task
    num_gpus: float = 0  # GPUs of each task


def runner_of(address: str | None, num_gpus: float | None, num_cpus: int | None = None) -> Cluster:
    """Return the cluster that runs tasks; raise BackendError if Ray is not installed.

    None stands for the default of each argument, see `Cluster`.
    """
    if find_spec("ray") is None:
        raise not_installed(subject="runner 'ray'", module="ray", extra="ray")
    return Cluster(address, num_cpus or 1, num_gpus or 0)


class Task(NamedTuple):
    """The work on one shard."""

    name: str  # for messages, and different for all tasks of a run
    arguments: tuple[Any, ...]  # further arguments of the function, see `run_tasks`


class WorkerProgress:
    """Progress of a task in its worker, which is sent with each sign of life."""

    def __init__(self) -> None:
        self.done = 0  # finished steps
        self.step = ""  # name of the current step

    def add(self, n: int) -> None:
        """Add n finished steps."""
        self.done += n

    def say(self, step: str) -> None:
        """Set the name of the current step."""
        self.step = step


class Beat(NamedTuple):
    """Last sign of life of a worker."""

    pid: int  # process id
    node: str  # Ray's id of the machine
    done: int  # finished steps
    step: str  # name of the current step
    age: float  # seconds since it was sent


class Run(NamedTuple):
    """What is the same for all tasks of a run."""

    name: str  # that no other run has
    versions: dict[str, str]  # of the packages that workers must have
    target: str  # the function to call, as ``module:function``


# ---- in a worker -----------------------------------------------------------------------------------------------------


class Board:
    """Ray actor that stores the last sign of life of each task, for the process that started the tasks."""

    def __init__(self) -> None:
        self._beats: dict[str, tuple[tuple[int, str, int, str], float]] = {}

    def beat(self, name: str, pid: int, node: str, done: int, step: str) -> None:
        """Store the sign of life of the task `name`; see `Beat`."""
        self._beats[name] = (pid, node, done, step), time.monotonic()

    def read(self) -> dict[str, Beat]:
        """Return the last sign of life of every task, by its name."""
        now = time.monotonic()
        return {name: Beat(*beat, now - at) for name, (beat, at) in self._beats.items()}


def work(run: Run, board: Any, name: str, shared: bytes, arguments: bytes) -> bytes:
    """Run the task `name` in a worker; return, pickled, whether it succeeded, and its result or its error.

    `board` is the actor `Board`. `shared` and `arguments` are the pickled arguments of the function.
    """
    try:
        versions = _versions()
        if versions != run.versions:
            package = next(package for package in COMPARED if versions[package] != run.versions[package])
            raise BackendError(
                f"a worker on {os.uname().nodename} has {package} {versions[package]}, and this process has "
                f"{run.versions[package]}.",
                "Install the same versions on all machines.",
            )
        module, _, function = run.target.partition(":")
        with _alive(board, name) as progress:
            result = getattr(import_module(module), function)(
                _unpacked(run.name, shared),
                progress,
                *pickle.loads(arguments),  # noqa: S301 - of our own process
            )
            return pickle.dumps((True, result))
    except MetricOracleError as error:
        return pickle.dumps((False, error))
    except Exception as error:  # its text may be that of a report
        last = traceback.extract_tb(error.__traceback__)[-1]
        failure = BackendError(
            f"{name} failed in a worker: {type(error).__name__} at {Path(last.filename).name}:{last.lineno}.",
            "Run it without `runner` to see more.",
        )
        return pickle.dumps((False, failure))


_UNPACKED: dict[str, Any] = {}  # of the last run of this worker


def _unpacked(run: str, shared: bytes) -> Any:
    """Return what all tasks of a run share, unpickled once per worker."""
    if run not in _UNPACKED:
        _UNPACKED.clear()
        _UNPACKED[run] = pickle.loads(shared)  # noqa: S301 - of our own process
    return _UNPACKED[run]


@contextmanager
def _alive(board: Any, name: str) -> Iterator[WorkerProgress]:
    """Send signs of life of the task `name` to the board while the body runs; yield the `WorkerProgress` to update."""
    import ray

    progress, node, ended = WorkerProgress(), ray.get_runtime_context().get_node_id(), threading.Event()

    def beat() -> Any:
        """Send one sign of life."""
        return board.beat.remote(name, os.getpid(), node, progress.done, progress.step)

    def beat_on() -> None:
        """Send signs of life every second until the body ends."""
        while not ended.wait(BEAT):
            beat()

    ray.get(beat())  # from here on, a worker that stops is noticed
    thread = threading.Thread(target=beat_on, daemon=True)
    thread.start()
    try:
        yield progress
    finally:
        ended.set()
        thread.join()


def end(pid: int) -> None:
    """Kill the process with the id `pid` on this machine, if it is a Ray worker; otherwise do nothing."""
    if "ray::" in command_line(pid):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _versions() -> dict[str, str]:
    """Return the versions of the packages that workers must share with the calling process."""
    return {package: version(package) for package in COMPARED}


# ---- in the process that starts the tasks ---------------------------------------------------------------------------


def run_tasks(
    runner: Cluster,
    target: str,
    shared: Any,
    tasks: Iterator[Task],
    *,
    take: Callable[[Task, Any], None],
    look: Callable[[int, dict[str, Beat]], None],
) -> None:
    """Run tasks on workers; a task is submitted when a worker can take one more.

    The function `target`, named as ``module:function``, is called in a worker with `shared`, which is sent to each
    machine once, a `WorkerProgress` to which it reports, and the arguments of the task. `take` is called with each
    finished task and its result, in the order in which tasks finish; `look` about twice a second with the number of
    finished tasks, and the last sign of life of each running task by its name.

    Raise BackendError if there is no such cluster, a worker has other versions of the packages, or every worker that
    runs a task dies, and InputError if this process is connected to another cluster. Errors of a task are raised again
    here.

    After an error the running tasks are not cancelled: they stop when the connection to the cluster closes. If the
    caller opened the connection, it stays open and they finish. The reason is a defect of Ray 2.60, which aborts the
    process that cancels a task just as the task ends.
    """
    with _connected(runner.address):
        import ray

        here = _on(ray.get_runtime_context().get_node_id())
        board = (
            ray.remote(Board)
            .options(  # Ray's own processes may be killed, too
                num_cpus=0, scheduling_strategy=here, max_restarts=-1, max_task_retries=-1
            )
            .remote()
        )
        try:
            _run(runner, target, shared, tasks, take, look, board)
        except ray.exceptions.RayError as error:
            raise BackendError(
                f"the Ray cluster stopped answering ({type(error).__name__}).",
                "Look at its machines and run the same command again.",
            ) from None


@contextmanager
def _connected(address: str | None) -> Iterator[None]:
    """Connect this process to Ray while the body runs. An existing connection is used, and left open.

    Raise InputError if that is to another cluster, BackendError if no cluster answers.
    """
    for name, value in SWITCHES.items():
        os.environ.setdefault(name, value)
    import ray

    if ray.is_initialized():
        known = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", known):
            raise InputError(
                f"this process is connected to the Ray cluster at {known}, not to {address}.",
                "Leave `address` out, or call ray.shutdown() first.",
            )
        yield
        return
    if address not in (None, "auto", "local") and not _answers(address):  # Ray itself would try for minutes
        raise _no_answer(address)
    handler = signal.getsignal(signal.SIGTERM)  # which Ray replaces
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "critical"}
    if address in (None, "local"):
        options["include_dashboard"] = False
    try:
        try:
            ray.init(address=address or "local", **options)
        except (ray.exceptions.RayError, RuntimeError, ValueError, OSError) as error:
            raise _no_answer(address or "local", f" ({type(error).__name__})") from error
        yield
    finally:
        ray.shutdown()
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _answers(address: str) -> bool:
    """Return whether something accepts a connection at an address HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=CONNECT):
            return True
    except (OSError, ValueError, OverflowError):
        return False


def _no_answer(address: str, reason: str = "") -> BackendError:
    """Return the error for an address at which no cluster answers; `reason` is empty or a note in brackets."""
    return BackendError(
        f"no Ray cluster answers at {address}{reason}.",
        "Start one with ray start, or pass `address='local'`, auto or HOST:PORT of a running one.",
    )


def _run(
    runner: Cluster,
    target: str,
    shared: Any,
    tasks: Iterator[Task],
    take: Callable[[Task, Any], None],
    look: Callable[[int, dict[str, Beat]], None],
    board: Any,
) -> None:
    """Submit the tasks to the connected cluster, and pass on results and signs of life; see `run_tasks`."""
    import ray

    # Without max_calls a worker with a GPU ends after each task, and forgets its index.
    remote = ray.remote(
        num_cpus=runner.num_cpus,
        num_gpus=runner.num_gpus,
        max_retries=RETRIES,
        retry_exceptions=False,
        scheduling_strategy="SPREAD",
        max_calls=0,
    )(work)
    run = Run(uuid4().hex, _versions(), target)
    stored = ray.put(ray.cloudpickle.dumps(shared))
    under_way: dict[Any, Task] = {}
    n_finished, killed = 0, set[tuple[str, int]]()
    more, had_room = True, time.monotonic() - SILENT
    while True:
        n_slots = sum(_slots(runner, machine) for machine in _machines())
        had_room = time.monotonic() if n_slots else had_room
        while more and len(under_way) < n_slots:
            task = next(tasks, None)
            if task is None:
                more = False
                break
            arguments = ray.cloudpickle.dumps(task.arguments)
            under_way[remote.remote(run, board, task.name, stored, arguments)] = task
        if not under_way and not more:
            return
        if time.monotonic() - had_room >= SILENT:
            raise _no_room(runner, under_way.values())
        ready = ray.wait(list(under_way), num_returns=1, timeout=LOOK)[0] if under_way else []
        time.sleep(0 if under_way else LOOK)
        for ref in ready:
            result = _result(ref, under_way[ref])
            n_finished += 1
            take(under_way.pop(ref), result)
        names = {task.name for task in under_way.values()}
        beats = {name: beat for name, beat in ray.get(board.read.remote(), timeout=ANSWER).items() if name in names}
        look(n_finished, beats)
        for beat in beats.values():
            if beat.age > SILENT and (beat.node, beat.pid) not in killed:
                killed.add((beat.node, beat.pid))
                ray.remote(end).options(num_cpus=0, scheduling_strategy=_on(beat.node), max_retries=0).remote(beat.pid)


def _on(node: str) -> Any:
    """Return Ray's scheduling option with which a task runs on the machine `node`, and on no other."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def _machines() -> list[dict[str, float]]:
    """Return the resources of each living machine of the cluster, by Ray's names such as CPU and GPU."""
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _slots(runner: Cluster, machine: dict[str, float]) -> int:
    """Return how many tasks of `runner` a machine can run at a time; `machine` has its resources by Ray's names."""
    n = machine.get("CPU", 0) // runner.num_cpus
    return int(min(n, machine.get("GPU", 0) // runner.num_gpus) if runner.num_gpus else n)


def _no_room(runner: Cluster, tasks: Iterable[Task]) -> BackendError:
    """Return the error for `tasks` of `runner` that need more resources than any machine of the cluster has.

    It names the first of them in the order of names.
    """
    cpus, gpus = (max([0, *(machine.get(kind, 0) for machine in _machines())]) for kind in ("CPU", "GPU"))
    return BackendError(
        f"no machine of the Ray cluster has room for {min((task.name for task in tasks), default='a shard')}, "
        f"which takes {runner.num_cpus:g} CPUs and {runner.num_gpus:g} GPUs: the largest has {cpus:g} and {gpus:g}.",
        "Use fewer threads or GPUs, or another machine.",
    )


def _result(ref: Any, task: Task) -> Any:
    """Return the result of a finished task; raise the error that it raised, or BackendError if its worker died."""
    import ray

    try:
        is_good, value = pickle.loads(ray.get(ref))  # noqa: S301 - of our own worker
    except ray.exceptions.RayTaskError as error:
        raise BackendError(
            f"a worker cannot begin {task.name} ({type(error.cause).__name__}).",
            f"Install metric-oracle {version('metric-oracle')}, as here, on all machines.",
        ) from None
    except ray.exceptions.RayError as error:
        raise BackendError(
            f"the worker for {task.name} died in each of {RETRIES + 1} attempts ({type(error).__name__}).",
            "It may lack memory: give workers more, or make smaller shards.",
        ) from None
    if is_good:
        return value
    raise value
