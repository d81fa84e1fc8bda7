"""The server: it has the weights, and never sees a key that decrypts, an image, or a value that is not masked."""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from threading import Lock
from types import TracebackType

from privcirnet.errors import RuleError
from privcirnet.he.bfv.engines import engine_of
from privcirnet.he.bfv.interface import EvaluationKeys
from privcirnet.he.bfv.noise import check_noise
from privcirnet.he.bfv.weight_cache import WeightCache
from privcirnet.he.mpc.local.linear import ClearLinear, clear_linear
from privcirnet.he.program import bounds, manifest
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.framing import message_sizes, wire
from privcirnet.he.protocol.framing.memory import session_in_memory
from privcirnet.he.protocol.framing.message_sizes import MessageSizes
from privcirnet.he.protocol.framing.meter import Meter
from privcirnet.he.protocol.offline.correlated import CorrelationFormat
from privcirnet.he.protocol.offline.prepared_server import PreparedServer
from privcirnet.he.protocol.offline.prepared_work import MemoryStore
from privcirnet.he.protocol.offline.store import PreparedStore
from privcirnet.he.protocol.offline.store_files import DIGEST_BYTES
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.rounds import message_batches as waves
from privcirnet.he.protocol.rounds import zeroing
from privcirnet.he.protocol.rounds.exchange import Exchange, PreparedNode
from privcirnet.he.protocol.rounds.exchanges import exchanges_of
from privcirnet.he.protocol.rounds.message_batches import OnlineBatch
from privcirnet.he.protocol.rounds.stacked import StackedExchange
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.sampling import wipe
from privcirnet.he.rlwe.wire_bytes import Message
from privcirnet.he.system.process import Process

_LANES = False, True
"""Lanes of a session: images, and offline work. Either goes on whenever a request of it comes."""


