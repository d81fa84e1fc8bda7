"""Both parties of a leveled program as a service runs them: keys once, then a request and an answer for each image.

Messages are framed as those of the interactive protocol are (:mod:`protocol.framing.wire`), so that one service serves
both. Nothing in them is parsed before its length is what the parameters fix.
"""

import json
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.circuits.bfv.engines import ENGINES
from privcirnet.he.circuits.bfv.weight_cache import WeightCache
from privcirnet.he.layers.integer import Values
from privcirnet.he.program.signature import PublicKey
from privcirnet.he.protocol.framing import wire
from privcirnet.he.protocol.framing.greeting import read_greeting
from privcirnet.he.protocol.framing.message_sizes import Sizes
from privcirnet.he.protocol.framing.meter import Meter
from privcirnet.he.protocol.leveled import description
from privcirnet.he.protocol.leveled.inference import (
    LeveledInferenceClient,
    LeveledInferenceServer,
    Message,
    Watched,
)
from privcirnet.he.protocol.leveled.leveled_program import Description, LeveledProgram
from privcirnet.he.protocol.offline.store import PreparedStore

KEYS, REQUEST = 0, 1
"""Positions of the messages from a client; the answer's is :data:`protocol.framing.wire.OUTPUT`."""
WORK = "network"
"""What a meter calls all of a party's work."""


class LeveledServer:
    """One program, its weights encoded, ready for sessions.

    Args:
        engine: one of :data:`circuits.bfv.engines.ENGINES`.
        signature: of the program's description, for clients that pin a key; empty for none.
        watched: whether sessions keep the last image's values for an audit.
        cache: how much memory encoded weights may take; None: as much as they need.

    Raises:
        RuleError: the engine is unknown.
    """

    def __init__(
        self,
        program: LeveledProgram,
        engine: str = "kernel",
        signature: bytes = b"",
        *,
        watched: bool = False,
        cache: WeightCache | None = None,
    ) -> None:
        check_engine(engine, program.description)
        self.program, self._signature, self._watched = program, signature, watched
        self.inference = LeveledInferenceServer(program.plan, program.parameters, engine, cache)

    @property
    def sizes(self) -> Sizes:
        """The most bytes of its messages."""
        return self.program.description.sizes

    def greeting(self) -> bytes:
        """The program's public description for a client; signed, or not."""
        signed = {"signature": self._signature.hex()} if self._signature else {}
        return json.dumps({**description.to_dict(self.program.description), **signed}).encode()

    def session(self, keys: bytes | None, store: PreparedStore | None = None, owner: bytes = b"") -> "LeveledSession":
        """Return a session with one client; ``store``: is not used: nothing is prepared."""
        if keys is None:
            raise RuleError("a leveled session needs keys", got="none", remedy="register keys")
        return LeveledSession(self, self.inference.load_keys(wire.unframe(keys, KEYS)), watched=self._watched)


class LeveledSession:
    """One client's inferences, one image after the other.

    Args:
        watched: whether the last image's values are kept for an audit.

    Attributes:
        meter: what was measured of images, all under the name :data:`WORK`.
        dropped: nothing: there is no prepared work.
        stocked: that there is nothing to make before an image.
    """

    def __init__(self, server: LeveledServer, keys: list[Any], *, watched: bool = False) -> None:
        self.meter, self.dropped, self.stocked = Meter(), list[str](), True
        self._server, self._keys = server, keys
        self._watched = Watched(tuple(server.program.ends.values())) if watched else None

    def handle(self, message: bytes) -> bytes:
        """Return the answer to a request.

        Raises:
            RuleError: it is no such request.
        """
        with self.meter.time(WORK):
            request = _split(wire.unframe(message, REQUEST), self._server.program.plan.public.inputs)
            answer = self._server.inference.answer(request, self._keys, watched=self._watched)
            reply = wire.frame(wire.OUTPUT, [one for row in answer for one in row])
        self.meter.counts[WORK].update(self._server.program.plan.circuit.counts)
        return reply

    def reveal(self) -> dict[str, list[bytes]]:
        """Return the last image's values under the client's keys: for a harness that has both parties.

        No message of the protocol asks for them.

        Returns:
            by name of the layer, for each plain modulus what :meth:`LeveledServer.answer` makes of it.
        """
        if self._watched is None:
            raise RuntimeError("only a watched session has values to reveal")
        every = self._server.inference.reveal(self._watched, self._keys)
        return {name: [row[number] for row in every] for number, name in enumerate(self._server.program.ends)}

    def make_ahead(self) -> bool:
        """Return that there is nothing to make before an image."""
        return False

    def close(self) -> None:
        """Forget the client's keys."""
        self._keys = []
        if self._watched is not None:
            self._watched.found.clear()


