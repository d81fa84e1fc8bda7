"""Convolutions of real maps in slot encoding, where a network is bootstrapped, and what is refused."""

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.ckks import embedding, linear_map, slotwise
from privcirnet.he.ckks.circuit import bootstrap_placement
from privcirnet.he.ckks.evaluator import Cleartext
from privcirnet.he.ckks.network import IMAGE, CkksNetwork, Convolution, Sum, Term
from privcirnet.he.ckks.slotwise import Layout
from tests.he.ckks_toys import applied, in_slots, random


def convolved(weights: np.ndarray, maps: np.ndarray, source: Layout, target: Layout) -> tuple[np.ndarray, Cleartext]:
    machine = Cleartext()
    pairs = slotwise.paired(machine, source.encode(maps), source)
    found = []
    for part in range(target.parts):
        linears = slotwise.convolve(weights, source, target, part)
        total = np.sum([machine.map(value, each) for value, each in zip(pairs, linears, strict=True)], axis=0)
        found.append(machine.add(total, machine.conjugate(total)))
    return target.decode(found), machine


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize(("channels", "outputs", "size"), [(3, 8, 8), (8, 8, 8), (8, 16, 4), (16, 4, 8), (16, 32, 8)])
def test_it_convolves(channels, outputs, size, kernel):
    """One ciphertext with repetitions, and several; channels that are no power of two; all copies are alike."""
    maps, weights = random(0, channels, size, size), random(1, outputs, channels, kernel, kernel)
    source, target = (Layout(max(2, 1 << (c - 1).bit_length()), size, 512) for c in (channels, outputs))
    found, machine = convolved(weights, maps, source, target)
    np.testing.assert_allclose(found, Convolution("", weights, np.zeros(outputs))(maps[None])[0], atol=1e-12)
    assert machine.counts["pmult"] <= kernel**2 * source.channels // 2 * target.parts
    assert machine.counts["conjugate"] == target.parts


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("channels", [4, 16])
def test_strides_go_through_phases(channels, kernel):
    maps, weights = random(0, channels, 8, 8), random(1, 8, channels, kernel, kernel)
    source, machine = Layout(channels, 8, 512), Cleartext()
    values = source.encode(maps)
    for linear in slotwise.phases(source):
        values = [machine.map(value, linear) for value in values]
        assert linear.products == 7
    phased = Layout(4 * channels, 4, 512)
    found, _ = convolved(slotwise.over_phases(weights), phased.decode(values), phased, Layout(8, 4, 512))
    np.testing.assert_allclose(found, Convolution("", weights, np.zeros(8), 2)(maps[None])[0], atol=1e-12)


def test_layouts_that_are_refused():
    for channels, size, match in (
        (3, 4, "channels must be a power of two of 2 or more: got 3"),
        (2, 6, "width .* got 6"),
    ):
        with pytest.raises(RuleError, match=match):
            Layout(channels, size, 512)
    with pytest.raises(RuleError, match="must fit a ciphertext: got 1024 values for 512 slots"):
        Layout(2, 32, 512)


def layer(name: str, stride: int = 1) -> Convolution:
    return Convolution(name, np.ones((2, 2, 3, 3)), np.zeros(2), stride)


def residual(strides: list[int]) -> CkksNetwork:
    """A stem and blocks of two convolutions."""
    nodes = [Sum("stem", (Term(IMAGE, layer("stem")),))]
    for number, stride in enumerate(strides):
        before, shortcut = len(nodes) - 1, layer("shortcut", 2) if stride == 2 else None
        nodes.append(Sum(f"{number}.1", (Term(before, layer("conv1", stride)),)))
        nodes.append(Sum(f"{number}.2", (Term(before + 1, layer("conv2")), Term(before, shortcut))))
    return CkksNetwork(2, 64, tuple(nodes), np.ones((2, 2)), np.zeros(2))


def test_every_block_of_resnet_20_is_bootstrapped_once():
    """Five levels each: phases are begun before, where one is left. A part begins as low as it can."""
    found = bootstrap_placement(residual([1, 1, 1, 2, 1, 1, 2, 1, 1]), spare=5, floor=3)
    assert found.image == 8
    assert found.bootstrapped == {2: 7, 4: 8, 6: 8, 8: 7, 10: 8, 12: 8, 14: 7, 16: 6}
    assert found.early == {6, 12}
    roomy = bootstrap_placement(residual([1] * 4), spare=9, floor=3)
    assert (roomy.image, roomy.bootstrapped) == (12, {4: 10})


def test_parts_that_are_too_long_and_strides_that_differ_are_refused():
    with pytest.raises(RuleError, match=r"at most 5 levels: got 6 up to '1.2'; use more spare levels"):
        bootstrap_placement(residual([1, 2, 2, 1]), spare=5, floor=3)
    network = residual([2])
    node = Sum("1.2", (*network.nodes[2].terms[:1], Term(0)))
    wrong = CkksNetwork(2, 64, (*network.nodes[:2], node), np.ones((2, 2)), np.zeros(2))
    with pytest.raises(RuleError, match=r"the same stride: got \[1, 2\] after 'stem'"):
        bootstrap_placement(wrong, spare=5, floor=3)
    with pytest.raises(RuleError, match=r"3 x 3 .*: got 5 x 5, stride 1 in layer 'x'"):
        Convolution("x", np.ones((2, 2, 5, 5)), np.zeros(2))


SLOTS = 64


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_values_in_slots_become_coefficients_and_come_back(levels):
    values = random(0, 1, 2 * SLOTS)
    found = applied(linear_map.to_cins(SLOTS, SLOTS, levels), in_slots(values))
    np.testing.assert_allclose(found, embedding.to_slots(values[0]), atol=1e-12)
    back = applied(linear_map.from_cins(SLOTS, SLOTS, levels, 2j), found)
    np.testing.assert_allclose(back, 2j * in_slots(values), atol=1e-12)
