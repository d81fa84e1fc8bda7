"""Assignments of block sizes: the tables that price them, the rules they obey, and the uniform ones.

A table has one number for each layer and block size: sensitivity, seconds, bytes. Layers that must have equal block
sizes form a group, which has the sums of their numbers; a pinned layer has one option.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from privcirnet.errors import RuleError

Table = Mapping[str, Mapping[int, float]]
"""Amount by layer name and block size."""

Groups = Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]]
"""Layers that are decided together, by the first one's name: all their names and the block sizes to choose from."""


@dataclass(frozen=True)
class Solution:
    """An optimal assignment of block sizes.

    Attributes:
        block_sizes: Block size for each layer name.
        latency: Sum of the layers' latencies, seconds.
        status: The solver's status, "Optimal".
        gap: Relative excess of the sensitivity over the optimum that the solver could not rule out; 0 for the optimum.
        composed: Layers that are one with the layer before them; the latency is with them.
    """

    block_sizes: dict[str, int]
    sensitivity: float
    latency: float
    status: str
    gap: float = field(default=0.0, repr=False)
    seconds: float = field(default=0.0, repr=False, compare=False)
    composed: tuple[str, ...] = field(default=(), repr=False)

    @property
    def layers(self) -> dict[str, int]:
        """Block sizes without the options of activations, which are among them (:mod:`.activations`)."""
        return {name: b for name, b in self.block_sizes.items() if b > 0}


@dataclass(frozen=True)
class Cap:
    """A limit besides latency.

    Attributes:
        table: The amount by layer name and block size, for the same layers and block sizes.
    """

    name: str
    table: Table
    limit: float


LATENCY = "latency"
"""Name of the amount that the budget limits."""


@dataclass(frozen=True)
class Composable:
    """Two layers that may become one if they have the same block size.

    Attributes:
        first: Name of the layer whose result the second one reads.
        second: Name of the second layer, which the composed one has.
        amounts: Amounts of the composed layer by block size, by name of a limited amount.
    """

    first: str
    second: str
    amounts: Table

    def gain(self, name: str, table: Table, b: int) -> float:
        """Return the change of an amount by composing, usually negative."""
        return self.amounts[name][b] - table[self.first][b] - table[self.second][b]


@dataclass(frozen=True)
class Constraints:
    """The rules that an assignment must obey besides the budget.

    Attributes:
        pinned: Block size by name, of layers that have no choice.
        equal: Groups of names whose layers must have the same block size; no layer in two of them.
        pairs: Layers that may be composed; no layer in two of them.
    """

    pinned: Mapping[str, int] = field(default_factory=dict[str, int])
    equal: Sequence[Sequence[str]] = ()
    caps: Sequence[Cap] = ()
    pairs: Sequence[Composable] = ()


FREE = Constraints()
"""No rules besides the budget."""


def uniform_sizes(latency: Table, block_size: int) -> dict[str, int]:
    """Return one block size everywhere, the usual reference of a search: block size by layer name.

    Args:
        block_size: Block size b; a layer that does not admit it takes its largest admissible one below.

    >>> uniform_sizes({"a": {1: 8.0, 2: 4.0, 4: 2.0}, "b": {1: 1.0, 2: 0.5}}, block_size=4)
    {'a': 4, 'b': 2}
    """
    sizes: dict[str, int] = {}
    for name, times in latency.items():
        admissible = [size for size in times if size <= block_size]
        if not admissible:
            raise RuleError(
                "a layer must admit a block size up to the uniform one",
                got=f"{block_size} for {name!r} with {sorted(times)}",
                remedy=f"use at least {min(times, default=1)}",
            )
        sizes[name] = max(admissible)
    return sizes


def uniform_latency(latency: Table, block_size: int) -> float:
    """Return the latency of :func:`uniform_sizes`, the usual budget of a search, in seconds.

    Raises:
        RuleError: A layer has no block size up to b.

    >>> uniform_latency({"a": {1: 8.0, 2: 4.0, 4: 2.0}, "b": {1: 1.0, 2: 0.5}}, block_size=4)
    2.5
    """
    return total(latency, uniform_sizes(latency, block_size))


