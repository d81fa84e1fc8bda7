"""Encrypted inference of one image at a time, told step by step: the client as the page uses it.

Whatever goes wrong with an image ends that image alone. The connection is closed then, and opened again for the next.
"""

import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.encodings.integer import Values
from privcirnet.he.program.program import Program
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.client import Client
from privcirnet.page.content import Content, described
from privcirnet.page.events import Event, plain
from privcirnet.page.pictures import ciphertext_picture, for_canvas
from privcirnet.pipeline.answers import Answer, answers

MOST_LOGITS = 10
"""Logits that are shown, at most: the largest."""

Emit = Callable[[Event], object]


class Remote(Protocol):
    """A connection to a server, which has accepted the client's keys."""

    client: Client
    bytes_keys: int

    def handle(self, message: bytes) -> bytes:
        """Return the server's reply to a request.

        Args:
            message: the client's request.

        Raises:
            RuleError: the server refused, or is gone.
        """
        ...


Connect = Callable[[], AbstractContextManager[Remote]]
"""Opens a connection, which ends with the block."""


class Stopped(Exception):
    """The person who watches has left, or wants no answer any more."""


class Classifier:
    """The client's side for one image after the other; its methods are called by one thread at a time.

    Args:
        connect: opens a connection to the server.
        content: names of classes.
    """

    def __init__(self, connect: Connect, content: Content) -> None:
        self._connect, self._content = connect, content
        self._stack, self._remote = ExitStack(), None

    def connected(self) -> tuple[Remote, float | None]:
        """Return the connection, and the seconds that it took to open it; None if it was open.

        Raises:
            RuleError: there is no server, or it refuses.
        """
        if self._remote is not None:
            return self._remote, None
        started = time.perf_counter()
        self._remote = self._stack.enter_context(self._connect())
        return self._remote, time.perf_counter() - started

    @property
    def program(self) -> Program:
        """The server's program, as its greeting described it; the connection is opened if it is not."""
        return self.connected()[0].client.program

    def close(self) -> None:
        """End the connection, if there is one."""
        self._remote = None
        self._stack.close()

    def classify(self, image: Values, emit: Emit, stop: threading.Event) -> None:
        """Have the server classify an image. Nothing is raised: an error is the last event.

        Args:
            image: integers, of the program's shape and range.
            emit: called with every event.
            stop: ends the inference before its next round when it is set.
        """
        try:
            self._classify(image, emit, stop)
            return
        except RuleError as error:
            emit(Event("error", plain(error)))
        except Stopped:
            rule, remedy = "an image must be watched to its end", "choose it again"
            emit(Event("error", plain(RuleError(rule, got="a stop", remedy=remedy))))
        except Exception:
            emit(Event("error", plain(RuleError("the page must not fail", got="it did", remedy="see the terminal"))))
            traceback.print_exc()
        self.close()

    def _classify(self, image: Values, emit: Emit, stop: threading.Event) -> None:
        kept = self._remote is not None
        watched = self._watched(emit, stop)
        try:
            answer = watched.answer(image)
        except RuleError:
            if not kept or watched.replies:
                raise
            self.close()  # the server had hung up on a client that was silent since the last image
            answer = self._watched(emit, stop).answer(image)
        emit(Event("answer", self._answer(answer)))

    def _watched(self, emit: Emit, stop: threading.Event) -> "Watched":
        emit(Event("connecting", {"open": self._remote is not None}))
        remote, seconds = self.connected()
        facts = {"bytes_keys": remote.bytes_keys, "seconds": seconds}
        emit(Event("program", described(remote.client.program) | facts))
        return Watched(remote, emit, stop)

    def _answer(self, answer: Answer) -> dict[str, Any]:
        remote, _ = self.connected()
        values = answer.logits * 2.0**remote.client.program.output.log_step
        largest = np.argsort(-values, kind="stable")[:MOST_LOGITS]
        return {
            "logits": [{"name": self._content.name(int(i)), "value": float(values[i])} for i in largest],
            "classes": len(values),
            "seconds": answer.seconds,
            "bytes_up": sum(traffic.up for traffic in answer.traffic),
            "bytes_down": sum(traffic.down for traffic in answer.traffic),
            "rounds": len(answer.traffic),
        }


class Watched:
    """A connection whose messages are told as they go by, during one image.

    Args:
        remote: the connection.
        emit: called with every event.
        stop: ends the inference before its next round when it is set.

    Attributes:
        replies: received so far.
    """

    def __init__(self, remote: Remote, emit: Emit, stop: threading.Event) -> None:
        self._remote, self._emit, self._stop = remote, emit, stop
        self._bits = remote.client.program.parameters.coefficient_bits[:-1]
        self.replies = 0
        self._last = time.perf_counter()

    def answer(self, image: Values) -> Answer:
        """Return the result of an image.

        Args:
            image: integers, of the program's shape and range.

        Raises:
            RuleError: it does not fit the program, or the server refused or is gone.
            Stopped: it was stopped.
        """
        found: Iterator[Answer] = answers(self._remote.client, self, [image])
        return next(found)

    def handle(self, message: bytes) -> bytes:
        """Return the server's reply, and tell of both messages.

        Args:
            message: the client's request.

        Raises:
            RuleError: the server refused, or is gone.
            Stopped: it was stopped.
        """
        if self._stop.is_set():
            raise Stopped
        parts = wire.unframe(message, wire.position_of(message))
        picture = for_canvas(ciphertext_picture(parts[0], self._bits)) if parts else None
        facts = {"round": self.replies, "bytes": len(message), "ciphertexts": len(parts), "picture": picture}
        self._emit(Event("request", facts))
        reply = self._remote.handle(message)
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        facts = {"round": self.replies, "bytes_up": len(message), "bytes_down": len(reply), "seconds": seconds}
        self._emit(Event("reply", facts))
        self.replies += 1
        return reply
