"""The server: it has the weights, and never sees a key that decrypts, an image, or a value that is not masked."""

import json
from collections.abc import Callable, Generator, Mapping

import numpy as np

from privcirnet.he.engines.interface import EvaluationKeys, ServerEngine, server_engine
from privcirnet.he.engines.weight_cache import WeightCache
from privcirnet.he.params.noise import check_noise, square_noise_bits
from privcirnet.he.program import bounds, manifest
from privcirnet.he.program.interpreter import spread
from privcirnet.he.program.operations import ClientAided, Input, Linear, Operation, Product, Square, Truncate
from privcirnet.he.program.program import Node, Program, masked_node
from privcirnet.he.program.rearrangement import Tokens
from privcirnet.he.protocol import linear, message_sizes, product, shares, square, wire
from privcirnet.he.protocol.meter import Meter
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Integers, Residues


class Server:
    """One program, its weights encoded, ready for sessions.

    Args:
        program: with weights.
        engine: "kernel", "tenseal" (slower), or "cleartext" for a rehearsal that hides nothing.
        spectra: weight spectra by node, if they were exported; computed otherwise.
        progress: called with each layer's name before its weights are encoded.
        cache: for the encoded weights of engine "kernel": a cap on memory, a folder that keeps them.

    Raises:
        RuleError: a value bound over t / 2, or too little noise budget.
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
        self._mask_bounds = _mask_bounds(program, intervals) if program.masks == "bounded" else {}
        self._layers: dict[str, linear.ServerLayer] = {}
        for node, layer in program.layers:
            check_noise(program.parameters, layer.noise_bits(program.parameters), node.name)
        for node, layer in program.linear_nodes:
            if progress:
                progress(node.name)
            spectrum = (spectra or {}).get(node.name)
            if spectrum is None:
                rows = program.weights[node.name].rows
                spectrum = layer.spectrum(rows, program.parameters.plain_modulus)
            encoded = layer.encode_spectrum(spectrum, self.engine, node.name)
            bias = program.weights[node.name].bias
            self._layers[node.name] = linear.ServerLayer(layer, encoded, bias, self._mask_bounds.get(node.name))
        for node in program.nodes:
            if isinstance(node.operation, Square):
                check_noise(program.parameters, square_noise_bits(program.parameters), node.name)

    def greeting(self) -> bytes:
        """The program's public description for a client: architecture, plans, parameters; no weight."""
        return json.dumps(manifest.to_dict(self.program)).encode()

    def session(self, keys: bytes) -> "Session":
        """A session with one client.

        Raises:
            RuleError: the keys are not what the program's rotations need.
        """
        return Session(self, self.engine.load_keys(keys, self.program.column_steps))

    def layer(self, name: str) -> linear.ServerLayer:
        """What the server holds for a linear node."""
        return self._layers[name]

    def bias(self, name: str) -> Integers:
        """The constants of a product or of tokens."""
        return self.program.weights[name].bias

    def mask_bound(self, name: str) -> int | None:
        """Bound of a node's masks, None for uniform ones."""
        return self._mask_bounds.get(name)


class Session:
    """One client's inferences, one image after the other. Messages in the wrong order are refused.

    Attributes:
        meter: what was measured.
        shares: the server's own share of every node of the last inference; None for the image, of which it has none.
    """

    def __init__(self, server: Server, keys: EvaluationKeys) -> None:
        self.meter = Meter()
        self.shares: dict[str, Residues | None] = {}
        self._server = server
        self._keys = keys
        self._steps = self._start()

    def handle(self, message: bytes) -> bytes:
        """Answer one request.

        Raises:
            RuleError: it is not the request that is due; the image's inference starts over.
        """
        try:
            reply = self._steps.send(message)
        except Exception:
            self._steps = self._start()
            raise
        if reply[4:6] == wire.OUTPUT.to_bytes(2, "little"):
            self._steps = self._start()
        return reply

    def _start(self) -> Generator[bytes, bytes, None]:
        steps = self._run()
        next(steps)
        return steps

    def _run(self) -> Generator[bytes, bytes, None]:
        """Is sent requests and yields the reply to each; what it yields before the first request is no reply."""
        program, t = self._server.program, self._server.program.parameters.plain_modulus
        held: dict[str, Residues | None] = {}
        reply = b""
        for position, node in enumerate(program.nodes):
            arguments = [held[name] for name in node.inputs]
            match node.operation:
                case Input():
                    held[node.name] = None
                case Linear() | Square() | Product():
                    message = yield reply
                    self.shares = held
                    reply, held[node.name] = self._answer(position, node, arguments, message)
                case ClientAided():
                    message = yield reply
                    self.shares = held
                    wire.unframe(message, position, 0)
                    reply, held[node.name] = wire.frame(position, [_bytes(arguments[0])]), None
                case Truncate(bits):
                    held[node.name] = shares.truncate_server(_present(arguments[0]), bits)
                case Tokens():
                    places = shares.local(node.operation, [_present(arguments[0])], t)
                    constants = modular.residues(spread(self._server.bias(node.name)), t)
                    held[node.name] = modular.add(places, constants, t)
                case operation:
                    held[node.name] = _local(operation, arguments, t)
        wire.unframe((yield reply), wire.OUTPUT, 0)
        yield wire.frame(wire.OUTPUT, [_bytes(held[program.output.name])])

    def _answer(
        self, position: int, node: Node, arguments: list[Residues | None], message: bytes
    ) -> tuple[bytes, Residues]:
        server, keys = self._server, self._keys
        engine: ServerEngine = server.engine
        bound = server.mask_bound(node.name)
        with self.meter.time(node.name), self.meter.count(node.name, engine.counts):
            due, _ = message_sizes.exchanged(node, engine.parameters)
            parts = wire.unframe(message, position, due)
            match node.operation:
                case Linear():
                    replies, own = linear.reply(server.layer(node.name), arguments[0], parts, engine, keys)
                case Product():
                    both, bias = (_present(arguments[0]), _present(arguments[1])), server.bias(node.name)
                    replies, own = product.reply(node.operation, bias, both, parts, engine, keys, bound)
                case _:
                    replies, own = square.reply(_present(arguments[0]), parts, engine, keys, bound)
            return wire.frame(position, replies), own


def _mask_bounds(program: Program, intervals: dict[str, bounds.Interval]) -> dict[str, int]:
    """Bound of every node whose values are truncated, or some of whose channels are."""
    known = {node.name: node for node in program.nodes}
    truncated = {node.inputs[0] for node in program.nodes if isinstance(node.operation, Truncate)}
    masked = {masked_node(known, name).name for name in truncated}
    return {name: bounds.largest(intervals[name]) for name in masked}


def _local(operation: Operation, arguments: list[Residues | None], t: int) -> Residues | None:
    """Local operations; the server's share of the image, and of sums over it alone, is zero, written None."""
    present = [argument for argument in arguments if argument is not None]
    if not present:
        return None
    zero = np.zeros_like(present[0])
    return shares.local(operation, [zero if argument is None else argument for argument in arguments], t)


def _bytes(share: Residues | None) -> bytes:
    """A share that the client asks for, a word a value."""
    return _present(share).astype("<u8").tobytes()


def _present(share: Residues | None) -> Residues:
    assert share is not None, "wellformed.check lets no other operation work on a share of the bare image"
    return share
