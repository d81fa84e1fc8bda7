from dataclasses import replace
from itertools import product

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import DEFAULT_COEFFICIENT_BITS
from privcirnet.he.layers import bsgs
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_pieces import Piece
from privcirnet.he.planning import cost, planner
from privcirnet.he.planning.cost import Objective, linear_cost
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.parameter_choice import SHORT_LENGTHS
from privcirnet.he.planning.planner import candidate_layers, cheapest_layer, counted_goal, plan_layer
from privcirnet.he.planning.profile import COUNTED, OPERATIONS, Profile
from privcirnet.he.program import limits
from tests.he.layer_examples import paper_layer

FREE = LINKS["local"]


def predicted(choice: cost.LayerChoice) -> cost.Cost:
    """Predicted seconds of the chosen layer, priced as a whole."""
    return linear_cost(choice.layer, choice.goal.profile, choice.goal.link)


TINY = 1e-9
SHAPES = [
    (LinearShape.gemm(4, 32, 32), 1),
    (LinearShape.gemm(65, 24, 12), 2),
    (LinearShape.gemm(1, 40, 10), 2),
    (LinearShape(4, 4, 8, 8, 3, 1, 1), 2),
    (LinearShape(8, 6, 4, 8, 3, 2, 1), 1),
    (LinearShape(6, 6, 12, 12, 3, 1, 1, groups=12), 1),
    (LinearShape(6, 6, 12, 12, 3, 1, 1, groups=3), 2),
]


def pricing(ring_degree: int = 256, rotations: float = TINY, **prices: float) -> Profile:
    """A profile of some prices, ``rotations`` for those of inputs, sums and outputs alike, the rest next to nothing."""
    seconds = dict.fromkeys(OPERATIONS, TINY) | dict.fromkeys(("rotate", "giant", "fold"), rotations) | prices
    return Profile("prices", ring_degree, DEFAULT_COEFFICIENT_BITS, seconds)


PROFILES = {
    "rotations": pricing(rotations=1.0),
    "products": pricing(pmult=1.0),
    "messages": pricing(reply=1.0, encrypt=1.0),
    "transforms": pricing(transform=1.0),
    "all": pricing(rotations=3.3, pmult=0.22, reply=4.0, encrypt=2.9, to_ntt=0.8, from_ntt=0.7, transform=1e-4),
}


def seconds(layer: SpectralLayer, profile: Profile) -> float:
    return linear_cost(layer, profile, FREE).total


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("shape", "b"), SHAPES, ids=lambda v: v.kind if isinstance(v, LinearShape) else "")
def test_the_cheapest_is_the_least_of_all(shape: LinearShape, b: int, profile: str) -> None:
    """Of the planner's own candidates, priced again one by one, and of every plan of an untiled map."""
    goal = Objective(PROFILES[profile], FREE)
    choice = plan_layer(shape, b, goal)
    prices = [seconds(layer, goal.profile) for _, layer in choice.candidates]
    assert [found.total for found, _ in choice.candidates] == pytest.approx(prices, rel=1e-9)
    assert prices == pytest.approx(sorted(prices), rel=1e-9)
    assert choice.layer == choice.candidates[0][1]
    assert predicted(choice).total == prices[0]
    exhaustive = min(seconds(layer, goal.profile) for layer in candidate_layers(shape, b, 256))
    assert prices[0] <= exhaustive * (1 + 1e-9)
    assert cheapest_layer(shape, b, goal.profile, FREE) == choice.layer


def every_cover(shape: LinearShape, b: int, n: int) -> list[SpectralLayer]:
    """Layers whose grid is cut into like pieces in any way, under any tiling: more than the planner looks at."""
    found: list[SpectralLayer] = []
    _, height, width = shape.output_shape
    for tile in product(range(1, height + 1), range(1, width + 1)):
        layout = planner.SpectralLayout(shape, b, tile)
        sizes = product((1, 2, 4, 8, 16, 32), range(1, shape.groups + 1), range(1, layout.tiles + 1))
        for lanes, groups, tiles in sizes:
            if shape.groups % groups or layout.tiles % tiles or groups * tiles * layout.cell > n // lanes:
                continue
            for plan in bsgs.candidates(lanes, layout.blocks_in, layout.blocks_out, on_shares=True):
                piece = Piece(
                    groups, tiles, lanes, plan.baby_steps, plan.copies, plan.giants_on_shares, plan.folds_on_shares
                )
                count = shape.groups // groups * (layout.tiles // tiles)
                found.append(SpectralLayer(shape, b, n, tile, (piece,) * count))
    return found


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    ("shape", "b"),
    [
        (LinearShape(3, 3, 4, 4, 3, 1, 1), 2),
        (LinearShape(4, 3, 2, 4, 3, 1, 1, groups=2), 1),
        (LinearShape.gemm(6, 4, 6), 2),
        (LinearShape(4, 4, 2, 2, 3, 2, 1), 2),
    ],
    ids=["conv", "groups", "gemm", "stride"],
)
def test_nothing_that_the_planner_skips_is_cheaper(shape: LinearShape, b: int, profile: str) -> None:
    prices = replace(PROFILES[profile], ring_degree=64)
    least = min(seconds(layer, prices) for layer in every_cover(shape, b, 64))
    assert seconds(cheapest_layer(shape, b, prices, FREE), prices) <= least * (1 + 1e-9)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("shape", "b"), SHAPES, ids=lambda v: v.kind if isinstance(v, LinearShape) else "")
