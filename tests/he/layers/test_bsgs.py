import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.errors import RuleError
from privcirnet.he.layers import bsgs
from privcirnet.he.layers.bsgs import BsgsPlan, Product, powers_of_two
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_pieces import Piece
from privcirnet.he.rlwe.parameters import galois_element
from tests.he.exchange import Party, random_input, random_rows, slow_layer
from tests.he.insecure import insecure_parameters
from tests.he.layer_examples import paper_layer, plans

N = 8192
GEMM, CONV = LinearShape.gemm(256, 192, 576), LinearShape(16, 16, 128, 128, 3, 1, 1)
PAPER = [
    # PrivCirNet, table 4; b = 1 is Bolt's row, and NeuJeans' of the convolution.
    *((LinearShape.gemm(512, 768, 3072), *row) for row in ((1, 528, 147456), (8, 48, 18432))),
    *((CONV, *row) for row in ((1, 48, 1024), (8, 8, 128))),
    # docs/mathematics.md, "Lanes and counts"
    *((GEMM, *row) for row in ((1, 96, 3456), (2, 60, 1728), (4, 36, 864), (8, 18, 432))),
]


@pytest.mark.parametrize(
    ("shape", "b", "rotations", "pmults"), PAPER, ids=lambda v: str(v) if isinstance(v, int) else ""
)
def test_counts_of_the_papers(shape: LinearShape, b: int, rotations: int, pmults: int) -> None:
    found = paper_layer(shape, b, N)
    assert (found.rotations, found.pmults) == (rotations, pmults)


@st.composite
def any_plans(draw: st.DrawFn) -> BsgsPlan:
    lanes, blocks = draw(st.sampled_from([1, 2, 4, 8, 16, 32])), st.integers(1, 8) | st.integers(1, 40)
    return draw(plans(lanes, draw(blocks), draw(blocks)))


def enumerated(found: BsgsPlan) -> list[Product]:
    """Every product that meets a block, by trying them all."""
    everything = itertools.product(
        range(found.targets), range(found.giant_steps), range(found.baby_steps), range(found.ciphertexts_in)
    )
    return [
        Product(target, giant, baby, source)
        for target, giant, baby, source in everything
        if found.blocks_of(target, giant * found.baby_steps + baby, source)[0].size
    ]