class LeveledClient:
    """One client of one leveled program.

    Args:
        greeting: what :meth:`LeveledServer.greeting` returned.
        engine: one of :data:`circuits.bfv.engines.ENGINES`.
        key: with which the description must be signed; None for any.
        store: is not used: nothing is prepared.

    Attributes:
        meter: what was measured of images, all under the name :data:`WORK`.

    Raises:
        RuleError: the greeting is damaged, not signed with the key, not 128-bit secure, or of an interactive program;
            the engine is unknown.
    """

    def __init__(
        self,
        greeting: bytes,
        engine: str = "kernel",
        key: PublicKey | None = None,
        store: PreparedStore | None = None,
        owner: bytes = b"",
    ) -> None:
        data = read_greeting(greeting, key)
        if isinstance(data, dict) and "nodes" in data:
            rule, remedy = "the server's program must be leveled for mode=leveled", "leave mode= out"
            raise RuleError(rule, got="an interactive one", remedy=remedy)
        self.description = description.from_dict(data)
        check_engine(engine, self.description)
        self.meter = Meter()
        self._make: Callable[[], LeveledInferenceClient] | None = partial(
            LeveledInferenceClient, self.description.plan, self.description.parameters, engine
        )
        self._inference: LeveledInferenceClient | None = None

    @property
    def sizes(self) -> Sizes:
        """The most bytes of the program's messages."""
        return self.description.sizes

    def keys(self) -> bytes:
        """A public key, a relinearisation key and Galois keys for every plain modulus; they are sent once."""
        return wire.frame(KEYS, self._open().keys())

    def infer(self, image: Values) -> Generator[bytes, bytes, Values]:
        """Run the program on one image, or on a batch if it is made for one.

        Args:
            image: integers in the program's range, of its shape.

        Yields:
            the request; the generator is sent the answer.

        Returns:
            the results, Python integers, (K,), of a batch image by image.

        Raises:
            RuleError: the image has the wrong shape or range, or the answer is none.
            WrongResult: a result is wider than right ones are.
        """
        plan, inference = self.description.plan, self._open()
        with self.meter.time(WORK):
            request = inference.request(image)
            message = wire.frame(REQUEST, [one for row in request for one in row])
        reply = yield message
        with self.meter.time(WORK):
            return inference.results(_split(wire.unframe(reply, wire.OUTPUT), plan.outputs))

    def opened(self, revealed: Mapping[str, list[bytes]]) -> dict[str, list[np.ndarray]]:
        """Return the values that an audit looks at: for each plain modulus the slots."""
        return {name: self._open().slots(messages) for name, messages in revealed.items()}

    def close(self) -> None:
        """Forget the keys. No image can be inferred afterwards."""
        if self._inference is not None:
            self._inference.close()
        self._inference = self._make = None

    def _open(self) -> LeveledInferenceClient:
        """The engines. Their secret keys are made when they are first needed."""
        if self._make is None:
            raise RuntimeError("a closed client has no keys")
        if self._inference is None:
            self._inference = self._make()
        return self._inference


def check_engine(name: str, known: Description) -> None:
    """Raise unless there is an engine of this name, and the program's parameters are for it.

    The kernels have one request for all plain moduli, SEAL one for each; noise was estimated for one of the two.

    Args:
        name: one of :data:`circuits.bfv.engines.ENGINES`.
    """
    if name not in ENGINES:
        rule, remedy = "the engine of leveled inference must be a known one", f"use one of {', '.join(ENGINES)}"
        raise RuleError(rule, got=repr(name), remedy=remedy)
    made_for = "kernel" if known.together else "tenseal"
    if name not in (made_for, "cleartext"):
        rule, remedy = "a leveled program's parameters must be for the engine", f"export it with he.engine={name}"
        raise RuleError(rule, got=f"parameters for {made_for}, engine {name}", remedy=remedy)


def _split(parts: list[bytes], each: int) -> Message:
    """The ciphertexts in rows; how many there must be the engine knows."""
    return [parts[start : start + each] for start in range(0, len(parts), each)]
