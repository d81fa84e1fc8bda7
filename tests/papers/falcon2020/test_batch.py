"""Networks of three layers on a vector: a batch side by side, and one image in few messages."""

import itertools

import numpy as np
import pytest

from papers.falcon2020.planning.batch import batch_plan
from papers.falcon2020.planning.exact_network import ExactNetwork
from papers.falcon2020.planning.packed import packed_plan
from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.layers.shape import LinearShape
from tests.papers.falcon2020.exact_networks import layer, network
from tests.papers.falcon2020.test_plans import in_clear

N = 256


def dense(*sizes: int) -> ExactNetwork:
    """Three layers of the given sizes, on an image of one channel and one row."""
    pairs = itertools.pairwise(sizes)
    layers = (layer(f"fc{i}", LinearShape.gemm(1, c, k), 1, 2, i) for i, (c, k) in enumerate(pairs))
    return ExactNetwork(tuple(layers), 0, 3, (1, 1, sizes[0]))


def images_of(made: ExactNetwork, count: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 4, (count, *made.input_shape))


SIZES = [(16, 8, 4, 3), (30, 7, 5, 3), (20, 5, 3, 9), (49, 12, 8, 10)]


@pytest.mark.parametrize("sizes", SIZES)
def test_one_image(sizes):
    """Layers of any size; some are no multiple of anything, and the image is cut in several messages."""
    made = dense(*sizes)
    (image,), plan = images_of(made, 1), packed_plan(made, 4 * N)
    assert list(in_clear(plan, image, 60)) == list(made.evaluate(image))


@pytest.mark.parametrize("sizes", SIZES)
def test_a_batch(sizes):
    """One image fewer than there is room for: the free lanes disturb nobody."""
    made = dense(*sizes)
    plan = batch_plan(made, N)
    images = images_of(made, plan.public.batch - 1)
    found = in_clear(plan, images, 60).reshape(plan.public.batch, -1)
    assert [list(row) for row in found[:-1]] == [list(made.evaluate(image)) for image in images]
    with pytest.raises(RuleError, match=f"must have 1 to {plan.public.batch} images: got {plan.public.batch + 1}"):
        plan.public.encode(images_of(made, plan.public.batch + 1))
    with pytest.raises(RuleError, match="must have the network's size"):
        plan.public.encode(images[:, :, :, 1:])


def test_the_benchmark_s_network_takes_few_operations():
    made = dense(784, 128, 64, 10)
    one, many = packed_plan(made, 16384), batch_plan(made, 16384)
    assert one.public.inputs == 7
    assert one.circuit.counts["rotate"] <= 22
    assert [many.circuit.counts[name] for name in ("rotate", "pmult", "square")] == [75, 976, 2]
    assert (many.public.inputs, many.public.batch, many.circuit.levels) == (7, 128, (3, 2))


def test_what_does_not_fit_is_refused():
    with pytest.raises(DoesNotFit, match="must hold a"):
        batch_plan(dense(20, 70, 40, 3), 64)
    with pytest.raises(RuleError, match=r"for three layers on a vector: got 3 layers, 2 of them"):
        batch_plan(network(2, 6, 4, 3), N)
