"""Fuzz the messages of an exact program: ``python -m tests.he.protocol.fuzz_exact FILE SOURCE [KIND SEED]``.

As :mod:`fuzz`, in clear, for there is nothing encrypted in these messages; SOURCE is that of the oblivious transfers.
A ReLU, a pool's maxima, a truncation, a table and a class: how transfers begin and are made, and every step, ahead and
with the image. Transfers are recorded, but where messages are theirs.
"""

import json
import mmap
import sys
from dataclasses import replace
from random import Random

import numpy as np

from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import unplanned
from privcirnet.he.mpc.ot import silent
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.plan_program import Target, plan_program
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program.exact import ExactReLU
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.lookup_table import tabulated
from privcirnet.he.program.operation import Node, Weights
from privcirnet.he.program.operations import Input, Linear, MaxPool, Truncate
from privcirnet.he.program.program import ImpossibleResultError, Network, Program
from privcirnet.he.program.rearrangement import Flatten
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import prepare, run
from tests.he.exchange import random_rows
from tests.he.networks import random_image
from tests.he.parties import rounds
from tests.he.protocol import mutations
from tests.he.protocol.fuzz import main, refused, small
from tests.he.protocol.mutations import Honest
from tests.he.protocol.rounds.mutated import Recorded, framed_alike, mutated

SIDES, SOURCES = ("request", "reply"), ("softspoken", "silent")
AHEAD, ONLINE = {"softspoken": 10, "silent": 12}, 15
"""Pairs of messages of a preparation, and of an image."""
TRANSFERS = {"softspoken": range(2, 4), "silent": range(2, 6)}
"""Of a preparation's, those with which transfers begin and are made: half a second each, and also tried one by one."""
MUTATIONS = {
    source: {
        "greeting": 400,
        **{
            f"{side} {phase} {step}": 16 if phase == "ahead" and step in TRANSFERS[source] else 48
            for phase, pairs in (("ahead", count), ("online", ONLINE))
            for step in range(pairs)
            for side in SIDES
        },
    }
    for source, count in AHEAD.items()
}
"""By source of transfers: an eighth of them, or all in ``make test-all``."""
NEVER_DUE = wire.frame(wire.PREPARED, [])


def program(source: str) -> Program:
    """Two layers, with every kind of exact step between and behind them."""
    conv, head, maps = LinearShape(4, 4, 2, 4, 3, 1, 1), LinearShape.gemm(1, 16, 3), (4, 4, 4)
    nodes = (
        Node("x", Input(-8, 15), (), (2, 4, 4), -4),
        Node("conv", Linear(unplanned(conv, 1)), ("x",), maps, -8),
        Node("relu", ExactReLU(4), ("conv",), maps, -4),
        Node("largest", MaxPool((2, 2), (2, 2), (0, 0), (2, 2)), ("relu",), (4, 2, 2), -4),
        Node("less", Truncate(2), ("largest",), (4, 2, 2), -2),
        Node("gelu", tabulated("gelu", 1, -1, -1, -16, 15), ("less",), (4, 2, 2), -1),
        Node("flat", Flatten(), ("gelu",), (16, 1, 1), -1),
        Node("head", Linear(unplanned(head, 1)), ("flat",), (3, 1, 1), -5),
    )
    weights = {
        name: Weights(random_rows(shape, 1, seed, 3), np.zeros(shape.out_channels, dtype=np.int64))
        for seed, (name, shape) in enumerate({"conv": conv, "head": head}.items())
    }
    target = Target(COUNTED, LINKS["local"], truncation="exact", answer="top1")
    return replace(plan_program(Network(nodes, weights), target).program, transfers=source)


