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
from privcirnet.he.encodings.layer import Layer
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.encodings.spectral_layer import LinearLayer
from privcirnet.he.planning.cost import Link, Profile, for_one_use, linear_cost, product_cost, reveal_cost, square_cost
from privcirnet.he.planning.noise_budget import Option, ParameterSet
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.he.program.program import Linear, Node, Product, Revealed, Square, encrypted_layers

planned_layer = lru_cache(maxsize=4096)(cheapest_layer)
""":func:`planner.cheapest_layer`, which depends on a layer's size alone and is asked for again with other weights."""


def planned_product(left: LinearShape, right: LinearShape, profile: Profile, link: Link) -> Product:
    """The product of two values whose layers are the fastest with weights that are encoded for every image."""
    fresh = for_one_use(profile)
    layers = [planned_layer(shape, 1, fresh, link) for shape in (left, right)]
    assert all(isinstance(layer, LinearLayer) for layer in layers), "the planner's family is spectral by default"
    return Product(*layers)  # type: ignore[arg-type]


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
        match node.operation:
            case Linear(layer):
                return replace(node, operation=Linear(planned_layer(layer.shape, layer.block_size, profile, link)))
            case Product(left, right):
                return replace(node, operation=planned_product(left.shape, right.shape, profile, link))
            case _:
                return node

    return tuple(map(replanned, nodes))


def predicted_seconds(nodes: Sequence[Node], profile: Profile, link: Link) -> float:
    """One image through every node that costs a message."""

    def seconds(node: Node) -> float:
        match node.operation:
            case Linear(layer):
                return linear_cost(layer, profile, link).total
            case Product(left, right):
                return product_cost(left, right, profile, link).total
            case Square():
                return square_cost(math.prod(node.shape), profile, link).total
            case Revealed():
                return reveal_cost(math.prod(node.shape), link).total
            case _:
                return 0.0

    return sum(map(seconds, nodes))


def layers_of(nodes: Sequence[Node]) -> tuple[Layer, ...]:
    """The encrypted layers, those of products too, in order."""
    return tuple(layer for node in nodes for layer in encrypted_layers(node.operation))


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
