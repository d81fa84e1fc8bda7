"""Seconds and bytes of exact ReLUs, clips, floors and look-ups of 8 bits between two processes, over TCP on loopback.

python benchmarks/exact_steps.py                                    65,536 values, t of 28 bits, both sources
python benchmarks/exact_steps.py --values 1048576 --source silent

Transfers begin once for a session and are not counted. A silent stock is filled before; of its seconds and bytes each
step has the part that it uses up. Every result is compared with the integers. Medians of turns after one that warms up;
each party has one thread. Processor seconds are those of both parties.
"""

import argparse
import os
import socket
import time
from collections.abc import Generator
from multiprocessing import Process
from multiprocessing.connection import Client, Listener
from statistics import median
from typing import Any

import numpy as np

from privcirnet.cli.console import show_rows
from privcirnet.he.mpc import lookup
from privcirnet.he.mpc.lookup import Lookup
from privcirnet.he.mpc.ot import silent
from privcirnet.he.mpc.ot.session import OT_PROTOCOLS, OtSession, initiate, respond
from privcirnet.he.mpc.rectifier import Rectifier
from privcirnet.he.mpc.truncation import Floor
from privcirnet.he.protocol.rounds.exact import turns_of
from privcirnet.he.system import threads
from privcirnet.he.system.process import keep_freed_memory

T, BITS = 167772161, 11
Step = Rectifier | Floor | Lookup
STEPS: dict[str, Step] = {
    "ReLU": Rectifier(T, 0, T, bits=10),
    "ReLU and floor": Rectifier(T, BITS, T, bits=12),
    "clip and floor": Rectifier(T, BITS, T, bits=12, most=192),
    "floor": Floor(T, BITS, T, (T >> 3) >> BITS << BITS),
    "look-up of 8 bits": Lookup(T, tuple(np.random.default_rng(0).integers(-128, 128, 256).tolist())),
}
Side = Generator[list[Any], list[Any], Any]


class Line:
    """One party's end of the connection, and the bytes that it sends."""

    def __init__(self, connection: Any) -> None:
        self.connection, self.sent, self.fills = connection, 0, list[np.ndarray]()
        with socket.socket(fileno=os.dup(connection.fileno())) as own:
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def say(self, parts: list[Any]) -> None:
        """Send a message."""
        self.sent += sum(map(len, parts))
        self.connection.send([bytes(part) for part in parts])

    def begin(self, side: Side) -> Any:
        """Take the turns of who begins."""
        parts = next(side)
        while True:
            self.say(parts)
            try:
                parts = side.send(self.connection.recv())
            except StopIteration as ended:
                return ended.value

    def answer(self, side: Side, trips: int = 2) -> Any:
        """Take the turns of who answers, so many."""
        next(side)
        answers = [side.send(self.connection.recv())]
        for _ in range(1, trips):
            self.say(answers.pop())
            answers.append(side.send(self.connection.recv()))
        try:
            next(side)
        except StopIteration as ended:
            self.say(answers.pop())
            return ended.value
        raise RuntimeError("an exchange has other trips")

    def filled(self, take: Any, transfers: OtSession, choose: int, help: int) -> None:
        """Make as many silent transfers as are needed, and note an iteration's seconds and its processor's, one way."""
        while any(lacking := [min(count, 1) for count in transfers.lacks(choose, help)]):
            started = np.array([time.perf_counter(), time.process_time()])
            take(transfers.refill(*lacking))
            self.fills.append((np.array([time.perf_counter(), time.process_time()]) - started) / sum(lacking))


def slots(step: Step) -> tuple[int, int]:
    """Return the transfers of a value: those in which the client chooses, and the server."""
    return (step.up if isinstance(step, Lookup) else step.up[-1].stop), step.down[-1].stop


