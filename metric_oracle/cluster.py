"""Work on shards by the workers of a Ray cluster, this machine's or several machines'.

Ray places tasks, and runs those again whose worker or machine was lost. Here is what it leaves open: what a task
raises comes back as a value, so that Ray writes none of it into a log; workers of another version are refused; each
worker says every second that it lives and how far it is, and one that falls silent, stopped or hung, is killed, so that
Ray runs its task again.
"""

import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Self
from uuid import uuid4

from metric_oracle.errors import BackendError, InputError, MetricOracleError

RUNNERS = ("ray",)
RETRIES = 3  # times that Ray runs a task again
BEAT = 1.0  # seconds between two signs of life
SILENT = 60.0  # seconds without one after which a worker is killed
LOOK = 0.5  # seconds between two looks at the workers
COMPARED = ("metric-oracle", "numpy", "numba", "pyarrow")  # packages whose versions workers must share


@dataclass(frozen=True)
class Runner:
    """Where tasks run, and what each needs.

    Attributes
    ----------
    address : str
        "local" starts Ray here and ends it; "auto" and HOST:PORT take a cluster that runs.
    num_cpus, num_gpus : float
        Of a task.
    """

    address: str = "local"
    num_cpus: float = 1
    num_gpus: float = 0


def runner_of(
    function: str, runner: str | None, address: str | None, num_gpus: float | None, num_cpus: int | None = None
) -> Runner | None:
    """Return where tasks run; None where they run in this process.

    Raises
    ------
    InputError, BackendError
        If the runner is unknown, has none of its options, or Ray is not installed.
    """
    if runner is None:
        given = [name for name, value in (("address", address), ("num_gpus", num_gpus)) if value is not None]
        if given:
            msg = f"{function}: {', '.join(given)} must be left out without a runner; got a value. Add --runner ray."
            raise InputError(msg)
        return None
    if runner not in RUNNERS:
        msg = f"{function}: runner must be {' or '.join(RUNNERS)}; got another. Leave it out to work in this process."
        raise InputError(msg)
    if num_gpus is not None and (isinstance(num_gpus, bool) or not 0 <= num_gpus < 1e6):
        msg = f"{function}: num_gpus must be a number of at least 0; got {num_gpus!r}. Choose one."
        raise InputError(msg)
    if find_spec("ray") is None:
        msg = (
            f"{function}: runner 'ray' must have Ray installed; got no module ray. Install the extra: pip install "
            '"metric-oracle[ray]".'
        )
        raise BackendError(msg)
    return Runner(address or "local", num_cpus or 1, num_gpus or 0)


class Task(NamedTuple):
    """The work on one shard: its name, for people, and what the function gets."""

    name: str
    arguments: tuple[Any, ...]


class Told:
    """How far a worker is, for its signs of life."""

    def __init__(self) -> None:
        self.done = 0
        self.said = ""

    def add(self, n: int) -> None:
        """Count what is done."""
        self.done += n

    def say(self, what: str) -> None:
        """Name what is under way."""
        self.said = what


class Beat(NamedTuple):
    """The last sign of life of a worker."""

    pid: int
    node: str
    done: int
    said: str
    age: float


# ---- in a worker -----------------------------------------------------------------------------------------------------


class Board:
    """Keeps the last sign of life of each task, beside the process that asks for them."""

    def __init__(self) -> None:
        self._beats: dict[tuple[str, str], tuple[tuple[int, str, int, str], float]] = {}

    def beat(self, key: tuple[str, str], *said: Any) -> None:
        """Note one, of a task of a run."""
        self._beats[key] = said, time.monotonic()

    def read(self, run: str, names: set[str]) -> dict[str, Beat]:
        """Return those of some tasks of a run, with their ages in seconds, and forget its others."""
        now = time.monotonic()
        self._beats = {key: beat for key, beat in self._beats.items() if key[0] != run or key[1] in names}
        return {key[1]: Beat(*said, now - at) for key, (said, at) in self._beats.items() if key[0] == run}


