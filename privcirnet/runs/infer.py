"""Encrypted inference of many images as the client alone sees it: logits, seconds, bytes and rounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.layers.integer import Values
from privcirnet.he.program.operation import Node
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.session import Traffic
from privcirnet.he.protocol.rounds.exchange import RoundPlan
from privcirnet.he.protocol.rounds.exchanges import exchanges_of
from privcirnet.he.protocol.rounds.waves import Bundle, bundles
from privcirnet.runs.answers import Answer, StepProgress, answers, name_of, no_progress
from privcirnet.runs.laps import PartyLaps, typical
from privcirnet.runs.links import over_links
from privcirnet.runs.preparation import Ahead
from privcirnet.runs.throttle import throttled
from privcirnet.service.client import ServiceClient


@dataclass(frozen=True)
class Inference:
    """What a client knows afterwards.

    Attributes:
        answers: the result of each image.
        seconds_setup: until the first request: making and loading keys, and encoding weights where that was done too.
        bytes_keys: public key and Galois keys, sent once.
        laps: the client's seconds for each image.
        ahead: what was prepared; None for nothing.
        throttle: the link that messages were held up by; "" for none.
    """

    program: Program
    answers: Sequence[Answer]
    client: Client
    seconds_setup: float
    bytes_keys: int
    laps: PartyLaps
    ahead: Ahead | None = None
    throttle: str = ""

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
        up, down = self.answers[-1].bytes
        return {
            "seconds_per_image": typical([answer.seconds for answer in self.answers]),
            "seconds_images": [answer.seconds for answer in self.answers],
            "seconds_client": self.laps.images.total,
            "throttle": self.throttle,
            "links": {} if self.throttle else _over_links(self.answers),
            **self.phases(),
            "revealed": self.program.revealed,
            "refused": self.refused,
            "rounds": len(self.answers[-1].traffic),
            "bytes_up": up,
            "bytes_down": down,
            "bytes_per_image": up + down,
            "bytes_keys": self.bytes_keys,
            "seconds": self.seconds,
            "seconds_setup": self.seconds_setup,
        }

    def phases(self) -> dict[str, Any]:
        """The keys of infer's summary.json about images with prepared material, and about its preparation."""
        online = [answer for answer in self.answers if answer.prepared]
        found = None
        if online:
            found = {
                "seconds_per_image": typical([answer.seconds for answer in online]),
                "bytes_per_image": sum(online[-1].bytes),
                "rounds": len(online[-1].traffic),
                "links": {} if self.throttle else _over_links(online),
            }
        ahead = self.ahead
        before = ahead.summary() if ahead else None
        if before and self.throttle:
            before["links"] = {}
        return {
            "prepared": len(online),
            "online": found,
            "preparation": before,
            "dropped": [*self.client.dropped, *([ahead.stopped] if ahead and ahead.stopped else [])],
        }

    @cached_property
    def _bundles(self) -> list[Bundle]:
        """Messages of the last preparation."""
        assert self.ahead is not None
        return bundles(self.program, exchanges_of(self.program), self.ahead.done[-1].count)

    def exchanged(self, position: int) -> tuple[list[Traffic], list[Traffic]]:
        """Return the rounds of a node: with the last image, and an image's part of them in the last preparation."""
        last, before = self.answers[-1], list[Traffic]()
        if last.prepared and self.ahead and self.ahead.done:
            done = self.ahead.done[-1]
            for bundle in (each for each in self._bundles if position in each.positions):
                up, down = (part / done.count for part in bundle.part(position))
                traffic = [t for t in done.traffic if t.position == bundle.position]
                seconds = (up + down) / 2
                before += [Traffic(position, int(t.up * up), int(t.down * down), t.seconds * seconds) for t in traffic]
        return [t for t in last.traffic if t.position == position], before

    def summary(self, clear: Values | None, labels: Values) -> dict[str, Any]:
        """The keys of infer's summary.json that a client alone can fill in.

        Args:
            clear: class predicted by the float network, (N,); None if there is none.
            labels: (N,).

        Returns:
            plain data for JSON.
        """
        encrypted, step = self.classes, 2.0**self.program.output.log_step
        columns, exchanges = {"label": labels, "float": clear, "encrypted": encrypted}, exchanges_of(self.program)
        return {
            "images": len(labels),
            "top1_float": None if clear is None else percent(clear == labels),
            "top1_encrypted": percent(encrypted == labels),
            **self.costs(),
            "layers": [
                self._layer(position, node, exchanges[node.name].plan)
                for position, node in enumerate(self.program.nodes)
                if node.name in exchanges
            ],
            "predictions": predictions(columns, {"logits": step * self.logits}),
        }

    def _layer(self, position: int, node: Node, plan: RoundPlan) -> dict[str, Any]:
        now, ahead = self.exchanged(position)
        return {
            "name": name_of(node),
            "rounds": len(now),
            "ciphertexts_up": plan.ciphertexts_up,
            "ciphertexts_down": plan.ciphertexts_down,
            "bytes_up": sum(t.up for t in now + ahead),
            "bytes_down": sum(t.down for t in now + ahead),
            "seconds_client": self.laps.of(node.name),
            "seconds_waiting": sum(t.seconds for t in now + ahead),
        }


def _over_links(answers: Sequence[Answer]) -> dict[str, dict[str, float]]:
    """An image's seconds over links."""
    last = answers[-1]
    return over_links(typical([answer.seconds for answer in answers]), sum(last.bytes), len(last.traffic))


def infer(  # noqa: PLR0913
    remote: ServiceClient,
    images: Sequence[Values] | Values,
    progress: StepProgress = no_progress,
    prepare: int = 0,
    keep: bool = False,
    pause_s: float = 0.0,
    *,
    throttle: str = "",
) -> Inference:
    """Have a server classify images.

    Args:
        images: integers, (N, C, H, W).
        progress: called after each round.
        prepare: inferences to keep prepared; 0: none.
        keep: whether those that are left over will be found again; otherwise none is left over.
        pause_s: seconds between two images, in which inferences are prepared.
        throttle: name of the link that messages are held up by; "" for none.

    Returns:
        the results.

    Raises:
        RuleError: there is no image, or one that does not fit the program; the server refuses or is gone.
    """
    check_some(images)
    ahead = Ahead(prepare, remote.store, keep, remote.reopen, pause_s)
    client, found, laps = remote.client, list[Answer](), PartyLaps()
    for answer in answers(client, throttled(remote, throttle), images, progress, ahead):
        laps.add(client.meter, client.preparation, ahead.images)
        found.append(answer)
    return Inference(client.program, found, client, remote.seconds, remote.bytes_keys, laps, ahead, throttle)


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