class Server:
    """One program, its weights encoded, ready for sessions.

    Args:
        program: program with weights.
        engine: "kernel", "tenseal" (slower), or "cleartext" for a rehearsal that hides nothing.
        spectra: weight spectra by node, if they were exported; computed otherwise.
        progress: function called with each layer's name before its weights are encoded.
        cache: cache for the encoded weights of engine "kernel": a cap on memory, a folder that keeps them.
        signature: signature of the program's public description, for clients that pin a key; empty for none.
        watched: whether sessions keep their shares of every node, for whoever audits both parties. If not, each share
            of a prepared image is zeroed after its last use.

    Attributes:
        program: the given program, with the width of its result if that is proved and was missing.
        engine: the server's engine.
        watched: the given value, for sessions to come.
        rounds: exchanges and their prepared nodes, by name of the nodes that take one, in order.

    Raises:
        RuleError: no program, a value bound over t / 2, too little noise budget, a layer without a weight, or an
            unknown engine.
    """

    def __init__(  # noqa: PLR0913
        self,
        program: Program,
        engine: str = "kernel",
        spectra: Mapping[str, Residues] | None = None,
        progress: Callable[[str], None] | None = None,
        cache: WeightCache | None = None,
        signature: bytes = b"",
        *,
        watched: bool = True,
    ) -> None:
        if not isinstance(program, Program):  # pyright: ignore[reportUnnecessaryIsInstance]
            got, remedy = type(program).__name__, "of a compiled one give .integer, and spectra=.spectra"
            raise RuleError("a server must have a program of integers", got=got, remedy=remedy)
        self._signature, self.watched, self._lock = signature, watched, Lock()
        intervals = bounds.prove(program) if program.bounds == "proved" else {}
        bounds.check_modulus(program, intervals)
        if intervals and not program.output_bits:
            program = replace(program, output_bits=bounds.value_bits(intervals[program.output.name]))
        self.program, self.engine = program, engine_of(engine).server(program.parameters, cache)
        exchanges = exchanges_of(program)
        for name, exchange in exchanges.items():
            check_noise(program.parameters, exchange.noise_bits(program.parameters), name)
        for node, _, stack in program.stacks:
            check_noise(program.parameters, stack.layer.noise_bits(program.parameters), node.name)
        self.rounds: dict[str, tuple[Exchange, PreparedNode]] = {}
        for name, exchange in exchanges.items():
            weights, spectrum = program.weights.get(name), (spectra or {}).get(name)
            if progress and weights is not None and weights.rows.size:
                progress(name)
            prepared = exchange.prepare(weights, spectrum, self.engine, name)
            self.rounds[name] = exchange, prepared

    @property
    def known(self) -> Program:
        """The public description of the program, and its weights."""
        return self.program

    @property
    def sizes(self) -> MessageSizes:
        """The most bytes of its messages."""
        return message_sizes.largest(self.program)

    def in_words(self) -> str:
        """Describe the program's computation and its cost, for the operator."""
        program, pixels = self.program, self.program.pixels
        return (
            f"{len(program.linear_nodes)} layers with weights, {message_sizes.rounds(program)} rounds an image, "
            f"n = {program.parameters.ring_degree}, log q = {program.parameters.log_q}; "
            f"images of {' x '.join(map(str, pixels.shape))} integers in [{pixels.low}, {pixels.high}]; "
            f"a session takes {session_in_memory(program) / 1e6:.0f} MB, "
            f"an inference that it prepares {self.prepared_bytes(bytes(32)) / 1e6:.1f} MB"
        )

    def greeting(self) -> bytes:
        """The program's public description for a client: architecture, plans, parameters; no weight. Signed, or not."""
        signed = {"signature": self._signature.hex()} if self._signature else {}
        return json.dumps({**manifest.to_dict(self.program), **signed}).encode()

    def session(self, keys: Message | None, store: PreparedStore | None = None, owner: bytes = b"") -> "Session":
        """Return a session with one client.

        Args:
            keys: result of :meth:`Client.keys`; None: the session runs prepared images only.
            store: store of work prepared with this client; None: memory, for as long as the session.
            owner: 32 random bytes that a client chose for all that it prepares; empty where the store ends here.

        Raises:
            RuleError: the keys are not what the program's rotations need.
        """
        form = CorrelationFormat("server", self.program, owner or bytes(DIGEST_BYTES))
        loaded = None if keys is None else self.engine.load_keys(bytes(keys), self.program.column_steps)
        return Session(self, loaded, form, MemoryStore() if store is None else store)

    def client(self, engine: str) -> Client:
        """Return a client in this process."""
        return Client(self.greeting(), engine)

    def prepared_bytes(self, owner: bytes) -> int:
        """Return the bytes of one prepared inference."""
        return CorrelationFormat("server", self.program, owner).length

    @cached_property
    def last_uses(self) -> Mapping[str, Sequence[str]]:
        """The shares to zero after each node, where nobody watches."""
        return zeroing.last_uses(node for stage in self.stages for node in (*stage.before, *stage.nodes))

    @cached_property
    def stages(self) -> list[OnlineBatch]:
        """The stages of an image with prepared work."""
        return waves.online_batches(self.program, {name: exchange for name, (exchange, _) in self.rounds.items()})

    @cached_property
    def layers(self) -> dict[str, ClearLinear]:
        """The linear layers in clear by node, for the online phase; made on first use."""
        t, weights = self.program.parameters.plain_modulus, self.program.weights
        return {node.name: clear_linear(layer, weights[node.name].rows, t) for node, layer in self.program.linear_nodes}

    @property
    def stacks(self) -> Mapping[str, PreparedNode]:
        """The prepared nodes for stacks of images, by node; made when several are first prepared together."""
        with self._lock:
            return self._stacks

    @cached_property
    def _stacks(self) -> Mapping[str, PreparedNode]:
        prepared = dict[str, PreparedNode]()
        for node, shape, stack in self.program.stacks:
            exchange, weights = StackedExchange(shape, stack, stack.images), self.program.weights[node.name]
            prepared[node.name] = exchange.prepare(weights, None, self.engine, node.name)
        return prepared


