"""Mutated messages of exact steps, in thousands: a clean error, or an answer that is wrong and nothing else."""

import time
from random import Random

import pytest

from privcirnet.he.protocol.schedule import schedule_of
from tests.he.networks import network
from tests.he.protocol import mutations
from tests.he.protocol.fuzz import SECONDS, refused
from tests.he.protocol.rounds.mutated import Recording, framed_alike, mutated
from tests.he.protocol.rounds.test_answer import largest_of
from tests.he.protocol.rounds.test_floor import exactly
from tests.he.protocol.rounds.test_table import TABLES, clipped, with_table

MUTATIONS = dict.fromkeys(("truncation", "ReLU", "clip", "table", "clipped table", "maximum", "class"), 480)


def exchange_of(kind):
    """(t, the exchange of an exact step)."""
    program, name = {
        "truncation": lambda: (exactly(network(plain_bits=30, divisor=1 << 20)), "square_t"),
        "ReLU": lambda: (exactly(network(plain_bits=30, divisor=1 << 20)), "first_t"),
        "clip": lambda: (exactly(network(plain_bits=30), 12), "first_t"),
        "table": lambda: (with_table(network(plain_bits=36), TABLES["gelu"]), "first_t"),
        "clipped table": lambda: (clipped(with_table(network(plain_bits=36), TABLES["exp"]), 2), "first_t"),
        "maximum": lambda: (largest_of(3), "answer/5"),
        "class": lambda: (largest_of(3), "answer"),
    }[kind]()
    exchanges = {name: e for name, e in schedule_of(program).exchanges.items() if sum(e.plan.transfers)}
    if kind in ("maximum", "class"):
        name = [*exchanges][0 if kind == "maximum" else -1]
    return program.parameters.plain_modulus, exchanges[name]


def unless_refused(recording, changed, message):
    """The result of a run with one message changed; nothing if it was refused."""
    results = []
    refused(lambda: results.append(recording.run(lambda n, m: message if n == changed else m)))
    return results


@pytest.mark.parametrize("kind", MUTATIONS)
def test_mutated_messages_of_exact_steps(kind):
    t, exchange = exchange_of(kind)
    recording, processed = Recording(exchange, t), 0
    count = mutations.due(MUTATIONS)[kind]
    for seed in range(count):
        random = Random(f"{kind} {seed}")
        changed = random.randrange(len(recording.messages))
        honest, *others = recording.messages[changed:] + recording.messages[:changed]
        message = mutated(honest, others, random)
        start = time.process_time()
        results = unless_refused(recording, changed, message)
        assert time.process_time() - start < SECONDS, seed
        assert not results or framed_alike(message, honest), seed
        assert all((result < t).all() and result.shape == exchange.online.shape for result in results)
        processed += len(results)
    assert count / 20 < processed < count / 1.5
