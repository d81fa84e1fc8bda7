"""Number-theoretic transform over the primes of a ciphertext (negacyclic, modulo X^n + 1).

Maths: entry i of the transform of a is a(psi^(2 brv(i) + 1)), psi the smallest primitive 2n-th root of unity mod p: the
order and the root that SEAL uses. Cooley-Tukey butterflies take natural order to bit-reversed order, Gentleman-Sande
butterflies take it back, so nothing is ever sorted (D. Harvey, "Faster arithmetic for number-theoretic transforms",
2014: lazy reduction and precomputed quotients).

Kernel order: the last four stages work within groups of 16 neighbours, too few for vector instructions. So tiles of
64 groups are transposed on the way in and left so: entry 1024 t + 16 i + j of SEAL's order stands at 1024 t + 64 j + i
(:func:`kernel_order`). Products and sums do not care, and keys travel so.

Cost: (n/2) log2 n butterflies, each one lazy product, two sums, one conditional subtraction.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from privcirnet.he.ring.kernels.arithmetic import Word, mul_shoup_lazy, reduce_4p, sub_if_ge, with_quotient
from privcirnet.he.ring.modular import Integers, Residues, bit_reversed, constant_quotients, minimal_root
from privcirnet.he.system.jit import inline, jit

GROUP = 16
"""Neighbours of a group: four stages' worth."""

WIDTH = 64
"""Groups of a tile: 8 KB, which fits a first-level cache beside its roots."""

TILE = GROUP * WIDTH

SHORT = 128
"""Halves of a group up to here, down to a group of the last stages, are literals in the code: where the compiler knows
how often a loop runs, short ones cost no more than long ones (at 16 words a tenth)."""

MAX_PRIME_BITS = 61
"""Most bits of a prime: values stay under 8 p."""


class Tables(NamedTuple):
    """Roots for some primes; every root comes with its quotient floor(root 2^64 / p).

    Attributes:
        primes: (L,).
        ones: floor(2^64 / p), (L,).
        far: forward roots of the stages over whole groups, in order of use, (L, 2, n / 16): [root or quotient].
        near: forward roots of the stages within groups, (L, n / 1024, 15, 2, 64): 1 + 2 + 4 + 8 for the four stages.
        far_back: inverse roots, otherwise as ``far``.
        near_back: inverse roots, otherwise as ``near``.
        scale: 1 / n, (L, 2).
    """

    primes: Residues
    ones: Residues
    far: Residues
    near: Residues
    far_back: Residues
    near_back: Residues
    scale: Residues