class ExactFuzz:
    """One honest preparation and one honest image recorded, and a way to change a message of each in a live one."""

    def __init__(self, source: str) -> None:
        silent.CODE = silent.LpnParameters(trees=64, depth=10, seed=128)  # one preparation's, which hides nothing
        self.program = program(source)
        server = Server(self.program, "cleartext")
        self.description = server.greeting()
        self.client = Client(self.description, "cleartext")
        self.session = server.session(self.client.keys())
        self.parts = self.client._prepared, self.session._prepared
        self.image = random_image(self.program)
        self.result = self.program.answered(interpret(self.program, self.image)[self.program.output.name])
        self.honest = {"ahead": list(rounds(self.session, self.client.prepare(1)))}
        self.transfers = [Recorded(part._transfers) for part in self.parts]
        (self.serial,) = self.parts[0].store.serials()
        self.halves = [part.store.take(self.serial) for part in self.parts]
        for part, one in zip(self.parts, self.transfers, strict=True):
            part._transfers = one
        list(rounds(self.session, self.client.prepare(1)))
        self._restore(back=True)
        self.honest["online"] = list(rounds(self.session, self.client.infer(self.image)))
        assert [len(pairs) for pairs in self.honest.values()] == [AHEAD[source], ONLINE]
        self.everything = [message for pairs in self.honest.values() for pair in pairs for message in pair]

    def _restore(self, back: bool, begun: bool = True) -> None:
        """Prepared work as an honest party never has it again, or none; and transfers that were made, or none."""
        for part, half, one in zip(self.parts, self.halves, self.transfers, strict=True):
            for serial in part.store.serials():
                part.store.drop(serial)
            if back:
                part.store.put(self.serial, bytearray(half))
            part._transfers = one.again() if begun else None
        self.parts[0]._agreed = {self.serial} if back else set()

    def attempt(self, kind: str, seed: int) -> bool:
        """Try one mutated message; returns whether it was processed. Anything that breaks the contract raises."""
        if kind == "greeting":
            return self._greeting(Random(f"{kind} {seed}"))
        side, phase, step = kind.split(" ")
        requests = [wire.position_of(request) for request, _ in self.honest[phase]]
        position, random = requests[int(step)], Random(f"{kind} {seed}")
        self._restore(phase == "online", position not in (wire.TRANSFERS, wire.REFILL))
        place, passed, alike = requests[: int(step)].count(position), 0, list[bool]()

        def changed(message: bytes) -> bytes:
            other = mutated(message, self.everything, random)
            alike.append(framed_alike(other, message) or position == wire.AGREE)
            return other

        def live() -> None:
            nonlocal passed
            message = next(exchange)
            while True:
                due = wire.position_of(message) == position
                now, passed = due and passed == place, passed + due
                reply = self.session.handle(changed(message) if now and side == "request" else message)
                message = exchange.send(changed(reply) if now and side == "reply" else reply)

        exchange = self.client.prepare(1) if phase == "ahead" else self.client.infer(self.image)
        processed = False
        try:
            assert refused(live)
        except StopIteration:
            processed = True
        except ImpossibleResultError:  # noticed at the end
            processed = True
        exchange.close()
        assert refused(lambda: self.session.handle(NEVER_DUE))  # what was begun starts over
        assert len(alike) == 1, "the message is sent once"
        assert alike[0] or not processed
        return processed

    def _greeting(self, random: Random) -> bool:
        """A description of another program, whose client prepares with this server if it is small."""
        honest, clients = Honest(self.description, [], [], self.everything), list[Client]()
        message = _step_field(honest.content, random) if random.random() < 0.5 else mutations.greeting(honest, random)
        self._restore(back=False, begun=False)
        if refused(lambda: clients.append(Client(message, "cleartext"))):
            return False
        (client,) = clients
        if small(client.program):
            refused(lambda: list(rounds(self.session, client.prepare(1))))
        assert refused(lambda: self.session.handle(NEVER_DUE))
        return True

    def good_image(self) -> None:
        """The same parties still do their work."""
        self._restore(back=False, begun=False)
        prepare(self.client, self.session)
        logits, _ = run(self.client, self.session, self.image)
        assert not self.client.waited
        assert (logits == self.result).all()


def _step_field(description: bytes, random: Random) -> bytes:
    """Another number in one exact step, or in all with such a field."""
    data = json.loads(description)
    steps = [node for node in data["nodes"] if node["operation"].startswith("exact")]
    name = random.choice([name for name, value in random.choice(steps).items() if type(value) is int])
    numbers = (0, 1, -1, 2, 3, 5, 16, 62, 63, 64, 1 << 15, 1 << 31, 1 << 40, 1 << 62, 1 << 63, 1 << 64, 10**400)
    number, everywhere = random.choice(numbers), random.random() < 0.3
    for step in random.sample(steps, len(steps)):
        if name in step:
            step[name] = random.choice((number, step[name] + 1, step[name] - 1, 2 * step[name], number))
            if not everywhere:
                break
    return json.dumps(data).encode()


if __name__ == "__main__":
    with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 64) as shared:
        main(shared, sys.argv[2], sys.argv[3:], ExactFuzz, MUTATIONS)
