"""The two encodings that CinS is compared with (NeuJeans, Table 1), for layers of C channels to C.

Slot encoding (Gazelle): a real value in each slot, C / 2 channels in a ciphertext, so two ciphertexts. A convolution is
a map with a diagonal for every weight of the kernel and every distance of channels: f^2 - 1 rotations of each input,
and C / 2 - 1 of the sums for each pair of ciphertexts.

Coefficient encoding (Kim and Guyot, 2023): value i of channel c at X^(i C + c). A product with
sum over c of k_(m,c)(X^C) X^-c has output channel m at the powers of X^C and unwanted values elsewhere. After a change
to slot encoding (which a bootstrapping makes) each of the C products is masked, moved by m and added.

The table's counts beside what is needed here (:func:`counts`): a convolution in slot encoding takes two rotations less
(those by half of all channels only change places), the coefficient encoding one mask more (channel 0 has unwanted
values too).
"""

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from papers.ckks import cins, convolution
from privcirnet.he.ckks import embedding
from privcirnet.he.ckks.embedding import Reals, Slots
from privcirnet.he.ckks.evaluator import CkksEvaluator, Cleartext
from privcirnet.he.ckks.linear_map import LinearMap

V = TypeVar("V")


def counts(encoding: str, channels: int, kernel: int, *, depthwise: bool = False) -> Counter[str]:
    """Return the products and rotations of a layer of C channels to C in one of the three encodings of Table 1.

    Rotations of an input serve all outputs. Counts do not depend on the maps' size, so it is the kernel's.

    Args:
        encoding: "slot", "coefficient" or "cins".
        channels: C, even.
        kernel: f, odd.
        depthwise: whether each channel has one kernel; else there is one for each pair.

    Returns:
        "pmult" and "rotate".
    """
    clear, width = Cleartext(), 1 << kernel.bit_length()
    slots = np.zeros(channels * width * width // 2, dtype=np.complex128)
    weights = np.ones((channels, kernel, kernel))
    dense = np.broadcast_to(weights, (channels, channels, kernel, kernel))
    if encoding == "slot" and depthwise:
        maps = slot_depthwise(weights, width)
    elif encoding == "slot":
        maps = [linear for row in slot_convolution(dense, width) for linear in row]
        clear.counts["rotate"] -= 2 * (kernel**2 - 1)
    elif encoding == "coefficient":
        maps = coefficient_products(dense[:, :1], width)
    else:
        maps = (
            [convolution.depthwise(weights, width)] if depthwise else convolution.convolution(dense, channels, width)[0]
        )
    values = [clear.map(slots, linear) for linear in maps]
    if encoding == "coefficient":
        gather(clear, values, slots.size)
    return clear.counts


def slot_convolution(weights: Reals, width: int) -> list[list[LinearMap]]:
    """Return the maps of a convolution in slot encoding, padding (f - 1) / 2.

    Args:
        weights: shape (C, C, f, f), C even, f odd.
        width: w; a channel has w^2 slots.

    Returns:
        for each of the two ciphertexts of outputs the map of each of inputs.
    """
    half = len(weights) // 2
    parts = weights.reshape(2, half, 2, half, *weights.shape[2:]).swapaxes(1, 2)
    return [[_slot_map(parts[row, column], width) for column in range(2)] for row in range(2)]


def slot_depthwise(weights: Reals, width: int) -> list[LinearMap]:
    """Return the maps of a depthwise convolution in slot encoding, one for each of two ciphertexts.

    Args:
        weights: shape (C, f, f), C even, f odd.
        width: w.
    """
    half, size = len(weights) // 2, width * width
    slots = half * size
    maps: list[LinearMap] = []
    for start in (0, half):
        diagonals: dict[int, Slots] = {}
        for c in range(half):
            for dy, dx, weight in cins.taps(weights[start + c]):
                diagonal = diagonals.setdefault((dy * width + dx) % slots, np.zeros(slots, dtype=np.complex128))
                diagonal[c * size : (c + 1) * size] = weight
        maps.append(LinearMap(diagonals, slots))
    return maps


def coefficients(slices: Reals) -> Reals:
    """Return channels as one polynomial, shape (n,): value i of channel c at X^(i C + c).

    Args:
        slices: shape (C, n / C).
    """
    return slices.T.reshape(-1)


def coefficient_products(weights: Reals, width: int) -> list[LinearMap]:
    """Return the products of a convolution in coefficient encoding, one for each output channel.

    Args:
        weights: shape (C, C, f, f), f odd.
        width: w.
    """
    count, size = len(weights), width * width
    found: list[LinearMap] = []
    for output in weights:
        polynomial = np.zeros(count * size)
        for c, kernel in enumerate(output):
            for i, value in enumerate(cins.kernel_slice(cins.taps(kernel), width)):
                polynomial[i * count - c] += value if i * count >= c else -value
        found.append(LinearMap({0: embedding.to_slots(polynomial)}))
    return found


def gather(machine: CkksEvaluator[V], values: Sequence[V], slots: int) -> V:
    """Return the outputs of a coefficient convolution together, in slot encoding: value i of channel m in slot i C + m.

    Args:
        values: the C products after the change of encoding: coefficient j in slot j.
        slots: n / 2.
    """
    mask = (np.arange(slots) % len(values) == 0).astype(np.float64)
    total = machine.multiply_plain(values[0], mask)
    for m, value in enumerate(values[1:], 1):
        total = machine.add(total, machine.rotate(machine.multiply_plain(value, mask), slots - m))
    return total


def _slot_map(weights: Reals, width: int) -> LinearMap:
    half, size = len(weights), width * width
    slots, diagonals = half * size, dict[int, Slots]()
    for k, c in np.ndindex(half, half):
        for dy, dx, weight in cins.taps(weights[k, c]):
            step = ((c - k) * size + dy * width + dx) % slots
            diagonals.setdefault(step, np.zeros(slots, dtype=np.complex128))[k * size : (k + 1) * size] = weight
    return LinearMap(diagonals, size)