def test_encrypted_sums_have_none_on_shares(shape: LinearShape, b: int, profile: str) -> None:
    choice = plan_layer(shape, b, Objective(PROFILES[profile], FREE, "encrypted"))
    for _, layer in choice.candidates:
        assert not any(piece.giants_on_shares or piece.folds_on_shares for piece in layer.pieces)
        for placed in layer.placed:
            assert {len(terms) for terms in placed.plan.output_terms} == {1}, "an output is one lane of one ciphertext"
    free, still = (plan_layer(shape, b, Objective(PROFILES[profile], FREE, sums)) for sums in ("any", "shares"))
    assert predicted(free).total <= predicted(choice).total * (1 + 1e-9)
    assert [(layer.rotations, layer.column_steps) for _, layer in still.candidates] == [(0, set())] * len(
        still.candidates
    )


@pytest.mark.parametrize("tokens", [65, 197, 257])
def test_odd_numbers_of_tokens_are_covered_without_padding(tokens: int) -> None:
    """PrivCirNet's vision transformers: 64 or 256 patches and a class token, which gets a piece of its own."""
    layer = paper_layer(LinearShape.gemm(tokens, 256, 512), 1, 8192)
    pieces = layer.placed
    assert [p.first_tile for p in pieces] == [sum(q.piece.tiles for q in pieces[:i]) for i in range(len(pieces))]
    assert sum(p.piece.tiles for p in pieces) == tokens
    if tokens in (65, 257):
        assert [p.piece.tiles for p in pieces] == [tokens - 1, 1]
        alone = paper_layer(LinearShape.gemm(tokens - 1, 256, 512), 1, 8192)
        one = paper_layer(LinearShape.gemm(1, 256, 512), 1, 8192)
        assert (layer.rotations, layer.pmults) == (alone.rotations + one.rotations, alone.pmults + one.pmults)


@pytest.mark.parametrize(("shape", "b"), [(LinearShape(4, 4, 8, 8, 3, 1, 1), 8), (LinearShape.gemm(9, 128, 128), 128)])
def test_what_fits_no_ciphertext_is_refused(shape: LinearShape, b: int) -> None:
    with pytest.raises(RuleError, match=rf"must fit a ciphertext: got block size {b} at .* for 64 slots"):
        cheapest_layer(shape, b, pricing(64), FREE)


@pytest.mark.parametrize("b", [1, 4])
@pytest.mark.parametrize(("side", "most"), [(32, 1.06), (16, 1.0), (14, 1.0), (8, 1.0), (4, 1.0), (2, 1.0)])
def test_short_lengths_cost_little(side: int, most: float, b: int) -> None:
    """The first of them."""
    shape, prices = LinearShape(side, side, 64, 64, 3, 1, 1), replace(PROFILES["all"], ring_degree=8192)
    short, best = (cheapest_layer(shape, b, prices, FREE, lengths) for lengths in (SHORT_LENGTHS[0], 0))
    assert not any(SHORT_LENGTHS[0] % length for length in short.transform_lengths)
    assert seconds(short, prices) <= most * seconds(best, prices)


def test_a_map_without_short_lengths_keeps_others() -> None:
    shape = LinearShape(3, 3, 4, 4, 3, 1, 1)
    assert cheapest_layer(shape, 1, PROFILES["all"], FREE, 7).transform_lengths <= {1, 2, 3, 4, 5}


def test_what_is_refused() -> None:
    with pytest.raises(RuleError, match="block size must be at most both weight dimensions: got 9"):
        cheapest_layer(LinearShape.gemm(4, 8, 8), 9, COUNTED, FREE)
    with pytest.raises(RuleError, match="sums must be of a known kind: got 'none'; use any, encrypted"):
        Objective(COUNTED, FREE, "none")


def test_heads_stand_side_by_side_with_as_many_tokens_as_fit() -> None:
    """65 tokens of 4 heads fill 512 slots of a lane by half, 64 of them 256 slots whole; the last goes by itself."""
    shape, goal = LinearShape.product((256, 65, 1), (256, 65, 1), 4), counted_goal(16384)
    found = plan_layer(shape, 1, goal).layer
    assert [(piece.groups, piece.tiles) for piece in found.pieces] == [(4, 64), (4, 1)]
    whole = SpectralLayer(shape, 1, 16384, (1, 1), (Piece(4, 65, 32, 8, folds_on_shares=False),))
    assert found.pmults < 0.7 * whole.pmults


@pytest.mark.parametrize("shape", [LinearShape.gemm(49, 192, 1152), LinearShape(7, 7, 192, 1152)], ids=["gemm", "conv"])
def test_plans_beyond_the_limits_of_programs_are_not_chosen(shape: LinearShape) -> None:
    """Where messages cost nothing the cheapest plan sends 2,176 ciphertexts of 8,192 slots, which no reader accepts."""
    goal_of_messages = Objective(COUNTED, FREE)
    fastest = cheapest_layer(shape, 1, COUNTED, FREE)
    assert limits.excess(fastest, COUNTED.parameter_set) == ""
    assert plan_layer(shape, 1, goal_of_messages).layer == fastest
    assert next(planner.layers_by_time(shape, 1, goal_of_messages))[1] == fastest


def test_a_layer_without_a_plan_within_the_limits_is_refused() -> None:
    shape = LinearShape(512, 512, 32, 4, 3, 1, 1)
    with pytest.raises(RuleError, match=r"within the limits of a program: got transforms of \d+ values by LinearShape"):
        cheapest_layer(shape, 1, COUNTED, FREE)


def test_sums_are_under_encryption_where_no_other_plan_is_within_the_limits():
    shape = LinearShape.gemm(49, 768, 2304)
    layer = cheapest_layer(shape, 1, COUNTED, LINKS["local"])
    assert not limits.excess(layer, COUNTED.parameter_set)
    assert layer.column_steps, "sums on shares alone take too many ciphertexts"
    small = cheapest_layer(LinearShape.gemm(49, 192, 576), 1, COUNTED, LINKS["local"])
    assert not small.column_steps, "they stay on shares where that fits"