def work(
    board: Any, run: str, expected: dict[str, str], home: str, name: str, shared: bytes, *arguments: Any
) -> tuple[bool, Any]:
    """Do a task; return whether that went well, and the result or the error."""
    try:
        found = _versions()
        if found != expected:
            package = next(package for package in COMPARED if found[package] != expected[package])
            msg = (
                f"cluster: workers must have the versions of this process, {package} {expected[package]}; got "
                f"{found[package]} on {os.uname().nodename}. Install the same on all machines."
            )
            return False, BackendError(msg)
        module, _, function = home.partition(":")
        with _alive(board, (run, name)) as told:
            return True, getattr(import_module(module), function)(_unpacked(run, shared), told, *arguments)
    except MetricOracleError as error:
        return False, error
    except Exception as error:  # its text may be that of a report
        last = traceback.extract_tb(error.__traceback__)[-1]
        msg = (
            f"cluster: {name} must be worked through; got {type(error).__name__} at {Path(last.filename).name}:"
            f"{last.lineno} in a worker. Run it without --runner to see more."
        )
        return False, BackendError(msg)


_UNPACKED: dict[str, Any] = {}  # of the last run of this worker


def _unpacked(run: str, shared: bytes) -> Any:
    """Return what all tasks of a run get, its arrays writable: for others Numba compiles every kernel once more."""
    if run not in _UNPACKED:
        _UNPACKED.clear()
        _UNPACKED[run] = pickle.loads(shared)
    return _UNPACKED[run]


@contextmanager
def _alive(board: Any, key: tuple[str, str]) -> Iterator[Told]:
    """Send signs of life meanwhile."""
    import ray

    told, node, ended = Told(), ray.get_runtime_context().get_node_id(), threading.Event()

    def beat() -> Any:
        return board.beat.remote(key, os.getpid(), node, told.done, told.said)

    def beat_on() -> None:
        while not ended.wait(BEAT):
            beat()

    ray.get(beat())  # whoever stops from here on is known
    thread = threading.Thread(target=beat_on, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        ended.set()
        thread.join()


def end(pid: int) -> None:
    """Kill a worker of Ray on this machine."""
    with suppress(OSError):
        if b"ray::" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)


def _versions() -> dict[str, str]:
    return {package: version(package) for package in COMPARED}


# ---- in the process that asks ----------------------------------------------------------------------------------------


