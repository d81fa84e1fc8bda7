"""Nanoseconds and bytes of a random oblivious transfer, by source; both parties on one thread, one after the other.

python benchmarks/transfers.py [--repetitions 5]

Processor time of each party in one direction, with keys hashed to planes, the least of the repetitions: run it when
nothing else runs. The session's start is base transfers and, if silent, what the first iteration spends.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

from privcirnet.he.mpc.ot import silent
from privcirnet.he.mpc.ot.session import OT_PROTOCOLS, OtSession, Parts, initiate, respond
from privcirnet.he.system.process import keep_freed_memory

VALUES = silent.CODE.made // 64 * 64
"""Transfers that are measured: all of an iteration."""
KEY_BITS = 2
"""Bits of a key that a step takes, as planes."""


class Timed:
    """A party whose processor seconds and sent bytes are counted."""

    def __init__(self) -> None:
        self.seconds, self.sent = 0.0, 0

    def __call__(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a step returns."""
        start = time.process_time()
        found = step(*arguments)
        self.seconds += time.process_time() - start
        return found

    def says(self, message: Parts) -> Parts:
        """Return a message, counted."""
        self.sent += sum(map(len, message))
        return message


def started(source: str) -> tuple[OtSession, OtSession, Timed]:
    """Return both ends of a session, and what the one that opened it spent."""
    party, first, second = Timed(), initiate(source), respond(source)
    next(second)
    told = second.send(party.says(party(next, first)))
    told = second.send(party.says(party(first.send, told)))
    ends: list[OtSession] = []
    for step in (lambda: party(first.send, told), lambda: next(second)):
        try:
            step()
        except StopIteration as ended:
            ends.append(ended.value)
    return ends[0], ends[1], party


def direction(chooser: OtSession, helper: OtSession) -> tuple[Timed, Timed]:
    """Return what the chooser and the helper of all transfers spent."""
    chooses, helps = Timed(), Timed()
    receiver, sender = chooser._receiver, helper._sender
    if isinstance(receiver, silent.Receiver) and isinstance(sender, silent.Sender):
        answer = chooses.says([chooses(receiver.answer, *helps.says([helps(sender.offer)]))])
        chooses(receiver.finish, *helps.says([helps(sender.prove, *answer)]))
    chosen, message = chooses(chooser.choose, 1, VALUES)
    both = helps(helper.help, 1, VALUES, *chooses.says([message]))
    chooses(chosen.planes, 0, KEY_BITS)
    helps(both.planes, 0, KEY_BITS)
    return chooses, helps


def main() -> None:
    """Print a line for each source."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    repetitions = parser.parse_args().repetitions
    keep_freed_memory()
    print("source       start: ms    kB   chooser: ns  helper: ns  bytes")
    for source in OT_PROTOCOLS:
        first, second, start = started(source)
        spent = [direction(second, first) for _ in range(repetitions)]
        chooser, helper = (min(pair[i].seconds for pair in spent) * 1e9 / VALUES for i in (0, 1))
        sent = sum(party.sent for party in spent[0]) / VALUES
        print(
            f"{source:12} {start.seconds * 1e3:9.0f} {start.sent / 1e3:5.0f} {chooser:13.1f} {helper:11.1f} {sent:6.4f}"
        )


if __name__ == "__main__":
    main()
