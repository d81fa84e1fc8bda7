"""Fuzz both parties on an encrypted engine: ``python -m tests.he.protocol.fuzz FILE ENGINE [KIND SEED]``.

A process of its own, because it makes the library take INSECURE parameters and because a fault in native code ends it.
FILE always holds what is being tried, so that whoever started it knows which mutation did it; KIND SEED tries that one.
"""

import faulthandler
import itertools
import json
import mmap
import resource
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random

import numpy as np
import tenseal.sealapi as seal

from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import SEAL_SEED_BYTES, choose, key_bytes, ordered_primes, reply_bits
from privcirnet.he.layers.integer import Values
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_pieces import Piece
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operation import NO_ROWS, Node, Weights
from privcirnet.he.program.operations import Add, Input, Linear, MatMul, Square
from privcirnet.he.program.program import ImpossibleResultError, Program
from privcirnet.he.program.rearrangement import Flatten
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server, Session
from privcirnet.he.protocol.parties.session import run
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.he.rlwe.parameters import MAX_LOG_Q
from privcirnet.he.rlwe.wire_bytes import SEED_BYTES, WireFormat
from tests.he.exchange import random_rows
from tests.he.parties import rounds
from tests.he.protocol import mutations
from tests.he.protocol.mutations import HEADER, LENGTH, Honest, Residues

INSECURE = 1024, 14
"""Ring degree, the least that the kernels take, and the side of maps of which it holds four channels."""

KINDS = ("greeting", "keys")
COUNTS = {"tenseal": (1100, 400), "kernel": (1000, 650)}
MUTATIONS = {engine: dict(zip(KINDS, counts, strict=True)) for engine, counts in COUNTS.items()}
"""By engine of both parties; a greeting is for the client."""

SECONDS, BYTES, HANG, CHARACTERS = 2.0, 1 << 30, 120, 600
"""Processor time and memory that one message may cost, time on a busy machine that is a hang, length of a clean error."""


def allow_insecure_parameters() -> None:
    """Make the package and the library take the toy ring degree, in this process only."""
    real = seal.SEALContext
    seal.SEALContext = lambda literal, expand, _: real(literal, expand, seal.SEC_LEVEL_TYPE.NONE)
    MAX_LOG_Q[INSECURE[0]] = MAX_LOG_Q[8192]


def network(n: int, side: int) -> Program:
    """Layers with and without rotations, square, product: every kind of exchange, two ciphertexts to a message."""
    shape, last = LinearShape(side, side, 8, 8, 3, 1, 1), LinearShape(side, side, 8, 2, 3, 1, 1)
    layers: dict[str, Layer] = {
        "first": SpectralLayer(shape, 2, n, (side, side), (Piece(1, 1, 2, 1, folds_on_shares=False),)),
        "last": SpectralLayer(last, 1, n, (side, side), (Piece(1, 1, 4, 1, giants_on_shares=True),)),
    }
    assert all(layer.ciphertexts_in == layer.ciphertexts_out == 2 for layer in layers.values())
    assert [layer.rotations for layer in layers.values()] == [2, 0]
    maps, pairs, flat = shape.input_shape, (8 * side * side, 1, 1), (2 * side * side, 1, 1)
    one = LinearShape.product(pairs, pairs, flat[0])
    both = SpectralLayer(one, 1, n, (1, 1), (Piece(flat[0], 1, 2, 1),))
    factors = MatMul(both, both)
    assert (both.ciphertexts_in, both.ciphertexts_out) == (2, 1)
    nodes = (
        Node("x", Input(-8, 15), (), maps, 0),
        Node("first", Linear(layers["first"]), ("x",), maps, 0),
        Node("square", Square(), ("first",), maps, 0),
        Node("last", Linear(layers["last"]), ("square",), last.output_shape, 0),
        Node("pairs", Flatten(), ("first",), pairs, 0),
        Node("product", factors, ("pairs", "pairs"), flat, 0),
        Node("flat", Flatten(), ("last",), flat, 0),
        Node("sum", Add(), ("product", "flat"), flat, 0),
    )
    weights = {
        name: Weights(random_rows(layer.shape, layer.block_size, seed, 3), np.arange(layer.shape.out_channels))
        for seed, (name, layer) in enumerate(layers.items())
    }
    weights["product"] = Weights(NO_ROWS, np.arange(flat[0]))
    return Program(nodes, choose({2, side + 1}, 44, n), weights)


