"""A stock of prepared inferences, filled up while nobody waits for an image.

One exchange at a time: an image waits for the one under way at most, and a preparation goes on after it where it was.
"""

import math
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from privcirnet.errors import Lost, RuleError
from privcirnet.he.layers.integer import Values
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.session import ExchangeProgress, Handler, Traffic, run

PATIENCE_S = 0.25
"""Seconds that an image may wait because several images are prepared at once."""
_SOON_S, _TRIES = 5, 3
"""Seconds after a refusal that passes by itself, as when the server's preparing worker was lost, and tries in a row.

Also seconds between two looks at whether there is room again, or a server."""


@dataclass(frozen=True)
class PreparedBatch:
    """Inferences that were prepared at once.

    Attributes:
        traffic: traffic of each round.
        seconds: seconds of work and of waiting for replies; images that came between are left out.
    """

    traffic: list[Traffic]
    seconds: float
    count: int


class BackgroundPreparation:
    """A stock of prepared inferences of a client. ``with`` works in its own thread, which ends with the block.

    Without ``with`` there is no thread: :meth:`fill` and :meth:`rest` work in the caller's. All use of the client and
    its connection must then go through here: :meth:`run`, or :meth:`image`.

    Args:
        client: client whose images come.
        server: the server's session with it.
        count: number of inferences to keep prepared; it may be changed.
        again: function called after a refusal, to make a session that refused to prepare one that runs images.
        patience_s: seconds that an image may wait for an exchange about several others.
        progress: function called after each round of a preparation, in the working thread.

    Attributes:
        done: batches that were prepared.
        stopped: reason why fewer are kept than were asked for, in words; "" if there is none.
    """

    def __init__(
        self,
        client: Client,
        server: Handler,
        count: int,
        again: Callable[[], object] = lambda: None,
        *,
        patience_s: float = PATIENCE_S,
        progress: ExchangeProgress = lambda exchange: None,
    ) -> None:
        self.count, self.done, self.stopped = count, list[PreparedBatch](), ""
        self._client, self._server, self._again = client, server, again
        self._patience_s, self._progress = patience_s, progress
        self._turn, self._images, self._busy, self._closed = threading.Condition(), 0, False, False
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        self._interrupted = 0
        self._room = self._together = 1 << 30
        """Most inferences in stock, and prepared at once, as far as the server has told."""
        self._until = self._pause = 0.0
        """Times when there may be room for more, and when a thread whose connection was lost tries again."""
        self._under_way: _UnderWay | None = None

    @property
    def stock(self) -> int:
        """The number of inferences that are prepared."""
        return self._client.prepared

    def __enter__(self) -> "BackgroundPreparation":
        self._thread = threading.Thread(target=self._work, name="privcirnet idle preparation", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        """End the thread after the exchange under way. An incomplete preparation is abandoned."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._give_up()

    @contextmanager
    def image(self) -> Generator[None]:
        """Use the client and its connection for an image in a ``with`` block.

        Yields:
            nothing, as soon as the exchange under way is done.

        Raises:
            RuleError: the thread's last preparation failed, or the session after it; it is said once.
        """
        with self._turn:
            self._images += 1
        try:
            with self._held():
                failure, self._failure = self._failure, None
                if failure is not None:
                    raise failure
                self._finish()
                yield
        finally:
            with self._turn:
                self._images -= 1
                self._turn.notify_all()

    def run(self, image: Values, progress: ExchangeProgress = lambda exchange: None) -> tuple[Values, list[Traffic]]:
        """Run an image: :func:`protocol.parties.session.run`.

        Args:
            image: integers, the program's input shape.
            progress: function called after each round.

        Returns:
            (logits as integers in units of the output's step, traffic of each round).

        Raises:
            RuleError: as there.
        """
        with self.image():
            return run(self._client, self._server, image, progress)

    def fill(self) -> None:
        """Work in this thread until the stock is full, or the server refuses more.

        Raises:
            RuleError: the connection is lost.
        """
        while self._step():
            pass

    def rest(self, seconds: float) -> None:
        """Work in this thread for a while, and sleep when the stock is full.

        Args:
            seconds: seconds after which no exchange begins.

        Raises:
            RuleError: the connection is lost.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._step():
            pass
        time.sleep(max(0.0, end - time.monotonic()))

    @contextmanager
    def _held(self) -> Generator[None]:
        """Lock the client and its connection."""
        with self._turn:
            self._turn.wait_for(lambda: not self._busy)
            self._busy = True
        try:
            yield
        finally:
            with self._turn:
                self._busy = False
                self._turn.notify_all()

    def _work(self) -> None:
        """Run the thread: step while no image runs or waits."""
        while True:
            with self._turn:
                due = self._turn.wait_for(lambda: self._closed or self._free, _SOON_S)
                if self._closed:
                    return
            try:
                if due:
                    self._step()
            except Lost:
                self._pause = time.monotonic() + _SOON_S
            except Exception as problem:  # for whoever brings the next image
                self._failure = problem

    @property
    def _free(self) -> bool:
        return not (self._images or self._busy or self._idle)

    @property
    def _missing(self) -> int:
        room = self._room if time.monotonic() < self._until else self.count
        return min(self.count, room) - self.stock

    @property
    def _idle(self) -> bool:
        paused = self._failure is not None or time.monotonic() < self._pause
        return paused or (self._under_way is None and self._missing <= 0)

    def _step(self) -> bool:
        """Do one exchange; False if there is nothing to do."""
        with self._held():
            if self._images > 0 and self._thread is not None:
                return True  # it came in this moment, and is first
            if self._under_way is None:
                if self._missing <= 0:
                    return False
                count = min(self._missing, self._at_once())
                self._under_way = _UnderWay(self._client.prepare(count), count)
            self._advance(self._under_way)
            return True

    def _advance(self, under_way: "_UnderWay") -> None:
        """Do one exchange of the preparation under way."""
        try:
            whole = under_way.step(self._server, self._progress)
        except Lost:  # which says nothing against the next preparation
            self._give_up()
            raise
        except RuleError as error:
            self._refused(error)
        else:
            if whole:
                self.done.append(under_way.done())
                self._under_way, self._interrupted = None, 0
                if time.monotonic() >= self._until:
                    self.stopped = ""

    def _finish(self) -> None:
        """End the preparation under way for an image that needs one: another one would take its place."""
        if self.stock:
            return
        with suppress(Lost):  # the image looks for the server itself
            while self._under_way is not None:
                self._advance(self._under_way)

    def _at_once(self) -> int:
        """Return the number to prepare at once: an image should not wait for long for a longer exchange."""
        limit = min(self._client.together, self._together)
        if self._patience_s == math.inf:
            return limit
        if not self.done:
            return 1
        last = self.done[-1]
        longest = max(exchange.seconds for exchange in last.traffic) / last.count
        return max(1, min(limit, int(self._patience_s / longest)))

    def _refused(self, error: RuleError) -> None:
        """Begin anew if the refusal passes, or lower the demand: one at a time first, then the present stock."""
        several = self._under_way is not None and self._under_way.count > 1
        self._give_up()
        if 0 < error.retry_after_s <= _SOON_S and self._interrupted < _TRIES:
            self._interrupted += 1
        elif several:
            self._together = 1
        else:
            self._room, self.stopped = self.stock, str(error)
            self._until = time.monotonic() + error.retry_after_s if error.retry_after_s else math.inf
        self._again()

    def _give_up(self) -> None:
        if self._under_way is not None:
            self._under_way.exchange.close()
        self._under_way = None


class _UnderWay:
    """A preparation that has begun."""

    def __init__(self, exchange: Generator[bytes, bytes, None], count: int) -> None:
        self.exchange, self.count = exchange, count
        self._traffic, self._seconds, self._message = list[Traffic](), 0.0, next(exchange)

    def step(self, server: Handler, progress: ExchangeProgress) -> bool:
        """Do one exchange and make the next request; return whether it was the last one."""
        started = time.perf_counter()
        reply = server.handle(self._message)
        up, down, position = len(self._message), len(reply), wire.position_of(self._message)
        try:
            self._message = self.exchange.send(reply)
        except StopIteration:
            whole = True
        else:
            whole = False
        seconds = time.perf_counter() - started
        self._seconds += seconds
        self._traffic.append(Traffic(position, up, down, seconds))
        progress(self._traffic[-1])
        return whole

    def done(self) -> PreparedBatch:
        return PreparedBatch(self._traffic, self._seconds, self.count)
