"""Both parties of a leveled program, BFV or CKKS, as a service runs them: keys once, then a request for each image."""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.circuits.bfv import engines
from privcirnet.he.circuits.bfv.weight_cache import WeightCache
from privcirnet.he.layers.integer import Values
from privcirnet.he.program.signature import PublicKey
from privcirnet.he.protocol.framing import wire
from privcirnet.he.protocol.framing.greeting import closed, read_greeting
from privcirnet.he.protocol.framing.message_sizes import Sizes
from privcirnet.he.protocol.framing.meter import Meter
from privcirnet.he.protocol.leveled.bfv import description
from privcirnet.he.protocol.leveled.bfv.inference import (
    LeveledInferenceClient,
    LeveledInferenceServer,
    Message,
    Watched,
)
from privcirnet.he.protocol.leveled.bfv.leveled_program import Description, LeveledProgram
from privcirnet.he.protocol.leveled.reading import CKKS
from privcirnet.he.protocol.offline.store import PreparedStore
from privcirnet.he.protocol.served import unprepared
from privcirnet.he.rlwe.wire_bytes import Message as Bytes

if TYPE_CHECKING:
    from privcirnet.he.planning.leveled.ckks.ckks_program import CkksProgram
    from privcirnet.he.protocol.leveled.ckks import CkksDescription

KEYS, REQUEST = 0, 1
"""Positions of the messages from a client; the answer's is :data:`protocol.framing.wire.OUTPUT`."""
WORK = "network"
"""What a meter calls all of a party's work."""


class Answering(Protocol):
    """The server's half of an inference, of either scheme."""

    @property
    def counts(self) -> Mapping[str, int]:
        """The operations of a request."""
        ...

    def in_words(self) -> str:
        """Return what it computes and what it takes."""
        ...

    def load_keys(self, parts: Sequence[Bytes]) -> Any:
        """Check and load a client's keys."""
        ...

    def answer(self, request: Message, keys: Any, watched: Watched | None = None) -> Message:
        """Return the encrypted results of a request."""
        ...

    def reveal(self, watched: Watched, keys: Any) -> Message:
        """Return the values that were kept for an audit, under the client's keys."""
        ...


class Asking(Protocol):
    """The client's half of an inference, of either scheme."""

    def keys(self) -> list[bytes]:
        """Return all evaluation keys."""
        ...

    def request(self, image: Values) -> Message:
        """Return an encrypted image."""
        ...

    def results(self, answer: Message) -> Any:
        """Return the results of an answer."""
        ...

    def close(self) -> None:
        """Forget the secret key."""
        ...


class LeveledServer:
    """One program, its weights encoded, ready for sessions.

    Args:
        engine: "kernel", "tenseal" (BFV) or "cleartext", which hides nothing.
        spectra: is not used: weights are encoded from themselves.
        progress: called with a name before weights are encoded.
        cache: how much memory encoded weights may take; None: as much as they need.
        signature: of the program's description, for clients that pin a key; empty for none.
        watched: whether sessions keep the last image's values for an audit; of CKKS none are kept.
    """

    def __init__(  # noqa: PLR0913
        self,
        program: "LeveledProgram | CkksProgram",
        engine: str = "kernel",
        spectra: object = None,
        progress: Callable[[str], None] | None = None,
        cache: WeightCache | None = None,
        signature: bytes = b"",
        *,
        watched: bool = False,
    ) -> None:
        if progress:
            progress("network")
        self._signature, self.ends = signature, dict[str, int]()
        self.description: Description | CkksDescription
        self.inference: Answering
        if isinstance(program, LeveledProgram):
            check_engine(engine, program.description)
            self.description, self._public = program.description, description.to_dict(program.description)
            self.inference = LeveledInferenceServer(program.plan, program.parameters, engine, cache)
            self.ends = program.ends if watched else {}
        else:
            ckks = _ckks(engine)
            limit = None if cache is None else cache.limit
            self.description, self._public = ckks.from_dict(ckks.to_dict(program)), ckks.to_dict(program)
            self.inference = ckks.CkksInferenceServer(program, engine, inf if limit is None else limit / 1e9)

    @property
    def known(self) -> "Description | CkksDescription":
        """What both parties know of the program."""
        return self.description

    @property
    def sizes(self) -> Sizes:
        """The most bytes of its messages."""
        return self.description.sizes

    def greeting(self) -> bytes:
        """The program's public description for a client; signed, or not."""
        signed = {"signature": self._signature.hex()} if self._signature else {}
        return json.dumps({**self._public, **signed}).encode()

    def in_words(self) -> str:
        """Return what it computes and what it takes, for whoever runs it."""
        return f"leveled, {self.inference.in_words()}; mode=leveled"

    def client(self, engine: str) -> "LeveledClient":
        """Return a client in this process."""
        return LeveledClient(self.greeting(), engine)

    def prepared_bytes(self, owner: bytes) -> int:
        """Raise: nothing can be prepared."""
        raise unprepared()

    def session(self, keys: Bytes | None, store: PreparedStore | None = None, owner: bytes = b"") -> "LeveledSession":
        """Return a session with one client; ``store``: is not used: nothing is prepared."""
        if keys is None:
            raise RuleError("a leveled session needs keys", got="none", remedy="register keys")
        return LeveledSession(self, self.inference.load_keys(wire.unframe(memoryview(keys), KEYS)))


