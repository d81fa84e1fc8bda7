"""A linear layer's work as data: which ciphertexts are rotated, multiplied and added, in order.

Maths: with x the ciphertexts that the client sent, w the plaintexts and rot_k the rotation of both slot rows to the
left by k columns,

    inner[s]  = sum over (i, j) in sums[s] of w[j] * rot_k(x[c])            where rotated[i] = (c, k)
    output[o] = sum over (s, k) in outputs[o] of rot_k(inner[s]),           then y += rot_k(y) for k in folds[o]

A circuit is public: it depends on a layer's shape and plan alone. Both families of encodings make circuits, and every
engine runs them. To turn a description into a plan that backends run is einops' idea.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from privcirnet.he.ring.modular import Residues

Pair = tuple[int, int]
_WORD = 8

_FORMAT = "kernel 1"
"""Version of encoded weights' format: to be changed with it."""


@dataclass(frozen=True)
class LayerCircuit:
    """Rotations, products and sums.

    Attributes:
        rotated: (input ciphertext, column step) of everything that is multiplied; step 0 is the input as it is.
        sums: (position in ``rotated``, weight) of each product of each inner sum.
        outputs: (inner sum, column step) of each term of each output ciphertext.
        folds: column steps by which each output is rotated and added to itself, in order.
    """

    rotated: tuple[Pair, ...]
    sums: tuple[tuple[Pair, ...], ...]
    outputs: tuple[tuple[Pair, ...], ...]
    folds: tuple[tuple[int, ...], ...]
    weights: int

    @cached_property
    def last_uses(self) -> tuple[int, ...]:
        """The last inner sum that needs each of ``rotated``."""
        last = [-1] * len(self.rotated)
        for number, products in enumerate(self.sums):
            for rotated, _ in products:
                last[rotated] = number
        return tuple(last)

    def weight_bytes(self, ring_degree: int, coefficient_bits: Sequence[int]) -> int:
        """Return the bytes of the plaintexts as a server keeps them: a word a slot for each prime but the last.

        Args:
            coefficient_bits: bits of each prime; the last one serves rotations alone.

        >>> circuit = LayerCircuit(((0, 0),), (((0, 0), (0, 1)),), (((0, 0),),), ((),), weights=2)
        >>> circuit.weight_bytes(8192, (54, 54, 53, 53))
        393216
        """
        return _WORD * self.weights * ring_degree * (len(coefficient_bits) - 1)


class PlaintextSource(Protocol):
    """The plaintexts of a layer's weights, made one at a time because all of them together can be large."""

    def __len__(self) -> int: ...

    def __getitem__(self, weight: int, /) -> Residues:
        """Return the slots (n,) of a plaintext; all zero if it is not needed."""
        ...


def multiplied(circuit: LayerCircuit, present: Sequence[bool]) -> list[bool]:
    """Return which weights are multiplied where a sum of nothing can't be left out: of such a sum one that is zero.

    Args:
        present: whether each weight is not zero.

    >>> multiplied(LayerCircuit(((0, 0), (0, 1)), (((0, 0), (1, 1)), ((0, 2),)), ((), ()), ((), ()), 3), [False] * 3)
    [True, False, True]
    """
    nonzero = list(present)
    for terms in circuit.sums:
        if not any(nonzero[weight] for _, weight in terms):
            nonzero[terms[0][1]] = True
    return nonzero


def fingerprint(slots: PlaintextSource, parameters: object) -> str:
    """Return a checksum of all that encoded weights depend on: the plaintexts and the parameters.

    Returns:
        SHA-256, hexadecimal.
    """
    checksum = hashlib.sha256(f"{_FORMAT} {parameters!r} {len(slots)}".encode())
    for weight in range(len(slots)):
        checksum.update(slots[weight].tobytes())
    return checksum.hexdigest()
