"""Both parties of a program that takes one message each way, as a service runs them: keys once, then requests."""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from privcirnet.errors import RuleError
from privcirnet.he.bfv.weight_cache import WeightCache
from privcirnet.he.layers.integer import Values
from privcirnet.he.program.signature import PublicKey
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.interface import Meter, closed, read_greeting, unprepared
from privcirnet.he.protocol.offline.store import PreparedStore
from privcirnet.he.protocol.one_message.description import OneMessageDescription
from privcirnet.he.protocol.one_message.reading import Message
from privcirnet.he.protocol.wire import MessageSizes
from privcirnet.he.rlwe.wire_bytes import Message as Bytes

if TYPE_CHECKING:  # they load the kernels
    from privcirnet.he.ckks.program import CkksProgram

KEYS, REQUEST = 0, 1
"""Positions of the messages from a client; the answer's is :data:`protocol.wire.OUTPUT`."""
WORK = "network"
"""Name of all of a party's work in a meter."""


class Answering(Protocol):
    """The server's half of an inference."""

    @property
    def counts(self) -> Mapping[str, int]:
        """The operations of a request."""
        ...

    def in_words(self) -> str:
        """Describe the computation and its cost."""
        ...

    def load_keys(self, parts: Sequence[Bytes]) -> Any:
        """Check and load a client's keys."""
        ...

    def answer(self, request: Message, keys: Any) -> Message:
        """Return the encrypted results of a request."""
        ...


class Asking(Protocol):
    """The client's half of an inference."""

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


ServerHalf = TypeVar("ServerHalf", bound=Answering)
ClientHalf = TypeVar("ClientHalf", bound=Asking)


