"""The compiled passes give what torch's operations give, in every layout and on any number of threads."""

import pytest
import torch
from torch.testing import assert_close

from privcirnet.nn.functional import polynomial
from privcirnet.nn.functional.polynomial import batch_square, scaled_square

SEEDED = torch.Generator().manual_seed(0)
LAYOUTS = {
    "maps": (torch.randn(5, 6, 7, 9, generator=SEEDED).contiguous(memory_format=torch.channels_last), 1),
    "tokens": (torch.randn(5, 70, 6, generator=SEEDED), -1),
    "rows": (torch.randn(3, 6, generator=SEEDED), 1),
    "one channel": (torch.randn(40, 1, generator=SEEDED), 1),
}
TOLERANCE = {torch.float32: {"rtol": 1e-5, "atol": 1e-5}, torch.bfloat16: {"rtol": 2**-7, "atol": 2**-7}}


@pytest.fixture(params=[1, 3])
def _threads(request, monkeypatch):
    monkeypatch.setattr(polynomial, "PER_THREAD", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def run(function, dtype, x, *others):
    """Return the results of a function, and the gradients of all that it was given."""
    given = [v.detach().clone(memory_format=torch.preserve_format).requires_grad_() for v in (x, *others)]
    found = function(*given)
    found = found if isinstance(found, tuple) else (found,)
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(v.shape, generator=generator).to(dtype).to(v) for v in found]
    torch.autograd.backward(found, weights)
    return [v.detach() for v in found], [v.grad for v in given]


def same(found, expected, dtype):
    for value, wanted in zip(found, expected, strict=True):
        size = max(1.0, wanted.abs().max().item())
        assert_close(value.double() / size, wanted.double() / size, **TOLERANCE[dtype])


@pytest.mark.slow
@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_compiled_passes_are_torchs(layout, dtype):
    x, axis = LAYOUTS[layout]
    x = x.to(dtype)
    assert polynomial.compiled_for(x, axis)
    scale, shift = torch.randn(2, x.shape[axis], generator=torch.Generator().manual_seed(2))

    def of_means(means, weight):
        return weight / means[2].sqrt(), means[0] * weight + means[1]

    for function, others in [
        (lambda *given: scaled_square(*given, axis), (scale, shift)),
        (lambda *given: batch_square(*given, of_means, axis), (scale,)),
    ]:
        found, gradients = run(function, dtype, x, *others)
        expected, wanted = run(function, dtype, x.double(), *(v.double() for v in others))
        same(found, expected, dtype)
        same(gradients, wanted, dtype)
        assert [v.dtype for v in gradients] == [dtype] + [torch.float32] * len(others)
        assert gradients[0].stride() == x.stride()


def test_a_square_of_a_batch_has_its_gradient_twice():
    x, weight = torch.randn(9, 4, generator=SEEDED).requires_grad_(), torch.ones(4, requires_grad=True)
    y = batch_square(x, weight, lambda means, weight: (weight, means[1]), 1).sum()
    once, again = (torch.autograd.grad(y, (x, weight), retain_graph=True) for _ in range(2))
    assert all(map(torch.equal, once, again))


def test_a_gradient_in_another_layout_is_read_right():
    x, axis = LAYOUTS["maps"]
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    y = scaled_square(x, torch.ones(6), torch.zeros(6), axis)
    y.backward(torch.arange(y.numel(), dtype=torch.float32).reshape(y.shape))  # channels first
    assert_close(x.grad, 2 * x.detach() * torch.arange(y.numel(), dtype=torch.float32).reshape(y.shape))


@pytest.mark.parametrize(
    "x",
    [torch.randn(2, 4, 3, 3), torch.randn(2, 4, dtype=torch.float64), torch.empty(0, 4), torch.randn(2, 4).half()],
    ids=["channels first", "float64", "empty", "float16"],
)
def test_other_values_take_torchs_way(x):
    assert not polynomial.compiled_for(x, 1)


def test_bfloat16_is_rounded_to_the_nearest_even():
    x = torch.tensor([[1.0 + 2**-8], [1.0 + 3 * 2**-8], [float("inf")], [3.389e38]]).sqrt()
    y = scaled_square(x.bfloat16(), torch.ones(1), torch.zeros(1), 1)
    assert_close(y, x.bfloat16().float().square().bfloat16(), rtol=0, atol=0)
