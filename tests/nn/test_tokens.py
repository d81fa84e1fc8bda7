"""Tokens, attention and its pieces, and norms of tokens with what they are folded into."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.plan_program import Target
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program.interpreter import interpret
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.example import IMAGE
from privcirnet.nn.moves import HeadProduct, HeadTranspose, Take, ToTokens
from privcirnet.nn.norm import BlockBatchNorm2d, TokenBatchNorm
from privcirnet.nn.quantization_steps import learn_steps_
from privcirnet.passes.convert import circulant_, dense_state_dict
from privcirnet.passes.fuse import fuse
from privcirnet.passes.lower import lower
from privcirnet.passes.quantize import quantize, with_quantizers
from tests.nn.networks import DOUBLE, Written, randn, vit

TARGET = Target(COUNTED, LINKS["local"])


def test_tokens_are_places_row_by_row():
    module, x = ToTokens(7, 2).double(), randn(3, 2, 2, 3)
    nn.init.normal_(module.bias)
    found = module(x)
    for i in range(2):
        for j in range(3):
            assert_close(found[:, 1 + 3 * i + j], x[:, :, i, j] + module.bias[1 + 3 * i + j], **DOUBLE)
    assert torch.equal(found[:, 0], module.bias[0].expand(3, -1))


def test_head_product_is_its_formula():
    module, left, right = HeadProduct(2, bias=True).double(), randn(3, 4, 6), randn(3, 5, 6)
    nn.init.normal_(module.bias)
    found = module(left, right)
    assert found.shape == (3, 4, 10)
    for h in range(2):
        for j in range(5):
            expected = (left[..., 3 * h : 3 * h + 3] * right[:, j : j + 1, 3 * h : 3 * h + 3]).sum(-1)
            assert_close(found[..., 5 * h + j], expected + module.bias[h], **DOUBLE)


def test_head_transpose_goes_back():
    x = randn(3, 4, 6)
    turned = HeadTranspose(2)(x)
    assert turned.shape == (3, 3, 8)
    assert torch.equal(HeadTranspose(2)(turned), x)
    assert turned[1, 2, 4 * 1 + 3] == x[1, 3, 3 * 1 + 2]


@pytest.mark.parametrize("b", [1, 2, 4])
def test_token_norm_is_the_block_norm_of_a_map(b):
    norm, maps, x = TokenBatchNorm(8, b).double(), BlockBatchNorm2d(8, b).double(), randn(5, 3, 8)
    with torch.no_grad():
        for mine, other in zip(norm.parameters(), maps.parameters(), strict=True):
            other.copy_(mine.normal_())
    assert_close(norm(x), maps(x.permute(0, 2, 1)[..., None])[..., 0].permute(0, 2, 1), **DOUBLE)
    assert_close(norm.running_var, maps.running_var, **DOUBLE)
    assert_close(norm.eval()(x[:, 0]), maps.eval()(x[:, 0, :, None, None])[..., 0, 0], **DOUBLE)


def test_sharing_a_token_norm_is_what_the_shared_norm_measures():
    norm, shared, x = (
        TokenBatchNorm(8, momentum=1.0).double(),
        TokenBatchNorm(8, 4, momentum=1.0).double(),
        randn(500, 3, 8),
    )
    norm(x * 3 + 1)
    shared(x * 3 + 1)
    found = norm.shared_by(4)
    assert_close(found.running_mean, shared.running_mean, **DOUBLE)
    assert_close(found.running_var, shared.running_var, rtol=1e-3, atol=0)  # biased against unbiased: 1 / 1500
    assert found.shared_by(4).state_dict().keys() == found.state_dict().keys()
    assert torch.equal(found.shared_by(4).running_var, found.running_var)


def test_norms_follow_the_blocks_of_the_layers_that_read_them():
    sizes = {"blocks.0.qkv": 4, "blocks.0.fc1": 8, "blocks.1.fc1": 16, "head": 2}
    model = circulant_(vit(), sizes)
    norms = {name: module.block_size for name, module in model.named_modules() if isinstance(module, TokenBatchNorm)}
    assert norms == {"blocks.0.norm1": 4, "blocks.0.norm2": 8, "blocks.1.norm1": 1, "blocks.1.norm2": 16, "norm": 2}
    dense = vit()
    dense.load_state_dict(dense_state_dict(model))
    x = randn(2, 3, 8, 8)
    assert_close(dense.eval()(x), model.eval()(x), rtol=1e-10, atol=1e-10)


class Shared(nn.Module):
    """One norm before two layers."""

    def __init__(self):
        super().__init__()
        self.tokens, self.norm = ToTokens(5, 8), TokenBatchNorm(8)
        self.one, self.other, self.take = nn.Linear(8, 8), nn.Linear(8, 8, bias=False), Take()

    def forward(self, x):
        x = self.norm(self.tokens(x))
        return self.take(self.one(x) + self.other(x))


@pytest.mark.parametrize("calls", [[{"one": 2, "other": 4}], [{"one": 2}, {"other": 4}], [{"other": 4}, {"one": 2}]])
def test_a_norm_of_several_layers_serves_all_of_them(calls):
    model, x = Shared().double(), randn(6, 8, 2, 2)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    for block_sizes in calls:
        circulant_(model, block_sizes)
    assert model.norm.block_size == 4
    model(x)
    fused = fuse(model.eval())
    assert_close(fused(x), model(x), rtol=1e-10, atol=1e-10)
    assert [block_size_of(layer) for layer in (fused.one, fused.other)] == [2, 4]


class FeedsASquare(Shared):
    def forward(self, x):
        return self.norm(self.tokens(x)).square()


class RunsTwice(Shared):
    def forward(self, x):
        x = self.tokens(x)
        return self.one(self.norm(x)) + self.one(self.norm(x))


def blocks_too_wide():
    model = circulant_(Shared(), {"one": 4, "other": 4})
    model.norm = TokenBatchNorm(8, 2)
    nn.init.normal_(model.norm.weight)
    return model


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (FeedsASquare, "a batch norm of tokens must feed only linear layers: got 'norm' before square"),
        (RunsTwice, "must be used once: got 'norm'"),
        (blocks_too_wide, "must be shared by its blocks: got values that differ within a block at 'o"),
    ],
)
def test_norms_of_tokens_that_cannot_be_folded(build, message):
    """Where surgery was before, which would have given them layers."""
    model = build().eval()
    model.meta = {IMAGE: (8, 2, 2)}
    with pytest.raises(RuleError, match=message):
        fuse(model)


def quantized(model):
    x = randn(8, 3, 8, 8).abs().mul(16).round() / 16
    for _ in range(20):
        model(x)
    return quantize(fuse(model.eval()), x, -4)


def test_every_value_of_attention_has_its_own_quantizer():
    graph = quantized(vit())
    names = [node.name for node in graph.graph.nodes if "quantizer" in node.name and "blocks_0_attention" in node.name]
    pieces = ["query", "key", "scores", "square", "value", "gather"]
    assert sorted(names) == sorted(f"blocks_0_attention_{piece}_quantizer" for piece in pieces)
    assert not [node for node in graph.graph.nodes if node.name == "blocks_0_qkv_quantizer"]


def test_a_product_has_the_product_of_its_factors_steps():
    graph = quantized(vit())
    step = {name: int(module.log_step) for name, module in graph.named_modules() if hasattr(module, "log_step")}
    query, key = (step[f"blocks_0_attention_{piece}_quantizer"] for piece in ("query", "key"))
    assert query + key < max(query, key) < 0
    assert step["blocks.0.attention.scores.parametrizations.bias.0"] == query + key


def gram() -> nn.Module:
    """Products of tokens with themselves."""
    layers = {"conv": nn.Conv2d(1, 4, 2, 2), "tokens": ToTokens(5, 4), "product": HeadProduct(2), "take": Take(1)}
    forward = lambda net, x: net.head(net.take(net.product(y := net.tokens(net.conv(x)), y)))  # noqa: E731
    return Written(forward, **layers, head=nn.Linear(10, 3))


@torch.no_grad()
def test_a_value_may_be_multiplied_by_itself():
    torch.manual_seed(0)
    model, images = gram().double(), torch.randint(0, 17, (8, 1, 4, 4))
    nn.init.normal_(model.tokens.bias)
    graph = quantize(fuse(model), images.double() / 16, -4).eval()
    program = lower(graph, (1, 4, 4), 16, -4, Target(COUNTED, LINKS["local"], failure_bits=1))
    for image, wanted in zip(images.numpy(), graph(images.double() / 16), strict=True):
        logits = interpret(program, image)[program.output.name].reshape(-1)
        assert (logits * 2.0**program.output.log_step == wanted.numpy()).all()


def test_steps_of_attention_can_be_learned():
    graph, x = learn_steps_(quantized(vit())), randn(8, 3, 8, 8).abs()
    graph.train()
    graph(x).square().mean().backward()
    steps = {name: p.grad for name, p in graph.named_parameters() if name.endswith("quantizer.learned")}
    assert all(gradient is not None for gradient in steps.values())
    assert {
        "blocks_0_attention_scores_quantizer.learned",
        "blocks_1_attention_gather_quantizer.learned",
    } <= steps.keys()


INSTEAD = {
    "softmax": (
        {"attention": "softmax"},
        r"got blocks.0.attention.below \(SoftmaxAttention\), .*; use PolynomialAttention .* or he.nonlinear=exact",
    ),
    "layer": (
        {"norm": "layer"},
        r"got blocks.0.norm1.inverse \(LayerNorm\), .* norm.inverse \(LayerNorm\); use TokenBatchNorm .* or he.nonlinear=exact",
    ),
    "gelu": ({"activation": "gelu"}, r"got blocks.0.act \(GELU\), blocks.1.act \(GELU\); use Square or AESPA"),
}


@pytest.mark.parametrize("case", INSTEAD)
def test_what_has_no_encrypted_form_is_named_with_what_to_use_instead(case):
    options, message = INSTEAD[case]
    with pytest.raises(RuleError, match=message):
        lower(quantized(vit(**options)), (3, 8, 8), 16, -4, TARGET)


@pytest.mark.parametrize(
    ("module", "message"),
    [(nn.AvgPool2d(2), "must not be mixed: got 1 on tokens"), (nn.Flatten(), r"must not be mixed: got 1 on tokens")],
)
def test_maps_and_tokens_are_not_mixed(module, message):
    graph = with_quantizers(fuse(nn.Sequential(ToTokens(5, 8), module, nn.Linear(8, 2))).eval())
    with pytest.raises(RuleError, match=message):
        lower(graph, (8, 2, 2), 16, 0, TARGET)


def test_maps_are_not_tokens():
    graph = with_quantizers(fuse(nn.Sequential(nn.Identity(), Take())).eval())
    with pytest.raises(RuleError, match="got 1 on a map"):
        lower(graph, (8, 2, 2), 16, 0, TARGET)