class OneMessageServer(Generic[ServerHalf]):
    """One CKKS program, its weights encoded, ready for sessions.

    Args:
        engine: "kernel" or "cleartext", which hides nothing.
        spectra: unused: weights are encoded from themselves.
        progress: function called with a name before weights are encoded.
        cache: limit on the memory of encoded weights; None: as much as they need.
        signature: signature of the program's description, for clients that pin a key; empty for none.
        watched: unused: no value is kept for an audit.
    """

    def __init__(  # noqa: PLR0913
        self,
        program: "CkksProgram",
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
        ckks, limit = _ckks(engine), None if cache is None else cache.limit
        self._signature, self._public = signature, ckks.to_dict(program)
        self.description: OneMessageDescription = ckks.from_dict(self._public)
        self.inference: ServerHalf = ckks.CkksInferenceServer(program, engine, inf if limit is None else limit / 1e9)

    @property
    def known(self) -> OneMessageDescription:
        """The public description of the program."""
        return self.description

    @property
    def sizes(self) -> MessageSizes:
        """The most bytes of its messages."""
        return self.description.sizes

    def greeting(self) -> bytes:
        """The program's public description for a client; signed, or not."""
        signed = {"signature": self._signature.hex()} if self._signature else {}
        return json.dumps({**self._public, **signed}).encode()

    def in_words(self) -> str:
        """Describe the computation and its cost, for the operator."""
        return f"{self.inference.in_words()}; mode=ckks"

    def client(self, engine: str) -> "OneMessageClient[Any]":
        """Return a client in this process."""
        return OneMessageClient(self.greeting(), engine)

    def prepared_bytes(self, owner: bytes) -> int:
        """Raise: nothing can be prepared."""
        raise unprepared()

    def session(
        self, keys: Bytes | None, store: PreparedStore | None = None, owner: bytes = b""
    ) -> "OneMessageSession[ServerHalf]":
        """Return a session with one client; ``store`` is unused: nothing is prepared."""
        return OneMessageSession(self, self.loaded(keys))

    def loaded(self, keys: Bytes | None) -> Any:
        """Return a client's keys, checked and loaded."""
        if keys is None:
            raise RuleError("a session of one message needs keys", got="none", remedy="register keys")
        return self.inference.load_keys(wire.unframe(memoryview(keys), KEYS))


class OneMessageSession(Generic[ServerHalf]):
    """One client's inferences, one image after the other.

    Attributes:
        meter: measurements of images, all under the name :data:`WORK`.
        dropped: always empty: there is no prepared work.
    """

    def __init__(self, server: OneMessageServer[ServerHalf], keys: Any) -> None:
        self.meter, self.dropped = Meter(), list[str]()
        self.meters = (self.meter,)
        self.server = server
        self.keys: Any = keys

    def handle(self, message: bytes) -> bytes:
        """Return the answer to a request.

        Raises:
            RuleError: it is no such request.
        """
        with self.meter.time(WORK):
            answer = self.answer(_split(wire.unframe(message, REQUEST), self.server.description.inputs))
            reply = wire.frame(wire.OUTPUT, [ciphertext for row in answer for ciphertext in row])
        self.meter.counts[WORK].update(self.server.inference.counts)
        return reply

    def answer(self, request: Message) -> Message:
        """Return the encrypted results of a request."""
        return self.server.inference.answer(request, self.keys)

    def seen(self) -> dict[str, list[bytes]]:
        """Return nothing: no value is kept for an audit."""
        return {}

    def close(self) -> None:
        """Forget the client's keys."""
        self.keys = None


class OneMessageClient(Generic[ClientHalf]):
    """One client of one CKKS program.

    Args:
        greeting: result of :meth:`OneMessageServer.greeting`.
        engine: "kernel" or "cleartext", which hides nothing.
        key: the key that must have signed the description; None for any.
        store: unused: nothing is prepared.

    Attributes:
        meter: measurements of images, all under the name :data:`WORK`.

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
        self.meter = Meter()
        self.meters = (self.meter,)
        self.description: OneMessageDescription
        self._open: Callable[[], ClientHalf] | None
        self.description, self._open = self.described(read_greeting(greeting, key, "ckks"), engine)
        self._inference: ClientHalf | None = None

    def described(self, data: Any, engine: str) -> tuple[OneMessageDescription, Callable[[], ClientHalf]]:
        """Return a greeting's description, and a function that opens the client's half.

        Raises:
            RuleError: it is none, or not for this engine.
        """
        ckks = _ckks(engine)
        description = ckks.from_dict(data)
        return description, lambda: ckks.CkksInferenceClient(description, engine)

    @property
    def known(self) -> OneMessageDescription:
        """The public description of the program."""
        return self.description

    @property
    def sizes(self) -> MessageSizes:
        """The most bytes of the program's messages."""
        return self.description.sizes

    def keys(self) -> bytes:
        """Return the public key and all switch keys, which are sent once."""
        return wire.frame(KEYS, self.inference.keys())

    def infer(self, image: Values) -> Generator[bytes, bytes, Values]:
        """Run the program on one image.

        Args:
            image: integers in the program's range, of its shape.

        Yields:
            the request; the generator is sent the answer.

        Returns:
            the results, (K,).

        Raises:
            RuleError: the image has the wrong shape or range, or the answer is malformed.
            ImpossibleResultError: a result is wider than right ones are.
        """
        inference = self.inference
        with self.meter.time(WORK):
            request = inference.request(image)
            message = wire.frame(REQUEST, [ciphertext for row in request for ciphertext in row])
        reply = yield message
        with self.meter.time(WORK):
            return inference.results(_split(wire.unframe(reply, wire.OUTPUT), self.description.outputs))

    def agree(self) -> Generator[bytes, bytes, None]:
        """Do nothing: nothing is prepared."""
        yield from ()

    def forget_session(self) -> None:
        """Do nothing: every request is whole by itself."""

    def close(self) -> None:
        """Forget the keys. No image can be inferred afterwards."""
        if self._inference is not None:
            self._inference.close()
        self._inference = self._open = None

    @property
    def inference(self) -> ClientHalf:
        """The client's half. Its secret key is made when it is first needed."""
        if self._open is None:
            raise closed()
        if self._inference is None:
            self._inference = self._open()
        return self._inference


def _ckks(engine: str) -> Any:
    """Import the module for CKKS, which loads the kernels."""
    from privcirnet.he.protocol.one_message import ckks

    if engine not in ckks.ENGINES:
        rule, remedy = "a CKKS program runs with engine=kernel or cleartext", "use engine=kernel"
        raise RuleError(rule, got=engine, remedy=remedy)
    return ckks


def _split(parts: list[bytes], row_length: int) -> Message:
    """Return the ciphertexts in rows; the engine checks their number."""
    return [parts[start : start + row_length] for start in range(0, len(parts), row_length)]
