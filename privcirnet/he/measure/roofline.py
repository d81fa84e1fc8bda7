"""What a layer makes the compiled engine do at the least: words through memory and 32-bit products, counted.

For a roofline: a machine that reads W words and makes P products in a second needs at least the larger of words / W and
products / P. Counted are the weights and the keys, which are read once for each use, turned inputs and sums, which are
written and read, and the products of transforms and of sums; not the passes that only move or reduce words.

Maths: a transform is (n / 2) log2 n butterflies of :data:`BUTTERFLY` products; a word times a word, in halves, is 4.
"""

import math
from dataclasses import dataclass

from privcirnet.he.encodings.layer import Layer
from privcirnet.he.encodings.spectral_layer import LinearLayer

BUTTERFLY = 9
"""32-bit products of a Shoup product: 3 for the estimate, 3 for each of two lower halves."""

_CUT = 4


@dataclass(frozen=True)
class Work:
    """Counts.

    Attributes:
        words: of 64 bits, read or written.
        products: of 32-bit factors.
    """

    words: int
    products: int

    def seconds(self, words_per_second: float, products_per_second: float) -> tuple[float, float]:
        """(for the words, for the products): the larger is the least time."""
        return self.words / words_per_second, self.products / products_per_second


def layer_work(layer: Layer, data_primes: int) -> Work:
    """Counts of a layer.

    Args:
        layer: any.
        data_primes: L.
    """
    n, limbs, extended = layer.ring_degree, data_primes, data_primes + 1
    turned, rotated, babies, giants, parts = _counts(layer)
    inputs, outputs = layer.ciphertexts_in, layer.ciphertexts_out
    hoists = rotated * (limbs * extended - limbs)
    transforms = (
        inputs * (1 + 2 * limbs)
        + hoists
        + babies * 2 * (1 + limbs)
        + giants * limbs * extended
        + outputs * (1 + limbs + 2 * (extended if giants else limbs))
    )
    key = 2 * limbs * extended * n
    switches = babies + giants
    words = layer.pmults * limbs * n + switches * key + 2 * (turned + parts) * 2 * limbs * n
    products = transforms * n // 2 * int(math.log2(n)) * BUTTERFLY
    products += _CUT * (layer.pmults * 2 * limbs * n + switches * key)
    return Work(words, products)


def _counts(layer: Layer) -> tuple[int, int, int, int, int]:
    """(turned inputs, inputs that are rotated, baby steps, giant steps and folds, inner sums)."""
    if not isinstance(layer, LinearLayer):
        return layer.ciphertexts_in, 0, 0, 0, layer.ciphertexts_out
    plans = [placed.plan for placed in layer.placed]
    babies = sum(len(plan.baby_rotations) for plan in plans)
    rotated = sum(len({source for source, _ in plan.baby_rotations}) for plan in plans)
    turned, parts = (sum(len(getattr(plan, name)) for plan in plans) for name in ("turned", "parts"))
    return turned, rotated, babies, layer.rotations - babies, parts