class Fuzz:
    """Both parties, one honest inference recorded, and a way to try a mutated message of each kind."""

    def __init__(self, engine: str) -> None:
        self.engine, self.program = engine, network(*INSECURE)
        parameters = self.program.parameters
        n, bits = parameters.ring_degree, parameters.coefficient_bits
        primes, self.reply_bits = ordered_primes(n, bits), reply_bits(bits, parameters.plain_bits)
        self.seed = {"kernel": SEED_BYTES, "tenseal": SEAL_SEED_BYTES}[engine]
        self.keys_modulus, self.modulus = (WireFormat(primes[:k], n) for k in (None, -1))
        self.server = Server(self.program, engine)
        greeting = self.server.greeting()
        self.client = Client(greeting, engine)
        keys = self.client.keys()
        self.session = self.server.session(keys)
        self.image = np.random.default_rng(0).integers(-8, 16, self.program.nodes[0].shape)
        self.result = interpret(self.program, self.image)["sum"]
        found = [*rounds(self.session, self.client.infer(self.image))]
        self.requests, self.replies = ([pair[side] for pair in found] for side in (0, 1))
        self.honest = {"greeting": Honest(greeting, [], [], [keys]), "keys": self.honest_keys(keys, greeting)}

    def honest_keys(self, content: bytes, greeting: bytes) -> Honest:
        digits = len(self.program.column_steps) * len(self.modulus.primes)
        whole = self.program.parameters.ring_degree
        runs, seeds, place = [], [], 0
        for modulus in (self.modulus, *[self.keys_modulus] * digits):
            more, place = _polynomials(modulus, place, whole)
            runs, seeds, place = runs + more, [*seeds, (place, place + self.seed)], place + self.seed
        assert place == len(content)
        return Honest(content, runs, seeds, [self.requests[0], self.replies[0], greeting])

    def honest_message(self, kind: str, content: bytes, others: list[bytes]) -> Honest:
        place, position = HEADER, wire.position_of(content)
        whole = self.program.parameters.ring_degree
        kept = dict(enumerate(self.kept_at(position)))
        runs: list[Residues] = []
        seeds: list[tuple[int, int]] = []
        parts = itertools.count()
        while place < len(content):
            place += LENGTH
            if kind == "request":
                more, place = _polynomials(self.modulus, place, whole)
                seeds.append((place, place + self.seed))
                place += self.seed
            else:
                seeds.append((place, place + self.reply_bits.octets(whole, kept.get(next(parts), whole))))
                more, place = [], seeds[-1][1]
            runs += more
        assert place == len(content)
        return Honest(content, runs, seeds, others)

    def kept_at(self, position: int) -> list[int]:
        """Coefficients of the first polynomial of each part of a reply, of all nodes whose exchanges share it."""
        exchanges, whole = schedule_of(self.program).exchanges, self.program.parameters.ring_degree
        nodes = next(b.nodes for b in schedule_of(self.program).offline(1) if b.position == position)
        parts = [kept_of(node) or [whole] * exchanges[node.name].plan.ciphertexts_down for node in nodes]
        return [kept for part in parts for kept in part]

    def attempt(self, kind: str, seed: int) -> bool:
        """Try one mutated message; returns whether it was processed. Anything that breaks the contract raises."""
        honest, random = self.honest[kind], Random(f"{kind} {seed}")
        make = mutations.greeting if kind == "greeting" else mutations.message
        message = make(honest, random)
        if message == honest.content:
            message += b"\0"
        processed = getattr(self, kind)(message)
        assert kind == "greeting" or processed == honest.allows(message), f"processed: {processed}"
        return processed

    def keys(self, message: bytes) -> bool:
        sessions: list[Session] = []
        if refused(lambda: sessions.append(self.server.session(message))):
            return False
        for request in self.requests[:3]:  # the third one has ciphertexts
            sessions[0].handle(request)
        return True

    def greeting(self, message: bytes) -> bool:
        clients: list[Client] = []
        if refused(lambda: clients.append(Client(message, self.engine))):
            return False
        (client,) = clients
        if small(client.program):
            node = client.program.nodes[0]
            client.keys()
            exchange = client.infer(np.full(node.shape, node.operation.low, dtype=np.int64))
            if not refused(lambda: next(exchange)):
                refused(lambda: proceed(exchange, self.replies[0], self.result.shape))
        return True

    def good_image(self) -> None:
        """The same parties still do their work."""
        logits, _ = run(self.client, self.session, self.image)
        assert (logits == self.result).all()