def latency_range(latency: Table, constraints: Constraints = FREE) -> tuple[float, float]:
    """Return the latencies of the fastest and the slowest assignment that obey pins and equalities, in seconds.

    Where composed layers are in equal groups, the first is a lower bound (:func:`least`).

    Args:
        constraints: Pins, equal groups and pairs; its caps are not considered.

    Raises:
        RuleError: The rules contradict the table.
    """
    groups = groups_of(latency, constraints)
    rows = joined(latency, groups).values()
    return least(LATENCY, latency, groups, constraints.pairs), math.fsum(max(row.values()) for row in rows)


def least(name: str, table: Table, groups: Groups, pairs: Sequence[Composable] = ()) -> float:
    """Return the least amount of any assignment; a lower bound where composable layers are in groups with others.

    Args:
        pairs: Layers that may be composed.
    """
    paired = {layer for pair in pairs for layer in (pair.first, pair.second)}
    free = {first: group for first, group in groups.items() if paired.isdisjoint(group[0])}
    parts = [min(row.values()) for row in joined(table, free).values()]
    alone = {
        n: {b: table[n][b] for b in sizes} for first, (ns, sizes) in groups.items() if first not in free for n in ns
    }
    parts += [min(row.values()) for n, row in alone.items() if n not in paired]
    for pair in pairs:
        first, second = alone[pair.first], alone[pair.second]
        composed = [amount for b, amount in pair.amounts[name].items() if b in first and b in second]
        parts.append(min([min(first.values()) + min(second.values()), *composed]))
    return math.fsum(parts)


def total(table: Table, sizes: Mapping[str, int]) -> float:
    """Return the amount of an assignment: the sum of its entries in a table."""
    return math.fsum(table[name][b] for name, b in sizes.items())


def check_tables(first_title: str, first: Table, title: str, table: Table) -> None:
    """Raise unless two tables list the same layers and block sizes, with finite and non-negative entries.

    Args:
        first_title: Name of the first table, for messages.
        title: Name of the second table, for messages.
    """
    if not first or {name: set(row) for name, row in first.items()} != {name: set(row) for name, row in table.items()}:
        names = {**first, **table}
        different = [name for name in names if first.get(name, {}).keys() != table.get(name, {}).keys()]
        raise RuleError(
            f"{first_title} and {title} must list the same layers and block sizes, at least one",
            got=f"differences at {different}" if different else "no layers",
            remedy="build both tables from the same model",
        )
    for kind, rows in ((first_title, first), (title, table)):
        for name, row in rows.items():
            if not row or not all(math.isfinite(value) and value >= 0 for value in row.values()):
                raise RuleError(
                    f"{kind} must be finite and non-negative, for at least one block size",
                    got=f"{dict(row)} at {name!r}",
                    remedy="measure the layer again",
                )


def groups_of(latency: Table, constraints: Constraints) -> Groups:
    """Return the layers that are decided together, with the block sizes they have in common.

    Returns:
        For each group, by its first layer's name, all its names and its block sizes. A layer that is in no equal group
        is a group of its own.
    """
    grouped = [name for group in constraints.equal for name in group]
    unknown = [name for name in (*grouped, *constraints.pinned) if name not in latency]
    if unknown or len(set(grouped)) < len(grouped):
        raise RuleError(
            "equal and pinned layers must be searched ones, each in at most one group",
            got=", ".join(unknown) or "a layer in two groups",
            remedy=f"use some of {', '.join(latency)}",
        )
    groups: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {}
    for names in [tuple(group) for group in constraints.equal if group] + [(n,) for n in latency if n not in grouped]:
        allowed = [
            {constraints.pinned[n]} & set(latency[n]) if n in constraints.pinned else set(latency[n]) for n in names
        ]
        sizes = sorted(set.intersection(*allowed))
        if not sizes:
            choices = [f"{n}: {constraints.pinned.get(n) or sorted(latency[n])}" for n in names]
            remedy = "pin to a block size that each of them admits"
            raise RuleError("layers must have a block size in common", got="; ".join(choices), remedy=remedy)
        groups[names[0]] = names, tuple(sizes)
    return groups


def joined(table: Table, groups: Groups) -> Table:
    """Return the table of groups: sums over their layers."""
    return {
        first: {b: math.fsum(table[name][b] for name in names) for b in sizes}
        for first, (names, sizes) in groups.items()
    }
