"""Falcon 2023's packing of depthwise and group filters: they share the zeros between them.

Maths: an input polynomial holds C_x groups side by side, group i at unit i. A filter of group i at unit o gives its
output at unit o + i, and every other group c pollutes unit o + c. So the output is right if no other filter stands
within C_x - 1 - i units before it and i units behind it: if the weight polynomial, read by units, contains the padded
filter 0^(C_x-1-i) W_i 0^(i). All padded filters in the fewest units is a shortest common superstring (the paper's
problem 4.1). :func:`superstring` builds one by greedy merging of largest overlaps, for any channels in any number; it
is as long as the paper's closed form where there is one.

Between neighbours a, b stand max(a, C_x - 1 - b) zeros. The zeros in front of the first filter may go if those behind
the last are as many, because the polynomial wraps around; so what counts is the length of the ring, and
:func:`superstring` closes it. Another way leaves the paper:

* :func:`scattered`: the input's groups need not stand side by side. Units p_i and o_i will do if no p_i + o_i is
  another p_j + o_l; C_x = C_w = k then fit about as many units as a set of k numbers without arithmetic progressions
  spans, where side by side needs about k^2 / 2. The search is local, from a fixed seed: both parties find the same.

What a unit is, :mod:`coefficients.depthwise` says: a map, or a whole group.

Source: Xu et al., "Falcon" (ICCAD 2023), section IV-B. The paper's problem is NP-hard for strings in general and its
greedy algorithm random between equal edges; here ties go to the lowest channels. A ring of costs max(a, C_x - 1 - b) is
in fact a travelling salesman's problem of the kind that Gilmore and Gomory solve exactly; the greedy ring has been the
shortest in every case that the tests enumerate.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from papers.coefficients.layout import balanced

_ROUNDS = 2000
_PAIRS = 2_000_000
"""Units are tried in pairs; so many of them over all rounds take about a second."""
_MAX_SCATTERED_UNITS = 512
"""Beyond this not even a few rounds are quick."""


@dataclass(frozen=True)
class Packing:
    """Which unit holds what.

    Attributes:
        inputs: unit of each group of an input polynomial.
        filters: for each weight polynomial its (group, unit) pairs, in ascending units.
    """

    inputs: tuple[int, ...]
    filters: tuple[tuple[tuple[int, int], ...], ...]


def superstring(members: Sequence[int], channels: int) -> tuple[list[tuple[int, int]], int]:
    """Return a greedy shortest ring that contains the padded filter of each member (Tarhio and Ukkonen's merging).

    Args:
        members: channels, each under ``channels``.

    Returns:
        ((member, unit) pairs in ascending units from 0, units of the ring).
    """
    successor: dict[int, int] = {}
    end_of = {c: c for c in members}  # the last member of the path that begins with c
    start_of = dict(end_of)
    taken: set[int] = set()
    edges = sorted((-min(a, channels - 1 - b), a, b) for a in members for b in members if a != b)
    for _, a, b in edges:
        if a in successor or b in taken or start_of[a] == b:
            continue
        successor[a] = b
        taken.add(b)
        first, last = start_of[a], end_of[b]
        end_of[first], start_of[last] = last, first
    (current,) = set(members) - taken
    placed, unit = [(current, 0)], 0
    while current in successor:
        following = successor[current]
        unit += 1 + max(current, channels - 1 - following)
        placed.append((following, unit))
        current = following
    return placed, unit + 1 + max(current, channels - 1 - placed[0][0])


@lru_cache(maxsize=4096)
def side_by_side(channels: int, units: int) -> Packing | None:
    """Return groups side by side with the fewest weight polynomials that serve them; None if they do not fit.

    Which channels share a polynomial: the paper's order of symmetric pairs, split into equal parts.

    Args:
        units: of a polynomial, at most.
    """
    if channels > units:
        return None
    order = [c for i in range((channels + 1) // 2) for c in dict.fromkeys((channels - 1 - i, i))]
    for size in balanced(channels, channels):
        rings = [superstring(order[start : start + size], channels) for start in range(0, channels, size)]
        if all(length <= units for _, length in rings):
            return Packing(tuple(range(channels)), tuple(tuple(placed) for placed, _ in rings))
    return None


@lru_cache(maxsize=256)
def scattered(units: int, whole: bool) -> Packing:
    """Return as many groups as a local search finds that need only one weight polynomial, anywhere among the units.

    Args:
        whole: a polynomial is exactly that many units long, so that what wraps around falls on units again.

    Both parties call this and must find the same: of the generator only ``random()`` is used, whose sequence Python
    promises to keep.
    """
    generator = random.Random(0)
    pairs = [(p, o) for p in range(units) for o in range(units - p)]
    best = [(0, 0)]
    for _ in range(min(_ROUNDS, _PAIRS // len(pairs)) if units <= _MAX_SCATTERED_UNITS else 0):
        start = list(best)
        for _ in range(min(len(start), 1 + int(3 * generator.random()))):
            start.pop(int(len(start) * generator.random()))
        pairs.sort(key=lambda _: generator.random())
        found = _filled(start, pairs, units, whole)
        best = found if len(found) >= len(best) else best
    filters = sorted(((group, o) for group, (_, o) in enumerate(best)), key=lambda pair: pair[1])
    return Packing(tuple(p for p, _ in best), (tuple(filters),))


def first_groups(packing: Packing, groups: int) -> Packing:
    """Return what is left of a packing for the first of its groups only."""
    filters = (tuple(pair for pair in pairs if pair[0] < groups) for pairs in packing.filters)
    return Packing(packing.inputs[:groups], tuple(pairs for pairs in filters if pairs))


def _filled(
    start: list[tuple[int, int]], pairs: list[tuple[int, int]], units: int, whole: bool
) -> list[tuple[int, int]]:
    """Add every pair, in order, that disturbs no other; sets of units are bits of integers."""
    chosen = list(start)
    wanted = sum(1 << (p + o) for p, o in chosen)
    crossed = [1 << (p + r) for i, (p, _) in enumerate(chosen) for j, (_, r) in enumerate(chosen) if i != j]
    polluted = _folded(_union(crossed), units, whole)
    for p, o in pairs:
        own = 1 << (p + o)
        if own & (polluted | wanted):
            continue
        new = _folded(_union((1 << (q + o) | 1 << (p + r) for q, r in chosen)), units, whole)
        if not new & (own | wanted):
            chosen.append((p, o))
            wanted |= own
            polluted |= new
    return chosen


def _union(sets: Iterable[int]) -> int:
    total = 0
    for bits in sets:
        total |= bits
    return total


def _folded(places: int, units: int, whole: bool) -> int:
    """Units that products touch: those beyond the end wrap around, and fall between two where units don't fit."""
    beyond = places >> units
    return places & ((1 << units) - 1) | beyond | (0 if whole else beyond >> 1)
