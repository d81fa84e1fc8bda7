"""Turns at the engine: it works on all cores, so requests are computed one at a time, in turn between clients."""

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

R = TypeVar("R")


class RoundRobinExecutor:
    """A queue for each client, served round and round, by one thread.

    A client with many sessions gets no more turns than one with a single session. Each session waits for at most one
    turn, so the queue is as long as there are sessions.

    Args:
        waited: function called with the seconds that a request waited for its turn.
    """

    def __init__(self, waited: Callable[[float], object] = lambda seconds: None) -> None:
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._busy, self._waited = False, waited
        self._engine = threading.Lock()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="privcirnet turn")

    async def run(self, client: str, function: Callable[[], R], *, here: bool = False) -> R:
        """Return a function's result when it is the client's turn.

        Args:
            function: function to call in the worker's thread. It runs to its end even if nobody waits any more.
            here: whether to call it in the loop's thread if the engine is free, which blocks other calls: for a
                function that takes no longer than the two changes of threads that it saves.
        """
        if here and not self._busy:
            self._waited(0.0)
            return self._held(function)
        started = time.perf_counter()
        await self._turn(client)
        self._waited(time.perf_counter() - started)
        work = asyncio.get_running_loop().run_in_executor(self._worker, self._held, function)
        work.add_done_callback(self._done)
        return await asyncio.shield(work)

    def later(self, function: Callable[[], object]) -> None:
        """Call a function after the present computation, without waiting for it.

        Args:
            function: function that is quick and raises no error.
        """
        self._worker.submit(self._held, function)

    def close(self) -> None:
        """Wait for the present computation, and end the worker."""
        self._worker.shutdown()

    def _held(self, function: Callable[[], R]) -> R:
        """Return the result of a function that has the engine to itself."""
        with self._engine:
            return function()

    async def _turn(self, client: str) -> None:
        if not self._busy:
            self._busy = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it had just been given
                self._pass_on()
            raise

    def _done(self, work: "asyncio.Future[R]") -> None:
        if not work.cancelled():
            work.exception()  # whoever waited for it has it
        self._pass_on()

    def _pass_on(self) -> None:
        """Give the turn to the client that has waited longest since its last one."""
        while self._waiting:
            client, queue = self._waiting.popitem(last=False)
            turn = queue.popleft()
            if queue:
                self._waiting[client] = queue
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False
