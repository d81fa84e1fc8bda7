import pytest
import torch
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.nn.activations import Aespa1d, Aespa2d
from privcirnet.nn.functional.polynomial import aespa_square
from privcirnet.passes.convert import circulant_, dense_state_dict
from tests.nn.networks import with_aespa


def slow(x, b):
    """Training mode on (N, C, H, W), block by block."""
    found = torch.empty_like(x)
    for block in range(x.shape[1] // b):
        part = x[:, block * b : (block + 1) * b]
        one = torch.ones(1)
        scale, shift = aespa_square(one, part.var(correction=0), part.square().var(correction=0), 1e-5)
        found[:, block * b : (block + 1) * b] = (scale * (part + shift)) ** 2
    return found


@pytest.mark.parametrize("b", [1, 2, 4])
def test_training_measures_the_batch(b):
    x = 3 * torch.randn(5, 8, 3, 2)
    assert_close(Aespa2d(8, b)(x), slow(x, b), rtol=1e-4, atol=1e-5)
    tokens = x.flatten(2).transpose(1, 2)
    assert_close(Aespa1d(8, b)(tokens).transpose(1, 2).reshape(x.shape), slow(x, b), rtol=1e-4, atol=1e-5)
    assert_close(Aespa1d(8, b)(x[..., 0, 0]), slow(x[..., :1, :1], b)[..., 0, 0], rtol=1e-4, atol=1e-5)


def test_evaluation_uses_running_averages():
    module, x = Aespa2d(4), 2 * torch.randn(64, 4, 5, 5)
    for _ in range(200):
        trained = module(x)
    module.eval()
    state = {name: value.clone() for name, value in module.state_dict().items()}
    assert_close(module(x), trained, rtol=1e-4, atol=1e-4)
    assert all(torch.equal(module.state_dict()[name], value) for name, value in state.items())
    scale, shift = module.coefficients(module.running_var, module.running_square_var)
    assert_close(module(x), (scale[:, None, None] * (x + shift[:, None, None])) ** 2)


def test_the_block_size_must_divide():
    with pytest.raises(RuleError, match="block size must divide the number of channels: got 3 for 8"):
        Aespa2d(8, 3)


def test_sharing_keeps_the_mode_and_the_means():
    module = Aespa2d(4).eval()
    module.running_var.copy_(torch.tensor([1.0, 3.0, 5.0, 7.0]))
    shared = module.shared_by(2)
    assert shared.running_var.tolist() == [2.0, 6.0]
    assert not shared.training
    assert (shared.num_features, shared.block_size) == (4, 2)


def test_a_dense_copy_has_every_channel_s_values():
    model, dense = circulant_(with_aespa(), {"0": 4, "3": 2, "6": 8}), with_aespa()
    dense.load_state_dict(dense_state_dict(model))
    x = torch.randn(8, 4, 4, 4)
    assert_close(dense(x), model(x), rtol=1e-4, atol=1e-5)
