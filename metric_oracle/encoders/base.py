"""Base class of the models that read reports: files, device, signature, and runs that resume part by part."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from metric_oracle.base.errors import InputError
from metric_oracle.base.files import write_bytes
from metric_oracle.base.job import Job
from metric_oracle.base.progress import Advance
from metric_oracle.encoders.batches import Blocks, digest, environment, part_bounds, run_batches
from metric_oracle.encoders.libraries import choose_device, import_libraries
from metric_oracle.encoders.packed_layers import BATCH_TOKENS, Packed

_Sequence = TypeVar("_Sequence", str, bytes)


class Encoder:
    """A model read from local files; nothing is downloaded. Each subclass says which files.

    On one device and with the same libraries, the output for a report has the same bits whatever other reports are
    given, and for any number of threads. The device "auto" is the GPU if there is one.
    """

    title: ClassVar[str]  # name of the model in messages
    part_name: ClassVar[str]  # prefix of the names of the files that hold finished parts and the state of the job
    # Tokens per batch of a model that is not packed, see `batches`.
    batch_tokens: ClassVar[dict[str, int]] = {"cpu": 128, "cuda": 4_096}
    # Size of a part that is kept on disk: about half a minute of work on two cores.
    part_size: ClassVar[dict[str, int]] = {"cpu": 1 << 15, "cuda": 1 << 20}

    def __init__(self, path: str | Path, *, device: str = "auto", **files: str | Path | None) -> None:
        torch, transformers = import_libraries(self.title)
        self._device = choose_device(device)
        self._path = Path(path)
        versions = {"torch": str(torch.__version__), "transformers": transformers.__version__}
        self._signature = self._open(**files) | versions
        self._environment = environment(self._device, self.batch_tokens[self._device])
        self._environment["batch_tokens_if_packed"] = BATCH_TOKENS

    @property
    def signature(self) -> dict[str, str]:
        """Name of the model, checksums of its files and versions of the libraries: what reproduces the output."""
        return dict(self._signature)

    @property
    def environment(self) -> dict[str, Any]:
        """Device, versions and settings on which the last bits of the output depend, and nothing else."""
        return dict(self._environment)

    def _open(self, *args: Any, **files: Any) -> dict[str, str]:
        """Read the model from `self._path` and the further files; return the model's entries of the signature."""
        raise NotImplementedError

    def _check_finite(
        self, is_finite: Any, argument: str, path: Path | None = None, value: str = "NaN or infinity"
    ) -> None:
        """Raise InputError unless `is_finite`: a model with damaged weights can return NaN or infinity.

        `argument` and `value` are the words of the error, and `path` is the file at fault, by default the model's.
        """
        if not is_finite:
            raise InputError(
                argument, "must give finite numbers", f"{value} from {path or self._path}", "Fetch it again."
            )

    def _run_batches(
        self,
        model: Any,
        run: Callable[[npt.NDArray[np.int64], Blocks], None],
        ids: npt.NDArray[np.int32],
        ptr: npt.NDArray[np.int64],
        finished: Callable[[npt.NDArray[np.int64]], object] | None = None,
    ) -> None:
        """Call `run_batches` with batches for `model`: of mixed lengths if it is packed, otherwise of one length."""
        is_mixed = isinstance(model, Packed)
        batch_tokens = BATCH_TOKENS if is_mixed else self.batch_tokens[self._device]
        run_batches(run, ids, ptr, batch_tokens, self._device, finished, is_mixed=is_mixed)

    def _pack(self, output: Any) -> bytes:
        """Return the output of a part as the content of its file: JSON, unless a subclass has its own form."""
        return json.dumps(output).encode()

    def _unpack(self, content: bytes) -> Any:
        """Return the output of a part from the content of its file."""
        return json.loads(content)

    def _run_parts(
        self,
        run: Callable[[slice], Any],
        ptr: npt.NDArray[np.int64],
        counts: Any,
        key: Sequence[Any],
        scratch: Path | None,
        progress: Advance | None,
    ) -> Iterator[tuple[slice, Any]]:
        """Run the model on distinct sequences part by part; yield the slice of each part and its output.

        `run` takes the slice and returns the output. Parts that an earlier call finished are read from the folder
        `scratch` instead, if it is not None; only of these is `progress` told the numbers of texts, of which each
        sequence has `counts`. `ptr` are the cumulative sizes of the sequences, measured like `part_size`. `key` is
        everything but the model and its environment that the output depends on: values for JSON, then arrays.
        """
        size = self.part_size[self._device]
        settings = [value for value in key if not isinstance(value, np.ndarray)]
        made_of = digest([self.signature, self.environment, size, *settings], *key[len(settings) :])
        parts = [slice(*bounds) for bounds in pairwise(part_bounds(ptr, size))]
        names = [f"{self.part_name}-{number:06d}.part" for number in range(len(parts))]
        job = None
        if scratch is not None:
            scratch.mkdir(parents=True, exist_ok=True)
            job = Job(scratch, f"{self.part_name}.json")
            job.keep(dict.fromkeys(names, made_of))
            job.claim(*names, made_of=made_of)
        for name, part in zip(names, parts, strict=True):
            if job is not None and job.holds(name):
                output = self._unpack((job.folder / name).read_bytes())
                if progress is not None:
                    progress(int(sum(counts[part])))
            else:
                output = run(part)
                if job is not None:
                    write_bytes(job.folder / name, self._pack(output))
                    job.record(name)
            yield part, output


def longest_first(sizes: Mapping[_Sequence, int]) -> tuple[list[_Sequence], npt.NDArray[np.int64]]:
    """Return the sequences of a dict of sizes, longest first and ties by content, and their offsets int64[n + 1].

    The parts of a run thus depend on the set of its texts, not on their order.
    """
    ordered: list[_Sequence] = sorted(sizes, key=lambda sequence: (-sizes[sequence], sequence))
    return ordered, np.cumsum([0, *(sizes[sequence] for sequence in ordered)])
