"""Stacks save what they say, within what the program already has; of several the most seconds a byte."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.he.bfv.parameters import choose
from privcirnet.he.layers.layer import Layer, stacked_shape
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning import stacks
from privcirnet.he.planning.cost import linear_cost
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.parameter_choice import layers_noise_bits
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.he.planning.profile import COUNTED, Profile
from privcirnet.he.planning.stacks import StackCandidate, best, with_stacks
from privcirnet.he.program import manifest
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Input, Linear
from privcirnet.he.program.program import Program
from tests.he.networks import attention, bottleneck, network

LOCAL, PLENTY = LINKS["local"], 1 << 40


@pytest.mark.parametrize("make", [network, bottleneck, attention])
@pytest.mark.parametrize("most", [2, 3, 8])
def test_a_stack_takes_fewer_seconds_and_nothing_that_the_program_has_not(make, most: int) -> None:
    program = make()
    stacked = with_stacks(program, COUNTED, LOCAL, most, PLENTY)
    assert stacked.stacks
    assert stacked.column_steps == program.column_steps
    assert [layer for _, layer in stacked.linear_nodes] == [layer for _, layer in program.linear_nodes]
    single = dict((node.name, layer) for node, layer in program.linear_nodes)
    for node, _, stack in stacked.stacks:
        one, several = single[node.name], stack.layer
        assert 2 <= stack.images <= most
        seconds = [linear_cost(layer, COUNTED, LOCAL).total for layer in (one, several)]
        assert seconds[1] <= 0.9 * stack.images * seconds[0]
        assert (stack.least - 1) * seconds[0] < seconds[1] <= stack.least * seconds[0] or stack.least == 2
        assert several.ciphertexts_in <= stack.images * one.ciphertexts_in
        assert several.ciphertexts_out <= stack.images * one.ciphertexts_out
    layers = [stack.layer for _, _, stack in stacked.stacks]
    loudest = layers_noise_bits((layer for _, layer in program.layers), program.parameters)
    assert layers_noise_bits(layers, program.parameters) <= loudest
    manifest.check(stacked)
    assert manifest.from_dict(manifest.to_dict(stacked)).nodes == stacked.nodes


def dear_ciphertexts() -> tuple[Program, Profile, Layer]:
    """A layer, a profile, and the fastest stack of eight: louder, and with other rotations than one image has keys for."""
    shape = LinearShape(2, 2, 128, 256)
    profile = replace(COUNTED, seconds=COUNTED.seconds | dict.fromkeys(("encrypt", "decrypt", "reply"), 1.0))
    layer, fastest = (cheapest_layer(each, 8, profile, LOCAL) for each in (shape, stacked_shape(shape, 8)))
    nodes = (
        Node("x", Input(0, 1), (), shape.input_shape, 0),
        Node("y", Linear(layer), ("x",), shape.output_shape, 0),
    )
    program = Program(nodes, choose(layer.transform_lengths | {1}, 46))
    assert not fastest.column_steps <= layer.column_steps
    assert fastest.noise_bits(program.parameters) > layer.noise_bits(program.parameters)
    return program, profile, fastest


def test_no_rotation_that_single_images_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    program, profile, _ = dear_ciphertexts()
    monkeypatch.setattr(stacks, "layers_noise_bits", lambda *_: 99)
    manifest.check(with_stacks(program, profile, LOCAL, 8, PLENTY))


def test_an_images_noise_stays_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where louder stacks would give it away, none is louder than its layer on one image."""
    program, profile, fastest = dear_ciphertexts()
    monkeypatch.setattr(stacks, "layers_noise_bits", lambda *_: 99)
    monkeypatch.setattr(Program, "column_steps", property(lambda _: fastest.column_steps))

    def taken() -> list[Layer]:
        return [stack.layer for _, _, stack in with_stacks(program, profile, LOCAL, 8, PLENTY).stacks]

    assert taken() == [fastest]
    monkeypatch.setattr(stacks, "IMAGE_DISTANCE_BITS", 99)
    single = program.linear_nodes[0][1].noise_bits(program.parameters)
    assert all(layer.noise_bits(program.parameters) <= single for layer in taken())


def test_none_without_room_or_for_one_image() -> None:
    assert not with_stacks(network(), COUNTED, LOCAL, 8, 0).stacks
    assert not with_stacks(network(), COUNTED, LOCAL, 1, PLENTY).stacks


def test_weights_stay_within_their_room() -> None:
    program, used = network(), list[int]()
    for room in (1 << 21, 1 << 23, 1 << 25):
        found = with_stacks(program, COUNTED, LOCAL, 8, room).stacks
        words = sum(stack.layer.circuit.weights for _, _, stack in found) * program.parameters.ring_degree
        used.append(8 * words * (len(program.parameters.coefficient_bits) - 1))
        assert used[-1] <= room
    assert used == sorted(used)


OPTIONS = st.lists(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=2), min_size=1, max_size=4)


@given(OPTIONS, st.integers(0, 30))
def test_step_by_step_is_near_the_best_there_is(sizes: list[list[tuple[int, int]]], room: int) -> None:
    """At least half of what any choice saves, or as much but for one option; never more bytes than there are."""
    options = [
        [StackCandidate(10.0, 0), *(StackCandidate(float(seconds), size) for seconds, size in each)] for each in sizes
    ]
    found = best(options, room)
    assert sum(each.room for each in found) <= room
    saved = 10.0 * len(options) - sum(each.seconds for each in found)
    choices = (each for each in product(*options) if sum(one.room for one in each) <= room)
    most = max(10.0 * len(options) - sum(one.seconds for one in each) for each in choices)
    largest = max((10.0 - one.seconds for each in options for one in each if one.room <= room), default=0.0)
    assert saved + largest >= most / 2
