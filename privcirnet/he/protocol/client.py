"""The client: it has the image and the keys, and never sees a weight."""

import json
from collections.abc import Generator
from types import TracebackType
from typing import cast

from privcirnet.errors import RuleError
from privcirnet.he.encodings.integer import Values
from privcirnet.he.engines.interface import ClientEngine, client_engine
from privcirnet.he.program import limits, manifest, signature
from privcirnet.he.program.operations import ClientAided, Input
from privcirnet.he.program.program import Node
from privcirnet.he.program.signature import PublicKey
from privcirnet.he.protocol import answer, shares, wire
from privcirnet.he.protocol.exchange import Exchange
from privcirnet.he.protocol.exchanges import exchanges_of
from privcirnet.he.protocol.meter import Meter
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.wipe import wipe


class Client:
    """One client of one program; ``with`` closes it.

    Args:
        greeting: what :meth:`Server.greeting` returned: the program's public description.
        engine: "kernel", "tenseal" (slower; the server need not have the same), or "cleartext" for a rehearsal that
            hides nothing.
        key: with which the description must be signed; None for any.

    Attributes:
        program: the public description, without weights.
        meter: what was measured.
        shares: the client's own share of every node of the last inference.

    Raises:
        RuleError: the greeting is damaged, not signed with the key, or its parameters are not 128-bit secure; the
            engine is unknown.
    """

    def __init__(self, greeting: bytes, engine: str = "kernel", key: PublicKey | None = None) -> None:
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
        if key is not None:
            check_signature(key, description)
        self.program = manifest.from_dict(description)
        self.meter = Meter()
        self.shares: dict[str, Residues] = {}
        self._exchanges = exchanges_of(self.program)
        self._engine: ClientEngine | None = client_engine(engine, self.program.parameters)
        self._finished = False

    def close(self) -> None:
        """Forget the keys and the shares, whose memory is zeroed. No image can be inferred afterwards."""
        if self._engine is not None:
            self._engine.close()
        self._engine = None
        wipe(self.shares.values())
        self.shares = {}

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def keys(self) -> bytes:
        """A public key, and Galois keys for exactly the program's rotations; they are sent once."""
        return self._open().public_keys(self.program.column_steps)

    def _open(self) -> ClientEngine:
        assert self._engine is not None, "a closed client has no keys"
        return self._engine

    def infer(self, image: Values) -> Generator[bytes, bytes, Values]:
        """Run the program on one image.

        Args:
            image: integers in the input node's range, of its shape.

        Yields:
            requests for the server; the generator is sent the reply to each.

        Returns:
            the logits as integers in units of the output's step.

        Raises:
            RuleError: the image has the wrong shape or range, or a reply is not what the protocol expects.
            WrongResult: the result, or a value that this client saw on the way to it, is wider than right ones are. The
                server is not told: all of the image's requests were sent.
        """
        source, *others = self.program.nodes
        t = self.program.parameters.plain_modulus
        check_image(source, image)
        if self._finished:
            wipe(self.shares.values())
        self._finished, seen = False, dict[str, tuple[int, int]]()
        held = self.shares = {source.name: modular.residues(image.reshape(source.shape), t)}
        for position, node in enumerate(others, start=1):
            arguments = [held[name] for name in node.inputs]
            if node.name in self._exchanges:
                exchange = self._exchanges[node.name]
                held[node.name], parts = yield from self._round(position, node.name, exchange, arguments)
                if isinstance(node.operation, ClientAided):
                    found = answer.width(shares.reveal(arguments[0], parts[0], t))
                    seen[node.inputs[0]] = found, node.operation.value_bits
            else:
                held[node.name] = shares.local_client(node.operation, arguments, t)
        (share,) = wire.unframe((yield wire.frame(wire.OUTPUT, [])), wire.OUTPUT, 1)
        self._finished = True
        values = answer.result(self.program, held[self.program.output.name], share)
        seen[self.program.output.name] = answer.width(values), self.program.output_bits
        answer.check_width(self.program, seen, values)
        return values

    def _round(
        self, position: int, name: str, exchange: Exchange, arguments: list[Residues]
    ) -> Generator[bytes, bytes, tuple[Residues, list[bytes]]]:
        """Yield the request, be sent the reply, return the share of the result and the reply's parts."""
        with self.meter.time(name):
            request = wire.frame(position, exchange.request(arguments, self._open()))
        reply = yield request
        with self.meter.time(name):
            parts = wire.unframe(reply, position, exchange.plan.parts_down)
            return exchange.finish(arguments, parts, self._open()), parts


def check_signature(key: PublicKey, greeting: object) -> None:
    """Raise unless a greeting's description is signed with a key.

    Args:
        key: that the client trusts.
        greeting: plain data, from anybody.

    Raises:
        RuleError: it is not.
    """
    description = dict(cast(dict[str, object], greeting)) if isinstance(greeting, dict) else {}
    found = description.pop("signature", "")
    try:
        signed = bytes.fromhex(found) if isinstance(found, str) else b""
    except ValueError:
        signed = b"no signature"
    signature.check_description(key, description, signed)


def check_image(node: Node, image: Values) -> None:
    """Raise unless an image fits the program's input.

    Args:
        node: the program's input node.
        image: what is to be checked, an array of any shape and type.

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