def small(program: Program) -> bool:
    """Whether to run a mutated program too: work grows with what a greeting asks for, that of checking it must not."""
    parameters, layers = program.parameters, [layer for _, layer in program.layers]
    keys = sum(len(layer.column_steps) for layer in layers) * key_bytes(parameters)
    ciphertexts = sum(layer.ciphertexts_in for layer in layers) * parameters.ring_degree
    values = sum(np.prod(node.shape) for node in program.nodes)
    return bool(keys < 1 << 23 and ciphertexts < 1 << 17 and values < 1 << 17)


def refused(step: Callable[[], object]) -> bool:
    """Whether a step raised a clean error: any other exception goes on to the top."""
    try:
        step()
    except RuleError as error:
        text = str(error)
    else:
        return False
    assert len(text) < CHARACTERS, f"an error of {len(text)} characters: {text:.300}"
    return True


def proceed(exchange: Generator[bytes, bytes, Values], reply: bytes, shape: tuple[int, ...]) -> None:
    try:
        exchange.send(reply)
    except StopIteration as finished:
        logits = finished.value
    except ImpossibleResultError as wrong:  # processed, and noticed
        logits = wrong.values
    else:
        return
    assert logits.shape == shape


def kept_of(node: Node) -> list[int]:
    """Coefficients of the first polynomial that each part of a node's reply has, where it has not all of them."""
    kept = node.operation.layer.kept if isinstance(node.operation, Linear) else None
    return [len(places) for places in kept or ()]


@contextmanager
def watched(place: mmap.mmap, kind: str, seed: int) -> Generator[None, None, None]:
    """Say what is tried, end the process if it hangs, raise if it takes too long."""
    place[:64] = f"{kind} {seed}".encode().ljust(64)
    faulthandler.dump_traceback_later(HANG, exit=True)
    start = time.process_time()
    try:
        yield
    except BaseException:
        sys.stderr.write(f"mutation {kind} {seed}\n")
        raise
    finally:
        faulthandler.cancel_dump_traceback_later()
    assert time.process_time() - start < SECONDS, f"{kind} {seed}: {time.process_time() - start:.1f} s"


def peak_mebibytes() -> int:
    """Most memory that this process held; what getrusage says may be its parent's from before it was started."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) >> 10


def main(
    place: mmap.mmap,
    engine: str,
    chosen: list[str],
    make: Callable[[str], Fuzz] = Fuzz,
    counts: Mapping[str, Mapping[str, int]] = MUTATIONS,
) -> None:
    """Try every mutation, or the chosen one, and write how many were processed and the time of the slowest."""
    allow_insecure_parameters()
    fuzz = make(engine)
    before = peak_mebibytes()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES,) * 2)
    found: dict[str, dict[str, float]] = {}
    tasks = [(k, range(count)) for k, count in mutations.due(counts[engine]).items()]
    if chosen:
        tasks = [(" ".join(chosen[:-1]), range(int(chosen[-1]), int(chosen[-1]) + 1))]
    for kind, seeds in tasks:
        processed, slowest, begin = 0, 0.0, time.perf_counter()
        for seed in seeds:
            start = time.process_time()
            with watched(place, kind, seed):
                processed += fuzz.attempt(kind, seed)
            slowest = max(slowest, time.process_time() - start)
            if seed % 100 == 0:
                fuzz.good_image()
        fuzz.good_image()
        total = time.perf_counter() - begin
        found[kind] = {"tried": len(seeds), "processed": processed, "slowest": slowest, "seconds": total}
    sys.stdout.write(json.dumps({"kinds": found, "grown MiB": peak_mebibytes() - before}))


def _polynomials(modulus: WireFormat, place: int, *counts: int) -> tuple[list[Residues], int]:
    """(residues of polynomials with that many coefficients each, from a place on, where they end)."""
    runs: list[Residues] = []
    for count in counts:
        for prime in modulus.primes:
            runs.append(Residues(place, prime, count))
            place = runs[-1].stop
    return runs, place


if __name__ == "__main__":
    with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 64) as shared:
        main(shared, sys.argv[2], sys.argv[3:])
