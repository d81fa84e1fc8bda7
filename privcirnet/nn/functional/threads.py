"""Work shared by threads: torch's own where possible, which wait for work in a loop and would slow down others.

On Linux torch's loops run on the threads of GNU's OpenMP, which look for the next loop for milliseconds before they
sleep. Another pool's threads would share the cores with them: on 2 cores each pass of AESPA took twice its time. So
Python functions are handed to OpenMP itself, which runs each on one thread of the team; they let go of Python's lock in
compiled code.

A forked process has none of its parent's threads, but GNU's OpenMP waits for them, in torch's own operations too. So
there torch works on one thread, as in its data loaders' processes.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import torch

Work = Callable[[], None]
_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def run(works: Sequence[Work]) -> None:
    """Call all functions at the same time, the first on this thread.

    Args:
        works: functions, at most as many as torch has threads.

    Raises:
        Exception: the first one raised by a function, when all are done.
    """
    if len(works) == 1:
        works[0]()
        return
    errors: list[BaseException] = []
    runtime = openmp()
    if runtime:
        _run_in_team(runtime, works, errors)
    else:
        futures = [_pool(len(works) - 1).submit(work) for work in works[1:]]
        _call(works[0], errors)
        errors += [error for future in futures if (error := future.exception())]
    if errors:
        raise errors[0]


@cache
def openmp() -> ctypes.CDLL | None:
    """Return GNU's OpenMP runtime if torch has loaded it."""
    for path in (Path(torch.__file__).parent / "lib").glob("libgomp*.so*"):
        runtime = ctypes.CDLL(str(path))
        runtime.GOMP_parallel.argtypes = _BODY, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint
        return runtime
    return None


def _run_in_team(runtime: ctypes.CDLL, works: Sequence[Work], errors: list[BaseException]) -> None:
    """Call each function on a thread of a team; the rest, if the team is smaller, on this thread."""
    pending = list(reversed(works))  # taking one off is atomic

    def body(_: object) -> None:
        while pending:
            try:
                work = pending.pop()
            except IndexError:
                return
            _call(work, errors)

    runtime.GOMP_parallel(_BODY(body), None, len(works), 0)


def _call(work: Work, errors: list[BaseException]) -> None:
    try:
        work()
    except BaseException as error:
        errors.append(error)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="privcirnet")


def _begin_anew() -> None:
    _pool.cache_clear()
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):  # where processes fork
    os.register_at_fork(after_in_child=_begin_anew)
