"""One image after the other through the protocol, as the client sees it."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from privcirnet.he.encodings.integer import Values
from privcirnet.he.program.program import Node
from privcirnet.he.protocol.answer import WrongResult
from privcirnet.he.protocol.client import Client
from privcirnet.he.protocol.session import Handler, Traffic, run
from privcirnet.pipeline.preparation import Ahead


class Answer(NamedTuple):
    """The result of one image.

    Attributes:
        logits: integers in units of the output's step, (classes,).
        traffic: of each round.
        seconds: in all.
        refused: why nobody should use the logits; None where nothing is known against them.
        prepared: whether it was inferred with prepared material.
    """

    logits: Values
    traffic: list[Traffic]
    seconds: float
    refused: WrongResult | None = None
    prepared: bool = False

    @property
    def bytes(self) -> tuple[int, int]:
        """Bytes up and down."""
        return sum(t.up for t in self.traffic), sum(t.down for t in self.traffic)


class Step(NamedTuple):
    """How far an inference is.

    Attributes:
        image: its number, from 0.
        name: of the node whose round is done; "result" for the last round.
        bytes: of this image so far, both ways.
    """

    image: int
    name: str
    bytes: int


StepProgress = Callable[[Step], object]


def no_progress(step: Step) -> None:
    """Ignore a step.

    Args:
        step: what has been done.
    """


def answers(
    client: Client,
    server: Handler,
    images: Sequence[Values] | Values,
    progress: StepProgress = no_progress,
    ahead: Ahead | None = None,
) -> Iterator[Answer]:
    """Run the protocol on one image after the other. A refused result does not end it: the server must not notice.

    Args:
        client: with its keys accepted.
        server: its session.
        images: integers, (C, H, W) each.
        progress: called after each round with an image.
        ahead: prepares inferences before their images; None: nobody does.

    Yields:
        the result of each image.

    Raises:
        RuleError: an image does not fit the program, or the server refuses.
    """
    nodes = dict(enumerate(client.program.nodes))
    for number, image in enumerate(images):
        if ahead is not None:
            ahead.before(client, server, len(images) - number)
        traffic: list[Traffic] = []

        def step(exchange: Traffic, number: int = number, traffic: list[Traffic] = traffic) -> None:
            traffic.append(exchange)
            exchanged = sum(done.up + done.down for done in traffic)
            node = nodes.get(exchange.position)
            progress(Step(number, name_of(node) if node else "result", exchanged))

        started, refused = time.perf_counter(), None
        try:
            logits, _ = run(client, server, image, step)
        except WrongResult as error:
            refused, logits = error, error.values
        seconds = time.perf_counter() - started
        yield Answer(logits.reshape(-1), traffic, seconds, refused, client.used == "prepared")


def name_of(node: Node) -> str:
    """Return what a node is called in reports: the name of its module, if it comes from one, otherwise its own.

    Args:
        node: of a program.
    """
    return node.module or node.name
