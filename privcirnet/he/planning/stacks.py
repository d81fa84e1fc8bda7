"""Which linear layers take several images together when work is done offline, and how many (:mod:`layers.stacking`).

A stack saves rotations and ciphertexts, and needs weights of its own. It is planned after the program, and keeps to
what that has of parameters, keys and messages: no transform length that t does not carry, no rotation without a key,
no more ciphertexts an image, no more noise than the noisiest layer has, and flooding that still hides an image's. Of
those that fit, the ones are taken that save the most seconds a byte of weights, until the room for these is used up.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from privcirnet.he.bfv.noise import flood_bits
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.stacking import Stack, stacked_shape
from privcirnet.he.planning.cost import linear_cost
from privcirnet.he.planning.goal import Objective
from privcirnet.he.planning.noise_budget import layers_noise_bits, replies
from privcirnet.he.planning.planner import layers_by_time
from privcirnet.he.planning.profile import NetworkLink, Profile
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Linear
from privcirnet.he.program.program import Program, squares_of
from privcirnet.he.ring.sampling import IMAGE_DISTANCE_BITS, image_distance_bits

_SIZES = (2, 4)
_LOOKED_AT = 64
"""Plans of a stack that are looked at, the fastest first, before none is taken."""


_WORTH = 0.9
"""A stack that takes more than this part of the seconds is not worth its weights."""


def sizes(most: int) -> list[int]:
    """Return the numbers of images that stacks are planned for.

    Args:
        most: images that are prepared at once.

    >>> sizes(1), sizes(3), sizes(8)
    ([], [2, 3], [2, 4, 8])
    """
    return sorted({size for size in _SIZES if size < most} | {most} - {1})


class StackCandidate(NamedTuple):
    """How a layer may take images.

    Attributes:
        room: bytes of weights, beyond those of single images.
        stack: None: one after the other.
    """

    seconds: float
    room: int
    stack: Stack | None = None


def with_stacks(program: Program, profile: Profile, link: NetworkLink, most: int, room: int) -> Program:
    """Return the same program, its linear layers with the stacks that save the most.

    Args:
        program: without stacks.
        profile: seconds of operations at the program's (n, q).
        most: images that are prepared at once, at most.
        room: bytes that a server may spend on the weights of stacks.
    """
    if room <= 0:
        return program
    limit = layers_noise_bits((layer for _, layer in program.layers), program.parameters)
    found = _planned(program, Objective(profile, link), most, room, limit)
    return (
        found if _distance(found) >= IMAGE_DISTANCE_BITS else _planned(program, Objective(profile, link), most, room, 0)
    )


def _planned(program: Program, goal: Objective, most: int, room: int, noise_bits: int) -> Program:
    """The program with stacks that have at most so much noise, or no more than their layer on one image."""
    linear, known = program.linear_nodes, dict[Layer, list[StackCandidate]]()
    for layer in dict.fromkeys(layer for _, layer in linear):
        limit = max(noise_bits, layer.noise_bits(program.parameters))
        known[layer] = list(_options(layer, program, goal, most, limit))
    names = [node.name for node, _ in linear]
    taken = dict(zip(names, best([known[layer] for _, layer in linear], room), strict=True))

    def stacked(node: Node) -> Node:
        if not isinstance(node.operation, Linear) or taken[node.name].stack is None:
            return node
        return replace(node, operation=replace(node.operation, stack=taken[node.name].stack))

    return replace(program, nodes=tuple(map(stacked, program.nodes)))


def _distance(program: Program) -> float:
    """-log2 of the statistical distance of an image's noise, prepared with others, from one without weights in it."""
    stacks, known = {node.name: stack for node, _, stack in program.stacks}, program.parameters
    alone = [layer for node, layer in program.layers if node.name not in stacks]
    sent = [*replies(alone, squares_of(program.nodes), known)]
    for stack in stacks.values():
        sent += [(ceil(seen / stack.images), bits) for seen, bits in replies([stack.layer], (), known)]
    return image_distance_bits(sent, flood_bits(known))


def weight_bytes(program: Program) -> int:
    """Return the bytes of the weights of a program's stacks, which a server encodes when it first prepares several."""
    return sum(_bytes(stack.layer, program) for _, _, stack in program.stacks)


def best(options: Sequence[Sequence[StackCandidate]], room: int) -> list[StackCandidate]:
    """Return an option of each layer: step by step the change that saves the most seconds a byte, while there is room.

    Args:
        options: of each layer; the first is without a stack.
        room: bytes.

    >>> none, two, eight = Option(1.0, 0), Option(0.5, 10), Option(0.4, 100)
    >>> [each.room for each in best([[none, two, eight], [none, Option(0.9, 10)]], 20)]
    [10, 10]
    """
    taken, left = [each[0] for each in options], room
    while True:
        changes = [
            ((now.seconds - other.seconds) / max(other.room - now.room, 1), number, other)
            for number, now in enumerate(taken)
            for other in options[number]
            if other.seconds < now.seconds and other.room - now.room <= left
        ]
        if not changes:
            return taken
        _, number, other = max(changes, key=lambda change: change[0])
        left -= other.room - taken[number].room
        taken[number] = other


def _options(layer: Layer, program: Program, goal: Objective, most: int, noise_bits: int) -> Iterator[StackCandidate]:
    """One image after the other, and for some numbers of images the fastest stack that fits."""
    single = linear_cost(layer, goal.profile, goal.link).total
    yield StackCandidate(single, 0)
    for images in sizes(most):
        plans = layers_by_time(stacked_shape(layer.shape, images), layer.block_size, goal)
        for _, (seconds, found) in zip(range(_LOOKED_AT), plans, strict=False):
            if seconds > _WORTH * images * single:
                break
            if found.noise_bits(program.parameters) <= noise_bits and _fits(found, layer, images, program):
                stack = Stack(images, max(2, ceil(seconds / single)), found)
                yield StackCandidate(seconds / images, _bytes(found, program), stack)
                break


def _fits(found: Layer, layer: Layer, images: int, program: Program) -> bool:
    known = program.parameters
    return (
        found.ciphertexts_in <= images * layer.ciphertexts_in
        and found.ciphertexts_out <= images * layer.ciphertexts_out
        and found.column_steps <= program.column_steps
        and not any((known.plain_modulus - 1) % length for length in found.transform_lengths)
    )


def _bytes(layer: Layer, program: Program) -> int:
    known = program.parameters
    return layer.circuit.weight_bytes(known.ring_degree, known.coefficient_bits)
