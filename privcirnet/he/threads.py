"""Threads: work beside other work, and matrix products on one thread.

After a product the library's threads spin for some 30 ms and take the cores from what comes next.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from threading import Lock
from typing import Any, TypeVar, cast

from threadpoolctl import ThreadpoolController  # pyright: ignore[reportMissingTypeStubs]

T = TypeVar("T")


def beside(work: Callable[[], T]) -> Callable[[], T]:
    """Start work on a thread of its own; the function that is returned waits for its result or raises its error."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    return future.result


@cache
def one_thread() -> AbstractContextManager[object]:
    """Matrix products inside run on the calling thread alone: the small ones gain nothing from others."""
    return _OneThread()


class _OneThread:
    """The limit is the whole process's: the first thread to enter sets it, the last one to leave lifts it."""

    def __init__(self) -> None:
        self._blas: Any = cast(Any, ThreadpoolController()).select(user_api="blas")
        self._lock, self._inside, self._limit = Lock(), 0, cast(Any, None)

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._limit = self._blas.limit(limits=1)

    def __exit__(self, *problem: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._limit.restore_original_limits()
