import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, fx
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.nn.functional.circulant import (
    admissible_block_sizes,
    check_block_size,
    check_importance,
    diagonals,
    expand,
    is_circulant,
    project,
)
from tests import tolerances

CASES = [
    pytest.param((p * b, q * b, *kernel), b, id=f"{p}x{q}-blocks-of-{b}-kernel{kernel}")
    for p, q in ((1, 1), (2, 3), (3, 1))
    for b in (1, 2, 3, 4, 8)
    for kernel in ((), (3, 3), (1, 2))
]


def slow_expand(rows: Tensor, b: int) -> Tensor:
    """block[i, j] = w[(i - j) mod b], where the first row says w: w[-m mod b] = row[m]."""
    weight = rows.new_empty(rows.shape[0] * b, *rows.shape[1:])
    for p in range(rows.shape[0]):
        for q in range(rows.shape[1] // b):
            w = {-m % b: rows[p, q * b + m] for m in range(b)}
            for i in range(b):
                for j in range(b):
                    weight[p * b + i, q * b + j] = w[(i - j) % b]
    return weight


def slow_project(weight: Tensor, b: int, importance: Tensor) -> Tensor:
    """Weighted mean of the entries of each circulant diagonal, found one by one."""
    rows = weight.new_empty(weight.shape[0] // b, *weight.shape[1:])
    for p in range(rows.shape[0]):
        for m in range(rows.shape[1]):
            q, j = divmod(m, b)
            places = [(p * b + i, q * b + (j + i) % b) for i in range(b)]
            entries = torch.stack([weight[place] for place in places])
            masses = torch.stack([importance[place] for place in places])
            plain = entries.mean(0)
            rows[p, m] = torch.where(masses.sum(0) > 0, (masses * entries).sum(0) / masses.sum(0), plain)
    return rows


def random_weight(shape: tuple[int, ...], seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def random_importance(weight: Tensor, seed: int = 1) -> Tensor:
    """Non-negative, and zero on about half of the entries, so that some diagonals weigh nothing."""
    return random_weight(tuple(weight.shape), seed, weight.dtype).clamp_min(0)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], int]:
    b = draw(st.sampled_from((1, 2, 4, 8)))
    kernel = draw(st.sampled_from(((), (1, 1), (3, 3))))
    return (b * draw(st.integers(1, 3)), b * draw(st.integers(1, 3)), *kernel), b


seeds = st.integers(0, 2**31)


@pytest.mark.parametrize(("shape", "b"), CASES)
def test_expand_matches_the_definition(shape, b):
    rows = random_weight((shape[0] // b, *shape[1:]))
    weight = expand(rows, b)
    assert weight.is_contiguous()
    assert torch.equal(weight, slow_expand(rows, b))
    assert torch.equal(weight[::b], rows)


@pytest.mark.parametrize(("shape", "b"), CASES)
def test_project_matches_the_definition(shape, b):
    weight = random_weight(shape, dtype=torch.float64)
    for importance in (torch.ones_like(weight), random_importance(weight), torch.zeros_like(weight)):
        magnitude = weight.abs().max().item()
        bound = tolerances.dot_product(torch.float64, 3 * b + 3, magnitude)
        assert_close(project(weight, b, importance), slow_project(weight, b, importance), rtol=0, atol=bound)
    assert_close(project(weight, b), slow_project(weight, b, torch.ones_like(weight)), rtol=0, atol=bound)


@pytest.mark.parametrize("dtype", tolerances.FLOAT_DTYPES)
def test_project_rounds_only_once(dtype):
    weight = random_weight((8, 8), dtype=dtype)
    exact = slow_project(weight.double(), 8, torch.ones(8, 8))
    bound = tolerances.unit_roundoff(dtype) + tolerances.dot_product(torch.float64, 30, 1)
    assert_close(project(weight, 8).double(), exact, rtol=bound, atol=1e-15)


@given(case=shapes(), seed=seeds, dtype=st.sampled_from(tolerances.FLOAT_DTYPES), weighted=st.booleans())
def test_project_inverts_expand_bit_for_bit(case, seed, dtype, weighted):
    shape, b = case
    rows = random_weight((shape[0] // b, *shape[1:]), seed, dtype)
    weight = expand(rows, b)
    assert is_circulant(weight, b)
    assert torch.equal(project(weight, b, random_importance(weight) if weighted else None), rows)


@given(case=shapes(), seed=seeds)
def test_projection_is_the_weighted_least_squares_optimum(case, seed):
    shape, b = case
    weight = random_weight(shape, seed, torch.float64)
    importance = random_importance(weight, seed + 1)

    def loss(rows: Tensor) -> float:
        return (importance * (weight - expand(rows, b)).square()).sum().item()

    rows = project(weight, b, importance)
    least = loss(rows)
    rounding = tolerances.dot_product(torch.float64, weight.numel() + 4, least + 1)
    for size in (1e-3, 1.0):
        assert loss(rows + size * random_weight(tuple(rows.shape), seed + 2, torch.float64)) >= least - rounding
    residual = diagonals(importance * (weight - expand(rows, b)), b).sum(0)
    assert_close(
        residual, torch.zeros_like(residual), rtol=0, atol=tolerances.dot_product(torch.float64, 4 * b, 40 * b)
    )


@pytest.mark.parametrize(("shape", "b"), CASES)
def test_the_gradient_of_a_row_sums_its_b_copies(shape, b):
    rows = random_weight((shape[0] // b, *shape[1:])).requires_grad_()
    outer = torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)
    (expand(rows, b) * outer).sum().backward()
    assert torch.equal(rows.grad, diagonals(outer, b).sum(0))


def test_expand_has_second_derivatives():
    rows = random_weight((2, 4), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda r: expand(r, 2), rows)
    assert torch.autograd.gradgradcheck(lambda r: expand(r, 2), rows)


@pytest.mark.parametrize("kernel", [(), (3, 3)])
def test_expand_compiles_exports_and_traces(kernel):
    class Expand(torch.nn.Module):
        def forward(self, rows: Tensor) -> Tensor:
            return expand(rows, 4)

    rows = random_weight((2, 12, *kernel))
    expected = slow_expand(rows, 4)
    torch.compiler.reset()
    assert torch.equal(torch.compile(Expand(), fullgraph=True, backend="aot_eager")(rows), expected)
    assert torch.equal(torch.export.export(Expand(), (rows,)).module()(rows), expected)
    assert torch.equal(fx.symbolic_trace(Expand())(rows), expected)
    assert torch.equal(torch.vmap(Expand())(torch.stack([rows, -rows])), torch.stack([expected, -expected]))


def test_expand_reads_channels_last_rows():
    rows = random_weight((2, 8, 3, 3)).to(memory_format=torch.channels_last)
    assert torch.equal(expand(rows, 4), slow_expand(rows, 4))


def test_is_circulant_sees_a_single_wrong_bit():
    weight = expand(random_weight((2, 8, 3, 3)), 4)
    assert is_circulant(weight, 4)
    assert not is_circulant(weight, 8)
    weight[5, 2, 1, 1] = torch.nextafter(weight[5, 2, 1, 1], torch.tensor(9.0))
    assert not is_circulant(weight, 4)


def test_inputs_stay_as_they_were():
    weight = random_weight((8, 8))
    importance = random_importance(weight)
    before = weight.clone(), importance.clone()
    project(weight, 4, importance)
    expand(weight, 4)
    is_circulant(weight, 4)
    assert torch.equal(weight, before[0])
    assert torch.equal(importance, before[1])


def test_admissible_block_sizes():
    assert admissible_block_sizes((32, 48, 3, 3)) == (1, 2, 4, 8, 16)
    assert admissible_block_sizes((10, 20)) == (1, 2)
    assert admissible_block_sizes((9, 27), candidates=(3, 9, 2)) == (3, 9)


@pytest.mark.parametrize("b", [0, -2, 4, 16])
def test_a_block_size_that_does_not_divide(b):
    message = rf"block size must divide both weight dimensions: got {b} for \(8, 10\); choose one of 1, 2"
    message += r", or pad the layer \(pad=true\)$" if b == 4 else "$"
    for call in (check_block_size, lambda shape, b: project(torch.zeros(shape), b)):
        with pytest.raises(RuleError, match=message):
            call((8, 10), b)
    with pytest.raises(RuleError, match=message):
        is_circulant(torch.zeros(8, 10), b)


def test_a_vector_has_no_blocks():
    with pytest.raises(RuleError, match=r"output and an input dimension: got shape \(8,\)"):
        check_block_size((8,), 2)


def test_importance_of_another_shape():
    with pytest.raises(RuleError, match=r"importance must have the shape of the weight: got \(2, 8\) for \(8, 8\)"):
        project(torch.zeros(8, 8), 4, torch.ones(2, 8))


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_importance_that_cannot_weigh(bad):
    importance = torch.ones(4, 4)
    importance[2, 1] = bad
    with pytest.raises(RuleError, match="importance must be finite and non-negative"):
        check_importance(torch.zeros(4, 4), importance)
    with pytest.raises(RuleError, match="importance must be finite and non-negative"):
        project(torch.zeros(4, 4), 2, importance)
