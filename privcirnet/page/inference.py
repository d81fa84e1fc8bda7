"""Encrypted inference of one image at a time, told step by step, as events: the client as the page uses it.

Whatever goes wrong with an image ends that image alone. The connection is closed then, and opened again for the next.
While no image runs, a thread prepares inferences over the same connection
(:mod:`protocol.parties.background_preparation`).
"""

import json
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, NamedTuple, Protocol

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.layers.integer import Values
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.interface import ServedClient
from privcirnet.he.protocol.parties.background_preparation import BackgroundPreparation
from privcirnet.he.protocol.parties.client import Client
from privcirnet.page.content import Content, Subject, ciphertext_picture, for_canvas, subject_of
from privcirnet.runs.answers import Answer, answers


class Event(NamedTuple):
    """An event of an inference.

    Attributes:
        name: kind of event: "connecting", "program", "image", "preparing", "rounds", "request", "reply", "answer",
            "refused" or "error".
    """

    name: str
    data: Mapping[str, Any]

    def encode(self) -> bytes:
        """Return the event in the format of text/event-stream.

        >>> Event("reply", {"bytes": 3}).encode().splitlines()
        [b'event: reply', b'data: {"bytes": 3}', b'']
        """
        return f"event: {self.name}\ndata: {json.dumps(self.data)}\n\n".encode()


def plain(error: RuleError) -> dict[str, str]:
    """Return an error as plain data."""
    return {"rule": error.rule, "got": str(error.got), "remedy": error.remedy}


MOST_LOGITS = 10
"""Most logits that are shown: the largest."""

Emit = Callable[[Event], object]


class Remote(Protocol):
    """A connection to a server, which has accepted the client's keys."""

    bytes_keys: int

    @property
    def party(self) -> ServedClient:
        """The client of the server's program."""
        ...

    def handle(self, message: bytes) -> bytes:
        """Return the server's reply to a request.

        Raises:
            RuleError: the server refused, or is gone.
        """
        ...

    def reopen(self) -> None:
        """Begin a new session after one that the server ended.

        Raises:
            RuleError: the server refuses, or is gone.
        """
        ...


Connect = Callable[[], AbstractContextManager[Remote]]
"""Function that opens a connection, which ends with the block."""


class Stopped(Exception):
    """A stop of an inference: the person who watches has left, or wants no answer any more."""


