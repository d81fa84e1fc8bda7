"""Fuzz the messages of prepared inference: ``python -m tests.he.protocol.fuzz_prepared FILE ENGINE [KIND SEED]``.

As :mod:`fuzz`. The same prepared work is put back before each mutation of a message about an image, which an honest party
never does: so the honest messages are the same each time.
"""

import mmap
import sys
from collections.abc import Callable
from math import prod
from random import Random

from privcirnet.errors import RuleError
from privcirnet.he.mpc.local.packing import packed_size
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.offline.store_files import SERIAL_BYTES
from privcirnet.he.protocol.parties.session import prepare, run
from tests.he.parties import rounds
from tests.he.protocol import mutations
from tests.he.protocol.fuzz import Fuzz, main, proceed, refused
from tests.he.protocol.mutations import Honest

AHEAD = ("agree", "prepare", "1", "2", "prepared")
ONLINE = ("image", "both")
SIDES = ("request", "reply")
NEVER_DUE = wire.frame(wire.PREPARED, [])
"""The end of offline work for no image."""
MUTATIONS = {
    engine: {
        **{f"{side} ahead {step}": 245 for side in SIDES for step in AHEAD},
        **{f"{side} online {step}": 245 for side in SIDES for step in ONLINE},
    }
    for engine in ("tenseal", "kernel")
}
"""By engine of both parties: an eighth of them, or all in ``make test-all``."""


