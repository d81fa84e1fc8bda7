import pytest
import torch
from torch import nn
from torch.testing import assert_close

from privcirnet.nn.functional.batch_norm import block_norm


def slow(x, gamma, beta, b, eps):
    """Batch norm of the reshaped tensor."""
    n, c, h, w = x.shape
    flat = x.reshape(n, c // b, b * h, w)
    y = nn.functional.batch_norm(flat, None, None, gamma, beta, training=True, eps=eps).reshape(x.shape)
    dims = (0, 2, 3)
    return y, flat.mean(dims), flat.var(dims)


@pytest.mark.parametrize("b", [1, 2, 8])
@pytest.mark.parametrize("innermost", [False, True])
@pytest.mark.parametrize("shape", [(3, 8, 5, 4), (2, 8, 1, 1), (4, 16, 3, 3)])
def test_it_is_batch_norm_of_the_reshaped_tensor(b, innermost, shape):
    torch.manual_seed(0)
    made = 2 * torch.randn(shape, dtype=torch.float64) + torch.arange(shape[1])[:, None, None]
    if innermost:
        made = made.contiguous(memory_format=torch.channels_last)
    weights = torch.randn(shape[1] // b, dtype=torch.float64), torch.randn(shape[1] // b, dtype=torch.float64)
    upstream, found = torch.randn(shape, dtype=torch.float64), []
    for function in (block_norm, slow):
        leaves = [value.clone().requires_grad_() for value in (made, *weights)]
        y, mean, var = function(*leaves, b, 1e-3)
        y.backward(upstream)
        found.append([y, mean, var, *(leaf.grad for leaf in leaves)])
    for own, expected in zip(*found, strict=True):
        assert_close(own, expected, rtol=1e-9, atol=1e-9)
    if innermost and shape[2] > 1:
        assert found[0][0].is_contiguous(memory_format=torch.channels_last)
        assert found[0][3].is_contiguous(memory_format=torch.channels_last)


def test_gradients_by_differences():
    x = torch.randn(3, 4, 2, 2, dtype=torch.float64, requires_grad=True)
    gamma, beta = (torch.randn(2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda *values: block_norm(*values, 2, 1e-3)[0], (x, gamma, beta))


@pytest.mark.parametrize("b", [1, 2, 8])
@pytest.mark.parametrize("innermost", [False, True])
def test_bfloat16_is_float32_rounded(b, innermost):
    x = torch.randn(8, 16, 6, 5).bfloat16() * 3 + 1
    dy = torch.randn(8, 16, 6, 5).bfloat16()
    if innermost:
        x, dy = (value.contiguous(memory_format=torch.channels_last) for value in (x, dy))
    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        values = x.to(dtype).requires_grad_()
        gamma, beta = torch.linspace(0.5, 2, 16 // b).requires_grad_(), torch.zeros(16 // b).requires_grad_()
        y, mean, var = block_norm(values, gamma, beta, b, 1e-5)
        y.backward(dy.to(dtype))
        assert {value.dtype for value in (mean, var, gamma.grad, beta.grad)} == {torch.float32}
        assert y.dtype == values.grad.dtype == dtype
        assert not innermost or y.is_contiguous(memory_format=torch.channels_last)
        found[dtype] = [y, mean, var, values.grad, gamma.grad, beta.grad]
    for narrow, wide in zip(*[found[dtype] for dtype in (torch.bfloat16, torch.float32)], strict=True):
        assert_close(narrow.float(), wide, rtol=2**-6, atol=2**-6)
    assert_close(found[torch.bfloat16][1], found[torch.float32][1], rtol=1e-5, atol=1e-5)
