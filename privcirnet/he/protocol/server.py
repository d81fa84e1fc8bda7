"""The server: it has the weights, and never sees a key that decrypts, an image, or a value that is not masked."""

import json
from collections.abc import Callable, Generator, Mapping

from privcirnet.he.engines.interface import EvaluationKeys, server_engine
from privcirnet.he.engines.weight_cache import WeightCache
from privcirnet.he.params.noise import check_noise
from privcirnet.he.program import bounds, manifest
from privcirnet.he.program.operations import Truncate, has_weights
from privcirnet.he.program.program import Program, masked_node
from privcirnet.he.protocol import shares, wire
from privcirnet.he.protocol.exchange import Exchange, Held
from privcirnet.he.protocol.exchanges import exchanges_of
from privcirnet.he.protocol.meter import Meter
from privcirnet.he.ring.modular import Residues


class Server:
    """One program, its weights encoded, ready for sessions.

    Args:
        program: with weights.
        engine: "kernel", "tenseal" (slower), or "cleartext" for a rehearsal that hides nothing.
        spectra: weight spectra by node, if they were exported; computed otherwise.
        progress: called with each layer's name before its weights are encoded.
        cache: for the encoded weights of engine "kernel": a cap on memory, a folder that keeps them.

    Attributes:
        program: as given.
        engine: the server's engine.
        rounds: by name of the nodes that take one, in order: the exchange, and what the server holds for it.

    Raises:
        RuleError: a value bound over t / 2, too little noise budget, a layer without a weight, or an unknown engine.
    """

    def __init__(
        self,
        program: Program,
        engine: str = "kernel",
        spectra: Mapping[str, Residues] | None = None,
        progress: Callable[[str], None] | None = None,
        cache: WeightCache | None = None,
    ) -> None:
        intervals = bounds.prove(program) if program.bounds == "proved" else {}
        bounds.check_modulus(program, intervals)
        self.program = program
        self.engine = server_engine(engine, program.parameters, cache)
        mask_bounds = _mask_bounds(program, intervals) if program.masks == "bounded" else {}
        exchanges = exchanges_of(program)
        for name, exchange in exchanges.items():
            check_noise(program.parameters, exchange.noise_bits(program.parameters), name)
        self.rounds: dict[str, tuple[Exchange, Held]] = {}
        for name, exchange in exchanges.items():
            weights, spectrum = program.weights.get(name), (spectra or {}).get(name)
            if progress and weights is not None and weights.rows.size:
                progress(name)
            held = exchange.prepare(weights, spectrum, mask_bounds.get(name), self.engine, name)
            self.rounds[name] = exchange, held

    def greeting(self) -> bytes:
        """The program's public description for a client: architecture, plans, parameters; no weight."""
        return json.dumps(manifest.to_dict(self.program)).encode()

    def session(self, keys: bytes) -> "Session":
        """Return a session with one client.

        Args:
            keys: what :meth:`Client.keys` returned.

        Raises:
            RuleError: the keys are not what the program's rotations need.
        """
        return Session(self, self.engine.load_keys(keys, self.program.column_steps))


class Session:
    """One client's inferences, one image after the other. Messages in the wrong order are refused.

    Args:
        server: with the weights.
        keys: the client's, as the server's engine loaded them.

    Attributes:
        meter: what was measured.
        shares: the server's own share of every node of the last inference; None for zero.
    """

    def __init__(self, server: Server, keys: EvaluationKeys) -> None:
        self.meter = Meter()
        self.shares: dict[str, Residues | None] = {}
        self._server = server
        self._keys = keys
        self._steps = self._start()

    def handle(self, message: bytes) -> bytes:
        """Return the reply to one request.

        Args:
            message: the client's request.

        Raises:
            RuleError: it is not the request that is due; the image's inference starts over.
        """
        try:
            reply = self._steps.send(message)
        except Exception:
            self._steps = self._start()
            raise
        if wire.position_of(reply) == wire.OUTPUT:
            self._steps = self._start()
        return reply

    def close(self) -> None:
        """Drop the client's keys and the shares; no request is answered any more.

        The generator of an inference refers to its session, so without this both stay until Python looks for cycles.
        """
        self._steps.close()
        self.shares = {}
        del self._keys

    def _start(self) -> Generator[bytes, bytes, None]:
        steps = self._run()
        next(steps)
        return steps

    def _run(self) -> Generator[bytes, bytes, None]:
        """Is sent requests and yields the reply to each; what it yields before the first request is no reply."""
        program, t = self._server.program, self._server.program.parameters.plain_modulus
        source, *others = program.nodes
        held: dict[str, Residues | None] = {source.name: None}
        reply = b""
        for position, node in enumerate(others, start=1):
            arguments = [held[name] for name in node.inputs]
            if node.name in self._server.rounds:
                message = yield reply
                self.shares = held
                reply, held[node.name] = self._answer(position, node.name, arguments, message)
            else:
                constants = program.weights[node.name].bias if has_weights(node.operation) else None
                held[node.name] = shares.local_server(node.operation, arguments, constants, t)
        wire.unframe((yield reply), wire.OUTPUT, 0)
        yield wire.frame(wire.OUTPUT, [shares.to_bytes(shares.present(held[program.output.name]))])

    def _answer(
        self, position: int, name: str, arguments: list[Residues | None], message: bytes
    ) -> tuple[bytes, Residues | None]:
        """The reply to a request, and the server's share of the result."""
        engine, (exchange, held) = self._server.engine, self._server.rounds[name]
        with self.meter.time(name), self.meter.count(name, engine.counts):
            parts = wire.unframe(message, position, exchange.plan.ciphertexts_up)
            replies, own = exchange.reply(held, arguments, parts, engine, self._keys)
            return wire.frame(position, replies), own


def _mask_bounds(program: Program, intervals: dict[str, bounds.Interval]) -> dict[str, int]:
    """Bound of every node whose values are truncated, or some of whose channels are."""
    known = {node.name: node for node in program.nodes}
    truncated = {node.inputs[0] for node in program.nodes if isinstance(node.operation, Truncate)}
    masked = {masked_node(known, name).name for name in truncated}
    return {name: bounds.largest(intervals[name]) for name in masked}
