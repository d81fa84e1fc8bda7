"""Threads: one pool for all work on many ciphertexts, and matrix products of libraries limited to one thread.

After a product the library's threads spin for some 30 ms and take the cores from what comes next. A forked process has
none of its parent's threads: it makes its own pool.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from threading import Lock
from typing import Any, TypeVar, cast

from threadpoolctl import ThreadpoolController  # pyright: ignore[reportMissingTypeStubs]

T = TypeVar("T")


R = TypeVar("R")


def each(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return a function's results for all items, in their order, on as many threads as :func:`use` said.

    This pays for functions that release Python's lock for a millisecond or so: compiled kernels, the system's
    generator. The caller works too, and does not wait for a helper that has not begun. So a helper that wakes late, or
    is busy with something else, costs little.

    Args:
        function: function of one item. An error that it raises ends the work and reaches the caller.
    """
    pending, tasks = deque(enumerate(items)), [function]
    results: dict[int, R] = {}

    def work() -> None:
        while pending:
            try:
                number, item = pending.popleft()
            except IndexError:
                return
            results[number] = tasks[0](item)

    helpers = [_pool(_setting.count - 1).submit(work) for _ in range(min(_setting.count, len(pending)) - 1)]
    try:
        work()
    finally:
        pending.clear()
        for helper in helpers:
            if not helper.cancel():
                helper.result()
        tasks.clear()  # what was cancelled stays in the pool's queue until a helper is free, and must hold nothing
    ordered = [results[number] for number in range(len(results))]
    results.clear()
    return ordered


def beside(function: Callable[[], R]) -> Callable[[], R]:
    """Begin a function on another thread, if there is one.

    This is for work whose result is not needed for a while: phases that cannot be shared out evenly fill each other's
    gaps.

    Args:
        function: function to run, without arguments.

    Returns:
        a function that waits for the result and returns it; on one thread, ``function`` itself.
    """
    return function if _setting.count == 1 else _pool(_setting.count - 1).submit(function).result


def ranges(count: int, limit: int) -> list[range]:
    """Return the numbers under ``count`` as ranges of at most ``limit``, of like size: all threads get as many."""
    parts = max(-(-count // (limit * _setting.count)), 1) * _setting.count
    return [
        range(first, end) for first, end in pairwise(count * part // parts for part in range(parts + 1)) if first < end
    ]


def count() -> int:
    """Return the number of threads that :func:`each` works on."""
    return _setting.count


def use(count: int) -> None:
    """Work on so many threads from now on.

    Args:
        count: number of threads; 0: as many as there are cores for this process.
    """
    _setting.count = count or cores()


@contextmanager
def using(count: int) -> Generator[None]:
    """Yield a block in which work is on so many threads; 0: as many as before."""
    before = _setting.count
    use(count or before)
    try:
        yield
    finally:
        use(before)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class _Setting:
    count: int


_setting = _Setting(cores())


@cache
def _pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="privcirnet")


@cache
def one_thread() -> AbstractContextManager[object]:
    """Return a context in which matrix products run on the calling thread alone.

    Small products gain nothing from other threads.
    """
    return _OneThread()


class _OneThread:
    """The limit of the whole process: the first thread to enter sets it, the last one to leave lifts it."""

    def __init__(self) -> None:
        self._blas: Any = cast(Any, ThreadpoolController()).select(user_api="blas")
        self._lock, self._inside, self._limit = Lock(), 0, cast(Any, None)

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._disown()
                self._limit = self._blas.limit(limits=1)

    def __exit__(self, *problem: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._disown()
                self._limit.restore_original_limits()
                self._disown()

    def _disown(self) -> None:
        """Let any thread change the limit: threadpoolctl >= 3.8 ignores all but the one that last set it."""
        for library in self._blas.lib_controllers:
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread(force=True)


if hasattr(os, "register_at_fork"):  # where processes fork
    os.register_at_fork(after_in_child=_pool.cache_clear)
    os.register_at_fork(after_in_child=one_thread.cache_clear)  # another thread may have held its lock
