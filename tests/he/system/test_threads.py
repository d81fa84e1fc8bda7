import gc
import weakref
from collections.abc import Callable, Iterator
from threading import Barrier, Event, Thread, current_thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import ThreadpoolController

from privcirnet.he.system import threads
from privcirnet.he.system.threads import beside, each, one_thread, ranges

TIMEOUT_S = 20
"""Seconds that threads wait for each other before a test fails."""


@pytest.fixture(params=[1, 2, 3])
def count(request: pytest.FixtureRequest) -> Iterator[int]:
    with threads.using(request.param):
        yield request.param


def test_as_many_threads_work_as_were_asked_for(count: int) -> None:
    """No item is done before all threads hold one; results are in the items' order."""
    meeting = Barrier(count)

    def work(item: int) -> str:
        meeting.wait(TIMEOUT_S)
        return current_thread().name

    assert len(set(each(work, range(count)))) == count
    for items in (range(200), iter("abc"), {"a": 1, "b": 2}, [], [7]):
        known = list(items)
        assert each(str, iter(known)) == [str(item) for item in known]


def test_one_thread_stops_at_an_error() -> None:
    done: list[int] = []

    def work(item: int) -> None:
        done.append(item)
        if item == 3:
            raise ValueError("third")

    with threads.using(1), pytest.raises(ValueError, match="third"):
        each(work, range(100))
    assert done == [0, 1, 2, 3]


@pytest.mark.parametrize("by_caller", [True, False])
def test_an_item_s_error_reaches_the_caller(by_caller: bool) -> None:
    """Whoever works on the item: each thread holds one of the two when the error comes."""
    caller, meeting = current_thread(), Barrier(2)

    def work(item: int) -> None:
        meeting.wait(TIMEOUT_S)
        if (current_thread() is caller) == by_caller:
            raise ValueError(f"by caller: {by_caller}")

    with threads.using(2):
        with pytest.raises(ValueError, match=f"by caller: {by_caller}"):
            each(work, range(2))
        assert each(abs, [-1, 2]) == [1, 2], "the pool still works"


def test_the_number_of_threads_is_afterwards_what_it_was() -> None:
    before = threads.count()
    with pytest.raises(ValueError, match="inside"), threads.using(before + 1):
        raise ValueError("inside")
    assert threads.count() == before


def test_zero_threads_means_all_cores() -> None:
    threads.use(0)
    assert threads.count() == threads.cores() >= 1


@given(st.integers(0, 300), st.integers(1, 40), st.integers(1, 5))
def test_ranges_cover_all_numbers_once(numbers: int, most: int, count: int) -> None:
    with threads.using(count):
        found = ranges(numbers, most)
    assert [number for part in found for number in part] == list(range(numbers))
    assert all(1 <= len(part) <= most for part in found)
    assert max(map(len, found), default=0) - min(map(len, found), default=0) <= 1
    assert len(found) == numbers or len(found) % count == 0, "as many for each thread"


def blas_threads() -> list[int]:
    """Limits of all linear algebra libraries in this process."""
    controller: Any = ThreadpoolController()
    return [library["num_threads"] for library in controller.select(user_api="blas").info()]


class Visitor:
    """A thread that enters and leaves when it is told to, and lives on."""

    def __init__(self) -> None:
        self._meeting = Barrier(2)
        self._thread = Thread(target=self._visit, daemon=True)
        self._thread.start()

    def step(self) -> None:
        """Go in, then out, then away."""
        self._meeting.wait(TIMEOUT_S)
        self._meeting.wait(TIMEOUT_S)

    def _visit(self) -> None:
        self._meeting.wait(TIMEOUT_S)
        with one_thread():
            self._meeting.wait(TIMEOUT_S)
            self._meeting.wait(TIMEOUT_S)
        self._meeting.wait(TIMEOUT_S)
        self.step()


@pytest.fixture
def two_blas_threads() -> Iterator[None]:
    np.ones((2, 2)) @ np.ones((2, 2))
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        yield


def test_matrix_products_run_on_one_thread_inside(two_blas_threads: None) -> None:
    before = blas_threads()
    assert before
    with one_thread():
        assert set(blas_threads()) == {1}
        with one_thread():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
    assert blas_threads() == before


def test_an_error_inside_lifts_the_limit(two_blas_threads: None) -> None:
    before = blas_threads()
    with pytest.raises(ValueError, match="inside"), one_thread():
        raise ValueError("inside")
    assert blas_threads() == before


@pytest.mark.parametrize("leaving", [(0, 1), (1, 0)], ids=["first in, first out", "first in, last out"])
def test_the_last_thread_to_leave_lifts_the_limit(leaving: tuple[int, int], two_blas_threads: None) -> None:
    before, visitors = blas_threads(), [Visitor(), Visitor()]
    for visitor in visitors:
        visitor.step()
        assert set(blas_threads()) == {1}
    visitors[leaving[0]].step()
    assert set(blas_threads()) == {1}
    visitors[leaving[1]].step()
    assert blas_threads() == before
    for visitor in visitors:
        visitor.step()


def test_work_beside_goes_on_meanwhile_and_gives_its_result(count: int) -> None:
    begun, free = Event(), Event()

    def work() -> str:
        begun.set()
        return "alone" if count == 1 else f"{free.wait(TIMEOUT_S)}"

    result = beside(work)
    if count > 1:
        assert begun.wait(TIMEOUT_S)
        assert each(lambda item: item + 1, range(50)) == list(range(1, 51)), "nobody waits for who is busy"
        free.set()
    assert result() == ("alone" if count == 1 else "True")


def test_an_error_beside_comes_with_the_result(count: int) -> None:
    def work() -> None:
        raise ValueError("beside")

    result = beside(work)
    with pytest.raises(ValueError, match="beside"):
        result()


def test_work_beside_may_be_shared_out_too(count: int) -> None:
    outer = beside(lambda: each(lambda item: item * item, range(20)))
    assert each(lambda item: -item, range(20)) == [-item for item in range(20)]
    assert outer() == [item * item for item in range(20)]


def test_what_is_done_holds_nothing_while_helpers_are_busy() -> None:
    """A helper that was not needed stays in the pool's queue: what it would have worked on is not kept there."""
    before, busy, begun = threads.count(), Event(), Event()
    threads.use(2)
    try:
        blocker = threads._pool(1).submit(lambda: (begun.set(), busy.wait(TIMEOUT_S)))
        assert begun.wait(TIMEOUT_S)
        large = np.zeros(10)
        kept = weakref.ref(large)
        each(lambda item, large=large: large + item, range(4))
        del large
        gc.collect()
        assert kept() is None
    finally:
        busy.set()
        blocker.result()
        threads.use(before)


FORKED = """
import multiprocessing, sys, threading
from privcirnet.he.system import threads

def work():
    print(threads.each(abs, [-1, 2]), threads.beside(lambda: "beside")())
    with threads.one_thread():
        print("inside")

threads.use(2)
work()
with threads.one_thread()._lock:  # another thread's, at that moment
    child = multiprocessing.get_context("fork").Process(target=work)
    sys.stdout.flush()
    child.start()
child.join(20)
child.kill()
"""


def test_a_forked_process_makes_its_own_threads(subprocess_python: Callable[[str], str]) -> None:
    """It has none of its parent's, and waited for them."""
    assert subprocess_python(FORKED).splitlines() == ["[1, 2] beside", "inside"] * 2
