"""Encrypted inference of many images with everything checked and measured: what infer.py reports."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.cost import Link, Profile, linear_cost, product_cost, square_cost
from privcirnet.he.modular import Residues
from privcirnet.he.program import Linear, Node, Product, Program, Square, Values, interpret
from privcirnet.he.protocol import audit, square
from privcirnet.he.protocol.client import Client
from privcirnet.he.protocol.server import Server, Session
from privcirnet.he.protocol.session import Traffic, run
from privcirnet.he.room import Room

UNIT = "1 unit in the last place of each truncation"


@dataclass(frozen=True)
class Evaluation:
    """Results of an evaluation.

    Attributes:
        program: with weights.
        integer: logits of the integer interpreter, (N, classes), in units of the output's step.
        encrypted: logits of the protocol, likewise.
        wrong: for each image the nodes whose decrypted value does not follow from their inputs (empty: all right).
        traffic: exchanges of the last image.
        client: with its measurements.
        session: with its measurements.
        seconds: of all inferences, keys and set-up left out.
        seconds_setup: encoding the weights, making and loading keys.
        bytes_keys: public key and Galois keys, sent once.
    """

    program: Program
    integer: Values
    encrypted: Values
    wrong: list[list[str]]
    traffic: list[Traffic]
    client: Client
    session: Session
    seconds: float
    seconds_setup: float
    bytes_keys: int

    def summary(self, clear: np.ndarray, labels: np.ndarray, profile: Profile, link: Link) -> dict[str, Any]:
        """The keys of infer's summary.json that do not depend on where things are.

        Args:
            clear: class predicted by the float network, (N,).
            labels: (N,).
            profile: for predicted times.
            link: likewise.
        """
        integer, encrypted = self.integer.argmax(axis=1), self.encrypted.argmax(axis=1)
        count, step = len(labels), 2.0**self.program.output.log_step
        rows = zip(labels.tolist(), clear.tolist(), integer.tolist(), encrypted.tolist(), strict=True)
        predictions = [
            {"index": i, "label": label, "float": f, "integer": n, "encrypted": e}
            for i, (label, f, n, e) in enumerate(rows)
        ]
        return {
            "images": count,
            "top1_float": 100.0 * float((clear == labels).mean()),
            "top1_integer": 100.0 * float((integer == labels).mean()),
            "top1_encrypted": 100.0 * float((encrypted == labels).mean()),
            "logits_equal": sum(not nodes for nodes in self.wrong),
            "argmax_equal": int((integer == encrypted).sum()),
            "unit": UNIT,
            "wrong_nodes": sorted({name for nodes in self.wrong for name in nodes}),
            "logit_max_difference": step * float(np.abs(self.integer - self.encrypted).max()),
            "logit_range": step * float(np.abs(self.integer).max()),
            "seconds_per_image": self.seconds / count,
            "bytes_per_image": sum(t.up + t.down for t in self.traffic),
            "bytes_keys": self.bytes_keys,
            "seconds": self.seconds,
            "seconds_setup": self.seconds_setup,
            "layers": [self._layer(i, n, profile, link, count) for i, n in enumerate(self.program.nodes) if _talks(n)],
            "predictions": predictions,
        }

    def _layer(self, position: int, node: Node, profile: Profile, link: Link, images: int) -> dict[str, Any]:
        traffic = next(t for t in self.traffic if t.position == position)
        counts = self.session.meter.counts[node.name]
        seconds = self.client.meter.seconds[node.name] + self.session.meter.seconds[node.name]
        match node.operation:
            case Linear(layer):
                up, down = layer.ciphertexts_in, layer.ciphertexts_out
                cost, kind, encoding = linear_cost(layer, profile, link), layer.shape.kind, layer.encoding
                b, planned = layer.block_size, (layer.rotations, layer.pmults)
            case Product(left, right):
                up, down = (getattr(left, n) + getattr(right, n) for n in ("ciphertexts_in", "ciphertexts_out"))
                cost, kind, encoding = product_cost(left, right, profile, link), "product", left.encoding
                b, planned = 1, (left.rotations + right.rotations, left.pmults + right.pmults)
            case _:
                values = int(np.prod(node.shape))
                up = down = square.ciphertexts(values, self.program.parameters.ring_degree)
                cost, kind, encoding = square_cost(values, profile, link), "square", "slots"
                b, planned = 1, (0, up)
        return {
            "name": node.module or node.name,
            "kind": kind,
            "encoding": encoding,
            "block_size": b,
            "rotations": counts["rotate"] // images,
            "pmults": counts["pmult"] // images,
            "rotations_planned": planned[0],
            "pmults_planned": planned[1],
            "ciphertexts_up": up,
            "ciphertexts_down": down,
            "bytes_up": traffic.up,
            "bytes_down": traffic.down,
            "seconds_predicted": cost.total,
            "seconds": seconds / images,
        }


def evaluate(
    program: Program,
    spectra: Mapping[str, Residues],
    images: Values,
    engine: str = "kernel",
    progress: Callable[[], object] | None = None,
    room: Room | None = None,
) -> Evaluation:
    """Run the protocol on every image and check every step of it.

    Args:
        program: with weights.
        spectra: its weight spectra.
        images: integers, (N, C, H, W).
        engine: "kernel", "tenseal" or "cleartext".
        progress: called after each image.
        room: for the server's encoded weights.

    Raises:
        RuleError: no image, or one that does not fit the program.
    """
    if not len(images):
        raise RuleError("there must be an image to evaluate", got=0, remedy="give one or more")
    started = time.perf_counter()
    server = Server(program, engine, spectra, room=room)
    client = Client(server.greeting(), engine)
    keys = client.keys()
    session = server.session(keys)
    setup, seconds = time.perf_counter() - started, 0.0
    integer, encrypted, wrong = [], [], []
    traffic: list[Traffic] = []
    for image in images:
        started = time.perf_counter()
        logits, traffic = run(client, session, image)
        seconds += time.perf_counter() - started
        values = audit.reconstruct(program, client.shares, session.shares)
        ends = {program.nodes[0].name: image, program.output.name: logits}
        foreign = [name for name, value in ends.items() if not np.array_equal(values[name], value)]
        wrong.append(audit.wrong_nodes(program, values) + foreign)
        integer.append(interpret(program, image)[program.output.name].reshape(-1))
        encrypted.append(logits.reshape(-1))
        if progress:
            progress()
    stacked = np.stack(integer), np.stack(encrypted)
    return Evaluation(program, *stacked, wrong, traffic, client, session, seconds, setup, len(keys))


def _talks(node: Node) -> bool:
    """Whether a node costs an exchange."""
    return isinstance(node.operation, Linear | Square | Product)
