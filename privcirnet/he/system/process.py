"""A process: memory that it takes, keeps and may take, and random numbers that a copy of it (fork) must not use too."""

import ctypes
import os
import platform
import resource
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TypeVar

from privcirnet.errors import RuleError

Y = TypeVar("Y")
S = TypeVar("S")
R = TypeVar("R")


class Process:
    """The process that made this, until it is asked in a copy of that process."""

    def __init__(self) -> None:
        self._id = os.getpid()

    def changed(self) -> bool:
        """Return whether this is a copy of the process of the last answer. That it is from now on."""
        before, self._id = self._id, os.getpid()
        return before != self._id


def in_one_process(steps: Generator[Y, S, R]) -> Generator[Y, S, R]:
    """Yield what something yields that draws random numbers once; no step is taken in a copy of the process."""
    process = Process()
    try:
        request = next(steps)
        while True:
            answer = yield request
            if process.changed():
                rule, remedy = (
                    "what a process begins must end in it",
                    "begin anew after a fork, with a client of its own",
                )
                raise RuleError(rule, got="a copy of the process", remedy=remedy)
            request = steps.send(answer)
    except StopIteration as end:
        return end.value
    finally:
        steps.close()


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""glibc's numbers of the options, malloc.h."""
_LARGEST_INT = 2**31 - 1
_THRESHOLDS = (2**30, 2**25)
"""Thresholds from which blocks are returned; versions before 2.35 refuse more than the second."""


def keep_freed_memory() -> bool:
    """Make glibc's malloc keep freed blocks of up to a gigabyte for this process.

    glibc serves large blocks by mmap and returns them when they are freed, so a network's activations are faulted in
    again, page by page, at every step: 7.6 million page faults to classify 1,024 images with MobileNetV2, and four
    fifths of the time. Other systems and C libraries keep such memory themselves.

    Returns:
        True if glibc took the options; False where the C library is another one.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    mmap_raised = any(library.mallopt(_M_MMAP_THRESHOLD, size) for size in _THRESHOLDS)
    return bool(library.mallopt(_M_TRIM_THRESHOLD, _LARGEST_INT)) and mmap_raised


_GROUPS, _MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
"""Control groups of Linux, and the file that names those of this process."""


def peak_bytes(process: int | str = "self") -> int:
    """Return the most memory that a process ever had, in bytes.

    Args:
        process: number of the process; any but this one's needs a system with /proc.
    """
    status = Path(f"/proc/{process}/status")
    if status.is_file():  # ru_maxrss would also know of the process that this one was started from
        return next(1024 * int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def machine_bytes() -> int:
    """Return the memory that this process may take, in bytes: the machine's, or the least limit of its control groups.

    A container, a job of Slurm and a unit of systemd are such groups, each within the next.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _limit_files():
        with suppress(OSError, ValueError):  # no such file, or "max"
            limits.append(int(path.read_text()))
    return min(limits)


def _limit_files() -> Iterator[Path]:
    """Yield the files that may have a limit: of the group that this process is in, and of all around it."""
    yield from (_GROUPS / "memory.max", _GROUPS / "memory" / "memory.limit_in_bytes")
    with suppress(OSError, ValueError):
        for line in _MEMBERSHIP.read_text().splitlines():
            number, controllers, group = line.split(":", 2)
            inner = PurePosixPath(group.lstrip("/"))
            if number == "0":  # version 2
                yield from (_GROUPS / level / "memory.max" for level in (inner, *inner.parents))
            elif "memory" in controllers.split(","):
                levels = (_GROUPS / "memory" / level for level in (inner, *inner.parents))
                yield from (level / "memory.limit_in_bytes" for level in levels)
