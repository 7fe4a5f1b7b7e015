"""What Linux and other systems tell and do in different ways: processors, memory, room on the disk, processes.

Each function has Linux's way and a portable one, for macOS; no other module asks on which system it runs. Locks of
files (`fcntl.flock`) are POSIX's, equal on both, and stand where they are used.
"""

import mmap
import os
import platform
import resource
import sys
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")  # what Linux tells of itself, as files
_PIECE = 1 << 20  # zeros that are written at once
# Names of the families of processors -> the one that the package uses.
_FAMILIES = {"AMD64": "x86_64", "aarch64": "arm64"}


def n_threads() -> int:
    """Return the number of cores that this process may use; where no system call tells it, all of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor_family() -> str:
    """Return the family of the processor: "x86_64", "arm64", or another name that Python has, such as "ppc64le"."""
    name = platform.machine()
    return _FAMILIES.get(name, name)


def processor_name() -> str:
    """Return the name of the processor; without Linux's list of processors, that of its family."""
    names = [line.partition(":")[2].strip() for line in cpuinfo().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def cpuinfo() -> str:
    """Return what Linux lists of each processor, the text of /proc/cpuinfo; it is empty elsewhere."""
    with suppress(OSError):
        return (_PROC / "cpuinfo").read_text(encoding="utf-8", errors="replace")
    return ""


def memory_in_use() -> int:
    """Return the bytes of memory that this process uses, with mapped pages.

    Without /proc, the command `ps` tells it; where there is none, it is the most that the process has used.
    """
    with suppress(OSError):
        return int((_PROC / "self/statm").read_text(encoding="utf-8").split()[1]) * mmap.PAGESIZE
    told = _ps("rss", os.getpid())
    return int(told) * 1024 if told else peak_memory()


def peak_memory() -> int:
    """Return the most bytes of memory that this process has used, with mapped pages."""
    # VmHWM is ru_maxrss without what a forked process takes over from its parent.
    with suppress(OSError):
        for line in (_PROC / "self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def release_pages(mapped: mmap.mmap, first: int = 0, size: int | None = None) -> None:
    """Take the pages of a mapped file, or of its `size` bytes from `first` on, out of memory; reading loads them again.

    Without `MADV_DONTNEED`, the system itself releases them when it needs memory.
    """
    if hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED, first, len(mapped) - first if size is None else size)


def reserve(file: int, size: int) -> None:
    """Make an open file `size` bytes long, at least 1, with room for all of them on the disk.

    `file` is a descriptor; the bytes that it holds up to there stay. A full disk raises OSError here, not hours later.
    Without `posix_fallocate`, zeros are written behind the end of the file.
    """
    end = min(os.fstat(file).st_size, size)
    os.ftruncate(file, end)
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
        return
    while end < size:
        end += os.pwrite(file, bytes(min(_PIECE, size - end)), end)


def command_line(process: int) -> str:
    """Return the command line of a process of this machine by its id; it is empty if there is no such process."""
    with suppress(OSError):
        return (_PROC / f"{process}/cmdline").read_text(encoding="utf-8", errors="replace").replace("\0", " ")
    return _ps("args", process)


def _ps(column: str, process: int) -> str:
    """Return what the command `ps` has in a column for a process; it is empty without the process or the command."""
    import subprocess

    with suppress(OSError):
        command = ["ps", "-ww", "-o", f"{column}=", "-p", str(process)]
        told = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
        return told.stdout.strip()
    return ""
