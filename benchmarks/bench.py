"""What the workloads share: the data, the sample of the peers, whole studies over token states in turns with theirs."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeVar

import numpy as np

import metric_oracle as mo
from benchmarks.data import (
    HAS_FAISS,
    LACKING,
    Data,
    Sample,
    SkippedError,
    StateSample,
    draw_sample,
    draw_states,
    embedding_options,
    graph_options,
    prepare,
    prepare_states,
)
from benchmarks.floor import Ceilings, measure_ceilings
from benchmarks.peers import PEERS, Score
from benchmarks.state_peers import APPROXIMATE, STATE_PEERS, Approximate, StatePeer, recalls
from metric_oracle.base.errors import BackendError
from metric_oracle.base.operating_system import n_threads
from metric_oracle.base.option_types import Backend
from metric_oracle.bench.timing import Study, alone, run_alone, study, timed
from metric_oracle.metrics import get_metric

_REFERENCES = 20  # test reports of the peers' sample
_STATE_PAIRS = 100  # pairs whose scores are compared, of token states
_ROUNDING = 1e-6  # of recall by float32 products: what lies as close is as good
Key = TypeVar("Key")
T = TypeVar("T")


@dataclass(frozen=True)
class Measurement:
    """Repetitions of one measurement, and what else is worth a column."""

    values: Sequence[float]
    columns: dict[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """The value reported."""
        return median(self.values)


class StateSide(NamedTuple):
    """A peer over token states, checked and ready: what is timed, its pairs, and columns of its row."""

    score: Callable[[], Any]
    n_pairs: int
    on_gpu: bool
    columns: dict[str, Any]


class Bench:
    """What the workloads share.

    Parameters
    ----------
    root : folder of the corpora and indexes
    n_reports, n_tests, repetitions : int
    scratch : folder that goes
    corpus : of `data.CORPORA`
    studied : metrics over token states whose whole studies some workload needs
    chosen : names of the workloads
    """

    def __init__(
        self,
        root: Path,
        n_reports: int,
        n_tests: int,
        repetitions: int,
        scratch: Path,
        corpus: str,
        studied: Sequence[str],
        chosen: Sequence[str],
    ) -> None:
        self.root, self.n_reports, self.n_tests, self.corpus = root, n_reports, n_tests, corpus
        self.repetitions, self.scratch, self.studied, self.chosen = repetitions, scratch, studied, chosen

    @cached_property
    def data(self) -> Data:
        """The corpus that everything is measured on."""
        return prepare(self.root, self.n_reports, self.n_tests, kind=self.corpus)

    @cached_property
    def states(self) -> Data:
        """The same corpus with token states."""
        return prepare_states(self.root, self.n_reports, self.n_tests, self.corpus)

    def data_of(self, metric: str) -> Data:
        """Return the index that a metric reads."""
        return self.states if "bertscore" in get_metric(metric).representations else self.data

    @cached_property
    def sample(self) -> Sample:
        """The pairs that the peers score."""
        n_candidates = max(peer.n_candidates for peer in PEERS.values())
        folder = self.scratch / "sample"
        folder.mkdir()
        return draw_sample(self.data, _REFERENCES, n_candidates, folder)

    @cached_property
    def state_sample(self) -> StateSample:
        """The pairs that the chosen peers over token states score: each takes those that were drawn first."""
        peers: dict[str, StatePeer | Approximate] = {**STATE_PEERS, **APPROXIMATE}
        sizes = [(one.n_references, one.n_candidates) for name, one in peers.items() if f"peer-{name}" in self.chosen]
        return draw_states(self.states, *map(max, zip(*sizes, strict=True)))

    @cached_property
    def ceilings(self) -> Ceilings:
        """What this machine can do."""
        return measure_ceilings(self.repetitions)

    @cache  # noqa: B019 - one instance, as long as the process
    def process(self, metric: str, backend: Backend) -> dict[str, float]:
        """Run a whole oracle in a process of its own, once."""
        data = self.data_of(metric)
        reads = get_metric(metric).representations
        options: dict[str, Any] = graph_options(data.corpus, "test") if "radgraph" in reads else {}
        if "chexbert" in reads:
            options |= embedding_options(data.vectors, "test")
        if data.encoder is not None:
            options["encoder"] = data.encoder
        queries = mo.reports(data.corpus / "test.csv", mo.Read(keep_empty=True), **options)
        return run_alone(data.index_folder, queries, metric, backend)

    def studies(self, metric: str, backend: Backend) -> list[Study]:
        """Return whole studies after one that warms up; those over token states are of the rounds."""
        if "bertscore" in get_metric(metric).representations:
            return self.rounds[metric, backend]
        data = self.data
        mo.retrieve(data.index, data.queries, metric, backend=backend)
        return [study(data.index, data.queries, metric, backend) for _ in range(self.repetitions)]

    @cached_property
    def rounds(self) -> dict[tuple[str, str], list[Any]]:
        """Whole studies over token states and their peers, in turns: what slows the machine slows all of them.

        Keys are (metric, backend), with studies, and ("peer", name), with seconds. One query of each warms up, on a GPU
        all. The CPU's are left out where all that was chosen runs on a GPU.
        """
        data = self.states
        sides: dict[tuple[str, str], Callable[[], Any]] = {}
        on_gpu = {name.removeprefix("cuda-") for name in self.chosen if name.startswith("cuda-")}
        ready = {name: side for name, side in self.state_sides.items() if isinstance(side, StateSide)}
        on_gpu |= {"bertscore" for side in ready.values() if side.on_gpu}
        gpu_peers = {f"peer-{name}" for name, peer in STATE_PEERS.items() if peer.on_gpu}
        only_gpu = all(name.startswith("cuda-") or name in gpu_peers for name in self.chosen)
        for metric in self.studied:
            usable = metric in on_gpu and why_not_cuda(metric, data) is None
            if not (only_gpu and usable):
                mo.retrieve(data.index, alone(data.queries, 0), metric, backend="cpu")
                sides[metric, "cpu"] = partial(study, data.index, data.queries, metric, "cpu")
            if usable:
                mo.retrieve(data.index, data.queries, metric, backend="cuda")
                sides[metric, "cuda"] = partial(study, data.index, data.queries, metric, "cuda")
        for name, side in ready.items():
            sides["peer", name] = partial(timed, side.score)
        return in_turns(sides, self.repetitions)

    @cached_property
    def state_sides(self) -> dict[str, StateSide | SkippedError]:
        """The chosen peers over token states, or why one is not timed."""
        sides: dict[str, StateSide | SkippedError] = {}
        for name in (*STATE_PEERS, *APPROXIMATE):
            if f"peer-{name}" in self.chosen:
                try:
                    sides[name] = self._approximate(name) if name in APPROXIMATE else self._state_side(name)
                except SkippedError as reason:
                    sides[name] = reason
        return sides

    def _state_side(self, name: str) -> StateSide:
        """Return a peer's fastest way, whose scores must be ours."""
        peer = STATE_PEERS[name]
        sample = self.state_sample.first(peer.n_references, peer.n_candidates)
        with installed(peer.package):
            ways = peer.build(sample)
        shape = len(sample.references), len(sample.candidates)
        compared = np.random.default_rng(0).integers(shape, size=(_STATE_PAIRS, 2)).tolist()
        exact = [sample.exact(*pair)[peer.part] for pair in compared]
        seconds: dict[str, float] = {}
        differences: dict[str, float] = {}
        for way, (score, tolerance) in ways.items():
            scores = score()
            differences[way] = max(abs(scores[i, j] - e) for (i, j), e in zip(compared, exact, strict=True))
            if not differences[way] <= tolerance:
                msg = f"its scores ({way}) differ from ours by up to {differences[way]:.3g}: not timed"
                raise SkippedError(msg)
            seconds[way] = timed(score)
        n_pairs = shape[0] * shape[1]
        fastest = min(seconds, key=lambda way: seconds[way])
        columns = {
            "peer": f"{peer.title}, {fastest}",
            "same": peer.part == "f1",
            "ways_pairs_per_s": {way: n_pairs / s for way, s in seconds.items()},
            "largest_difference": differences[fastest],
        }
        return StateSide(ways[fastest][0], n_pairs, peer.on_gpu, columns)

    def _approximate(self, name: str) -> StateSide:
        """Return an approximate search, with its recall."""
        peer = APPROXIMATE[name]
        sample = self.state_sample.first(peer.n_references, peer.n_candidates)
        with installed(peer.package):
            search: Score = peer.build(sample, Path(tempfile.mkdtemp(dir=self.scratch)))
        found, values = search(), recalls(sample)
        reached = values[np.arange(len(found)), found] >= values.max(axis=1) - _ROUNDING
        columns = {"peer": peer.title, "same": False, "recall": float((reached & (found >= 0)).mean())}
        return StateSide(search, values.size, False, columns)


