"""Two convolutions: the plan computes the network, in clear; CIFAR's rotations are far under the published ones."""

import numpy as np
import pytest

from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.leveled.maps import maps_plan
from privcirnet.he.leveled.network import LeveledNetwork
from tests.he.leveled.networks import image_of, layer
from tests.he.leveled.test_plans import in_clear


def two_convolutions(first: LinearShape, maps: int, kernel: int, classes: int, b: int = 1, **more) -> LeveledNetwork:
    channels, side, _ = first.output_shape
    second = LinearShape(side, side, channels, maps, kernel, 2, **more)
    last = LinearShape.gemm(1, int(np.prod(second.output_shape)), classes)
    layers = layer("conv1", first, 1, 2, 1), layer("conv2", second, b, 2, 2), layer("fc", last, 1, 2, 3)
    return LeveledNetwork(layers, 0, 3)


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
    made = two_convolutions(LinearShape(8, 8, 2, 5 if b > 1 else 3, 3, 2, 1), maps, kernel, 3, b)
    image = image_of(made)
    assert list(in_clear(maps_plan(made, n), image, 60)) == list(made.evaluate(image))


@pytest.mark.parametrize(
    ("b", "rotations", "products", "depth"), [(1, 77, 192 + 166 * 9 + 10, 3), (16, 34, 192 + 14 * 9 + 2 * 16 + 10, 5)]
)
def test_rotations_of_cifar(b, rotations, products, depth):
    """LoLa's network as the papers print it: 83 maps of 14 x 14, 163 of 5 x 5. Falcon's Table 9: 7.9 K."""
    made = two_convolutions(LinearShape(32, 32, 3, 83, 8, 2, 1), 163, 6, 10, b)
    circuit = maps_plan(made, 32768).circuit
    counts = {name: circuit.counts_of(name)["rotate"] for name in ("conv1", "conv2", "fc")}
    assert counts == {"conv1": 0, "conv2": rotations, "fc": 0}
    assert circuit.counts["pmult"] == products
    assert circuit.levels == (depth, 2)


def test_what_does_not_fit_is_refused():
    first = LinearShape(8, 8, 2, 3, 3, 2, 1)
    with pytest.raises(DoesNotFit, match="a row must hold all frames of a convolution: got 6 of 4 for 16 columns"):
        maps_plan(two_convolutions(first, 4, 2, 3), 32)
    with pytest.raises(RuleError, match="no padding and one group: got padding 1"):
        maps_plan(two_convolutions(first, 4, 2, 3, padding=1), 512)
