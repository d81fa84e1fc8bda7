"""How fast this machine is at what the kernels are made of: reading memory, and 32-bit products in vector registers."""

import statistics
import time
from collections.abc import Callable

import numpy as np

from privcirnet.he.engines.kernels.jit import jit
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.threads import each, ranges, using

_WORDS = 1 << 25
_SMALL, _ROUNDS = 512, 4096
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def words_per_second(repetitions: int = 5) -> float:
    """64-bit words that all threads together read from memory, the best of some runs."""
    words = np.ones(_WORDS, dtype=np.uint64)
    parts = ranges(_WORDS, _WORDS // 16)
    return _WORDS / min(
        _seconds(lambda: each(lambda p: _sum(words[p.start : p.stop]), parts)) for _ in range(repetitions)
    )


def products_per_second(repetitions: int = 5) -> float:
    """32-bit products, each with a sum, that all threads together make of words in a first-level cache."""
    tasks = [np.full((4, _SMALL), 3 << 32 | 5, dtype=np.uint64) for _ in range(16)]
    total = len(tasks) * _ROUNDS * _SMALL * 4
    return total / min(
        _seconds(lambda: each(lambda words: _multiply(words, _ROUNDS), tasks)) for _ in range(repetitions)
    )


def scaling(repetitions: int = 9) -> float:
    """How many times as fast all threads together are at products as one: the median of measurements in pairs.

    What no engine can beat: two threads may share a core's units, or a machine's power with its neighbours.
    """

    def pair() -> float:
        with using(1):
            one = products_per_second(1)
        return products_per_second(1) / one

    return statistics.median(pair() for _ in range(repetitions))


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@jit
def _sum(words: Residues) -> np.uint64:
    total = np.uint64(0)
    for word in words:
        total += word
    return total


@jit
def _multiply(words: Residues, rounds: int) -> None:
    """Rows 2 and 3 gather sums of products of halves of rows 0 and 1."""
    a, b, low, high = words[0], words[1], words[2], words[3]
    for _ in range(rounds):
        for i in range(a.size):
            a0, a1, b0, b1 = a[i] & _LOW, a[i] >> _HALF, b[i] & _LOW, b[i] >> _HALF
            low[i] += a0 * b0 + a1 * b1
            high[i] += a0 * b1 + a1 * b0
