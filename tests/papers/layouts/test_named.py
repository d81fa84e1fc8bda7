"""The plans that papers publish: rules, totals, and that they compute the layer."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from benchmarks.bench.networks import NETWORKS, allowed_block_size, network_shapes
from papers.layouts.named import plan_published, published_layer, published_named
from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_layout import next_power_of_two
from privcirnet.he.planning.cost import Objective, linear_cost
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.planner import candidate_layers
from privcirnet.he.planning.profile import COUNTED
from tests.he.exchange import Party, random_input, random_rows, slow_layer
from tests.he.insecure import insecure_parameters

N = 8192
PUBLISHED = sorted({shape for name in NETWORKS for shape in network_shapes(name).values()}, key=str)


@cache
def published(shape: LinearShape, b: int) -> SpectralLayer:
    return published_layer(shape, allowed_block_size(shape, b), N)


def totals(layers: Sequence[SpectralLayer]) -> tuple[int, int]:
    return sum(layer.rotations for layer in layers), sum(layer.pmults for layer in layers)


def units(layer: SpectralLayer) -> float:
    return layer.rotations + 0.135 * layer.pmults


@pytest.mark.parametrize(("b", "expected"), [(2, (658, 12800)), (8, (202, 3200)), (16, (98, 1504))])
def test_resnet18_s_totals(b: int, expected: tuple[int, int]) -> None:
    """Golden; at b = 8 HE-Rot is the paper's own 202. At b = 16 a 32 x 32 map is cut into 3 strips, 4 would be 1600."""
    assert totals([published(shape, b) for shape in network_shapes("resnet18_cifar").values()]) == expected


@pytest.mark.parametrize("b", [1, 8])
def test_the_rules_of_the_papers(b: int) -> None:
    """No copies, no sum on shares, one lane length, at most min(C, K) / b lanes, stride 1."""
    for shape in PUBLISHED:
        layer = published(shape, b)
        pieces, layout = layer.pieces, layer.layout
        assert layer.shape == replace(shape, stride=1)
        assert not any(piece.giants_on_shares or piece.folds_on_shares for piece in pieces)
        assert {(piece.copies, piece.groups) for piece in pieces} == {(1, 1)}
        assert len({(piece.lanes, piece.baby_steps) for piece in pieces}) == 1
        assert pieces[0].lanes <= min(shape.in_channels, shape.out_channels) // layer.block_size
        assert len({piece.tiles for piece in pieces[:-1]}) <= 1
        assert pieces[-1].tiles <= pieces[0].tiles
        assert sum(piece.tiles for piece in pieces) == layout.tiles
        if shape.kernel > 1:
            padded = (shape.height + 2 * shape.padding) * (shape.width + 2 * shape.padding) * layer.block_size
            assert N // pieces[0].lanes >= min(next_power_of_two(padded), N)
            assert layout.tiles == 1 or padded > N
        else:
            assert layer.tile == (1, 1)


@pytest.mark.parametrize(
    "shape", [LinearShape.gemm(64, 96, 48), LinearShape(14, 14, 32, 48, 3, 1, 1)], ids=["gemm", "conv"]
)
def test_it_is_the_cheapest_plan_of_its_kind(shape: LinearShape) -> None:
    """In HE-Rot + 0.135 HE-Pmult, against every plan without copies that has its lanes or more room in each."""
    layer = published_layer(shape, 2, N)
    padded = 1 if shape.kind == "gemm" else next_power_of_two((14 + 2) ** 2 * 2)
    most = min(min(shape.in_channels, shape.out_channels) // 2, N // padded)
    plain = [
        other
        for other in candidate_layers(shape, 2, N)
        if not any(p.giants_on_shares or p.folds_on_shares or p.copies > 1 for p in other.pieces)
        and other.pieces[0].lanes <= most
    ]
    assert units(layer) == min(map(units, plain))
    assert len(plain) > 10


EXECUTED = {
    "gemm": (LinearShape.gemm(10, 12, 8), 2, 64),
    "gemm of more tokens than a lane": (LinearShape.gemm(37, 6, 10), 1, 64),
    "one token": (LinearShape.gemm(1, 40, 12), 4, 64),
    "3 x 3": (LinearShape(6, 5, 8, 12, 3, 1, 1), 2, 256),
    "stride": (LinearShape(7, 6, 4, 8, 3, 2, 1), 1, 256),
    "pointwise with stride": (LinearShape(6, 6, 4, 8, 1, 2), 2, 64),
    "strips": (LinearShape(20, 19, 2, 4, 3, 1, 1), 1, 256),
    "strips with blocks and stride": (LinearShape(20, 18, 4, 4, 3, 2, 1), 2, 512),
}


@pytest.mark.parametrize("case", EXECUTED)
def test_it_computes_the_layer(case: str) -> None:
    """On the clear-text engine; of a strided layer the client keeps every s-th output."""
    shape, b, n = EXECUTED[case]
    layer = published_layer(shape, b, n)
    rows, x = random_rows(shape, b), random_input(shape)
    bias = np.arange(shape.out_channels)
    party = Party(layer, rows, bias, insecure_parameters(n, layer.transform_lengths))
    found = party.run(x)[:, :: shape.stride, :: shape.stride]
    assert (found == slow_layer(shape, b, rows, bias, x)).all()
    assert (party.server.counts["rotate"], party.server.counts["pmult"]) == (layer.rotations, layer.pmults)


def test_strips_are_the_fewest_that_fit() -> None:
    shape = LinearShape(56, 56, 4, 4, 3, 1, 1)
    layer = published_layer(shape, 8 // 2, N)
    (height, width), strips = layer.tile, layer.layout.tiles
    assert width == 56
    assert strips == len(layer.pieces) == -(-56 // height) > 1
    taller = replace(layer, tile=(-(-56 // (strips - 1)), 56))
    assert layer.layout.cell <= N < taller.layout.cell
    assert {piece.lanes for piece in layer.pieces} == {1}


def test_a_map_that_fits_is_not_cut() -> None:
    assert published_layer(LinearShape(56, 56, 64, 64, 3, 1, 1), 2, N).layout.tiles == 1


def test_what_is_refused() -> None:
    with pytest.raises(RuleError, match="a published plan has no channel groups: got 4; use layout=best"):
        published_layer(LinearShape(8, 8, 8, 8, 3, 1, 1, groups=4), 1, N)
    with pytest.raises(RuleError, match="a row of a map must fit a ciphertext in a published plan: got 500 columns"):
        published_layer(LinearShape(500, 500, 8, 8, 3, 1, 1), 8, N)
    with pytest.raises(RuleError, match="block size must be at most both weight dimensions: got 9"):
        published_layer(LinearShape.gemm(4, 8, 8), 9, N)


def test_a_block_that_fits_no_ciphertext_is_refused() -> None:
    with pytest.raises(RuleError, match="must fit"):
        published_layer(LinearShape.gemm(1, 128, 128), 128, 64)


@pytest.mark.parametrize("encoding", ["cirencode", "cheetah"])
def test_as_a_layout_it_is_the_only_candidate(encoding: str) -> None:
    shape, goal = LinearShape(4, 4, 16, 8, 3, 1, 1), Objective(COUNTED, LINKS["wan"])
    choice = plan_published(encoding, shape, 4, goal)
    assert choice.layer == published_named(encoding, shape, 4, N)
    assert choice.candidates == ((linear_cost(choice.layer, goal.profile, goal.link), choice.layer),)