class LeveledSession:
    """One client's inferences, one image after the other.

    Attributes:
        meter: what was measured of images, all under the name :data:`WORK`.
        dropped: nothing: there is no prepared work.
    """

    def __init__(self, server: LeveledServer, keys: Any) -> None:
        self.meter, self.dropped = Meter(), list[str]()
        self.meters = (self.meter,)
        self._server, self._keys = server, keys
        self._watched = Watched(tuple(server.ends.values())) if server.ends else None

    def handle(self, message: bytes) -> bytes:
        """Return the answer to a request.

        Raises:
            RuleError: it is no such request.
        """
        inference = self._server.inference
        with self.meter.time(WORK):
            request = _split(wire.unframe(message, REQUEST), self._server.description.inputs)
            answer = inference.answer(request, self._keys, watched=self._watched)
            reply = wire.frame(wire.OUTPUT, [one for row in answer for one in row])
        self.meter.counts[WORK].update(inference.counts)
        return reply

    def seen(self) -> dict[str, list[bytes]]:
        """Return the last image's values under the client's keys: for a harness that has both parties.

        Returns:
            by name of the layer, for each plain modulus what :meth:`LeveledServer.answer` makes of it; nothing where
            none are kept.
        """
        if self._watched is None:
            return {}
        every = self._server.inference.reveal(self._watched, self._keys)
        return {name: [row[number] for row in every] for number, name in enumerate(self._server.ends)}

    def close(self) -> None:
        """Forget the client's keys."""
        self._keys = None
        if self._watched is not None:
            self._watched.found.clear()


class LeveledClient:
    """One client of one leveled program.

    Args:
        greeting: what :meth:`LeveledServer.greeting` returned.
        engine: "kernel", "tenseal" (BFV) or "cleartext", which hides nothing.
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
        data = read_greeting(greeting, key, "leveled")
        self.meter = Meter()
        self.meters = (self.meter,)
        self.description: Description | CkksDescription
        self._make: Callable[[], Asking] | None
        if isinstance(data, dict) and cast(dict[str, object], data).get("format") == CKKS:
            ckks = _ckks(engine)
            self.description = known = ckks.from_dict(data)
            self._make = lambda: ckks.CkksInferenceClient(known, engine)
        else:
            self.description = leveled = description.from_dict(data)
            check_engine(engine, leveled)
            self._make = lambda: LeveledInferenceClient(leveled.plan, leveled.parameters, engine)
        self._inference: Asking | None = None

    @property
    def known(self) -> "Description | CkksDescription":
        """What both parties know of the program."""
        return self.description

    @property
    def sizes(self) -> Sizes:
        """The most bytes of the program's messages."""
        return self.description.sizes

    def keys(self) -> bytes:
        """A public key and all switch keys, for each plain modulus if the engine wants it; they are sent once."""
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
            RuleError: the image has the wrong shape or range, or the answer is malformed.
            WrongResult: a result is wider than right ones are.
        """
        inference = self._open()
        with self.meter.time(WORK):
            request = inference.request(image)
            message = wire.frame(REQUEST, [one for row in request for one in row])
        reply = yield message
        with self.meter.time(WORK):
            return inference.results(_split(wire.unframe(reply, wire.OUTPUT), self.description.outputs))

    def agree(self) -> Generator[bytes, bytes, None]:
        """Do nothing: nothing is prepared."""
        yield from ()

    def forget_session(self) -> None:
        """Do nothing: every request is whole by itself."""

    def opened(self, revealed: Mapping[str, list[bytes]]) -> dict[str, list[np.ndarray]]:
        """Return the values that an audit looks at: for each plain modulus the slots."""
        inference = self._open()
        if not isinstance(inference, LeveledInferenceClient):
            raise TypeError("of CKKS no values are kept")
        return {name: inference.slots(messages) for name, messages in revealed.items()}

    def close(self) -> None:
        """Forget the keys. No image can be inferred afterwards."""
        if self._inference is not None:
            self._inference.close()
        self._inference = self._make = None

    def _open(self) -> Asking:
        """The engines. Their secret keys are made when they are first needed."""
        if self._make is None:
            raise closed()
        if self._inference is None:
            self._inference = self._make()
        return self._inference


def _ckks(engine: str) -> Any:
    """The module for CKKS, which loads the kernels."""
    from privcirnet.he.protocol.leveled import ckks

    if engine not in ckks.ENGINES:
        rule, remedy = "a CKKS program runs with engine=kernel or cleartext", "use engine=kernel"
        raise RuleError(rule, got=engine, remedy=remedy)
    return ckks


def check_engine(name: str, known: Description) -> None:
    """Raise unless there is an engine of this name, and the program's parameters are for it.

    The kernels have one request for all plain moduli, SEAL one for each; noise was estimated for one of the two.

    Args:
        name: one of :data:`circuits.bfv.engines.ENGINES`.
    """
    engines.check_engine(name)
    made_for = "kernel" if known.together else "tenseal"
    if name not in (made_for, "cleartext"):
        rule, remedy = "a leveled program's parameters must be for the engine", f"export it with he.engine={name}"
        raise RuleError(rule, got=f"parameters for {made_for}, engine {name}", remedy=remedy)


def _split(parts: list[bytes], each: int) -> Message:
    """The ciphertexts in rows; how many there must be the engine knows."""
    return [parts[start : start + each] for start in range(0, len(parts), each)]