@lru_cache(maxsize=32)
def tables(primes: tuple[int, ...], n: int) -> Tables:
    """Return the roots of transforms under some primes.

    Args:
        primes: moduli under 2^61, each 1 mod 2n.
        n: ring degree, at least 1024.
    """
    if max(primes) >= 1 << MAX_PRIME_BITS or n < TILE:
        raise ValueError(f"primes must be under 2^{MAX_PRIME_BITS}, n at least {TILE}: got {max(primes)} and {n}")
    forward = [_roots(minimal_root(2 * n, p), p, n) for p in primes]
    back = [_roots(pow(minimal_root(2 * n, p), -1, p), p, n) for p in primes]
    return Tables(
        np.array(primes, dtype=np.uint64),
        np.array([(1 << 64) // p for p in primes], dtype=np.uint64),
        np.stack([_far(roots) for roots in forward]),
        np.stack([_near(roots) for roots in forward]),
        np.stack([_far(roots) for roots in back]),
        np.stack([_near(roots) for roots in back]),
        np.stack([with_quotient(pow(n, -1, p), p) for p in primes]),
    )


def kernel_order(n: int) -> Integers:
    """Return the position in SEAL's order of each entry in the kernel's order, shape (n,)."""
    return np.arange(n).reshape(-1, WIDTH, GROUP).swapaxes(1, 2).reshape(n)


@jit
def forward(polynomials: Residues, tables: Tables, limb: int) -> None:
    """Transform in place: coefficients in natural order to values in the kernel's order, reduced.

    Args:
        polynomials: shape (count, n), values under 8 p.
    """
    p, roots = tables.primes[limb], tables.far[limb]
    for index in range(polynomials.shape[0]):
        values = polynomials[index]
        groups, half = 1, values.size // 2
        while half > SHORT:
            for group in range(groups):
                start = 2 * half * group
                root, quotient = roots[0, groups + group], roots[1, groups + group]
                _halves(values[start : start + half], values[start + half : start + 2 * half], root, quotient, p)
            groups, half = 2 * groups, half // 2
        _short_stages(values, roots, p)
        for tile in range(values.size // TILE):
            start = tile * TILE
            _tile(values[start : start + TILE], tables.near[limb, tile], p)


@jit
def inverse(polynomials: Residues, tables: Tables, limb: int) -> None:
    """Undo :func:`forward`, in place.

    Args:
        polynomials: shape (count, n), values under 4 p in the kernel's order; becomes coefficients, reduced.
    """
    p, roots = tables.primes[limb], tables.far_back[limb]
    scale, scale_quotient = tables.scale[limb, 0], tables.scale[limb, 1]
    for index in range(polynomials.shape[0]):
        values = polynomials[index]
        for tile in range(values.size // TILE):
            start = tile * TILE
            _tile_back(values[start : start + TILE], tables.near_back[limb, tile], p)
        _short_stages_back(values, roots, p)
        groups, half = values.size // (4 * SHORT), 2 * SHORT
        while groups >= 1:
            for group in range(groups):
                start = 2 * half * group
                root, quotient = roots[0, groups + group], roots[1, groups + group]
                _halves_back(values[start : start + half], values[start + half : start + 2 * half], root, quotient, p)
            groups, half = groups // 2, 2 * half
        for i in range(values.size):
            values[i] = reduce_4p(mul_shoup_lazy(values[i], scale, scale_quotient, p), p)


@jit
def _short_stages(values: Residues, roots: Residues, p: Word) -> None:
    """Run the stages between the long halves and the tiles."""
    _short_stage(values, roots, SHORT, p)
    _short_stage(values, roots, SHORT // 2, p)
    _short_stage(values, roots, SHORT // 4, p)
    _short_stage(values, roots, SHORT // 8, p)


@jit
def _short_stages_back(values: Residues, roots: Residues, p: Word) -> None:
    """Run the stages between the tiles and the long halves."""
    _short_stage_back(values, roots, SHORT // 8, p)
    _short_stage_back(values, roots, SHORT // 4, p)
    _short_stage_back(values, roots, SHORT // 2, p)
    _short_stage_back(values, roots, SHORT, p)


@inline
def _short_stage(values: Residues, roots: Residues, half: int, p: Word) -> None:
    """Run :func:`_halves` on all groups; half is a literal."""
    four, groups = p + p + p + p, values.size // (2 * half)
    for group in range(groups):
        block = values[2 * half * group : 2 * half * (group + 1)]
        root, quotient = roots[0, groups + group], roots[1, groups + group]
        for i in range(half):
            block[i], block[i + half] = _butterfly(block[i], block[i + half], root, quotient, p, four)


@inline
def _short_stage_back(values: Residues, roots: Residues, half: int, p: Word) -> None:
    """Run :func:`_halves_back` on all groups; half is a literal."""
    four, groups = p + p + p + p, values.size // (2 * half)
    for group in range(groups):
        block = values[2 * half * group : 2 * half * (group + 1)]
        root, quotient = roots[0, groups + group], roots[1, groups + group]
        for i in range(half):
            block[i], block[i + half] = _butterfly_back(block[i], block[i + half], root, quotient, p, four)


@inline
def _butterfly(u: Word, v: Word, root: Word, quotient: Word, p: Word, four: Word) -> tuple[Word, Word]:
    """Return (u + root v, u - root v), all values under 8 p before and after; four: 4 p."""
    u, v = sub_if_ge(u, four), mul_shoup_lazy(v, root, quotient, p)
    return u + v, u - v + four


@inline
def _butterfly_back(u: Word, v: Word, root: Word, quotient: Word, p: Word, four: Word) -> tuple[Word, Word]:
    """Return (u + v, root (u - v)), all values under 4 p before and after; four: 4 p."""
    return sub_if_ge(u + v, four), mul_shoup_lazy(u - v + four, root, quotient, p)


@jit
def _halves(upper: Residues, lower: Residues, root: Word, quotient: Word, p: Word) -> None:
    """Run :func:`_butterfly` on all words."""
    four = p + p + p + p
    for i in range(upper.size):
        upper[i], lower[i] = _butterfly(upper[i], lower[i], root, quotient, p, four)


@jit
def _halves_back(upper: Residues, lower: Residues, root: Word, quotient: Word, p: Word) -> None:
    """Run :func:`_butterfly_back` on all words."""
    four = p + p + p + p
    for i in range(upper.size):
        upper[i], lower[i] = _butterfly_back(upper[i], lower[i], root, quotient, p, four)


@jit
def _tile(values: Residues, roots: Residues, p: Word) -> None:
    """Run the last four stages on a tile, transposed on the way in: values under 8 p in, reduced out."""
    four = p + p + p + p
    block = np.empty((GROUP, WIDTH), dtype=np.uint64)
    for j in range(GROUP):
        for i in range(WIDTH):
            block[j, i] = values[GROUP * i + j]
    half, first = GROUP // 2, 0
    while half >= 1:
        for group in range(GROUP // (2 * half)):
            root, quotient = roots[first + group, 0], roots[first + group, 1]
            for row in range(2 * half * group, 2 * half * group + half):
                upper, lower = block[row], block[row + half]
                for i in range(WIDTH):
                    upper[i], lower[i] = _butterfly(upper[i], lower[i], root[i], quotient[i], p, four)
        first, half = first + GROUP // (2 * half), half // 2
    for j in range(GROUP):
        for i in range(WIDTH):
            values[WIDTH * j + i] = reduce_4p(sub_if_ge(block[j, i], four), p)


@jit
def _tile_back(values: Residues, roots: Residues, p: Word) -> None:
    """Run the first four inverse stages on a tile, transposed on the way out: values under 4 p in and out."""
    four = p + p + p + p
    block = values.copy().reshape(GROUP, WIDTH)
    half, first = 1, GROUP // 2 - 1
    while half < GROUP:
        for group in range(GROUP // (2 * half)):
            root, quotient = roots[first + group, 0], roots[first + group, 1]
            for row in range(2 * half * group, 2 * half * group + half):
                upper, lower = block[row], block[row + half]
                for i in range(WIDTH):
                    upper[i], lower[i] = _butterfly_back(upper[i], lower[i], root[i], quotient[i], p, four)
        half *= 2
        first -= GROUP // (2 * half)
    for j in range(GROUP):
        for i in range(WIDTH):
            values[GROUP * i + j] = block[j, i]


def _roots(psi: int, p: int, n: int) -> Residues:
    """Return psi^brv(i) and quotients, (2, n); entry m + g is the root of group g in the stage that has m groups."""
    powers = [1]
    for _ in range(n - 1):
        powers.append(powers[-1] * psi % p)
    ordered = np.array(powers, dtype=np.uint64)[bit_reversed(n)]
    return np.stack([ordered, constant_quotients(ordered, p)])


def _far(roots: Residues) -> Residues:
    return np.ascontiguousarray(roots[:, : roots.shape[1] // GROUP])


def _near(roots: Residues) -> Residues:
    """Return the roots of the last four stages by tile: (n / 1024, 15, 2, 64)."""
    n = roots.shape[1]
    stages: list[Residues] = []
    for split in (1, 2, 4, 8):
        first = n // GROUP * split
        stage = roots[:, first : 2 * first].reshape(2, n // TILE, WIDTH, split)
        stages.append(stage.transpose(1, 3, 0, 2))
    return np.ascontiguousarray(np.concatenate(stages, axis=1))
