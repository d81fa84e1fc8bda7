"""Memory that the C library keeps for the next step instead of giving it back.

glibc serves large blocks by mmap and returns them when they are freed, so a network's activations are faulted in again,
page by page, at every step: 7.6 million page faults to classify 1,024 images with MobileNetV2, and four fifths of the
time. Other systems and C libraries keep such memory themselves.
"""

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""glibc's numbers of the options, malloc.h."""
_LARGEST_INT = 2**31 - 1
_THRESHOLDS = (2**30, 2**25)
"""Thresholds from which blocks are returned; versions before 2.35 refuse more than the second."""


def keep_freed_memory() -> bool:
    """Make glibc's malloc keep freed blocks of up to a gigabyte for this process.

    Returns:
        True if glibc took the options; False where the C library is another one.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    mmap_raised = any(library.mallopt(_M_MMAP_THRESHOLD, size) for size in _THRESHOLDS)
    return bool(library.mallopt(_M_TRIM_THRESHOLD, _LARGEST_INT)) and mmap_raised
