"""The client: it has the image and the keys, and never sees a weight."""

from collections.abc import Callable, Generator
from functools import cached_property
from threading import get_ident
from types import TracebackType

import numpy as np

from privcirnet.errors import Interrupted, RuleError
from privcirnet.he.bfv.engines import check_engine, engine_of
from privcirnet.he.bfv.interface import ClientEngine
from privcirnet.he.layers.integer import Values
from privcirnet.he.program import manifest
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Input
from privcirnet.he.program.program import Program
from privcirnet.he.program.signature import PublicKey
from privcirnet.he.protocol.framing import message_sizes
from privcirnet.he.protocol.framing.greeting import closed, read_greeting
from privcirnet.he.protocol.framing.memory import check_description
from privcirnet.he.protocol.framing.message_sizes import MessageSizes
from privcirnet.he.protocol.framing.meter import Meter
from privcirnet.he.protocol.offline.correlated import CorrelationFormat
from privcirnet.he.protocol.offline.prepared_client import PreparedClient, Walk
from privcirnet.he.protocol.offline.prepared_work import MemoryStore
from privcirnet.he.protocol.offline.store import PreparedStore
from privcirnet.he.protocol.offline.store_files import DIGEST_BYTES
from privcirnet.he.protocol.rounds import answer
from privcirnet.he.protocol.rounds.exchanges import exchanges_of
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.sampling import wipe
from privcirnet.he.system.process import in_one_process
from privcirnet.he.system.threads import beside


