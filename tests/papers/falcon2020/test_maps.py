"""Two convolutions: every plan is the integer network, in clear and encrypted; CIFAR's operations."""

from dataclasses import replace

import numpy as np
import pytest

from papers.falcon2020.planning.exact_network import ExactNetwork
from papers.falcon2020.planning.maps import maps_plan
from papers.falcon2020.planning.parameters import plan_for
from papers.falcon2020.protocol.inference import LeveledInferenceClient, LeveledInferenceServer
from papers.layouts.falcon_maps import falcon_maps_plan
from papers.layouts.lola_maps import lola_maps_plan
from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.layers.shape import LinearShape
from tests.papers.falcon2020.exact_networks import image_of, layer
from tests.papers.falcon2020.test_plans import in_clear

LAYERS = ("conv1", "conv2", "fc")


def two_convolutions(first: LinearShape, maps: int, kernel: int, classes: int, b: int = 1, **more) -> ExactNetwork:
    channels, side, _ = first.output_shape
    second = LinearShape(side, side, channels, maps, kernel, 2, **more)
    last = LinearShape.gemm(1, int(np.prod(second.output_shape)), classes)
    layers = layer("conv1", first, 1, 2, 1), layer("conv2", second, b, 2, 2), layer("fc", last, 1, 2, 3)
    return ExactNetwork(layers, 0, 3)


FIRST = {1: LinearShape(8, 8, 2, 3, 3, 2, 1), 2: LinearShape(8, 8, 2, 5, 3, 2, 1)}
PLANNERS = {"maps": maps_plan, "lola": lola_maps_plan, "falcon": falcon_maps_plan}


@pytest.mark.parametrize(
    ("maps", "kernel", "b", "n"),
    [
        (5, 2, 1, 512),
        (4, 3, 2, 512),
        (1, 2, 1, 512),
        (7, 3, 4, 512),
        (9, 3, 4, 1024),
        (12, 3, 2, 128),
        (16, 2, 8, 1024),
    ],
)
def test_the_plan_is_the_integer_network(maps, kernel, b, n):
    """Circulant and padded ones too, in the frequency domain; a row that its frames fill makes steps to the left."""
    made = two_convolutions(FIRST[min(b, 2)], maps, kernel, 3, b)
    image = image_of(made)
    assert list(in_clear(maps_plan(made, n), image, 60)) == list(made.evaluate(image))


@pytest.mark.parametrize(("maps", "kernel", "b", "padding"), [(5, 2, 1, 0), (4, 3, 2, 0), (7, 3, 4, 1), (9, 2, 4, 0)])
@pytest.mark.parametrize("planner", [lola_maps_plan, falcon_maps_plan])
def test_the_papers_plans_are_the_integer_network(planner, maps, kernel, b, padding):
    made = two_convolutions(FIRST[min(b, 2)], maps, kernel, 3, b, padding=padding)
    image = image_of(made)
    assert list(in_clear(planner(made, 1024), image, 60)) == list(made.evaluate(image))


@pytest.mark.parametrize(("side", "messages"), [(1, 18), (2, 9), (4, 5), (8, 3)])
def test_messages_hold_several_windows(side, messages):
    """As many as the digit has values, and those of the last message that nothing is left for."""
    made = two_convolutions(FIRST[2], 16, 2, 3, 8)
    image, plan = image_of(made), maps_plan(made, 1024, side)
    assert (plan.public.inputs, plan.circuit.counts_of("conv1")["rotate"]) == (messages, side - 1)
    assert list(in_clear(plan, image, 60)) == list(made.evaluate(image))


def test_weights_that_are_zero_for_all_maps_are_left_out():
    """Sums of windows that nothing meets; a layer of zeros is refused."""
    made = two_convolutions(FIRST[2], 16, 2, 3, 8)
    weights = made.layers[0].rows.reshape(5, -1)
    weights[:, 3:] = 0
    image = image_of(made)
    assert list(in_clear(maps_plan(made, 1024), image, 60)) == list(made.evaluate(image))
    weights[:] = 0
    for planner in PLANNERS.values():
        with pytest.raises(RuleError, match="must have a weight that is not zero: got none in layer conv1"):
            planner(two_convolutions_of(made.layers), 1024)


