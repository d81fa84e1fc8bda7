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


@pytest.mark.parametrize(("maps", "kernel", "b"), [(5, 2, 1), (4, 3, 2), (1, 2, 1), (7, 3, 4)])
def test_the_plan_is_the_integer_network(maps, kernel, b):
    """Circulant and padded ones too; an odd number of maps leaves half a place in the second row."""
    made = two_convolutions(LinearShape(8, 8, 2, 5 if b > 1 else 3, 3, 2, 1), maps, kernel, 3, b)
    image = image_of(made)
    assert list(in_clear(maps_plan(made, 512), image, 60)) == list(made.evaluate(image))


def test_rotations_of_cifar():
    """LoLa's network as the papers print it: 83 maps of 14 x 14, 163 of 5 x 5. Falcon's Table 9: 7.9 K."""
    made = two_convolutions(LinearShape(32, 32, 3, 83, 8, 2, 1), 163, 6, 10)
    circuit = maps_plan(made, 32768).circuit
    counts = {name: circuit.counts_of(name)["rotate"] for name in ("conv1", "conv2", "fc")}
    assert counts == {"conv1": 0, "conv2": 153, "fc": 0}
    assert 6000 < circuit.counts["pmult"] <= 192 + 36 * 165 + 10, "few of the outermost have a zero for their weight"
    assert circuit.levels == (3, 2)


def test_what_does_not_fit_is_refused():
    first = LinearShape(8, 8, 2, 3, 3, 2, 1)
    with pytest.raises(DoesNotFit, match="a row must hold all maps of a convolution: got 3 maps of 16 for 32 columns"):
        maps_plan(two_convolutions(first, 4, 2, 3), 64)
    with pytest.raises(RuleError, match="no padding and one group: got padding 1"):
        maps_plan(two_convolutions(first, 4, 2, 3, padding=1), 512)
