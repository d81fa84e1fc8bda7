"""The client: it has the image and the keys, and never sees a weight."""

import json
from collections.abc import Generator

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.encodings.integer import Values
from privcirnet.he.engines.interface import client_engine
from privcirnet.he.program import limits, manifest
from privcirnet.he.program.interpreter import apply
from privcirnet.he.program.operations import ClientAided, Input, Linear, Product, Square, Truncate
from privcirnet.he.program.program import Node
from privcirnet.he.protocol import linear, message_sizes, product, shares, square, wire
from privcirnet.he.protocol.meter import Meter
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues

Exchange = Generator[bytes, bytes, Values]
"""Yields requests for the server, is sent its replies, returns the logits."""


class Client:
    """One client of one program.

    Args:
        greeting: what :meth:`Server.greeting` returned: the program's public description.
        engine: "tenseal", or "cleartext" for a rehearsal that hides nothing.

    Attributes:
        program: the public description, without weights.
        meter: what was measured.
        shares: the client's own share of every node of the last inference.

    Raises:
        RuleError: the greeting is damaged, or its parameters are not 128-bit secure.
    """

    def __init__(self, greeting: bytes, engine: str = "tenseal") -> None:
        if len(greeting) > limits.MAX_BYTES:
            raise RuleError(
                f"a greeting must have at most {limits.MAX_BYTES} bytes",
                got=f"{len(greeting)} bytes",
                remedy="connect to a server",
            )
        try:
            description = json.loads(greeting)
        except (ValueError, RecursionError):
            raise RuleError(
                "a greeting must be JSON", got=f"{len(greeting)} bytes that are not", remedy="connect to a server"
            ) from None
        self.program = manifest.from_dict(description)
        self.meter = Meter()
        self.shares: dict[str, Residues] = {}
        self._engine = client_engine(engine, self.program.parameters)

    def keys(self) -> bytes:
        """A public key, and Galois keys for exactly the program's rotations; send them once."""
        return self._engine.public_keys(self.program.column_steps)

    def infer(self, image: Values) -> Exchange:
        """Run the program on one image.

        Args:
            image: integers in the input node's range, of its shape.

        Returns:
            a generator: it yields requests, is sent replies, and returns the logits as integers in units of the
            output's step.

        Raises:
            RuleError: the image has the wrong shape or range, or a reply is not what the protocol expects.
        """
        check_image(self.program.nodes[0], image)
        t = self.program.parameters.plain_modulus
        held = self.shares = dict[str, Residues]()
        for position, node in enumerate(self.program.nodes):
            arguments = [held[name] for name in node.inputs]
            match node.operation:
                case Input():
                    held[node.name] = modular.residues(image.reshape(node.shape), t)
                case Linear() | Square() | Product():
                    held[node.name] = yield from self._exchange(position, node, arguments)
                case ClientAided():
                    held[node.name] = yield from self._revealed(position, node, arguments[0])
                case Truncate(bits):
                    held[node.name] = shares.truncate_client(arguments[0], bits, t)
                case operation:
                    held[node.name] = shares.local(operation, arguments, t)
        return (yield from self._whole(wire.OUTPUT, held[self.program.output.name]))

    def _whole(self, position: int, share: Residues) -> Exchange:
        """Values of which the server hands out its share."""
        t = self.program.parameters.plain_modulus
        (other,) = wire.unframe((yield wire.frame(position, [])), position, 1)
        return modular.centered(modular.add(share, _share_from_bytes(other, share, t), t), t)

    def _revealed(self, position: int, node: Node, share: Residues) -> Generator[bytes, bytes, Residues]:
        """All of a result that the client computes in clear."""
        values = yield from self._whole(position, share)
        with self.meter.time(node.name):
            return modular.residues(apply(node.operation, [values]), self.program.parameters.plain_modulus)

    def _exchange(self, position: int, node: Node, arguments: list[Residues]) -> Generator[bytes, bytes, Residues]:
        share = arguments[0]
        with self.meter.time(node.name):
            match node.operation:
                case Linear(layer):
                    parts = linear.request(layer, share, self._engine)
                case Product():
                    parts = product.request(node.operation, (share, arguments[1]), self._engine)
                case _:
                    parts = square.request(share, self._engine)
            message = wire.frame(position, parts)
        reply = yield message
        with self.meter.time(node.name):
            _, due = message_sizes.exchanged(node, self.program.parameters)
            parts = wire.unframe(reply, position, due)
            match node.operation:
                case Linear(layer):
                    return linear.finish(layer, parts, self._engine)
                case Product():
                    return product.finish(node.operation, (share, arguments[1]), parts, self._engine)
                case _:
                    return square.finish(share, parts, self._engine)


def check_image(node: Node, image: Values) -> None:
    """Raise unless an image fits the program's input.

    Raises:
        RuleError: wrong shape, not integers, or out of range.
    """
    assert isinstance(node.operation, Input)
    low, high = node.operation.low, node.operation.high
    if tuple(image.shape) != node.shape:
        raise RuleError(
            "an image must have the program's input shape",
            got=f"{tuple(image.shape)} for {node.shape}",
            remedy="resize the image or export a program for this size",
        )
    if image.dtype.kind not in "iu" or image.min() < low or image.max() > high:
        raise RuleError(
            f"pixels must be integers in [{low}, {high}]",
            got=f"{image.dtype} in [{image.min()}, {image.max()}]",
            remedy="scale the image as in training",
        )


def _share_from_bytes(message: bytes, like: Residues, t: int) -> Residues:
    if len(message) != like.nbytes:
        raise RuleError("a share must hold one word a value", got=f"{len(message)} bytes", remedy="send it again")
    share = np.frombuffer(message, dtype="<u8").astype(np.uint64).reshape(like.shape)
    if (share >= t).any():
        raise RuleError("a share must be under t", got=int(share.max()), remedy="send it again")
    return share
