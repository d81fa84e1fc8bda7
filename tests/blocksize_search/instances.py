"""Searches of a few layers, with what they must obey."""

import math
import random

from privcirnet.blocksize_search.assignment import Table, uniform_latency

SIZES = (1, 2, 4, 8)


def instance(seed: int) -> tuple[Table, Table, float]:
    """A few layers, sensitivities over up to twelve decades, a feasible budget that is often met with equality."""
    chance = random.Random(seed)
    decades = chance.choice((1, 6, 12))
    names = [f"layers.{i}.fc" for i in range(chance.randint(1, 5))]
    sizes = {name: SIZES[: chance.randint(1, 4)] for name in names}
    omegas = {n: {b: 0.0 if b == 1 else 10 ** chance.uniform(1 - decades, 1) for b in sizes[n]} for n in names}
    seconds = {n: {b: chance.uniform(0.5, 1.5) * 10 ** chance.uniform(-2, 0) / b for b in sizes[n]} for n in names}
    fastest = math.fsum(min(row.values()) for row in seconds.values())
    slowest = math.fsum(max(row.values()) for row in seconds.values())
    budgets = (fastest, slowest, uniform_latency(seconds, 4), chance.uniform(fastest, slowest))
    return omegas, seconds, max(fastest, chance.choice(budgets))