class Client:
    """One client of one program; ``with`` closes it.

    Args:
        greeting: result of :meth:`Server.greeting`: the program's public description.
        engine: "kernel", "tenseal" (slower), or "cleartext" for a rehearsal that hides nothing; the server's.
        key: the key that must have signed the description; None for any.
        store: store of prepared work; None: memory, for as long as the client.
        owner: 32 random bytes that the store is bound to; empty if it ends with the client.

    Attributes:
        program: the public description, without weights.
        meter: measurements of images.
        preparation: measurements of offline work.
        waited: whether the last image had to wait for its preparation.
        shares: the client's own share of every node of the last inference.

    Raises:
        RuleError: the greeting is damaged, not signed with the key, or its parameters are not 128-bit secure; what it
            describes takes more than half of the memory; the engine is unknown.
    """

    def __init__(
        self,
        greeting: bytes,
        engine: str = "kernel",
        key: PublicKey | None = None,
        store: PreparedStore | None = None,
        owner: bytes = b"",
    ) -> None:
        self.program = manifest.from_dict(read_greeting(greeting, key, "interactive"))
        check_description(self.program)
        self.meter, self.preparation, self.waited = Meter(), Meter(), False
        self.meters = self.meter, self.preparation
        form = CorrelationFormat("client", self.program, owner or bytes(DIGEST_BYTES))
        self.shares: dict[str, Residues] = {}
        self._exchanges = exchanges_of(self.program)
        self._prepared = PreparedClient(
            self.program, self._exchanges, MemoryStore() if store is None else store, form, self.meter, self.preparation
        )
        check_engine(engine)
        self._make: Callable[[], ClientEngine] | None = lambda: engine_of(engine).client(self.program.parameters)
        self._engine: ClientEngine | None = None
        self._finished = False
        self._threads = dict[str, int]()

    def close(self) -> None:
        """Forget the keys and the shares, whose memory is zeroed. No image can be inferred afterwards."""
        if self._engine is not None:
            self._engine.close()
        self._engine = self._make = None
        wipe(self.shares.values())
        self.shares = {}

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def keys(self) -> bytes:
        """Return a public key, and Galois keys for exactly the program's rotations; they are sent once."""
        return self._open().public_keys(self.program.column_steps)

    def _open(self) -> ClientEngine:
        """Return the engine. Its secret key is made on first use: images with prepared work need none."""
        if self._make is None:
            raise closed()
        if self._engine is None:
            self._engine = self._make()
        return self._engine

    def infer(self, image: Values) -> Generator[bytes, bytes, Values]:
        """Run the program on one image, which is prepared first unless both parties have prepared work.

        Args:
            image: integers in the input node's range, of its shape.

        Yields:
            requests for the server; the generator is sent the reply to each.

        Returns:
            the logits as integers in units of the output's step.

        Raises:
            RuleError: the image has the wrong shape or range, a reply is not what the protocol expects, or this is a
                copy (fork) of the process that began the image, or another thread runs one.
            ImpossibleResultError: the result is wider than right ones are, or no class. The server is not told: all of
                the image's requests were sent.
        """
        check_image(self.program.nodes[0], image)
        if self._make is None:
            raise closed()
        if self._threads.setdefault("image", get_ident()) != get_ident():
            rule, remedy = "a client must run one image at a time", "give each thread a client of its own"
            raise RuleError(rule, got="another thread's, which is under way", remedy=remedy)
        try:
            return (yield from self._inferred(image))
        finally:
            self._threads.clear()

    def _inferred(self, image: Values) -> Generator[bytes, bytes, Values]:
        """Return the logits, see :meth:`infer`."""
        before = [*self.shares.values()] if self._finished else []
        wiped = beside(lambda: wipe(before))  # while the server works on its first reply
        self._finished = False
        try:
            received = yield from in_one_process(self._image(image))
        finally:
            wiped()
        self._finished = True
        return answer.result(self.program, self.shares[self.program.output.name], received)

    def prepare(self, count: int) -> Generator[bytes, bytes, None]:
        """Do all encrypted work for some images to come.

        Yields:
            requests for the server; the generator is sent the reply to each.

        Raises:
            RuleError: a reply is not what the protocol expects, there is no room, or this is a copy (fork) of the
                process that began the work.
        """
        yield from self.agree()
        for first in range(0, count, self.together):
            yield from in_one_process(self._prepared.prepare(self._open, min(self.together, count - first)))

    def agree(self) -> Generator[bytes, bytes, None]:
        """Drop the prepared work of which the server has no half, and the server's of which this client has none.

        A connection begins with it; else an image with correlated randomness that an earlier client left does.

        Yields:
            one request for the server; the generator is sent the reply.

        Raises:
            RuleError: the reply is not what the protocol expects.
        """
        yield from self._prepared.agree()

    def forget_session(self) -> None:
        """Drop state whose other half only the session's server has: a new session begins."""
        self._prepared.forget_session()

    @cached_property
    def together(self) -> int:
        """The most images that are prepared at once: their random shares fill ciphertexts together."""
        return message_sizes.max_batch(self.program)

    @property
    def known(self) -> Program:
        """The public description of the program."""
        return self.program

    @property
    def sizes(self) -> MessageSizes:
        """The most bytes of the program's messages."""
        return message_sizes.largest(self.program)

    @property
    def prepared(self) -> int:
        """The number of images for which there is prepared work."""
        return len(self._prepared.ready)

    @property
    def dropped(self) -> list[str]:
        """The reasons why prepared work was dropped, in words."""
        return self._prepared.dropped

    def _image(self, image: Values) -> Generator[bytes, bytes, bytes]:
        """Return the server's part of the result; the image is prepared first if there is no prepared work."""
        received = yield from self._prepared_image(image)
        self.waited = received is None
        if received is None:
            yield from self.agree()
            yield from self._prepared.prepare(self._open, 1)
            received = yield from self._prepared_image(image)
        if received is None:
            rule, remedy = "an image must have prepared work", "run it again"
            raise Interrupted(rule, got="a server that has lost what was prepared for it", remedy=remedy)
        return received

    def _prepared_image(self, image: Values) -> Generator[bytes, bytes, bytes | None]:
        """Return the server's part of the result, if both parties have prepared work; None otherwise."""
        if self._prepared.unknown:
            yield from self.agree()
        while (correlated := self._prepared.take()) is not None:
            self.shares = walk = Walk(self.program, correlated.kept)
            received = yield from self._prepared.infer(correlated, image, walk)
            if received is not None:
                return received
            wipe(walk.values())
        return None


def check_image(node: Node, image: Values) -> None:
    """Raise unless an image fits the program's input."""
    assert isinstance(node.operation, Input)
    low, high = node.operation.low, node.operation.high
    if not isinstance(image, np.ndarray):  # pyright: ignore[reportUnnecessaryIsInstance]
        got, remedy = type(image).__name__, "give one of what a compiled program's integers() returns"
        raise RuleError("an image must be a NumPy array of integers", got=got, remedy=remedy)
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
