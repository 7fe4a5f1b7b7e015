"""Base class of the models that read reports: files, device, signature, and runs that resume part by part."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from metric_oracle.encoders.batches import digest, environment, part_bounds
from metric_oracle.encoders.libraries import choose_device, import_libraries
from metric_oracle.encoders.parts import Parts
from metric_oracle.errors import InputError
from metric_oracle.progress import Count

_Sequence = TypeVar("_Sequence", str, bytes)


class Encoder:
    """A model read from local files; nothing is downloaded.

    On one device and with the same libraries, the output for a report has the same bits whatever other reports are
    given, and for any number of threads.

    Parameters
    ----------
    path : path
        File or folder of the model; each subclass says which.
    device : {"auto", "cpu", "cuda"}
        "auto" takes the GPU if there is one.
    **files : path
        Further files, as each subclass lists them.

    Attributes
    ----------
    signature : dict of str
        Model, SHA-256 of its files, versions of torch and transformers.
    environment : dict
        Device and settings. The last bits of the output may differ between two environments, and nothing else may.
    """

    title: ClassVar[str]  # name of the model in messages
    part_name: ClassVar[str]  # prefix of the names of the files that hold finished parts
    # Tokens per batch, see `batches`.
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

    @property
    def signature(self) -> dict[str, str]:
        """Name of the model, checksums of its files and versions of the libraries: what reproduces the output."""
        return dict(self._signature)

    @property
    def environment(self) -> dict[str, Any]:
        """Device, versions and settings on which the last bits of the output depend."""
        return dict(self._environment)

    def _open(self, *args: Any, **files: Any) -> dict[str, str]:
        """Read the model from `self._path` and the further files; return the model's entries of the signature."""
        raise NotImplementedError

    def _check_finite(
        self, is_finite: Any, argument: str, path: Path | None = None, value: str = "NaN or infinity"
    ) -> None:
        """Raise InputError unless `is_finite`: a model with damaged weights can return NaN or infinity."""
        if not is_finite:
            raise InputError(
                argument, "must give finite numbers", f"{value} from {path or self._path}", "Fetch it again."
            )

    def _pack(self, output: Any) -> bytes:
        """Return the output of a part as the content of its file."""
        return json.dumps(output).encode()

    def _unpack(self, content: bytes) -> Any:
        """Read what `_pack` returned."""
        return json.loads(content)

    def _run_parts(
        self,
        run: Callable[[slice], Any],
        ptr: npt.NDArray[np.int64],
        counts: Any,
        key: Sequence[Any],
        scratch: Path | None,
        progress: Count | None,
    ) -> Iterator[tuple[slice, Any]]:
        """Run the model on distinct sequences part by part; parts that an earlier call finished are read from disk.

        Parameters
        ----------
        run : function
            Slice of sequences -> output; it reports its own progress.
        ptr : int64[n + 1]
            Cumulative sizes of the sequences, measured like `part_size`.
        counts : int[n]
            Number of texts that have each sequence.
        key : sequence
            Everything but the model and its environment that the output depends on: values for JSON, then arrays.
        scratch : path or None
            Folder that keeps the parts.
        progress : function
            Called with the number of texts of each part that is read from disk.

        Yields
        ------
        part : slice
            Sequences of the part.
        output
            Return value of `run`.
        """
        size = self.part_size[self._device]
        settings = [value for value in key if not isinstance(value, np.ndarray)]
        checksum = digest([self.signature, self.environment, size, *settings], *key[len(settings) :])
        parts = Parts(scratch, self.part_name, checksum)
        for number, bounds in enumerate(pairwise(part_bounds(ptr, size))):
            part, content = slice(*bounds), parts.read(number)
            if content is None:
                output = run(part)
                parts.write(number, self._pack(output))
            else:
                output = self._unpack(content)
                if progress is not None:
                    progress(int(sum(counts[part])))
            yield part, output


def longest_first(sizes: Mapping[_Sequence, int]) -> tuple[list[_Sequence], npt.NDArray[np.int64]]:
    """Return the sequences of a dict of sizes, longest first and ties by content, and their offsets int64[n + 1].

    The parts of a run thus depend on the set of its texts, not on their order.
    """
    ordered: list[_Sequence] = sorted(sizes, key=lambda sequence: (-sizes[sequence], sequence))
    return ordered, np.cumsum([0, *(sizes[sequence] for sequence in ordered)])