@given(any_plans())
def test_closed_forms_are_the_enumerated_counts(found: BsgsPlan) -> None:
    products = enumerated(found)
    rotated = sorted({(p.source, p.baby) for p in products})
    parts = sorted({(p.target, p.giant) for p in products})
    assert found.products == tuple(products)
    assert found.pmults == len(products)
    assert sorted(found.rotated) == rotated
    assert found.parts == tuple(parts)
    outputs = parts if found.giants_on_shares else sorted({(target, 0) for target, _ in parts})
    assert found.outputs == tuple(outputs)
    assert (found.ciphertexts_in, found.ciphertexts_out) == (-(-found.blocks_in // found.lanes), len(outputs))
    doublings = 0 if found.folds_on_shares else found.fold.bit_length() - 1
    giants = 0 if found.giants_on_shares else sum(giant > 0 for _, giant in parts)
    assert found.rotations == sum(baby > 0 for _, baby in rotated) + giants + doublings * len(outputs)


@given(any_plans())
def test_any_plan_is_the_matrix_product(found: BsgsPlan) -> None:
    check_product(found)
    summands = max(Counter((p.target, p.giant * found.giants_on_shares) for p in found.products).values())
    folds = 1 if found.folds_on_shares else found.fold
    assert summands * folds <= found.products_per_sum <= found.ciphertexts_in * found.diagonals * folds


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_every_plan_of_small_matrices(lanes: int) -> None:
    """Exhaustive: more copies, or fewer lanes, than blocks, and neither."""
    for p, q in itertools.product((1, 2, 3, 4, 7), repeat=2):
        for on_shares in (False, True):
            for found in bsgs.candidates(lanes, p, q, on_shares=on_shares):
                check_product(found)


def check_product(found: BsgsPlan) -> None:
    """Every pair of blocks meets once, however many copies; and no lane counts twice."""
    pairs: list[tuple[int, int]] = []
    for product in found.products:
        diagonal = product.giant * found.baby_steps + product.baby
        lane, out_block, in_block = found.blocks_of(product.target, diagonal, product.source)
        assert lane.size == np.unique(lane).size
        pairs += zip(out_block.tolist(), in_block.tolist(), strict=True)
    assert Counter(pairs) == Counter(itertools.product(range(found.blocks_out), range(found.blocks_in)))
    places = [place for terms in found.output_terms for place in terms]
    assert len(places) == len(set(places))
    weight = np.arange(1, found.blocks_out * found.blocks_in + 1).reshape(found.blocks_out, -1) ** 2
    x = np.arange(found.blocks_in) + 100
    assert (on_bare_lanes(found, weight, x) == weight @ x).all()


def on_bare_lanes(found: BsgsPlan, weight: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The module's formula lane by lane: numbers in place of ciphertexts, both parties in one."""
    inputs = np.where(found.input_blocks() < 0, 0, x[found.input_blocks()])
    sums = {output: np.zeros(found.lanes, dtype=np.int64) for output in found.outputs}
    for product in found.products:
        turn = product.giant * found.baby_steps
        lane, out_block, in_block = found.blocks_of(product.target, turn + product.baby, product.source)
        diagonal = np.zeros(found.lanes, dtype=np.int64)
        diagonal[lane] = weight[out_block, in_block]
        result = np.roll(diagonal, turn) * np.roll(inputs[product.source], -product.baby)
        if found.giants_on_shares:
            sums[product.target, product.giant] += result
        else:
            sums[product.target, 0] += np.roll(result, -turn)
    sent = [sums[output] for output in found.outputs]
    for step in found.fold_rotations:
        sent = [lanes + np.roll(lanes, -step) for lanes in sent]
    return np.array([sum(sent[index][lane] for index, lane in terms) for terms in found.output_terms])


@st.composite
def gemms(draw: st.DrawFn) -> SpectralLayer:
    """A GEMM with b = 1 at a toy ring degree in one piece: p = C, q = K, any number of lanes."""
    lanes = draw(st.sampled_from([1, 4, 8, 16, 32]))
    found = draw(plans(lanes, draw(st.integers(1, 20)), draw(st.integers(1, 20))))
    tokens = draw(st.integers(1, 64 // lanes))
    shape = LinearShape.gemm(tokens, found.blocks_in, found.blocks_out)
    choices = found.baby_steps, found.copies, found.giants_on_shares, found.folds_on_shares
    return SpectralLayer(shape, 1, 64, (1, 1), (Piece(1, tokens, lanes, *choices),))


@given(gemms())
def test_executing_a_plan(layer: SpectralLayer) -> None:
    """The clear-text engine's result is the matrix product's, its counts the plan's, and every key is used."""
    shape, found = layer.shape, layer.placed[0].plan
    rows, bias, x = random_rows(shape, 1), np.arange(shape.out_channels) - 3, random_input(shape)
    party = Party(layer, rows, bias, insecure_parameters(64))
    assert (party.run(x) == slow_layer(shape, 1, rows, bias, x)).all()
    counts = party.server.counts
    assert counts["rotate"] == layer.rotations == found.rotations
    assert counts["pmult"] == layer.pmults == found.pmults
    assert counts["add"] == found.pmults + (len(found.fold_rotations) - 1) * found.ciphertexts_out
    assert counts["from_ntt"] == len(found.parts)
    assert counts["to_ntt"] == len(found.rotated)
    assert party.server.elements == {galois_element(step, layer.ring_degree) for step in layer.column_steps}
    assert layer.column_steps == {step * (64 // found.lanes) // 2 for step in found.rotation_steps}


@given(st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 20), st.integers(1, 20))
def test_candidates_are_all_plans(lanes: int, p: int, q: int) -> None:
    """Of each pair that differs only in where nothing is to be summed, one."""
    found = bsgs.candidates(lanes, p, q, on_shares=True)
    assert len(found) == len(set(found))
    for copies in bsgs.copy_counts(lanes, p, q):
        diagonals = BsgsPlan(lanes, p, q, 1, copies).diagonals
        for baby, giants in itertools.product(powers_of_two(diagonals), (False, True)):
            assert BsgsPlan(lanes, p, q, baby, copies, giants_on_shares=giants and baby < diagonals) in found
    counted = bsgs.candidates(lanes, p, q, on_shares=False)
    assert [c for c in counted if c.giants_on_shares or c.folds_on_shares] == []
    assert {(c.copies, c.baby_steps) for c in counted} == {(c.copies, c.baby_steps) for c in found}
    assert len(counted) == len(set(counted))


@pytest.mark.parametrize(
    ("lanes", "p", "q", "allowed"),
    [(16, 16, 16, [1]), (16, 4, 4, [1, 2, 4]), (16, 8, 2, [1, 2]), (16, 3, 3, [1, 2, 4]), (8, 1, 1, [1])],
)
def test_copies_fit_spare_lanes_and_divide_the_diagonals(lanes: int, p: int, q: int, allowed: list[int]) -> None:
    assert bsgs.copy_counts(lanes, p, q) == allowed
    for copies in (-1, 0, 1, 2, 3, 4, 5, 8, 16, 10**30):
        if copies in allowed:
            assert BsgsPlan(lanes, p, q, 1, copies).diagonals * copies == BsgsPlan(lanes, p, q, 1).diagonals
        else:
            with pytest.raises(RuleError, match=f"copies must be a power of two .* got {copies} of"):
                BsgsPlan(lanes, p, q, 1, copies)


def test_steps_and_lanes_that_do_not_divide() -> None:
    for baby in (0, -1, 3, 8, 10**30):
        with pytest.raises(RuleError, match=f"baby steps must divide .*: got {baby} for 4"):
            BsgsPlan(4, 8, 8, baby)
    for lanes in (0, -1, -4, 3, 12):
        with pytest.raises(RuleError, match=f"lanes must be a power of two: got {lanes};"):
            BsgsPlan(lanes, 8, 8, 1)


def test_counting_does_not_take_time_with_the_count() -> None:
    """A planner asks for the counts of plans with hundreds of millions of products."""
    large = BsgsPlan(4096, 1 << 20, 1 << 20, 64)
    assert (large.ciphertexts_in, large.targets, large.diagonals) == (256, 256, 4096)
    assert (large.pmults, large.rotations) == (1 << 28, 256 * 63 + 256 * 63)
