"""One image after the other through the protocol, as the client sees it."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from privcirnet.he.layers.integer import Values
from privcirnet.he.program.operation import Node
from privcirnet.he.program.program import Program
from privcirnet.he.program.wrong_result import WrongResult
from privcirnet.he.protocol.framing import wire
from privcirnet.he.protocol.offline.message_sizes import rounds, rounds_online
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.session import Handler, Traffic, run
from privcirnet.runs.preparation import Ahead


class Answer(NamedTuple):
    """The result of one image.

    Attributes:
        logits: integers in units of the output's step, (classes,).
        traffic: of each round.
        seconds: in all.
        refused: why nobody should use the logits; None where nothing is known against them.
        processor: processor seconds that this process took meanwhile, on all threads; of both parties if it is both.
    """

    logits: Values
    traffic: list[Traffic]
    seconds: float
    refused: WrongResult | None = None
    prepared: bool = False
    processor: float = 0.0

    @property
    def bytes(self) -> tuple[int, int]:
        """Bytes up and down."""
        return sum(t.up for t in self.traffic), sum(t.down for t in self.traffic)


class Step(NamedTuple):
    """How far an inference is.

    Attributes:
        image: its number, from 0.
        name: of the node whose round is done; "image" or "result" for a round that is no node's.
        images: that are done, with the part of this one that is.
    """

    image: int
    name: str
    bytes: int
    images: float


StepProgress = Callable[[Step], object]


def no_progress(step: Step) -> None:
    """Ignore a step."""


def answers(
    client: Client,
    server: Handler,
    images: Sequence[Values] | Values,
    progress: StepProgress = no_progress,
    ahead: Ahead | None = None,
) -> Iterator[Answer]:
    """Run the protocol on one image after the other. A refused result does not end it: the server must not notice.

    Args:
        images: integers, (C, H, W) each.
        progress: called after each round with an image.
        ahead: prepares inferences before their images; None: nobody does.

    Yields:
        the result of each image.

    Raises:
        RuleError: an image does not fit the program, or the server refuses.
    """
    for number, image in enumerate(images):
        if ahead is not None:
            ahead.before(client, server, len(images) - number, _Steps(client.program, number, progress, before=True))
        step = _Steps(client.program, number, progress)
        traffic = step.traffic
        started, refused, busy = time.perf_counter(), None, time.process_time()
        try:
            logits, _ = run(client, server, image, step)
        except WrongResult as error:
            refused, logits = error, error.values
        seconds, busy = time.perf_counter() - started, time.process_time() - busy
        yield Answer(logits.reshape(-1), traffic, seconds, refused, client.used == "prepared", busy)


@dataclass
class _Steps:
    """Tells of an image's rounds, or of those that prepare it, with which it does not begin yet."""

    program: Program
    image: int
    progress: StepProgress
    before: bool = False
    traffic: list[Traffic] = field(default_factory=list[Traffic])

    def __call__(self, exchange: Traffic) -> None:
        self.traffic.append(exchange)
        sent = sum(done.up + done.down for done in self.traffic)
        names = {wire.OUTPUT: "result", wire.ROUNDED: "check"} | dict(enumerate(map(name_of, self.program.nodes)))
        name, part = names.get(exchange.position, "numbers" if self.before else "image"), 0.0
        if self.before:
            name = f"preparation, {name}"
        else:
            in_all = (rounds_online if self.traffic[0].position == wire.ONLINE else rounds)(self.program)
            part = min(1.0, len(self.traffic) / in_all)
        self.progress(Step(self.image, name, sent, self.image + part))


def name_of(node: Node) -> str:
    """Return what a node is called in reports: the name of its module, if it comes from one, otherwise its own."""
    return node.module or node.name