def in_turns(sides: Mapping[Key, Callable[[], T]], n: int) -> dict[Key, list[T]]:
    """Return what n calls of each give, side by side, so that a busy machine slows all."""
    found: dict[Key, list[T]] = {key: [] for key in sides}
    for _ in range(n):
        for key, run in sides.items():
            found[key].append(run())
    return found


def beside(
    theirs: Sequence[float], ours: Sequence[float], n_pairs: int, data: Data, distinct_pairs: int, **columns: Any
) -> Measurement:
    """Return a peer's time for all pairs of distinct queries and documents over that of our whole search.

    Parameters
    ----------
    theirs, ours : seconds, in turns
    n_pairs : distinct pairs that the peer scored in its time, from which that of all is extrapolated
    data : what we searched
    distinct_pairs : distinct queries times distinct documents
    **columns : others of the row
    """
    times = distinct_pairs / n_pairs
    our_s, peer_s = median(ours), times * median(theirs)
    return Measurement(
        [times * them / us for them, us in zip(theirs, ours, strict=True)],
        {
            "our_s": our_s,
            "peer_s": peer_s,
            "peer_pairs": n_pairs,
            "distinct_pairs": distinct_pairs,
            "pairs_per_s": data.pairs / our_s,
            "distinct_pairs_per_s": distinct_pairs / our_s,
            "peer_pairs_per_s": distinct_pairs / peer_s,
            "backend": "cpu",
            "cores": n_threads(),
            "peer_cores": n_threads(),
            **columns,
        },
    )


@contextmanager
def installed(package: str) -> Iterator[None]:
    """Turn a missing module into one line."""
    try:
        yield
    except ImportError as error:
        msg = f"{package} is not installed: pip install {package}"
        raise SkippedError(msg) from error


def need_embeddings(data: Data) -> None:
    """Raise SkippedError where there are no embeddings."""
    if data.vectors is None:
        msg = "faiss is not installed: pip install faiss-cpu"
        raise SkippedError(msg)


def need_states(metric: str) -> None:
    """Raise SkippedError where a metric over token states cannot be searched."""
    if LACKING:
        msg = f"{LACKING[0].replace('_', '-')} is not installed: pip install {LACKING[0].replace('_', '-')}"
        raise SkippedError(msg)
    if metric == "radcliq" and not HAS_FAISS:
        msg = "faiss is not installed: pip install faiss-cpu"
        raise SkippedError(msg)


def why_not_cuda(metric: str, data: Data) -> str | None:
    """Return why the GPU cannot search here, None where it can."""
    try:
        mo.retrieve(data.index, alone(data.queries, 0), metric, backend="cuda", text=False)
    except BackendError as error:
        return str(error)
    return None