class Cluster:
    """A connection to Ray, for a with statement.

    Where this process has one already it is used, and left open.
    """

    def __init__(self, runner: Runner, function: str) -> None:
        self._runner, self._function = runner, function
        self._is_own = False

    def __enter__(self) -> Self:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else Ray reports its use to its makers
        for name in ("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "RAY_ENABLE_UV_RUN_RUNTIME_ENV"):
            os.environ.setdefault(name, "0")
        import ray

        self._board: Any
        self._handler = signal.getsignal(signal.SIGTERM)  # which Ray replaces
        if not ray.is_initialized():
            self._is_own = True
            quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "critical"}
            if self._runner.address == "local":
                quiet["include_dashboard"] = False
            try:
                ray.init(address=self._runner.address, **quiet)
            except (ConnectionError, RuntimeError, ValueError, OSError) as error:
                msg = (
                    f"{self._function}: address must be local, auto or HOST:PORT of a Ray cluster that runs; got one "
                    f"that does not answer ({type(error).__name__}). Start it with ray start, or use local."
                )
                raise BackendError(msg) from error
        here = self._on(ray.get_runtime_context().get_node_id())
        # One for all calls over a connection: a process takes a second to begin.
        self._board = ray.remote(Board).options(
            name="metric-oracle", get_if_exists=True, num_cpus=0, scheduling_strategy=here
        ).remote()  # fmt: skip
        return self

    def __exit__(self, *error: object) -> None:
        import ray

        if self._is_own:
            ray.shutdown()
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, self._handler)

    @staticmethod
    def _on(node: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return NodeAffinitySchedulingStrategy(node, soft=False)

    def slots(self) -> int:
        """Return how many tasks have room at a time."""
        import ray

        have = ray.cluster_resources()
        n = have.get("CPU", 0) // self._runner.num_cpus
        if self._runner.num_gpus:
            n = min(n, have.get("GPU", 0) // self._runner.num_gpus)
        return int(n)

    def run(
        self, home: str, shared: Any, tasks: Iterator[Task], take: Callable[[Task, Any], None],
        look: Callable[[int, dict[str, Beat]], None],
    ) -> None:  # fmt: skip
        """Do tasks; one is asked for when there is room for it.

        Parameters
        ----------
        home : str
            Function of a task, ``module:function``: gets `shared`, a `Told`, and the arguments of the task.
        shared : object
            Sent to each machine once.
        tasks : iterator of Task
        take : function
            Called with each task and its result, as they come.
        look : function
            Called about twice a second with the number of finished tasks and the signs of life of the others.

        Raises
        ------
        BackendError
            If a worker has another version, or no worker outlives a task; and what a task raises.
        """
        import ray

        if not self.slots():
            raise BackendError(self._no_room(""))
        # Without max_calls a worker with a GPU ends after each task, and forgets its index.
        remote = ray.remote(
            num_cpus=self._runner.num_cpus, num_gpus=self._runner.num_gpus, max_retries=RETRIES, retry_exceptions=False,
            scheduling_strategy="SPREAD", max_calls=0,
        )(work)  # fmt: skip
        stored, expected, run = ray.put(ray.cloudpickle.dumps(shared)), _versions(), uuid4().hex
        under_way: dict[Any, Task] = {}
        finished, killed = 0, set[tuple[str, int]]()
        more, seen = True, time.monotonic()  # when there was room for a task
        try:
            while True:
                while more and len(under_way) < max(self.slots(), 1):
                    task = next(tasks, None)
                    if task is None:
                        more = False
                        break
                    ref = remote.remote(self._board, run, expected, home, task.name, stored, *task.arguments)
                    under_way[ref] = task
                if not under_way:
                    return
                ready, _ = ray.wait(list(under_way), num_returns=1, timeout=LOOK)
                for ref in ready:
                    result = self._result(ref, under_way[ref])
                    finished += 1
                    take(under_way.pop(ref), result)
                names = {task.name for task in under_way.values()}
                beats = ray.get(self._board.read.remote(run, names))
                look(finished, beats)
                seen = time.monotonic() if self.slots() else seen
                if time.monotonic() - seen > SILENT:
                    raise BackendError(self._no_room(f" for {min(names)}"))
                for name, beat in beats.items():
                    if beat.age > SILENT and (name, beat.pid) not in killed:
                        killed.add((name, beat.pid))
                        strategy = self._on(beat.node)
                        ray.remote(end).options(num_cpus=0, scheduling_strategy=strategy, max_retries=0).remote(
                            beat.pid
                        )
        finally:
            for ref in under_way:
                with suppress(Exception):
                    ray.cancel(ref, force=True)

    def _no_room(self, where: str) -> str:
        import ray

        have = ray.cluster_resources()
        return (
            f"{self._function}: a task must fit the cluster; got {have.get('CPU', 0):g} CPUs and "
            f"{have.get('GPU', 0):g} GPUs{where} where one takes {self._runner.num_cpus:g} and "
            f"{self._runner.num_gpus:g}. Use fewer threads or GPUs, or more machines."
        )

    def _result(self, ref: Any, task: Task) -> Any:
        import ray

        try:
            is_good, value = ray.get(ref)
        except ray.exceptions.RayTaskError as error:
            msg = (
                f"{self._function}: workers must have metric-oracle {version('metric-oracle')}, as this process; got "
                f"one that cannot begin {task.name} ({type(error.cause).__name__}). Install the same on all machines."
            )
            raise BackendError(msg) from None
        except ray.exceptions.RayError as error:
            msg = (
                f"{self._function}: a worker must live to the end of a shard; got none that outlived {task.name} in "
                f"{RETRIES + 1} attempts ({type(error).__name__}). Give it more memory, or make smaller shards."
            )
            raise BackendError(msg) from None
        if is_good:
            return value
        raise value
