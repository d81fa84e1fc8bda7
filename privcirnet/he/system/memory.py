"""How much memory a process takes, and may take."""

import os
import resource
import sys
from contextlib import suppress
from pathlib import Path


def peak_bytes(process: int | str = "self") -> int:
    """Return the most memory that a process ever had, in bytes.

    Args:
        process: its number; any but this one's needs a system with /proc.
    """
    status = Path(f"/proc/{process}/status")
    if status.is_file():  # ru_maxrss would also know of the process that this one was started from
        return next(1024 * int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def machine_bytes() -> int:
    """Return how much memory this process may take, in bytes: the machine's, or the limit of its container."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in map(Path, ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        with suppress(OSError, ValueError):  # no such file, or "max"
            limits.append(int(path.read_text()))
    return min(limits)