def two_convolutions_of(layers) -> ExactNetwork:
    return ExactNetwork(tuple(replace(each) for each in layers), 0, 3)


def cifar(b: int) -> ExactNetwork:
    """LoLa's network as the papers print it: 83 maps of 14 x 14, 163 of 5 x 5."""
    return two_convolutions(LinearShape(32, 32, 3, 83, 8, 2, 1), 163, 6, 10, b)


@pytest.mark.parametrize(
    ("b", "messages", "rotations", "products", "depth"),
    [(1, 192, (0, 77, 0), 192 + 166 * 9 + 10, 3), (16, 24, (7, 34, 0), 192 + 14 * 9 + 2 * 16 + 10, 5)],
)
def test_operations_of_cifar(b, messages, rotations, products, depth):
    plan = maps_plan(cifar(b), 32768)
    assert tuple(plan.circuit.counts_of(name)["rotate"] for name in ("conv1", "conv2", "fc")) == rotations
    assert (plan.public.inputs, plan.circuit.counts["pmult"]) == (messages, products)
    assert plan.circuit.levels == (depth, 2)


@pytest.mark.slow
def test_rotations_of_the_papers_plans_are_at_most_the_published_ones():
    """LoLa 82 + 52,975 + 120; Falcon 82 + 7,674 + 120 (its Tables 8 and 9)."""
    plans = {"lola": lola_maps_plan(cifar(1), 16384).circuit, "falcon": falcon_maps_plan(cifar(16), 32768).circuit}
    counts = {name: tuple(made.counts_of(layer)["rotate"] for layer in LAYERS) for name, made in plans.items()}
    assert counts == {"lola": (41, 4075 * 13 + 1, 120), "falcon": (0, 6 + 275 * 10 + 275 + 6, 130)}
    assert sum(counts["lola"]) < 82 + 52_975 + 120
    assert sum(counts["falcon"]) < 7_900
    assert {name: made.levels for name, made in plans.items()} == {"lola": (4, 2), "falcon": (6, 2)}
    assert plans["lola"].counts_of("conv2")["pmult"] == 2 * 4075


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANNERS)
def test_encrypted_results_are_the_integer_network_s(name):
    made = two_convolutions(FIRST[2], 5, 2, 2, 4)
    plan, parameters = plan_for(made, PLANNERS[name])
    client, server = LeveledInferenceClient(plan.public, parameters), LeveledInferenceServer(plan, parameters)
    image = image_of(made)
    answer = server.answer(client.request(image), server.load_keys(client.keys()))
    assert list(client.results(answer)) == list(made.evaluate(image))
    client.close()


def test_what_does_not_fit_is_refused():
    first = LinearShape(8, 8, 2, 3, 3, 2, 1)
    with pytest.raises(DoesNotFit, match="all frames of a convolution: got 6 of 4 for 16"):
        maps_plan(two_convolutions(first, 4, 2, 3), 32)
    with pytest.raises(RuleError, match="no padding and one group: got padding 1"):
        maps_plan(two_convolutions(first, 4, 2, 3, padding=1), 512)
    with pytest.raises(DoesNotFit, match="a ciphertext must hold a vector: got 48 values for 32 slots"):
        lola_maps_plan(two_convolutions(first, 4, 2, 3), 32)
    with pytest.raises(DoesNotFit, match="outputs must fit a row's period: got 64 for 32"):
        lola_maps_plan(two_convolutions(first, 16, 2, 3), 64)
    with pytest.raises(DoesNotFit, match="a row must hold blocks of maps: got 32 and 16 for 16 columns"):
        falcon_maps_plan(two_convolutions(first, 4, 2, 3), 32)