class PreparedFuzz(Fuzz):
    """One honest preparation and one honest image with it recorded, and a way to try a mutated message of each."""

    def __init__(self, engine: str) -> None:
        super().__init__(engine)
        self.stores = self.client._prepared.store, self.session._prepared.store
        self.ahead = list(rounds(self.session, self.client.prepare(1)))
        (self.serial,) = self.stores[0].serials()
        self.halves = [store.take(self.serial) for store in self.stores]
        self._restore()
        self.online = list(rounds(self.session, self.client.infer(self.image)))
        self.allowed: dict[str, Callable[[bytes], bool]] = {}
        for side, name in enumerate(SIDES):
            for phase, steps, found in (("ahead", AHEAD, self.ahead), ("online", ONLINE, self.online)):
                everything = [message for pair in (*self.ahead, *self.online) for message in pair]
                for step, pair in zip(steps, found, strict=True):
                    kind, others = f"{name} {phase} {step}", [m for m in everything if m is not pair[side]]
                    whole = phase == "ahead" and step.isdigit()
                    made = (
                        self.honest_message(name, pair[side], others) if whole else Honest(pair[side], [], [], others)
                    )
                    self.honest[kind] = made
                    self.allowed[kind] = (
                        made.allows if whole else getattr(self, f"_{kind.replace(' ', '_')}", made.allows)
                    )

    def _restore(self, back: bool = True) -> None:
        for store, half in zip(self.stores, self.halves, strict=True):
            for serial in store.serials():
                store.drop(serial)
            if back:
                store.put(self.serial, half)
        self.client._prepared._agreed = {self.serial} if back else set()

    def attempt(self, kind: str, seed: int) -> bool:
        """Try one mutated message; returns whether it was processed. Anything that breaks the contract raises."""
        side, phase, step = kind.split(" ")
        random, honest, place = Random(f"{kind} {seed}"), self.honest[kind], {"ahead": AHEAD, "online": ONLINE}[phase]
        self._restore(phase == "online")
        position = place.index(step)
        if phase == "ahead" and step == "prepared" and side == "request":  # with a number of its own each time
            for request, _ in self.ahead[1:position]:
                reply = self.session.handle(request)
                if wire.begins(reply) == wire.PREPARE:
                    honest = Honest(wire.frame(wire.PREPARED, wire.unframe(reply, wire.PREPARE)), [], [], honest.others)
            message, allowed = self._mutated(honest, random), honest.allows
            done = not refused(lambda: self.session.handle(message))
        else:
            message, allowed = self._mutated(honest, random), self.allowed[kind]
            done = getattr(self, f"_{side}")(message, phase, position)
        assert refused(lambda: self.session.handle(NEVER_DUE))  # what was begun starts over, the image and offline work
        idle = phase == "ahead" or position == 0
        due = allowed(message) or (side == "request" and self.begins(message, idle))
        assert done == due, f"processed: {done}"
        return done

    def begins(self, message: bytes, idle: bool) -> bool:
        """Whether a request may come at any time: offline work, and where no image runs, an image or an agreement."""
        first = (self._request_ahead_agree, self._request_online_image)
        return self._request_ahead_prepare(message) or (idle and any(allows(message) for allows in first))

    def _mutated(self, honest: Honest, random: Random) -> bytes:
        if random.random() < 0.15:
            return honest.content
        return mutations.message(honest, random)

    def _request(self, message: bytes, phase: str, position: int) -> bool:
        begun = self.ahead[1:position] if phase == "ahead" else self.online[:position]
        for request, _ in begun:
            self.session.handle(request)
        return not refused(lambda: self.session.handle(message))

    def _reply(self, message: bytes, phase: str, position: int) -> bool:
        exchange = self.client.prepare(1) if phase == "ahead" else self.client.infer(self.image)
        next(exchange)
        for _, reply in (self.ahead if phase == "ahead" else self.online)[:position]:
            exchange.send(reply)
        try:
            return not refused(lambda: proceed(exchange, message, self.result.shape))
        except AttributeError:  # the end of a preparation, which returns nothing
            return True
        finally:
            exchange.close()

    def _request_ahead_agree(self, message: bytes) -> bool:
        parts = _parts(message, wire.AGREE, 1)
        return parts is not None and not len(parts[0]) % SERIAL_BYTES and len(parts[0]) <= 1024 * SERIAL_BYTES

    _reply_ahead_agree = _request_ahead_agree

    def _request_ahead_prepare(self, message: bytes) -> bool:
        parts = _parts(message, wire.PREPARE, 1)
        return parts is not None and len(parts[0]) == 2 and 1 <= int.from_bytes(parts[0], "little") <= 8

    def _reply_ahead_prepare(self, message: bytes) -> bool:
        parts = _parts(message, wire.PREPARE, 1)
        return parts is not None and len(parts[0]) == SERIAL_BYTES

    def _request_online_image(self, message: bytes) -> bool:
        parts = _parts(message, wire.ONLINE, 2)
        if parts is None or len(parts[0]) != SERIAL_BYTES:
            return False
        return parts[0] != self.serial or self._packed(parts[1], self.image.size)

    def _request_online_both(self, message: bytes) -> bool:
        return self._values(message, self.program.nodes[2].shape, self.program.nodes[5].shape)

    def _reply_online_image(self, message: bytes) -> bool:
        none = message == wire.frame(wire.ONLINE, [])  # the server has lost its half: the image goes on without
        return none or self._values(message, self.program.nodes[2].shape, (2, *self.program.nodes[4].shape))

    def _reply_online_both(self, message: bytes) -> bool:
        parts = _parts(message, wire.OUTPUT, 1)
        if parts is None or len(parts[0]) != 8 * self.result.size:
            return False
        words = (int.from_bytes(parts[0][i : i + 8], "little") for i in range(0, len(parts[0]), 8))
        return all(word < self._t for word in words)

    @property
    def _t(self) -> int:
        return self.program.parameters.plain_modulus

    def _values(self, message: bytes, *shapes: tuple[int, ...]) -> bool:
        """Of the square and the product, which share messages."""
        parts = _parts(message, 2, len(shapes))
        return parts is not None and all(map(self._packed, parts, map(prod, shapes)))

    def _packed(self, part: bytes, count: int) -> bool:
        """An oracle of its own for packed residues."""
        if len(part) != packed_size(count, self._t):
            return False
        bits = f"{int.from_bytes(part, 'little'):0{8 * len(part)}b}"[::-1]
        width = (self._t - 1).bit_length()
        values = (int(bits[i * width : (i + 1) * width][::-1], 2) for i in range(count))
        return all(value < self._t for value in values) and "1" not in bits[count * width :]

    def good_image(self) -> None:
        """The same parties still do their work."""
        self._restore(back=False)
        prepare(self.client, self.session)
        logits, _ = run(self.client, self.session, self.image)
        assert not self.client.waited
        assert (logits == self.result).all()


def _parts(message: bytes, position: int, count: int) -> list[bytes] | None:
    try:
        return wire.unframe(message, position, count)
    except RuleError:
        return None


if __name__ == "__main__":
    with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 64) as shared:
        main(shared, sys.argv[2], sys.argv[3:], PreparedFuzz, MUTATIONS)
