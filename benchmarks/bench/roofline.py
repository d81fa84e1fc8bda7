"""What a layer makes the compiled engine do at the least, and what this machine can do at the most: a roofline.

Counted for a layer are words that go through memory and 32-bit products: weights and keys, which are read once for each
use; rotated inputs and sums, which are written and read; and the products of transforms and of sums. Passes that only
move or reduce words are left out. A transform is (n / 2) log2 n butterflies of :data:`BUTTERFLY` products, and a word
times a word, in halves, is 4.

Measured for the machine are W words and P products in a second, so that a layer takes at least the larger of words / W
and products / P. Measuring takes arrays that no cache holds for words, and arrays that a first-level cache holds for
products.
"""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privcirnet.he.layers.layer import Layer
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import jit
from privcirnet.he.system.threads import each, ranges, using

BUTTERFLY = 9
"""32-bit products of a Shoup product: 3 for the estimate, 3 for each of two lower halves."""

_CUT = 4
"""32-bit products of two words that are cut in halves."""


@dataclass(frozen=True)
class Work:
    """What a layer makes an engine do at the least.

    Attributes:
        words: of 64 bits, read or written.
        products: of 32-bit factors.
    """

    words: int
    products: int

    def seconds(self, words_per_second: float, products_per_second: float) -> tuple[float, float]:
        """Return the seconds for the words and for the products: the larger is the least time."""
        return self.words / words_per_second, self.products / products_per_second


def layer_work(layer: Layer, data_primes: int) -> Work:
    """Return the least work of a layer; ``data_primes``: L, primes of q without the special one."""
    n, primes, extended = layer.ring_degree, data_primes, data_primes + 1
    rotated, hoisted, babies, giants, parts = _counts(layer)
    inputs, outputs = layer.ciphertexts_in, layer.ciphertexts_out
    hoists = hoisted * (primes * extended - primes)
    transforms = (
        inputs * (1 + 2 * primes)
        + hoists
        + babies * 2 * (1 + primes)
        + giants * primes * extended
        + outputs * (1 + primes + 2 * (extended if giants else primes))
    )
    key = 2 * primes * extended * n
    switches = babies + giants
    words = layer.pmults * primes * n + switches * key + 2 * (rotated + parts) * 2 * primes * n
    products = transforms * n // 2 * int(math.log2(n)) * BUTTERFLY
    products += _CUT * (layer.pmults * 2 * primes * n + switches * key)
    return Work(words, products)


def _counts(layer: Layer) -> tuple[int, int, int, int, int]:
    """(rotated inputs, inputs that are hoisted, baby steps, giant steps and folds, inner sums), from the circuit."""
    circuit = layer.circuit
    babies = sum(step > 0 for _, step in circuit.rotated)
    hoisted = len({source for source, step in circuit.rotated if step})
    return len(circuit.rotated), hoisted, babies, layer.rotations - babies, len(circuit.sums)


_WORDS = 1 << 25
"""Words of an array that no cache holds."""
_SMALL, _ROUNDS = 512, 4096
"""Words of an array that a first-level cache holds, and how often they are gone through."""
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def words_per_second(repetitions: int = 5) -> float:
    """Return how many 64-bit words all threads together read from memory in a second."""
    words = np.ones(_WORDS, dtype=np.uint64)
    parts = ranges(_WORDS, _WORDS // 16)
    return _WORDS / min(
        _seconds(lambda: each(lambda p: _sum(words[p.start : p.stop]), parts)) for _ in range(repetitions)
    )


def products_per_second(repetitions: int = 5) -> float:
    """Return how many 32-bit products, each with a sum, all threads together make in a second."""
    tasks = [np.full((4, _SMALL), 3 << 32 | 5, dtype=np.uint64) for _ in range(16)]
    total = len(tasks) * _ROUNDS * _SMALL * 4
    return total / min(
        _seconds(lambda: each(lambda words: _multiply(words, _ROUNDS), tasks)) for _ in range(repetitions)
    )


def scaling(repetitions: int = 9) -> float:
    """Return how many times as fast all threads together are at products as one: the median of measurements in pairs.

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
