import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.errors import RuleError
from privcirnet.he import cost, plan
from privcirnet.he.shape import LinearShape
from privcirnet.he.linear import LinearLayer
from privcirnet.he.plan import LinearPlan
from tests.he.exchange import Party, random_input, random_rows, slow_layer
from tests.he.insecure import insecure_parameters

PAPER = [
    # PrivCirNet, table 4; b = 1 is Bolt's row.
    (LinearShape.gemm(512, 768, 3072), 1, 528, 147456),
    (LinearShape.gemm(512, 768, 3072), 8, 48, 18432),
    (LinearShape(16, 16, 128, 128, 3, 1, 1), 8, 8, 128),
    # he.md 2.2
    (LinearShape.gemm(256, 192, 576), 1, 96, 3456),
    (LinearShape.gemm(256, 192, 576), 2, 60, 1728),
    (LinearShape.gemm(256, 192, 576), 4, 36, 864),
    (LinearShape.gemm(256, 192, 576), 8, 18, 432),
    (LinearShape.gemm(64, 256, 512), 8, 18, 128),
    (LinearShape(16, 16, 64, 64, 3, 1, 1), 8, 4, 32),
    (LinearShape(8, 8, 64, 64, 3, 1, 1), 4, 6, 16),
]


@pytest.mark.parametrize(
    ("shape", "b", "rotations", "pmults"), PAPER, ids=lambda v: str(v) if isinstance(v, int) else ""
)
def test_counts_of_the_papers(shape: LinearShape, b: int, rotations: int, pmults: int) -> None:
    found = cost.paper_layer(shape, b, 8192).plan
    assert (found.rotations, found.pmults) == (rotations, pmults)


@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 20), st.integers(1, 20))
def test_formula_where_blocks_fill_their_ciphertexts(lanes: int, p: int, q: int) -> None:
    """he.md 2.2: c_in c_out G products, c_in (B - 1) + c_out (G / B - 1) rotations."""
    p, q = p * lanes, q * lanes
    for baby in [1 << i for i in range(lanes.bit_length())]:
        found = LinearPlan(lanes, p, q, baby, folds_on_shares=False)
        assert found.pmults == p * q // lanes
        assert found.rotations == p // lanes * (baby - 1) + q // lanes * (lanes // baby - 1)


@given(st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 40), st.integers(1, 40))
def test_products_meet_every_pair_of_blocks_once(lanes: int, p: int, q: int) -> None:
    """Every (output block, input block) is in exactly one diagonal, and no product is without a block."""
    found = LinearPlan(lanes, p, q, 1)
    pairs = []
    for product in found.products:
        _, out_block, in_block = found.blocks_of(product.target, product.giant + product.baby, product.source)
        assert len(out_block)
        pairs += zip(out_block.tolist(), in_block.tolist(), strict=True)
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == set(itertools.product(range(q), range(p)))


@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 20), st.integers(1, 20))
def test_candidates_are_all_plans_and_the_paper_s_is_least(lanes: int, p: int, q: int) -> None:
    found = plan.candidates(lanes, p, q)
    assert len(found) == len(set(found))
    assert {c.baby_steps for c in found} == {1 << i for i in range(found[0].diagonals.bit_length())}
    assert all(c.pmults == found[0].pmults for c in found)
    kept = [c for c in found if not c.giants_on_shares]
    paper = plan.paper_plan(lanes, p, q)
    assert paper.rotations == min(c.rotations for c in kept) + len(paper.fold_rotations)
    assert min(c.rotations for c in found) <= min(c.rotations for c in kept)


@st.composite
def layers(draw: st.DrawFn) -> LinearLayer:
    """A GEMM with b = 1 at a toy ring degree: p = C, q = K, any number of lanes."""
    width = draw(st.sampled_from([2, 4, 8, 16, 64]))
    p, q = draw(st.integers(1, 20)), draw(st.integers(1, 20))
    diagonals = LinearPlan(64 // width, p, q, 1).diagonals
    baby = draw(st.sampled_from([1 << i for i in range(diagonals.bit_length())]))
    tokens = draw(st.integers(width // 2 + (width > 2), width))
    return LinearLayer(LinearShape.gemm(tokens, p, q), 1, 64, baby, draw(st.booleans()), draw(st.booleans()))


@given(layers())
def test_executing_a_plan(layer: LinearLayer) -> None:
    """The clear-text engine's result is the matrix product's, its counts the plan's, and every key is used."""
    shape, found = layer.shape, layer.plan
    rows, bias, x = random_rows(shape, 1), np.arange(shape.out_channels) - 3, random_input(shape)
    party = Party(layer, rows, bias, insecure_parameters(64))
    assert (party.run(x) == slow_layer(shape, 1, rows, bias, x)).all()
    counts = party.server.counts
    assert counts["rotate"] == found.rotations
    assert counts["pmult"] == found.pmults
    assert counts["from_ntt"] == len(found.parts)
    assert counts["to_ntt"] == len({(p.source, p.baby) for p in found.products})
    assert party.server.steps == layer.column_steps
    assert found.products_per_sum >= max(
        sum((p.target, 0 if not layer.giants_on_shares else p.giant) == output for p in found.products)
        for output in found.outputs
    )


@pytest.mark.parametrize("baby", [0, -1, 3, 8])
def test_baby_steps_must_divide(baby: int) -> None:
    with pytest.raises(RuleError, match=f"baby steps must divide the number of diagonals: got {baby} for 4"):
        LinearPlan(4, 8, 8, baby)


def test_sums_on_shares_trade_rotations_for_ciphertexts() -> None:
    rotated = LinearPlan(16, 16, 4, 2, giants_on_shares=False, folds_on_shares=False)
    assert (rotated.fold, rotated.fold_rotations, rotated.rotations, rotated.ciphertexts_out) == (
        4,
        (8, 4),
        1 + 1 + 2,
        1,
    )
    on_shares = LinearPlan(16, 16, 4, 2, giants_on_shares=True, folds_on_shares=True)
    assert (on_shares.rotations, on_shares.ciphertexts_out) == (1, 2)
    assert all(len(terms) == 2 * 4 for terms in on_shares.output_terms)