class Session:
    """A session of one client's inferences, one image at a time. It refuses out-of-order messages; ``with`` closes it.

    Args:
        keys: the client's keys, as the server's engine loaded them; None: it has sent none.

    Attributes:
        dropped: reasons why correlated randomness could not be used, in words.
        shares: the server's own share of every node of the last inference, if it is watched; None for zero.
        watched: whether the images that begin from now on are watched; at first the server's value.
    """

    def __init__(
        self, server: Server, keys: EvaluationKeys | None, form: CorrelationFormat, store: PreparedStore
    ) -> None:
        self.meter, self.preparation, self._process = Meter(), Meter(), Process()
        self.meters = self.meter, self.preparation
        self.shares: dict[str, Residues | None] = {}
        self._server, self._keys, self.watched = server, keys, server.watched
        self._prepared = PreparedServer(
            server.program,
            server.rounds,
            lambda: server.layers,
            lambda: server.stacks,
            store,
            form,
            self.meter,
            server.stages,
            self.preparation,
        )
        self.dropped = self._prepared.dropped
        self._lanes: dict[bool, Generator[bytes, bytes, None]] | None = {
            offline: self._start(offline) for offline in _LANES
        }

    def close(self) -> None:
        """Forget the client: its keys, and its shares, whose memory is zeroed. Nothing is handled afterwards.

        Without it they stay in memory until Python collects a reference cycle.
        """
        for lane in (self._lanes or {}).values():
            lane.close()
        self._lanes = self._keys = None
        wipe(self.shares.values())
        self.shares = {}

    def seen(self) -> Mapping[str, Residues | None]:
        """Return the shares, which an audit of both parties compares."""
        return self.shares

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def handle(self, message: bytes) -> bytes:
        """Return the reply to one request. A preparation goes on after an image that came between two of its rounds.

        Raises:
            RuleError: it is not the request that is due; the image's inference starts over, and the preparation too if
                the request was about it.
        """
        if self._lanes is None:
            raise RuntimeError("a closed session handles nothing")
        if self._process.changed():  # what images and work in progress have drawn is the other's
            self._lanes = {lane: self._start(lane) for lane in _LANES}
        offline = wire.is_offline(message)
        if wire.begins(message) == wire.PREPARE:  # instead of one that the client gave up
            self._lanes[offline].close()
            self._lanes[offline] = self._start(offline)
        try:
            return self._lanes[offline].send(message)
        except Exception:
            self._lanes = {lane: self._start(lane) if offline >= lane else old for lane, old in self._lanes.items()}
            raise

    def _start(self, offline: bool) -> Generator[bytes, bytes, None]:
        steps = self._preparations() if offline else self._images()
        next(steps)
        return steps

    def _preparations(self) -> Generator[bytes, bytes, None]:
        """Receive requests of offline work and yield the reply to each; the first value yielded is no reply."""
        reply = b""
        while True:
            message = yield reply
            self._check_keys()
            reply = yield from self._prepared.offline(message, self._server.engine, self._keys)

    def _images(self) -> Generator[bytes, bytes, None]:
        """Receive requests of images and yield the reply to each; the first value yielded is no reply."""
        reply = b""
        while True:
            message = yield reply
            if wire.begins(message) == wire.AGREE:
                reply = self._prepared.agree(message)
                continue
            wipe(self.shares.values())  # those of the image before
            self.shares = {}
            uses = {} if self.watched else self._server.last_uses
            reply = yield from self._prepared.online(message, self.shares, uses)

    def _check_keys(self) -> None:
        if self._keys is None:
            rule = "a client without keys must have prepared work for its images"
            raise RuleError(rule, got="a request that needs keys", remedy="register keys")
