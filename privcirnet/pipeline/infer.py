"""Encrypted inference of many images as the client alone sees it: logits, seconds, bytes and rounds."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.encodings.integer import Values
from privcirnet.he.planning.profile import LINKS, Link
from privcirnet.he.program.program import Node, Program
from privcirnet.he.protocol.answer import WrongResult
from privcirnet.he.protocol.client import Client
from privcirnet.he.protocol.exchanges import exchanges_of
from privcirnet.he.protocol.session import Handler, Traffic, run
from privcirnet.service.client import ServiceClient


class Answer(NamedTuple):
    """The result of one image.

    Attributes:
        logits: integers in units of the output's step, (classes,).
        traffic: of each round.
        seconds: in all.
        refused: why nobody should use the logits; None where nothing is known against them.
    """

    logits: Values
    traffic: list[Traffic]
    seconds: float
    refused: WrongResult | None = None


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
    client: Client, server: Handler, images: Iterable[Values], progress: StepProgress = no_progress
) -> Iterator[Answer]:
    """Run the protocol on one image after the other. A refused result does not end it: the server must not notice.

    Args:
        client: with its keys accepted.
        server: its session.
        images: integers, (C, H, W) each.
        progress: called after each round.

    Yields:
        the result of each image.

    Raises:
        RuleError: an image does not fit the program, or the server refuses.
    """
    nodes = dict(enumerate(client.program.nodes))
    for number, image in enumerate(images):
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
        yield Answer(logits.reshape(-1), traffic, time.perf_counter() - started, refused)


def name_of(node: Node) -> str:
    """Return what a node is called in reports: the name of its module, if it comes from one, otherwise its own.

    Args:
        node: of a program.
    """
    return node.module or node.name


@dataclass(frozen=True)
class Inference:
    """What a client knows afterwards.

    Attributes:
        program: the public description.
        answers: the result of each image.
        client: with its measurements.
        seconds_setup: until the first request: making and loading keys, and encoding weights where that was done too.
        bytes_keys: public key and Galois keys, sent once.
    """

    program: Program
    answers: Sequence[Answer]
    client: Client
    seconds_setup: float
    bytes_keys: int

    @property
    def logits(self) -> Values:
        """Integers in units of the output's step, (N, classes)."""
        return np.stack([answer.logits for answer in self.answers])

    @property
    def refused(self) -> list[int]:
        """Indices of the images whose result the client refused."""
        return [index for index, answer in enumerate(self.answers) if answer.refused]

    @property
    def classes(self) -> Values:
        """Predicted class of each image, (N,); -1 where the result was refused."""
        found = self.logits.argmax(axis=1)
        found[self.refused] = -1
        return found

    @property
    def seconds(self) -> float:
        """Of all inferences, set-up left out."""
        return sum(answer.seconds for answer in self.answers)

    def costs(self) -> dict[str, Any]:
        """The keys of infer's summary.json about time and traffic."""
        count, traffic = len(self.answers), self.answers[-1].traffic
        up, down = sum(t.up for t in traffic), sum(t.down for t in traffic)
        return {
            "seconds_per_image": self.seconds / count,
            "seconds_images": [answer.seconds for answer in self.answers],
            "seconds_client": sum(self.client.meter.seconds.values()) / count,
            "links": {
                name: self._over(link, up + down, len(traffic)) for name, link in LINKS.items() if name != "local"
            },
            "revealed": self.program.revealed,
            "refused": self.refused,
            "rounds": len(traffic),
            "bytes_up": up,
            "bytes_down": down,
            "bytes_per_image": up + down,
            "bytes_keys": self.bytes_keys,
            "seconds": self.seconds,
            "seconds_setup": self.seconds_setup,
        }

    def _over(self, link: Link, size: int, rounds: int) -> dict[str, float]:
        """Seconds of an image over a link: what was measured here, and what its bytes and round trips add."""
        compute = median(answer.seconds for answer in self.answers)
        parts = {"compute": compute, "transfer": size / link.bandwidth, "round_trips": rounds * link.round_trip}
        return {**parts, "seconds": sum(parts.values())}

    def summary(self, clear: Values | None, labels: Values) -> dict[str, Any]:
        """The keys of infer's summary.json that a client alone can fill in.

        Args:
            clear: class predicted by the float network, (N,); None if there is none.
            labels: (N,).

        Returns:
            plain data for JSON.
        """
        encrypted, step = self.classes, 2.0**self.program.output.log_step
        columns = {"label": labels, "float": clear, "encrypted": encrypted}
        return {
            "images": len(labels),
            "top1_float": None if clear is None else percent(clear == labels),
            "top1_encrypted": percent(encrypted == labels),
            **self.costs(),
            "layers": [self._layer(traffic) for traffic in self.answers[-1].traffic[:-1]],
            "predictions": predictions(columns, {"logits": step * self.logits}),
        }

    def _layer(self, traffic: Traffic) -> dict[str, Any]:
        node = self.program.nodes[traffic.position]
        plan = exchanges_of(self.program)[node.name].plan
        return {
            "name": name_of(node),
            "rounds": 1,
            "ciphertexts_up": plan.ciphertexts_up,
            "ciphertexts_down": plan.ciphertexts_down,
            "bytes_up": traffic.up,
            "bytes_down": traffic.down,
            "seconds_client": self.client.meter.seconds[node.name] / len(self.answers),
            "seconds_waiting": traffic.seconds,
        }


def infer(remote: ServiceClient, images: Sequence[Values] | Values, progress: StepProgress = no_progress) -> Inference:
    """Have a server classify images.

    Args:
        remote: connected.
        images: integers, (N, C, H, W).
        progress: called after each round.

    Returns:
        the results.

    Raises:
        RuleError: there is no image, or one that does not fit the program; the server refuses or is gone.
    """
    check_some(images)
    found = [*answers(remote.client, remote, images, progress)]
    return Inference(remote.client.program, found, remote.client, remote.seconds, remote.bytes_keys)


def check_some(images: Sequence[Values] | Values) -> None:
    """Raise unless there is an image.

    Args:
        images: integers, (N, C, H, W).

    Raises:
        RuleError: there is none.
    """
    if not len(images):
        raise RuleError("there must be an image to evaluate", got=0, remedy="give one or more")


def percent(right: Values) -> float:
    """Return the share of entries that are true, in percent.

    Args:
        right: booleans, (N,).
    """
    return 100.0 * float(np.mean(right))


def predictions(classes: dict[str, Values | None], logits: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each image: its index, its classes and its logits.

    Args:
        classes: by name, (N,) each; those that are None are left out.
        logits: by name, (N, classes) each, in the network's units.
    """
    found = {name: values.tolist() for name, values in (classes | logits).items() if values is not None}
    return [
        {"index": index, **dict(zip(found, row, strict=True))}
        for index, row in enumerate(zip(*found.values(), strict=True))
    ]
