"""Places of bootstrappings in a network, and the level at which each part begins.

A sum can be bootstrapped if nothing behind it reads what is before it: at the end of a residual block, not within. From
one such sum to the next a number of levels is needed: one for a square, a convolution or a square that is added, two
for the phases before a stride. The first of the two may come before the bootstrapping, where a level is left.

Each part begins at the lowest level that is enough, because all costs less there.
"""

from dataclasses import dataclass

from privcirnet.errors import RuleError
from privcirnet.he.ckks.sums import IMAGE, CkksNetwork

_PHASES, _CLASSIFIER = 2, 2


@dataclass(frozen=True)
class Placement:
    """Levels of the image and of the bootstrapped values.

    Attributes:
        bootstrapped: level of each sum that is bootstrapped, after it.
    """

    image: int
    bootstrapped: dict[int, int]
    early: frozenset[int]


def bootstrap_placement(network: CkksNetwork, spare: int, floor: int) -> Placement:
    """Return the places where a network is bootstrapped, as few and as late as can be.

    Args:
        spare: levels of a bootstrapped value beyond those that its next bootstrapping begins with.
    """
    parts = _Parts(network, spare, floor)
    stretches = parts.best(IMAGE, False)
    if not stretches:
        name, count = parts.longest()
        rule, remedy = f"a part of a network must take at most {spare} levels", "use more spare levels"
        raise RuleError(rule, got=f"{count} up to {name!r}", remedy=remedy)
    (_, image, _), *later = stretches
    bootstrapped = {place: level for place, level, _ in later}
    return Placement(image, bootstrapped, frozenset(place for place, _, early in later if early))


_Part = tuple[int, int, bool]
"""The sum that a part begins with, the level of that, and whether its phases were begun before."""


class _Parts:
    """The parts that a network can be cut into."""

    def __init__(self, network: CkksNetwork, spare: int, floor: int) -> None:
        self._network, self._spare, self._floor = network, spare, floor
        self._cuts = [IMAGE, *(i for i in range(len(network.nodes)) if _is_cut(network, i))]
        self._known: dict[tuple[int, bool], list[_Part] | None] = {}

    def best(self, start: int, early: bool) -> list[_Part] | None:
        """Return the fewest parts from a sum to the end, of these the ones at the lowest levels; None for none."""
        if (start, early) not in self._known:
            self._known[start, early] = self._best(start, early)
        return self._known[start, early]

    def longest(self) -> tuple[str, int]:
        """Return the name of the end of the longest part that nothing can cut, and its levels."""
        pairs = zip(self._cuts, self._cuts[1:], strict=False)
        return max(((self._network.nodes[b].name, _levels(self._network, a, b, False)) for a, b in pairs), key=_count)

    def _best(self, start: int, early: bool) -> list[_Part] | None:
        last = len(self._network.nodes) - 1
        if (end := _levels(self._network, start, last, early) + _CLASSIFIER) <= self._spare + self._floor:
            return [(start, end, early)]
        options: list[list[_Part]] = []
        for cut in self._cuts:
            if cut <= start or cut == last or (count := _levels(self._network, start, cut, early)) > self._spare:
                continue
            is_early = self._network.strided(cut) and count < self._spare
            if rest := self.best(cut, is_early):
                options.append([(start, self._floor + count + is_early, early), *rest])
        return min(options, key=lambda parts: (len(parts), sum(level for _, level, _ in parts)), default=None)


def _count(named: tuple[str, int]) -> int:
    return named[1]


def _is_cut(network: CkksNetwork, place: int) -> bool:
    behind = network.nodes[place + 1 :]
    return all(term.source >= place for node in behind for term in node.terms)


def _levels(network: CkksNetwork, start: int, end: int, early: bool) -> int:
    """Return the levels from one sum, or the image, to another."""
    sums, squares = {start: 0}, dict[int, int]()
    for place in range(start, end + 1):
        if place > start:
            sums[place] = 1 + max(squares[term.source] for term in network.nodes[place].terms)
        squares[place] = sums[place] + (place != IMAGE) + _PHASES * network.strided(place)
        if place == start and early:
            squares[place] -= 1
    return sums[end]
