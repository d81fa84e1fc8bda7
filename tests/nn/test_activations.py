import pytest
import torch
from torch import nn
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.functional.polynomial import aespa_square
from privcirnet.nn.activations import Aespa1d, Aespa2d, Square
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.convert import circulant_, dense_state_dict, fuse


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


def test_the_output_keeps_its_size_whatever_the_input_s():
    outputs = [Aespa2d(4)(size * torch.randn(64, 4, 8, 8)).std().item() for size in (0.1, 1.0, 30.0)]
    assert max(outputs) < 1.1 * min(outputs)


def test_the_block_size_must_divide():
    with pytest.raises(RuleError, match="block size must divide the number of channels: got 3 for 8"):
        Aespa2d(8, 3)


def network():
    layers = [nn.Conv2d(4, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), Aespa2d(8)]
    head = [nn.Conv2d(8, 8, 1), Aespa2d(8), nn.Flatten(), nn.Linear(8 * 16, 8), Aespa1d(8), nn.Linear(8, 4)]
    model = nn.Sequential(*layers, *head)
    for _ in range(20):
        model(2 * torch.randn(16, 4, 4, 4) + 0.5)
    for module in model.modules():
        if isinstance(module, Aespa2d | Aespa1d):
            nn.init.normal_(module.log_gamma, std=0.3)
    return model.eval()


@pytest.mark.parametrize("plan", [{}, {"0": 4, "3": 2, "6": 8}], ids=["dense", "circulant"])
def test_fusing_leaves_squares(plan):
    torch.manual_seed(0)
    model, x = network(), torch.randn(8, 4, 4, 4)
    circulant_(model, plan)
    assert [model[i].b for i in (2, 4, 7)] == [plan.get(name, 1) for name in ("0", "3", "6")]
    fused = fuse(model)
    kinds = [type(m) for m in fused.modules() if not list(m.children())]
    assert kinds.count(Square) == 3
    assert not {Aespa2d, Aespa1d, nn.BatchNorm2d} & set(kinds)
    assert {name: block_size_of(fused.get_submodule(name)) for name in plan} == plan
    assert_close(fused(x), model(x), rtol=1e-3, atol=1e-4)


def test_sharing_keeps_the_mode_and_the_means():
    module = Aespa2d(4).eval()
    module.running_var.copy_(torch.tensor([1.0, 3.0, 5.0, 7.0]))
    shared = module.shared_by(2)
    assert shared.running_var.tolist() == [2.0, 6.0]
    assert not shared.training
    assert (shared.num_features, shared.b) == (4, 2)


def test_what_cannot_be_folded():
    unshared = nn.Sequential(nn.Conv2d(4, 4, 1), Aespa2d(4))
    circulant_(unshared, {"0": 2})
    unshared[1] = Aespa2d(4)
    with pytest.raises(RuleError, match="must be shared by its blocks: got blocks of 1 at '1' for block size 2"):
        fuse(unshared)
    with pytest.raises(RuleError, match="AESPA must directly follow a convolution"):
        fuse(nn.Sequential(nn.Conv2d(4, 4, 1), nn.AvgPool2d(2), Aespa2d(4)))


def test_a_dense_copy_has_every_channel_s_values():
    model, dense = circulant_(network(), {"0": 4, "3": 2, "6": 8}), network()
    dense.load_state_dict(dense_state_dict(model))
    x = torch.randn(8, 4, 4, 4)
    assert_close(dense(x), model(x), rtol=1e-4, atol=1e-5)
