"""How much memory a process takes."""

import resource
import sys
from pathlib import Path


def peak_bytes() -> int:
    """Return the most memory that this process ever had, in bytes."""
    status = Path("/proc/self/status")
    if status.is_file():  # ru_maxrss would also know of the process that this one was started from
        return next(1024 * int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
