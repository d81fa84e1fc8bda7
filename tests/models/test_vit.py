import math
import re

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.models import vit_cifar
from privcirnet.models.vit import Size
from privcirnet.nn.attention import PolynomialAttention, softmax_attention
from privcirnet.nn.graph import trace
from privcirnet.passes.convert import circulant_
from tests import tolerances

SMALL = {"image_size": 8, "depth": 2, "width": 16, "heads": 2}


def tensors(*shape: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(*shape, dtype=torch.float64) for _ in range(3)]


def slow_polynomial_attention(q, k, v, c):
    """The formula, number by number."""
    images, heads, tokens, d = q.shape
    out = torch.zeros_like(q)
    for n in range(images):
        for h in range(heads):
            for i in range(tokens):
                for j in range(tokens):
                    score = sum(q[n, h, i, e].item() * k[n, h, j, e].item() for e in range(d)) / math.sqrt(d)
                    out[n, h, i] += (score + c[h, 0, 0].item()) ** 2 / tokens * v[n, h, j]
    return out


@torch.no_grad()
def test_polynomial_attention_is_its_formula():
    parts = tensors(2, 3, 4, 5)
    attention = PolynomialAttention(15, heads=3, tokens=4).double()
    attention.shift.copy_(torch.tensor([1.0, -0.5, 2.0]).reshape(3, 1, 1))
    found = attention(torch.cat([part.transpose(1, 2).flatten(2) for part in parts], 2)).unflatten(2, (3, 5))
    largest = slow_polynomial_attention(*map(abs, (*parts, attention.shift))).max().item()
    expected = slow_polynomial_attention(*parts, attention.shift).transpose(1, 2)
    assert_close(found, expected, rtol=0, atol=tolerances.network(torch.float64, 2, 10, largest))


def test_softmax_attention_is_torchs():
    q, k, v = tensors(2, 3, 4, 5)
    expected = nn.functional.scaled_dot_product_attention(q, k, v)
    bound = tolerances.network(torch.float64, 2, 10, v.abs().max().item())
    assert_close(softmax_attention(q, k, v), expected, rtol=0, atol=bound)


@pytest.mark.parametrize("attention", ["softmax", "polynomial"])
@pytest.mark.parametrize("norm", ["layer", "batch"])
@pytest.mark.parametrize("activation", ["gelu", "square"])
def test_operations(norm, attention, activation):
    torch.manual_seed(0)
    options = {"norm": norm, "attention": attention, "activation": activation}
    model = vit_cifar(num_classes=8, in_chans=1, **SMALL, **options)
    names = {type(module).__name__ for module in model.modules()}
    assert ("LayerNorm" in names, "TokenBatchNorm" in names) == (norm == "layer", norm == "batch")
    shifts = [name for name, _ in model.named_parameters() if name.endswith("attention.shift")]
    assert len(shifts) == (2 if attention == "polynomial" else 0)
    layers = [f"blocks.{i}.{name}" for i in range(2) for name in ("qkv", "proj", "fc1", "fc2")]
    circulant_(model, dict.fromkeys([*layers, "head"], 8))
    x = torch.rand(2, 1, 8, 8)
    model(x).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    model.eval()
    assert torch.equal(trace(model)(x), model(x))
    if (norm, attention, activation) == ("batch", "polynomial", "square"):
        nodes = " ".join(str(node.target) for node in trace(model).graph.nodes)
        assert re.search("softmax|gelu|exp(?!and)|div_|layer_norm", nodes) is None


def test_tokens():
    assert Size(32, 4, 7, 256, 4).tokens == 65
    assert Size(64, 4, 9, 192, 12).tokens == 257


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "group"}, "norm must be a known one: got 'group'"),
        ({"attention": "linear"}, "attention must be a known one: got 'linear'"),
        ({"heads": 3}, "the number of heads must divide the width: got 3 for 256"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(RuleError, match=message):
        vit_cifar(**options)
