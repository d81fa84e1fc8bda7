"""How much memory either party of an exchange has at its peak, by what Python and NumPy allocate."""

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from privcirnet.he.protocol.rounds.exchange import PreparedNode
from privcirnet.he.protocol.rounds.message_specs import run_initiator, run_responder, trips
from tests.he.mpc.transfers import both, converse

T = TypeVar("T")


class Party:
    """What one party has while the other one waits, and the most that it ever had."""

    def __init__(self) -> None:
        self.held = self.peak = 0

    def turn(self, function: Callable[..., T], *arguments: Any) -> T:
        """The result of one turn."""
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        try:
            return function(*arguments)
        finally:
            after, peak = tracemalloc.get_traced_memory()
            self.peak = max(self.peak, self.held + peak - before)
            self.held += after - before


def peaks(exchange: Any, source: str) -> tuple[int, int]:
    """The client's and the server's bytes at their peaks, messages included."""
    ours, theirs = both(source)
    while any(ours.lacks(exchange.plan.transfers[1], exchange.plan.transfers[0])):
        converse(ours.refill(), theirs.refill())
    shares, pairs = [np.zeros(exchange.shape, dtype=np.uint64)], trips(exchange.plan.turns)
    client, server = Party(), Party()
    tracemalloc.start()
    try:
        ask = run_initiator(exchange.client(shares, None, ours), 1, pairs)
        message = client.turn(next, ask)
        answer = run_responder(exchange.server(PreparedNode(), [], None, None, theirs), message, 1, pairs)
        reply = server.turn(next, answer)
        with suppress(StopIteration):
            while True:
                message = client.turn(ask.send, reply)
                reply = server.turn(answer.send, message)
    finally:
        tracemalloc.stop()
    return client.peak, server.peak
