"""A client finds weights out by the edges of the noise that hides them, over all coefficients of an image.

It guesses the weights, computes the noise that they would leave in the replies, and takes it off. Under a wrong guess
what is left is flooding noise moved by a little. Noise that is uniform in a range passes the range's end somewhere in
an image, however small the move: distances of coefficients add up. A sum of three uniform numbers has no such end.
"""

import numpy as np
import pytest

from privcirnet.he.ring import sampling
from privcirnet.he.ring.modular import Integers
from privcirnet.he.ring.sampling import stream
from tests.he import sampling_oracles

BITS, COEFFICIENTS, IMAGES = 8, 1 << 11, 300
"""Eight bits of flooding over a move by 1, so that what forty bits do to a large image can be seen at all."""

PRIME = 281474976546817


def edged(count: int) -> Integers:
    """Uniform in a range of the same width as each of a flood's parts."""
    return sampling.uniform((count,), 1 << BITS).astype(np.int64)


def flooded(count: int) -> Integers:
    residues = sampling_oracles.flood(BITS, (PRIME,), count, stream())[0].astype(np.int64)
    return np.where(residues > PRIME // 2, residues - PRIME, residues) + (3 << BITS - 1) - 1


def advantage(draw: object, probabilities: np.ndarray) -> float:
    """How much more often the best test calls moved noise moved than it calls other noise so."""
    padded = np.concatenate([np.full(1, 1e-300), np.maximum(probabilities, 1e-300), np.full(1, 1e-300)])
    ratios = np.log(padded[:-1]) - np.log(padded[1:])  # of every value: moved by 1 against not moved
    seen = [[ratios[draw(COEFFICIENTS) + moved].sum() > 0 for _ in range(IMAGES)] for moved in (1, 0)]
    return float(np.mean(seen[0]) - np.mean(seen[1]))


def test_hard_edges_give_the_guess_away() -> None:
    """The attack works."""
    assert advantage(edged, np.full(1 << BITS, 2.0**-BITS)) > 0.99


def test_a_sum_of_three_hides_it_as_promised() -> None:
    """The statistical distance is the most that any test can gain; four standard errors of what is seen are 0.17."""
    one = np.full(1 << BITS, 2.0**-BITS)
    found = advantage(flooded, np.convolve(np.convolve(one, one), one))
    promised = 2 ** -sampling.image_distance_bits([(COEFFICIENTS, 0)], BITS)
    assert promised == pytest.approx(0.19, abs=0.001)
    assert found < promised + 0.17
