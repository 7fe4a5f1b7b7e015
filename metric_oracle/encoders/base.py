"""Base of the models that read reports: files, device, signature, and runs that resume part by part."""

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
    function : str
        Name in error messages.
    **files : path
        Further files, as each subclass lists them.

    Attributes
    ----------
    signature : dict of str
        Model, SHA-256 of its files, versions of torch and transformers.
    environment : dict
        Device and settings. The last bits of the output may differ between two environments, and nothing else may.
    """

    title: ClassVar[str]
    part_name: ClassVar[str]  # begins the names of the files of parts
    # Tokens of one batch, see `batches`, and size of a part that is kept on disk: about half a minute on two cores.
    batch_tokens: ClassVar[dict[str, int]] = {"cpu": 128, "cuda": 4_096}
    part_size: ClassVar[dict[str, int]] = {"cpu": 1 << 15, "cuda": 1 << 20}

    def __init__(
        self, path: str | Path, *, device: str = "auto", function: str = "build_index", **files: str | Path | None
    ) -> None:
        torch, transformers = import_libraries(function, self.title)
        self._function, self._device = function, choose_device(device, function)
        self._path = Path(path)
        versions = {"torch": str(torch.__version__), "transformers": transformers.__version__}
        self._signature = self._open(**files) | versions
        self._environment = environment(self._device, self.batch_tokens[self._device])

    @property
    def signature(self) -> dict[str, str]:
        """What reproduces the model."""
        return dict(self._signature)

    @property
    def environment(self) -> dict[str, Any]:
        """Where it runs."""
        return dict(self._environment)

    def _open(self, *args: Any, **files: Any) -> dict[str, str]:
        """Read the model from `self._path` and further files; return its part of the signature."""
        raise NotImplementedError

    def _pack(self, output: Any) -> bytes:
        """Return the content of the file of a finished part."""
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
        """Run the model on distinct sequences part by part; read the parts that an earlier call finished.

        Parameters
        ----------
        run : function
            Sequences of a part -> output; it reports its own progress.
        ptr : int64[n + 1]
            Offsets of the sequences in the unit of `part_size`.
        counts : int[n]
            How many texts have each sequence.
        key : sequence
            What the output depends on, in addition to the model and its environment: values for JSON, then arrays.
        scratch : path or None
            Folder that keeps the parts.
        progress : function
            Called with the number of texts of a part that was read.
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
    """Return distinct sequences and the offsets of their sizes, int64[n + 1], longest first, ties by content.

    So the parts of a run depend on the set of its texts, not on their order.
    """
    ordered: list[_Sequence] = sorted(sizes, key=lambda sequence: (-sizes[sequence], sequence))
    return ordered, np.cumsum([0, *(sizes[sequence] for sequence in ordered)])