class Classifier:
    """The client's side for images in sequence; its methods are called by one thread at a time.

    Args:
        prepare: number of inferences to keep prepared.
    """

    def __init__(self, connect: Connect, content: Content, prepare: int = 0) -> None:
        self._connect, self._content, self._prepare = connect, content, prepare
        self._stack, self._remote = ExitStack(), None
        self._idle: BackgroundPreparation | None = None

    def connected(self) -> tuple[Remote, float | None]:
        """Return the connection, and the seconds that it took to open it; None if it was open.

        Raises:
            RuleError: there is no server, or it refuses.
        """
        if self._remote is not None:
            return self._remote, None
        started = time.perf_counter()
        remote = self._stack.enter_context(self._connect())
        if isinstance(remote.party, Client):
            self._idle = self._stack.enter_context(
                BackgroundPreparation(remote.party, remote, self._prepare, remote.reopen)
            )
        self._remote = remote
        return remote, time.perf_counter() - started

    def stock(self) -> dict[str, Any]:
        """Return the stock of prepared inferences, as plain data, at any time and in any thread."""
        idle = self._idle
        stock = {"prepared": idle.stock, "stopped": idle.stopped} if idle else {"prepared": 0, "stopped": ""}
        return {**stock, "wanted": self._prepare}

    @property
    def subject(self) -> Subject:
        """The server's program from its greeting; the connection is opened if it is not."""
        return subject_of(self.connected()[0].party.known, self._content.levels, self._content.low)

    def close(self) -> None:
        """End the connection, if there is one."""
        self._remote = self._idle = None
        self._stack.close()

    def classify(self, image: Values, emit: Emit, stop: threading.Event) -> None:
        """Have the server classify an image, and emit every event. Nothing is raised: an error is the last event.

        Args:
            stop: event that ends the inference before its next round when it is set.
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
        was_connected = self._remote is not None
        watched = self._watched(emit, stop)
        try:
            answer = self._first(watched, image)
        except RuleError:
            if not was_connected or watched.replies:
                raise
            self.close()  # the server had hung up on a client that was silent since the last image
            answer = self._first(self._watched(emit, stop), image)
        emit(Event("refused" if answer.refused else "answer", self._outcome(answer)))

    def _first(self, watched: "ObservedConnection", image: Values) -> Answer:
        """Return the result of an image, for which the preparation under way pauses; the wait for it is counted."""
        started = time.perf_counter()
        with self._idle.image() if self._idle else nullcontext():
            waited = time.perf_counter() - started
            answer = watched.answer(image)
        return answer._replace(seconds=answer.seconds + waited)

    def _watched(self, emit: Emit, stop: threading.Event) -> "ObservedConnection":
        emit(Event("connecting", {"open": self._remote is not None}))
        remote, seconds = self.connected()
        facts = {"bytes_keys": remote.bytes_keys, "seconds": seconds}
        emit(Event("program", self.subject.facts() | facts))
        return ObservedConnection(remote, self.subject, emit, stop)

    def _outcome(self, answer: Answer) -> dict[str, Any]:
        """Return the image's cost and its logits, or the reason for a refused result, which is not shown.

        The connection stays, and nothing is asked again: the server must not notice (SECURITY.md).
        """
        result = plain(answer.refused) if answer.refused else self._logits(answer)
        return {
            **result,
            "seconds": answer.seconds,
            "bytes_up": sum(traffic.up for traffic in answer.traffic),
            "bytes_down": sum(traffic.down for traffic in answer.traffic),
            "rounds": len(answer.traffic),
            "prepared": answer.prepared,
            "online": self._online(answer),
        }

    def _online(self, answer: Answer) -> dict[str, Any] | None:
        """Return the cost of the online phase of an image that was prepared when it came; None for any other."""
        if answer.preparation is None or answer.online is None:
            return None
        traffic, seconds = answer.online
        up, down = sum(message.up for message in traffic), sum(message.down for message in traffic)
        return {"seconds": seconds, "bytes_up": up, "bytes_down": down, "rounds": len(traffic)}

    def _logits(self, answer: Answer) -> dict[str, Any]:
        values = answer.logits.astype(np.float64) * 2.0**self.subject.log_step
        count = 1 if self.subject.program and self.subject.program.answer == "top1" else MOST_LOGITS
        largest = np.argsort(-values, kind="stable")[:count]
        return {
            "logits": [{"name": self._content.name(int(i)), "value": float(values[i])} for i in largest],
            "classes": len(values),
        }


class ObservedConnection:
    """A connection that reports its messages, during one image.

    Args:
        emit: function called with every event.
        stop: event that ends the inference before its next round when it is set.
    """

    def __init__(self, remote: Remote, subject: Subject, emit: Emit, stop: threading.Event) -> None:
        self._remote, self._subject, self._emit, self._stop = remote, subject, emit, stop
        self.replies, self._prepared = 0, False
        self._last = time.perf_counter()

    def answer(self, image: Values) -> Answer:
        """Return the result of an image.

        Raises:
            RuleError: it does not fit the program, or the server refused or is gone.
            Stopped: it was stopped.
        """
        return next(answers(self._remote.party, self, [image]))

    def handle(self, message: bytes) -> bytes:
        """Return the server's reply, and report both messages.

        Raises:
            RuleError: the server refused, or is gone.
            Stopped: it was stopped.
        """
        if self._stop.is_set():
            raise Stopped
        if wire.begins(message) == wire.AGREE or wire.is_offline(message):  # before the image
            self._emit(Event("preparing", {}))
            reply = self._remote.handle(message)
            self._last = time.perf_counter()
            return reply
        self._tell(message)
        reply = self._remote.handle(message)
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        facts = {"round": self.replies, "bytes_up": len(message), "bytes_down": len(reply), "seconds": seconds}
        self._emit(Event("reply", facts))
        self.replies += 1
        if wire.begins(reply) == wire.ONLINE:  # the server has no other half: the image goes on without
            self._prepared, self.replies = False, 0
            self._tell_rounds()
        return reply

    def _tell(self, message: bytes) -> None:
        """Report a request; with prepared work it has no ciphertexts, and its bytes are drawn as they are."""
        if wire.begins(message) == wire.ONLINE:
            self._prepared = True
            self._tell_rounds()
        parts, picture = wire.unframe(message, wire.position_of(message)), None
        if parts:
            ciphertext, bits = (parts[-1], (8,)) if self._prepared else (parts[0], self._subject.bits)
            picture = for_canvas(ciphertext_picture(ciphertext, bits))
        count = 0 if self._prepared else len(parts)
        facts = {"round": self.replies, "bytes": len(message), "ciphertexts": count, "picture": picture}
        self._emit(Event("request", facts))

    def _tell_rounds(self) -> None:
        rounds = self._subject.rounds()
        self._emit(Event("rounds", {"rounds": rounds, "prepared": self._prepared}))
