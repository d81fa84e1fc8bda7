"""Candidate sets (n, q) for a program: its layers planned anew under each, with a predicted time.

A profile is measured at one set; for another its times are scaled by what the operations do: a rotation transforms
every digit (one for each data prime) to every prime, n log n each; everything else on a ciphertext is n log n for each
data prime. Good enough to rank sets, not to promise seconds: whoever takes another set measures it.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from privcirnet.errors import RuleError
from privcirnet.he.cost import Link, Profile, linear_cost, square_cost
from privcirnet.he.layers import Layer
from privcirnet.he.planner import cheapest_layer
from privcirnet.he.program import Linear, Node, Square
from privcirnet.he.verdict import Option, ParameterSet

planned_layer = lru_cache(maxsize=4096)(cheapest_layer)
""":func:`planner.cheapest_layer`, which depends on a layer's size alone and is asked for again with other weights."""


def set_of(profile: Profile) -> ParameterSet:
    """N and q that a profile was measured at."""
    return ParameterSet(profile.ring_degree, tuple(profile.coefficient_bits))


def scaled(profile: Profile, wanted: ParameterSet) -> Profile:
    """The profile's times as they would be at another set; the profile itself at its own."""
    own = set_of(profile)
    if wanted == own:
        return profile
    transforms = _transforms(wanted) / _transforms(own)
    digits = len(wanted.coefficient_bits) / len(own.coefficient_bits)
    factors = {"transform": 1.0, "rotate": transforms * digits}
    seconds = {name: s * factors.get(name, transforms) for name, s in profile.seconds.items()}
    return Profile(f"{profile.name}, scaled", wanted.ring_degree, wanted.coefficient_bits, seconds, profile.threads)


def replan(nodes: Sequence[Node], profile: Profile, link: Link) -> tuple[Node, ...]:
    """The same program with the plans that are fastest under a profile.

    Raises:
        RuleError: a layer has no layout at the profile's ring degree.
    """

    def replanned(node: Node) -> Node:
        if not isinstance(node.operation, Linear):
            return node
        layer = node.operation.layer
        return replace(node, operation=Linear(planned_layer(layer.shape, layer.block_size, profile, link)))

    return tuple(map(replanned, nodes))


def predicted_seconds(nodes: Sequence[Node], profile: Profile, link: Link) -> float:
    """One image through every node that costs a message."""
    linear = sum(linear_cost(layer, profile, link).total for layer in layers_of(nodes))
    squares = (math.prod(node.shape) for node in nodes if isinstance(node.operation, Square))
    return linear + sum(square_cost(values, profile, link).total for values in squares)


def layers_of(nodes: Sequence[Node]) -> tuple[Layer, ...]:
    """The linear layers, in order."""
    return tuple(node.operation.layer for node in nodes if isinstance(node.operation, Linear))


def options(nodes: Sequence[Node], profile: Profile, link: Link, sets: Sequence[ParameterSet]) -> tuple[Option, ...]:
    """Every set once, the profile's own among them if it is."""
    return tuple(_option(nodes, scaled(profile, wanted), link) for wanted in dict.fromkeys(sets))


def _option(nodes: Sequence[Node], profile: Profile, link: Link) -> Option:
    try:
        planned = replan(nodes, profile, link)
    except RuleError as problem:
        return Option(set_of(profile), (), math.inf, problem)
    seconds = predicted_seconds(planned, profile, link)
    return Option(set_of(profile), layers_of(planned), seconds, thrifty=link.counts)


def _transforms(wanted: ParameterSet) -> float:
    """Work of one transform of a ciphertext: n log n for each data prime."""
    return wanted.ring_degree * math.log2(wanted.ring_degree) * (len(wanted.coefficient_bits) - 1)
