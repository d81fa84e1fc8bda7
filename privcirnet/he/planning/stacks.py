"""The linear layers that take several images together offline, and how many images (:mod:`layers.layer`).

A stack saves rotations and ciphertexts, and needs weights of its own. It is planned after the program, and keeps to
what that has of parameters, keys and messages: no transform length that t does not carry, no rotation without a key,
no more ciphertexts an image, no more noise than the noisiest layer has, and flooding that still hides an image's.
Those that fit and save the most seconds a byte of weights are taken, until the room for these is used up.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from privcirnet.he.bfv.noise import flood_bits
from privcirnet.he.layers.layer import Layer, Stack, stacked_shape
from privcirnet.he.planning.cost import Objective, linear_cost
from privcirnet.he.planning.network_links import NetworkLink
from privcirnet.he.planning.parameter_choice import layers_noise_bits, replies
from privcirnet.he.planning.planner import layers_by_time
from privcirnet.he.planning.profile import Profile
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Linear
from privcirnet.he.program.program import Program, squares_of
from privcirnet.he.ring.sampling import IMAGE_DISTANCE_BITS, image_distance_bits

_SIZES = (2, 4)
_LOOKED_AT = 64
"""Plans of a stack that are looked at, the fastest first, before none is taken."""


_WORTH = 0.9
"""Part of the seconds from which on a stack is not worth its weights."""


def sizes(limit: int) -> list[int]:
    """Return the numbers of images that stacks are planned for.

    Args:
        limit: images that are prepared at once.

    >>> sizes(1), sizes(3), sizes(8)
    ([], [2, 3], [2, 4, 8])
    """
    return sorted({size for size in _SIZES if size < limit} | {limit} - {1})


class StackCandidate(NamedTuple):
    """A way in which a layer may take images.

    Attributes:
        room: bytes of weights, beyond those of single images.
        stack: stack of images; None: one after the other.
    """

    seconds: float
    room: int
    stack: Stack | None = None


def with_stacks(program: Program, profile: Profile, link: NetworkLink, max_images: int, room: int) -> Program:
    """Return the same program, its linear layers with the stacks that save the most.

    Args:
        program: without stacks.
        profile: seconds of operations at the program's (n, q).
        max_images: images that are prepared at once, at most.
        room: bytes that a server may spend on the weights of stacks.
    """
    if room <= 0:
        return program
    limit = layers_noise_bits((layer for _, layer in program.layers), program.parameters)
    planned = _planned(program, Objective(profile, link), max_images, room, limit)
    return (
        planned
        if _distance(planned) >= IMAGE_DISTANCE_BITS
        else _planned(program, Objective(profile, link), max_images, room, 0)
    )


def _planned(program: Program, goal: Objective, max_images: int, room: int, noise_bits: int) -> Program:
    """Return the program with stacks that have at most so much noise, or no more than their layer on one image."""
    linear, candidates = program.linear_nodes, dict[Layer, list[StackCandidate]]()
    for layer in dict.fromkeys(layer for _, layer in linear):
        limit = max(noise_bits, layer.noise_bits(program.parameters))
        candidates[layer] = list(_options(layer, program, goal, max_images, limit))
    names = [node.name for node, _ in linear]
    choices = dict(zip(names, best([candidates[layer] for _, layer in linear], room), strict=True))

    def stacked(node: Node) -> Node:
        if not isinstance(node.operation, Linear) or choices[node.name].stack is None:
            return node
        return replace(node, operation=replace(node.operation, stack=choices[node.name].stack))

    return replace(program, nodes=tuple(map(stacked, program.nodes)))


def _distance(program: Program) -> float:
    """Return -log2 of the statistical distance of an image's noise, prepared with others, from one without weights."""
    stacks, parameters = {node.name: stack for node, _, stack in program.stacks}, program.parameters
    alone = [layer for node, layer in program.layers if node.name not in stacks]
    sent = [*replies(alone, squares_of(program.nodes), parameters)]
    for stack in stacks.values():
        sent += [
            (ceil(coefficients / stack.images), bits) for coefficients, bits in replies([stack.layer], (), parameters)
        ]
    return image_distance_bits(sent, flood_bits(parameters))


def weight_bytes(program: Program) -> int:
    """Return the bytes of the weights of a program's stacks, which a server encodes when it first prepares several."""
    return sum(_bytes(stack.layer, program) for _, _, stack in program.stacks)


def best(options: Sequence[Sequence[StackCandidate]], room: int) -> list[StackCandidate]:
    """Return an option of each layer: step by step the change that saves the most seconds a byte, while there is room.

    Args:
        options: candidates of each layer; the first is without a stack.
        room: bytes.

    >>> none, two, eight = StackCandidate(1.0, 0), StackCandidate(0.5, 10), StackCandidate(0.4, 100)
    >>> [option.room for option in best([[none, two, eight], [none, StackCandidate(0.9, 10)]], 20)]
    [10, 10]
    """
    choices, room_left = [layer_options[0] for layer_options in options], room
    while True:
        changes = [
            ((now.seconds - option.seconds) / max(option.room - now.room, 1), number, option)
            for number, now in enumerate(choices)
            for option in options[number]
            if option.seconds < now.seconds and option.room - now.room <= room_left
        ]
        if not changes:
            return choices
        _, number, option = max(changes, key=lambda change: change[0])
        room_left -= option.room - choices[number].room
        choices[number] = option


def _options(layer: Layer, program: Program, goal: Objective, limit: int, noise_bits: int) -> Iterator[StackCandidate]:
    """Yield one image after the other, and for some numbers of images the fastest stack that fits."""
    single = linear_cost(layer, goal.profile, goal.link).total
    yield StackCandidate(single, 0)
    for images in sizes(limit):
        plans = layers_by_time(stacked_shape(layer.shape, images), layer.block_size, goal)
        for _, (seconds, stacked) in zip(range(_LOOKED_AT), plans, strict=False):
            if seconds > _WORTH * images * single:
                break
            if stacked.noise_bits(program.parameters) <= noise_bits and _fits(stacked, layer, images, program):
                stack = Stack(images, max(2, ceil(seconds / single)), stacked)
                yield StackCandidate(seconds / images, _bytes(stacked, program), stack)
                break


def _fits(stacked: Layer, layer: Layer, images: int, program: Program) -> bool:
    parameters = program.parameters
    return (
        stacked.ciphertexts_in <= images * layer.ciphertexts_in
        and stacked.ciphertexts_out <= images * layer.ciphertexts_out
        and stacked.column_steps <= program.column_steps
        and not any((parameters.plain_modulus - 1) % length for length in stacked.transform_lengths)
    )


def _bytes(layer: Layer, program: Program) -> int:
    parameters = program.parameters
    return layer.circuit.weight_bytes(parameters.ring_degree, parameters.coefficient_bits)
