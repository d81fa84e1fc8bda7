import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.errors import RuleError
from privcirnet.nn.functional.quantize import (
    binary_steps,
    log_step_for,
    quantize_activation,
    quantize_binary,
    quantize_learned,
    quantize_weight,
)

DTYPES = (torch.float32, torch.float64)


def levels(bits: int, signed: bool) -> int:
    return 2 ** (bits - 1) - 1 if signed else 2**bits - 1


@given(st.floats(2.0**-60, 2.0**60), st.integers(2, 16), st.booleans())
def test_the_step_is_the_finest_that_fits(largest, bits, signed):
    log_step = log_step_for(largest, bits, signed=signed)
    reach = Fraction(2) ** log_step * levels(bits, signed)
    assert reach / 2 < Fraction(largest) <= reach


@pytest.mark.parametrize("bits", [2, 8, 16])
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("log_step", [-30, -1, 0, 5])
def test_the_step_at_the_edge_of_a_range(bits, signed, log_step):
    edge = math.ldexp(levels(bits, signed), log_step)
    assert log_step_for(edge, bits, signed=signed) == log_step
    assert log_step_for(math.nextafter(edge, 0), bits, signed=signed) == log_step
    assert log_step_for(math.nextafter(edge, math.inf), bits, signed=signed) == log_step + 1


def test_a_step_exists_where_all_values_are_zero():
    assert log_step_for(0.0, 8) == log_step_for(2.0**-60, 8)


@pytest.mark.parametrize("largest", [math.inf, math.nan])
def test_values_that_are_not_finite_have_no_step(largest):
    with pytest.raises(RuleError, match=r"values must be finite to be quantized: got (inf|nan)"):
        log_step_for(largest, 8)


def nearest_in_range(value: float, log_step: int, limit: int) -> float:
    """Ties to even, which `round` of a fraction does."""
    return math.ldexp(min(max(round(Fraction(value) / Fraction(2) ** log_step), -limit), limit), log_step)


@given(st.lists(st.floats(-100, 100, width=32), min_size=1), st.integers(-6, 3), st.integers(2, 8))
def test_weights_go_to_the_nearest_step_in_range(values, log_step, bits):
    expected = [nearest_in_range(value, log_step, levels(bits, True)) for value in values]
    for dtype in DTYPES:
        assert quantize_weight(torch.tensor(values, dtype=dtype), log_step, bits).tolist() == expected


def test_weights_at_ties_and_at_the_edge():
    weight = torch.tensor([0.5, 1.5, 2.5, -0.5, 3.4, 3.6, -3.6, 4.0])
    assert quantize_weight(weight, 0, 3).tolist() == [0, 2, 2, 0, 3, 3, -3, 3]


def test_gradients_of_weights_pass_within_the_range_and_stop_outside():
    weight = torch.tensor([0.2, -3.4, 3.6, 100.0], requires_grad=True)
    (quantize_weight(weight, 0, 3) * torch.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert weight.grad.tolist() == [1, 2, 0, 0]


def floor_of_half_more(value: float, log_step: int) -> float:
    return math.ldexp(math.floor(Fraction(value) / Fraction(2) ** log_step + Fraction(1, 2)), log_step)


@given(st.lists(st.floats(-1000, 1000, width=32), min_size=1), st.integers(-8, 8))
def test_activations_go_to_the_nearest_step_ties_up(values, log_step):
    expected = [floor_of_half_more(value, log_step) for value in values]
    for dtype in DTYPES:
        for grad in (False, True):
            x = torch.tensor(values, dtype=dtype, requires_grad=grad)
            assert quantize_activation(x, log_step).tolist() == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(0.5, 1), (-0.5, 0), (1.5, 2), (-1.5, -1), (0.49999997, 0), (-0.50000003, -1), (1e-30, 0)]
)
def test_activations_at_ties_and_just_beside_them(value, expected):
    assert quantize_activation(torch.tensor([value]), 0).item() == expected