def shares(step: Step, values: int, turn: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The integers, and both parties' shares: the same for both processes."""
    rng = np.random.default_rng(turn)
    limit = 1 << step.f + step.bits - 1 if isinstance(step, Rectifier) else T >> 4
    x = rng.integers(-limit, limit, values)
    client = rng.integers(0, T, values, dtype=np.uint64)
    return x, client, ((x - client.astype(np.int64)) % T).astype(np.uint64)


def client(address: Any, key: bytes, name: str, source: str, values: int, turns: int) -> None:
    """One process: the client's turns."""
    threads.use(1)
    keep_freed_memory()
    step, line = STEPS[name], Line(Client(address, authkey=key))
    transfers = line.begin(initiate(source=source))
    for turn in range(turns):
        _, own, _ = shares(step, values, turn)
        chooses, helps = slots(step)
        line.filled(line.begin, transfers, chooses * values, helps * values)
        line.connection.recv()
        clock = [time.process_time()]
        result = np.random.default_rng(turn).integers(0, T, values, dtype=np.uint64)
        if not isinstance(step, Lookup):
            kept = line.begin(turns_of(step).client_ahead(step, own, transfers))
            clock.append(time.process_time())
            line.answer(turns_of(step).client_online(step, kept, result), len(step.online_bits()) // 2)
        else:
            kept = line.begin(lookup.client_ahead(step, values, transfers))
            clock.append(time.process_time())
            line.connection.send(kept.numbers[-1])  # for the benchmark's own index
            line.answer(lookup.client_online(step, kept, result), 1)
        line.connection.send((line.sent, np.diff([*clock, time.process_time()]), line.fills))


def measured(name: str, source: str, values: int, turns: int) -> dict[str, str]:
    """Run both parties, and return a row."""
    threads.use(1)
    key, step, rows = b"loopback", STEPS[name], list[tuple[float, ...]]()
    with Listener(("127.0.0.1", 0), authkey=key) as listener:
        process = Process(target=client, args=(listener.address, key, name, source, values, turns))
        process.start()
        line = Line(listener.accept())
        transfers = line.answer(respond(source=source))
        theirs = 0
        for turn in range(turns):
            x, _, own = shares(step, values, turn)
            helps, chooses = slots(step)
            line.filled(line.answer, transfers, chooses * values, helps * values)
            line.connection.send("ready")
            before, started, clock = line.sent, time.perf_counter(), [time.process_time()]
            if not isinstance(step, Lookup):
                kept = line.answer(turns_of(step).server_ahead(step, values, transfers))
            else:
                kept = line.answer(lookup.server_ahead(step, values, transfers), 3)
            middle = time.perf_counter()
            clock.append(time.process_time())
            if not isinstance(step, Lookup):
                found = line.begin(turns_of(step).server_online(step, kept, own))
                right = x >> step.f if isinstance(step, Floor) else (x >> step.f).clip(0, step.most or None)
            else:
                index = (x.astype(np.uint64) - line.connection.recv()) & np.uint64(255)
                middle = time.perf_counter()
                found = line.begin(lookup.server_online(step, kept, index))
                right = np.array(step.table)[x & 255]
            ended = time.perf_counter()
            clock.append(time.process_time())
            result = np.random.default_rng(turn).integers(0, T, values, dtype=np.uint64)
            if ((found + result) % np.uint64(T) != (right % T).astype(np.uint64)).any():
                raise RuntimeError(f"turn {turn} is wrong")
            sent, worked, other_fills = line.connection.recv()
            ahead_worked, online_worked = worked + np.diff(clock)
            online = values * sum(map(sum, step.online_bits())) / 8
            seconds = middle - started, ended - middle, ahead_worked, online_worked
            rows.append((*seconds, line.sent - before + sent - theirs - online, online))
            theirs = sent
        process.join()
    ahead, online, ahead_worked, online_worked, *octets = (median(column) for column in zip(*rows[1:], strict=True))
    made = sum(slots(step)) * values
    iterations = made / silent.CODE.made if line.fills else 0.0
    filled, none = iterations * sum(silent.CODE.message_bytes), [np.zeros(2)]
    (fill_s, own), (_, other) = (np.median(fills or none, axis=0) * iterations for fills in (line.fills, other_fills))
    return {
        "step": name,
        "source": source,
        "ahead s": f"{ahead + fill_s:.3f}",
        "online s": f"{online:.3f}",
        "ahead processor s": f"{ahead_worked + own + other:.3f}",
        "online processor s": f"{online_worked:.3f}",
        "ahead MB": f"{(octets[0] + filled) / 1e6:.1f}",
        "online MB": f"{octets[1] / 1e6:.2f}",
    }


def main() -> None:
    """Print a row for each step and source."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=65536, help="a multiple of 64")
    parser.add_argument("--source", nargs="+", default=OT_PROTOCOLS, choices=OT_PROTOCOLS)
    parser.add_argument("--turns", type=int, default=7, help="the first warms up")
    given = parser.parse_args()
    keep_freed_memory()
    rows = [measured(name, source, given.values, given.turns) for name in STEPS for source in given.source]
    show_rows(f"{given.values:,} values, t of {T.bit_length()} bits, floor by 2^{BITS}", rows)


if __name__ == "__main__":
    main()
