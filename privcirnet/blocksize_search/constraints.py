"""The constraints of a search as a user writes them: patterns of layer names, caps in bytes and seconds."""

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase

from privcirnet.blocksize_search.activations import OPTIONS
from privcirnet.blocksize_search.assignment import Cap, Composable, Constraints
from privcirnet.blocksize_search.latency import CAPS, FigureTable, amounts_of
from privcirnet.errors import RuleError

NO_LIMITS: Mapping[str, float] = {}


def constraints_for(
    table: FigureTable,
    pinned: Sequence[str] = (),
    equal: Sequence[Sequence[str]] = (),
    limits: Mapping[str, float] = NO_LIMITS,
    pairs: Sequence[Composable] = (),
) -> Constraints:
    """Return the constraints on the layers of a table.

    Args:
        pinned: "pattern:b" each, for activations "pattern:own" or their replacement; the last match counts.
        equal: groups of patterns; layers and activations that match are groups apart.
        limits: limits of predictions by their name, see :data:`CAPS`; 0 for none.
        pairs: layers that may be composed.
    """
    pins, activations = dict[str, int](), [name for name, row in table.items() if OPTIONS["own"] in row]
    for text in pinned:
        pattern, _, size = text.rpartition(":")
        if not pattern or not (size.isdecimal() or size in OPTIONS):
            raise RuleError("a pinned layer must be given as name:b", got=text, remedy="write for example stem:1")
        kind = [name for name in table if (name in activations) == (size in OPTIONS)]
        pins |= dict.fromkeys(_matching(pattern, kind), OPTIONS[size] if size in OPTIONS else int(size))
    named = [list(dict.fromkeys(n for pattern in group for n in _matching(pattern, table))) for group in equal]
    groups = [
        [n for n in group if (n in activations) == is_activation] for group in named for is_activation in (False, True)
    ]
    caps = [Cap(CAPS[what], amounts_of(table, what), limit) for what, limit in limits.items() if limit]
    return Constraints(pins, groups, caps, pairs)


def _matching(pattern: str, names: Collection[str]) -> list[str]:
    """Return the names that a pattern with * and ? matches, at least one."""
    matches = [name for name in names if fnmatchcase(name, pattern)]
    if not matches:
        choices = ", ".join(names) or "none"
        raise RuleError("a pattern must match a searched layer", got=pattern, remedy=f"use some of {choices}")
    return matches
