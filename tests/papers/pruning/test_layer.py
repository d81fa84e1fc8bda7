"""Pruned layers: what is planned is what an engine does, and the result is the masked layer's."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks.bench.layers import bench_layer
from papers.pruning.layer import DiagonalGroups, PrunedLayer, diagonal_of, pruned_plan
from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import choose
from privcirnet.he.layers.bsgs import Booleans, BsgsPlan
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.planning.cost import Objective
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.planner import plan_layer
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.rlwe.parameters import galois_element
from tests.he.exchange import Party, random_input, random_rows, slow_layer
from tests.he.insecure import insecure_parameters
from tests.he.layer_examples import layers, paper_layer, plans

DENSE = layers().filter(lambda layer: layer.block_size == 1)
MATRICES = st.tuples(st.sampled_from([1, 2, 8, 16]), st.integers(1, 40), st.integers(1, 40))


def some_kept(groups: DiagonalGroups, share: float, seed: int) -> Booleans:
    """Groups at random, one for each output ciphertext at least."""
    scores = np.random.default_rng(seed).random(groups.count)
    kept = scores < share
    for output in range(groups.outputs.max() + 1):
        own = np.flatnonzero(groups.outputs == output)
        kept[own[scores[own].argmin()]] = True
    return kept


def masked_rows(groups: DiagonalGroups, kept: Booleans) -> np.ndarray:
    return random_rows(groups.layer.shape, 1) * kept[groups.weights]


@given(st.data(), MATRICES, st.floats(0, 1))
def test_counts_are_those_of_the_products_that_are_left(
    data: st.DataObject, sizes: tuple[int, int, int], share: float
) -> None:
    """By enumeration: a rotation is needed if a product that is left needs it."""
    whole: BsgsPlan = data.draw(plans(*sizes))
    random = np.random.default_rng(0)
    gone = frozenset(diagonal_of(whole, p) for p in whole.products if random.random() > share)
    left = [p for p in whole.products if diagonal_of(whole, p) not in gone]
    assume({p.target for p in left} == set(range(whole.targets)))
    plan = pruned_plan(whole, gone)
    assert list(plan.products) == left
    assert plan.pmults == len(left)
    babies, parts = {(p.source, p.baby) for p in left}, {(p.target, p.giant) for p in left}
    assert plan.rotated == tuple(sorted(babies))
    assert plan.parts == tuple(sorted(parts))
    giants = 0 if plan.giants_on_shares else sum(giant > 0 for _, giant in parts)
    outputs = len(parts) if plan.giants_on_shares else plan.targets
    assert plan.ciphertexts_out == len(plan.outputs) == outputs
    assert plan.rotations == sum(baby > 0 for _, baby in babies) + giants + outputs * len(plan.fold_rotations)
    assert plan.products_per_sum <= whole.products_per_sum
    assert all(plan.output_terms)


@given(st.data(), MATRICES)
def test_nothing_pruned_is_the_dense_plan(data: st.DataObject, sizes: tuple[int, int, int]) -> None:
    whole: BsgsPlan = data.draw(plans(*sizes))
    plan = pruned_plan(whole, frozenset())
    for name in ("products", "pmults", "parts", "rotated", "outputs", "rotations", "ciphertexts_out", "output_terms"):
        assert getattr(plan, name) == getattr(whole, name), name


@given(DENSE, st.integers(0, 10**6))
def test_every_weight_is_in_the_group_of_its_plaintext(layer: SpectralLayer, place: int) -> None:
    """One weight alone makes the plaintext of its group, and no other of the first piece, differ from zero."""
    groups = DiagonalGroups(layer)
    assert groups.weights.shape == layer.shape.weight_shape(1)
    assert set(np.unique(groups.weights)) <= set(range(groups.count))
    t = insecure_parameters(layer.ring_degree, layer.transform_lengths, 30).plain_modulus
    rows = np.zeros(groups.weights.shape, dtype=np.int64)
    rows.flat[place % rows.size] = 1
    first, own = groups.diagonals[groups.weights.flat[place % rows.size]]
    piece = next(i for i, placed in enumerate(layer.placed) if placed.first_group == first)
    made = [key[1:] for key, _ in layer.plaintexts(layer.spectrum(rows, t), t) if key[0] == piece]
    assert made == [(own.target, own.giant, own.baby, own.source)]


def assert_masked(layer: PrunedLayer, rows: np.ndarray) -> None:
    """Both parties' result is the masked layer's, and the engine did what was planned."""
    shape = layer.shape
    bias, x = np.arange(shape.out_channels) * 1000 - 5, random_input(shape)
    parameters = insecure_parameters(layer.ring_degree, layer.transform_lengths)
    party = Party(layer, rows, bias, parameters)
    assert (party.run(x) == slow_layer(shape, 1, rows, bias, x)).all()
    assert party.server.counts["rotate"] == layer.rotations
    t = parameters.plain_modulus
    by_chance = layer.pmults - len(list(layer.plaintexts(layer.spectrum(rows, t), t)))
    assert party.server.counts["pmult"] == layer.pmults - by_chance
    assert by_chance <= 1 + layer.pmults // 50
    assert party.server.elements == {galois_element(step, layer.ring_degree) for step in layer.column_steps}


@given(DENSE, st.floats(0, 1), st.integers(0, 99))
def test_an_encrypted_pruned_layer_is_the_masked_layer(layer: SpectralLayer, share: float, seed: int) -> None:
    groups = DiagonalGroups(layer)
    kept = some_kept(groups, share, seed)
    try:
        pruned = groups.without(layer.pieces, kept)
    except RuleError:  # a piece with fewer lanes than the first one's has more outputs
        assume(False)
    assert (groups.kept_of(kept[groups.weights]) == kept).all()
    assert pruned.pmults <= layer.pmults
    assert pruned.rotations <= layer.rotations
    assert_masked(pruned, masked_rows(groups, kept))


SHAPES = [
    LinearShape.gemm(65, 24, 16),
    LinearShape(6, 6, 16, 24, 3, 2, 1),
    LinearShape(5, 5, 12, 12, 3, 1, 1, groups=3),
]


@pytest.mark.parametrize("shape", SHAPES, ids=["tokens", "stride", "groups"])
@pytest.mark.parametrize("sums", ["any", "encrypted"])
def test_every_plan_can_be_pruned(shape: LinearShape, sums: str) -> None:
    goal = Objective(replace(COUNTED, ring_degree=256), LINKS["local"], sums)
    for _, layer in plan_layer(shape, 1, goal).candidates[:40:8]:
        assert isinstance(layer, SpectralLayer)
        groups = DiagonalGroups(layer)
        kept = some_kept(groups, 0.3, 0)
        assert_masked(groups.without(layer.pieces, kept), masked_rows(groups, kept))


@pytest.mark.parametrize("engine", ["kernel", "tenseal"])
@pytest.mark.parametrize(
    "shape", [LinearShape.gemm(65, 64, 96), LinearShape(8, 8, 32, 16, 3, 2, 1)], ids=["gemm", "conv"]
)
def test_real_engines_do_what_is_planned(shape: LinearShape, engine: str) -> None:
    groups = DiagonalGroups(paper_layer(shape, 1, 8192))
    kept = some_kept(groups, 0.2, 1)
    layer = groups.without(groups.layer.pieces, kept)
    assert 0 < layer.rotations < groups.layer.rotations
    assert 0 < layer.pmults < groups.layer.pmults // 2
    rows, x = masked_rows(groups, kept), random_input(shape)
    party = Party(layer, rows, np.zeros(shape.out_channels, int), choose(layer.transform_lengths, 41), engine=engine)
    assert (party.run(x) == slow_layer(shape, 1, rows, np.zeros(shape.out_channels, int), x)).all()
    assert (party.server.counts["rotate"], party.server.counts["pmult"]) == (layer.rotations, layer.pmults)


def test_a_benchmark_of_a_pruned_layer_needs_pruned_weights() -> None:
    """The plan leaves products out, so weights that are not pruned give another result."""
    groups = DiagonalGroups(paper_layer(LinearShape.gemm(16, 32, 32), 1, 8192))
    layer = groups.without(groups.layer.pieces, some_kept(groups, 0.3, 0))
    assert bench_layer(layer, "cleartext", 41).max_abs_error > 0


def test_a_rule_for_each_mistake() -> None:
    plan = BsgsPlan(8, 8, 8, 2)
    with pytest.raises(RuleError, match=r"pruned diagonals must be the plan's: got \(0, 8, 0\) of \(1, 8, 1\); group"):
        pruned_plan(plan, frozenset({(0, 8, 0)}))
    everything = frozenset(diagonal_of(plan, p) for p in plan.products)
    with pytest.raises(RuleError, match=r"an output ciphertext must keep a diagonal: got none for \[0\]; prune fewer"):
        pruned_plan(plan, everything)
    with pytest.raises(RuleError, match=r"only dense layers are pruned by diagonals: got b = 2; plan the layer"):
        DiagonalGroups(paper_layer(LinearShape.gemm(16, 32, 32), 2, 8192))