@pytest.mark.parametrize("stochastic", [False, True])
def test_gradients_of_activations_pass_straight_through(stochastic):
    x = torch.tensor([0.2, -3.4, 1e6], requires_grad=True)
    (quantize_activation(x, -2, stochastic=stochastic) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [1, 2, 3]


@pytest.mark.parametrize("stochastic", [False, True])
def test_values_that_carry_a_gradient_are_on_the_grid_too(stochastic):
    """The step back to the input must not cost a rounding of its own."""
    torch.manual_seed(0)
    x = (20 * torch.randn(100_000)).requires_grad_()
    scaled = quantize_activation(x, 2, stochastic=stochastic).detach() / 4
    assert torch.equal(scaled, scaled.round())


def learned_number(value: float = 0.0) -> torch.Tensor:
    return torch.tensor(value, requires_grad=True)


@given(st.lists(st.floats(-1000, 1000, width=32), min_size=1), st.integers(-8, 8), st.integers(2, 8), st.booleans())
def test_learned_steps_round_and_clip(values, log_step, bits, signed):
    highest = levels(bits, signed)
    lowest = -highest if signed else 0
    reach = math.ldexp(lowest, log_step), math.ldexp(highest, log_step)
    expected = [min(max(floor_of_half_more(value, log_step), reach[0]), reach[1]) for value in values]
    for dtype in DTYPES:
        x = torch.tensor(values, dtype=dtype, requires_grad=True)
        assert quantize_learned(x, learned_number(), log_step, (lowest, highest)).tolist() == expected


CLIPPED = [100.0, -100.0, 8.5, -8.5]
INSIDE = [0.2, 0.7, -3.4, 6.9, -6.9, 3.0, 0.0]


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("log_step", [-3, 0, 2])
@pytest.mark.parametrize("number", [*INSIDE, *CLIPPED])
def test_gradients_of_learned_steps(number, log_step, stochastic):
    """The formulae of the docstring, with the integer that was really drawn."""
    torch.manual_seed(0)
    step = 2.0**log_step
    x, learned = torch.tensor(number * step, requires_grad=True), learned_number(5.0)
    value = quantize_learned(x, learned, log_step, (-7, 7), stochastic=stochastic)
    (3 * value).backward()
    integer = value.item() / step
    assert abs(integer) <= 7
    assert abs(integer - number) < 1 or number in CLIPPED
    expected = integer if number in CLIPPED else integer - number
    assert learned.grad.item() == pytest.approx(3 * step * math.log(2) * expected, rel=1e-4, abs=1e-4 * step)
    assert x.grad.item() == (0 if number in CLIPPED else 3)


def test_a_square_has_no_values_below_zero():
    x, learned = torch.tensor([-0.3, -2.0, 15.0, 20.0], requires_grad=True), learned_number()
    value = quantize_learned(x, learned, 0, (0, 15))
    value.sum().backward()
    assert value.tolist() == [0, 0, 15, 15]
    assert x.grad.tolist() == [1, 0, 1, 0]
    assert learned.grad.item() == pytest.approx(math.log(2) * (0.3 + 0 + 0 + 15))


@pytest.mark.parametrize("bits", [3, 4, 6])
@pytest.mark.parametrize("start", [-4, 3])
def test_the_gradient_leads_to_the_step_of_least_error(bits, start):
    """From too fine and from too coarse a step alike; exhaustive search is the oracle."""
    torch.manual_seed(0)
    x, limits = torch.randn(20_000), (-levels(bits, True), levels(bits, True))

    def error(learned: torch.Tensor, log_step: int) -> torch.Tensor:
        return (quantize_learned(x, learned, log_step, limits) - x).square().mean()

    best = min(range(-9, 4), key=lambda log_step: error(learned_number(), log_step).item())
    learned = learned_number(float(best + start))
    optimizer = torch.optim.Adam([learned], lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        error(learned, round(learned.item())).backward()
        optimizer.step()
    assert abs(learned.item() - best) <= 0.5 + 0.05


def test_one_bit_keeps_signs_and_passes_gradients_up_to_twice_a_step():
    weight = torch.tensor([[0.6, -1.9], [2.1, -2.1], [0.0, 0.4]], requires_grad=True)
    held = quantize_binary(weight, 0)
    assert held.tolist() == [[1, -1], [1, -1], [0, 1]]
    held.sum().backward()
    assert weight.grad.tolist() == [[1, 1], [0, 0], [1, 1]]


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=9))
def test_one_bit_s_steps_are_the_nearest_powers_within_the_bits(magnitudes):
    steps = binary_steps(torch.tensor(magnitudes, dtype=torch.float64)).tolist()
    assert steps == [max(round(math.log2(magnitude)), max(steps) - 6) for magnitude in magnitudes]


def test_steps_of_weights_that_are_not_finite():
    with pytest.raises(RuleError, match="values must be finite to be quantized"):
        binary_steps(torch.tensor([1.0, torch.inf]))
