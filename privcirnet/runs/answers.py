"""Requests through either protocol, one after the other, as the client sees them, and inferences prepared ahead."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple, Protocol, TypeVar, cast

import numpy as np

from privcirnet.he.layers.integer import Values
from privcirnet.he.program.exact import ExactTruncate
from privcirnet.he.program.operation import Node
from privcirnet.he.program.program import ImpossibleResultError, Program
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.interface import ServedClient
from privcirnet.he.protocol.offline.store import PreparedStore
from privcirnet.he.protocol.parties.background_preparation import PATIENCE_S, BackgroundPreparation, PreparedBatch
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.session import ExchangeProgress, Handler, Traffic, run
from privcirnet.he.protocol.schedule import schedule_of


@dataclass
class PreparedStock:
    """A stock of prepared inferences for images in sequence: filled in pauses, and whenever none is left.

    Attributes:
        count: number of inferences to keep prepared; 0: none.
        keep: whether inferences left over at the end are of use; otherwise there are no more than images.
        again: function that makes a session that refused to prepare one that runs images.
        pause_s: seconds between two images, without requests.
        more: number of images that will come after the present request.
    """

    count: int
    store: PreparedStore
    keep: bool
    again: Callable[[], object]
    pause_s: float = 0.0
    more: int = 0
    _idle: BackgroundPreparation | None = field(default=None)
    _progress: ExchangeProgress = field(default=lambda exchange: None)

    @property
    def done(self) -> list[PreparedBatch]:
        """The batches that were prepared."""
        return self._idle.done if self._idle else []

    @property
    def stopped(self) -> str:
        """The reason why no more is prepared, in words; "" if there is none."""
        return self._idle.stopped if self._idle else ""

    def before(self, client: Client, server: Handler, images: int, progress: ExchangeProgress) -> None:
        """Prepare in a pause, and if there is nothing left. Where that fails, an image is prepared when it comes.

        Raises:
            Lost: the server is gone.
        """
        if not self.count:
            return
        first, self._progress = self._idle is None, progress
        if self._idle is None:
            wait, tell = PATIENCE_S if self.pause_s else math.inf, self._tell
            self._idle = BackgroundPreparation(client, server, self.count, self.again, patience_s=wait, progress=tell)
        self._idle.count = self.count if self.keep else min(self.count, images + self.more)
        if self.pause_s and not first:
            self._idle.rest(self.pause_s)
        if not self.store.serials():
            self._idle.fill()

    def _tell(self, exchange: Traffic) -> None:
        self._progress(exchange)


T = TypeVar("T")


class Answer(NamedTuple):
    """The result of one image.

    Attributes:
        logits: logits in units of the output's step, (classes,); real for CKKS.
        traffic: traffic of each round from the moment the image came; its part of a batch.
        seconds: seconds of all rounds; its part of a batch.
        refused: reason not to use the logits; None where there is none.
        prepared: whether its preparation was done before the image came; False for programs that have none.
        processor: processor seconds of this process meanwhile, on all threads; of both parties if it runs both.
        preparation: preparation of an image that came before it; its first rounds.
    """

    logits: np.ndarray
    traffic: list[Traffic]
    seconds: float
    refused: ImpossibleResultError | None = None
    prepared: bool = False
    processor: float = 0.0
    preparation: PreparedBatch | None = None

    @property
    def online(self) -> tuple[list[Traffic], float] | None:
        """The rounds and the seconds of the online phase; None for programs that have one phase."""
        if self.preparation is None:
            return (self.traffic, self.seconds) if self.prepared else None
        return self.traffic[len(self.preparation.traffic) :], self.seconds - self.preparation.seconds

    @property
    def bytes(self) -> tuple[int, int]:
        """The bytes up and down."""
        return sum(t.up for t in self.traffic), sum(t.down for t in self.traffic)


class InferenceStep(NamedTuple):
    """The progress of an inference.

    Attributes:
        image: number of the image, from 0.
        name: name of the node whose round is done; "image" or "answer" for a round that is no node's.
        images: number of images done, with the finished part of this one.
    """

    image: int
    name: str
    bytes: int
    images: float


StepProgress = Callable[[InferenceStep], object]


def no_progress(step: InferenceStep) -> None:
    """Ignore a step."""


class Persist(Protocol):
    """A function that makes an attempt, and maybe another: :meth:`service.client.ServiceClient.persist`."""

    def __call__(self, attempt: Callable[[], T], /) -> T: ...


def once(attempt: Callable[[], T], /) -> T:
    """Return the result of the only attempt."""
    return attempt()


def answers(
    client: ServedClient,
    server: Handler,
    images: Sequence[Values] | Values,
    progress: StepProgress = no_progress,
    ahead: PreparedStock | None = None,
) -> Iterator[Answer]:
    """Yield the result of each image, see :func:`requests`.

    Args:
        images: integers of the data set, (C, H, W) each.
        progress: function called after each round with an image.

    Raises:
        RuleError: an image does not fit the program, or the server refuses.
    """
    for _, some in requests(client, server, images, progress, ahead):
        yield from some


def requests(
    client: ServedClient,
    server: Handler,
    images: Sequence[Values] | Values,
    progress: StepProgress = no_progress,
    ahead: PreparedStock | None = None,
    persist: Persist = once,
) -> Iterator[tuple[Values, list[Answer]]]:
    """Run requests one after the other. A refused result does not end them: the server must not notice.

    Args:
        images: integers of the data set, (C, H, W) each.
        progress: function called after each round with an image.
        persist: function that makes each request, again from its beginning where the server was lost.

    Yields:
        the encrypted request, and the answer to each of its images, which share a batch's cost.

    Raises:
        RuleError: an image does not fit the program, or the server refuses.
    """
    done = 0
    for request, count, batch in client.known.requests(images):
        if ahead is not None and client.known.prepares:
            steps = _Steps(client, done, 1, progress, before=True)
            persist(partial(ahead.before, cast(Client, client), server, len(images) - done, steps))
        yield (
            request,
            persist(partial(_answered, client, server, request, batch, partial(_Steps, client, done, count, progress))),
        )
        done += count


def _answered(
    client: ServedClient, server: Handler, request: Values, batch: int, steps: Callable[[], "_Steps"]
) -> list[Answer]:
    """Return the answer to each image of a request."""
    step = steps()
    count, started, refused, busy = step.count, time.perf_counter(), None, time.process_time()
    try:
        results, _ = run(client, server, request, step)
    except ImpossibleResultError as error:
        refused, results = error, error.values
    seconds, busy = (time.perf_counter() - started) / count, (time.process_time() - busy) / count
    share = [Traffic(t.position, t.up // count, t.down // count, t.seconds / count) for t in step.traffic]
    preparation = step.preparation(started) if client.known.prepares else None
    prepared = client.known.prepares and not preparation
    rows = results.reshape(batch, -1)[:count]
    return [Answer(row, share, seconds, refused, prepared, busy, preparation) for row in rows]


@dataclass
class _Steps:
    """A reporter of a request's rounds, or of those that prepare an image before it begins."""

    client: ServedClient
    first: int
    count: int
    progress: StepProgress
    before: bool = False
    traffic: list[Traffic] = field(default_factory=list[Traffic])
    sent: int = 0
    ends: list[float] = field(default_factory=list[float])

    def __call__(self, exchange: Traffic) -> None:
        self.traffic.append(exchange)
        self.ends.append(time.perf_counter())
        self.sent += exchange.up + exchange.down
        name, part = self._round() if self.client.known.prepares else ("answer", 1.0)
        self.progress(InferenceStep(self.first + self.count - 1, name, self.sent, self.first + part * self.count))

    def _round(self) -> tuple[str, float]:
        """Return the name of the last round, and the finished part of the image."""
        before = self.before or self._comes_first
        name = self._names.get(self.traffic[-1].position, "numbers" if before else "image")
        part = 0.0 if self.before else min(1.0, len(self.traffic) / self._in_all)
        return f"preparation, {name}" if before else name, part

    def preparation(self, started: float) -> PreparedBatch | None:
        """Return an image's preparation if it began when the image came."""
        positions = [exchange.position for exchange in self.traffic]
        first = len(positions) - 1 - positions[::-1].index(wire.ONLINE)
        if wire.PREPARE not in positions[:first]:
            return None
        return PreparedBatch(self.traffic[:first], self.ends[first] - self.traffic[first].seconds - started, 1)

    @property
    def _comes_first(self) -> bool:
        """Return whether the image waits for its preparation."""
        return all(exchange.position != wire.ONLINE for exchange in self.traffic)

    @cached_property
    def _names(self) -> dict[int, str]:
        nodes = self._program.nodes
        return dict(enumerate(map(name_of, nodes)))

    @cached_property
    def _in_all(self) -> int:
        """Return the rounds of an image that begins like this one."""
        schedule = schedule_of(self._program)
        return schedule.rounds_online if self.traffic[0].position == wire.ONLINE else schedule.rounds

    @property
    def _program(self) -> Program:
        return cast(Program, self.client.known)


def name_of(node: Node) -> str:
    """Return a node's name in reports: that of its module, if it comes from one, otherwise its own."""
    name = node.module or node.name
    return f"{name}, truncated" if isinstance(node.operation, ExactTruncate) else name
