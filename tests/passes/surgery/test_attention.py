"""Attention of any writing is read with its masks and position biases, and runs with them or is refused."""

import copy

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
from timm.layers import Attention
from torch import Tensor, nn
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.plan_program import Target
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program.interpreter import interpret
from privcirnet.nn.agreement import node_values
from privcirnet.nn.attention import PolynomialAttention, SoftmaxAttention
from privcirnet.nn.exact_functions import TableFunction
from privcirnet.nn.moves import ScoreConstants
from privcirnet.passes.fuse import fuse, fuse_at
from privcirnet.passes.lower import lower
from privcirnet.passes.quantize import quantize
from privcirnet.passes.surgery import polynomial_

T, C, H = 4, 8, 2
STEP = -4
EXACTLY = Target(COUNTED, LINKS["local"], truncation="exact", nonlinear="exact")
CAUSAL = torch.ones(T, T).tril().bool()


class Written(nn.Module):
    """Attention whose forward is given queries, keys and values (N, h, T, d)."""

    def __init__(self, forward, **more: nn.Module | Tensor) -> None:
        super().__init__()
        self.qkv, self.proj, self.written = nn.Linear(C, 3 * C), nn.Linear(C, C), forward
        for name, each in more.items():
            self.register_buffer(name, each) if type(each) is Tensor else setattr(self, name, each)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, H, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(self.written(self, q, k, v).transpose(1, 2).flatten(2))


class Layers(nn.Module):
    """Attention between layers of its own for queries, keys and values, given tokens (N, T, C) of each."""

    def __init__(self, forward) -> None:
        super().__init__()
        self.q, self.k, self.v, self.proj = (nn.Linear(C, C) for _ in range(4))
        self.written = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(self.written(self.q(x), self.k(x), self.v(x)))


class OnMaps(nn.Module):
    """Attention between maps, as timm's LowFormer has it, with a module on the map that it gives."""

    def __init__(self, behind: nn.Module) -> None:
        super().__init__()
        self.qkv, self.behind = nn.Conv2d(C, 3 * C, 1), behind

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x.mT.unflatten(2, (2, -1))).reshape(len(x), H, 3 * C // H, T)
        y = F.scaled_dot_product_attention(*qkv.mT.chunk(3, 3))
        return self.behind(y.mT.reshape(len(x), C, 2, -1)).flatten(2).mT


class Called(nn.Module):
    """torch's MultiheadAttention of tokens."""

    def __init__(self, forward=lambda a, x: a(x, x, x)[0], **options) -> None:
        super().__init__()
        self.attention, self.written = nn.MultiheadAttention(C, H, **{"batch_first": True, **options}), forward
        for parameter in self.attention.parameters():
            nn.init.normal_(parameter, std=0.3)

    def forward(self, x: Tensor) -> Tensor:
        return self.written(self.attention, x)


class Net(nn.Module):
    """A residual around something between tokens."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.patch, self.inner, self.head = nn.Conv2d(3, C, 4, 4), inner, nn.Linear(C, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patch(x).flatten(2).transpose(1, 2)
        return self.head((tokens + self.inner(tokens)).mean(1))


def images(count: int = 4) -> Tensor:
    return torch.randint(0, 17, (count, 3, 8, 8), generator=torch.Generator().manual_seed(0)) / 16


def network(inner) -> nn.Module:
    torch.manual_seed(0)
    return Net(inner()).eval()


def einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (each.unflatten(-1, (H, -1)) for each in (q, k, v))
    weights = torch.einsum("b i h d, b j h d -> b h i j", q * 0.4, k).softmax(-1)
    return torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2)


def batches_of_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (each.unflatten(-1, (H, -1)).transpose(1, 2).reshape(-1, T, C // H) for each in (q, k, v))
    scores = torch.bmm(q, k.transpose(1, 2)).view(-1, H, T, T) / 2
    scores = scores.masked_fill(~CAUSAL, -1e9).view(-1, T, T)
    return torch.bmm(F.softmax(scores, dim=-1), v).view(-1, H, T, C // H).transpose(1, 2).reshape(-1, T, C)


def by_hand(net: Written, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-2, -1) * (C // H) ** -0.5 + net.bias).softmax(-1) @ v


def relative(net: Written, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    bias = net.table[net.places.view(-1)].view(T, T, H).permute(2, 0, 1).unsqueeze(0)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


PLACES = torch.arange(T)[:, None] - torch.arange(T) + T - 1
PADDING = torch.arange(T) >= 3
MASKED = {
    "is_causal": lambda: Written(lambda net, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
    "a Boolean mask": lambda: Written(
        lambda net, q, k, v: F.scaled_dot_product_attention(q, k, v, net.mask, scale=0.7), mask=CAUSAL
    ),
    "products of batches of heads": lambda: Layers(batches_of_heads),
    "MultiheadAttention, attn_mask": lambda: Called(lambda a, x: a(x, x, x, attn_mask=~CAUSAL, need_weights=False)[0]),
    "MultiheadAttention, a mask of numbers, bias_k": lambda: Called(
        lambda a, x: a(x, x, x, attn_mask=torch.zeros(T, T, dtype=x.dtype).masked_fill(~CAUSAL, -torch.inf))[0],
        add_bias_kv=True,
    ),
}
NOT_MASKED = {
    "a map behind": lambda: OnMaps(nn.Conv2d(C, C, 3, padding=1)),
    "nothing behind": lambda: OnMaps(nn.Identity()),
    "scaled_dot_product_attention": lambda: Written(lambda net, q, k, v: F.scaled_dot_product_attention(q, k, v)),
    "a bias": lambda: Written(by_hand, bias=nn.Parameter(torch.randn(H, T, T))),
    "a table of relative positions": lambda: Written(
        relative, table=nn.Parameter(torch.randn(2 * T - 1, H)), places=PLACES
    ),
    "norms of queries and keys": lambda: Written(
        lambda net, q, k, v: F.scaled_dot_product_attention(net.one(q), net.two(k), v),
        one=nn.LayerNorm(C // H), two=nn.LayerNorm(C // H),
    ),
    "keys masked for all": lambda: Written(
        lambda net, q, k, v: F.scaled_dot_product_attention(q, k, v, ~net.padding[None, None, None]), padding=PADDING
    ),
    "einsum": lambda: Layers(einsum),
    "one head": lambda: Layers(lambda q, k, v: F.softmax(torch.matmul(q, k.mT) / 3, -1) @ v),
    "timm": lambda: Attention(C, H, qk_norm=True, norm_layer=nn.LayerNorm),
    "MultiheadAttention": Called,
    "MultiheadAttention, key_padding_mask": lambda: Called(
        lambda a, x: a(x, x, x, key_padding_mask=PADDING.expand(len(x), T), average_attn_weights=False)[0]
    ),
    "MultiheadAttention, tokens first": lambda: Called(
        lambda a, x: a(*[x.transpose(0, 1)] * 3)[0].transpose(0, 1), batch_first=False
    ),
    "MultiheadAttention of few keys": lambda: Called(lambda a, x: a(x, x[:, :3], x[:, :3])[0]),
    "MultiheadAttention, more keys": lambda: Called(add_zero_attn=True, add_bias_kv=True),
    "MultiheadAttention, kdim": lambda: Called(lambda a, x: a(x, x[..., :6], x[..., :5])[0], kdim=6, vdim=5),
}  # fmt: skip
ALL = MASKED | NOT_MASKED


@pytest.mark.parametrize("name", ALL)
def test_attention_stays_what_it_is(name):
    model, shown = network(ALL[name]), images()
    wanted = model(shown)
    changes = polynomial_(model, shown, "own")
    assert not any(change.effect for change in changes)
    assert sum(isinstance(module, SoftmaxAttention) for module in model.modules()) == 1
    assert_close(model(shown), wanted)
    assert_close(fuse_at(model, shown)(shown), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NOT_MASKED)
def test_attention_becomes_a_polynomial(name):
    model = network(NOT_MASKED[name])
    changes = polynomial_(model, images())
    assert [change.after for change in changes].count("PolynomialAttention") == 1
    assert_close(fuse(model)(images()), model(images()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MASKED)
def test_pairs_that_are_masked_have_no_polynomial(name):
    model = network(MASKED[name])
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(
        RuleError, match=r"attention \(SoftmaxAttention\); keep softmax attention, without polynomial_: "
    ):
        polynomial_(model, images())
    assert model.state_dict().keys() == before.keys()


def test_a_bias_begins_as_the_softmax_of_scores_that_are_zero():
    bias = torch.randn(H, T, T, generator=torch.Generator().manual_seed(0))
    attention, v = PolynomialAttention(C, H, T, constants=bias), torch.rand(1, T, C)
    zeros = torch.zeros(1, T, C)
    assert_close(attention(zeros, zeros, v), SoftmaxAttention(H, constants=bias)(zeros, zeros, v))


@pytest.mark.parametrize("name", ["is_causal", "MultiheadAttention, a mask of numbers, bias_k", "a bias", "einsum"])
def test_programs_have_every_bit_of_the_quantized_network(name):
    shown = images(8).double()
    fused = fuse_at(network(ALL[name]).double(), shown)
    quantized = quantize(fused, shown, STEP).eval()
    program = lower(quantized, (3, 8, 8), 16, STEP, EXACTLY)
    values, found = node_values(quantized, shown), interpret(program, (shown[0] * 16).long().numpy())
    last = program.nodes[-1]
    assert np.array_equal(found[last.name].reshape(-1) * 2.0**last.log_step, quantized(shown)[0].detach().numpy())
    assert_close(quantized(shown), fused(shown), rtol=0, atol=0.05 * fused(shown).abs().max().item())
    for constants, weights in zip(
        (node for node in quantized.graph.nodes if is_a(quantized, node, ScoreConstants)),
        (node for node in quantized.graph.nodes if is_a(quantized, node, TableFunction) and "exp" in node.name),
        strict=name != "einsum",
    ):
        masked = quantized.get_submodule(str(constants.target)).masked[1:]
        after = next(iter(weights.users))
        assert not values[after.name][:, masked].any(), "masked keys leave the sum"
        assert values[after.name][:, ~masked].any()


def is_a(graph, node, kind) -> bool:
    return node.op == "call_module" and isinstance(graph.get_submodule(str(node.target)), kind)


@pytest.mark.parametrize("name", ["a bias", "a map behind", "nothing behind"])
def test_programs_of_a_polynomial_have_every_bit_of_the_quantized_network(name):
    shown = images(8).double()
    model = network(NOT_MASKED[name]).double()
    polynomial_(model, shown, "square")
    quantized = quantize(model, shown, STEP, weight_bits=4, activation_bits=5, stream_bits=5).eval()
    program = lower(quantized, (3, 8, 8), 16, STEP, Target(COUNTED, LINKS["local"]))
    found, last = interpret(program, (shown[0] * 16).long().numpy()), program.nodes[-1]
    assert np.array_equal(found[last.name].reshape(-1) * 2.0**last.log_step, quantized(shown)[0].detach().numpy())


@pytest.mark.parametrize("bits", [8, 12, 16])
def test_masked_keys_weigh_nothing_in_any_bits(bits):
    """The table of exp reaches as far down as its results have bits."""
    shown = images(8)
    quantized = quantize(network(MASKED["is_causal"]), shown, activation_bits=bits).eval()
    (exp,) = (node for node in quantized.graph.nodes if is_a(quantized, node, TableFunction) and "exp" in node.name)
    weights = node_values(quantized, shown)[next(iter(exp.users)).name].unflatten(-1, (H, T))
    assert not weights.transpose(1, 2)[..., ~CAUSAL].any()


REFUSED = {
    "weights that are read": (
        lambda net, q, k, v: (w := (q @ k.mT).softmax(-1)) @ v + w.mean(), "use the weights of attention for nothing",
    ),
    "a mask of the image": (
        lambda net, q, k, v: F.scaled_dot_product_attention(q, k, v, q @ k.mT > 0), "biases be constants",
    ),
    "queries without keys": (
        lambda net, q, k, v: F.scaled_dot_product_attention(q, k, v, torch.zeros(T, T).bool()), "leave each query a key",
    ),
    "a softmax over queries": (lambda net, q, k, v: (q @ k.mT).softmax(-2) @ v, "write attention as softmax"),
    "scores that are cut off": (lambda net, q, k, v: (q @ k.mT).relu().softmax(-1) @ v, "write attention as"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("road", ["own", "aespa"])
def test_what_is_no_attention_is_named(name, road):
    forward, remedy = REFUSED[name]
    model = network(lambda: Written(forward))
    with pytest.raises(RuleError, match=rf"got .*(softmax|scaled_dot_product_attention).*{remedy}"):
        polynomial_(model, images(), road)
    assert type(model) is Net


def test_attention_over_images_is_named():
    """Tokens (N, T, C) given to a MultiheadAttention that wants (T, N, C)."""
    with pytest.raises(
        RuleError, match=r"attention \(SoftmaxAttention\).*; let attention be over the tokens of an image"
    ):
        polynomial_(network(lambda: Called(batch_first=False)), images(), "own")


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("road", ["own", "square"])
def test_encoder_layers_of_torch_run(batch_first, norm_first, road):
    def encoder() -> nn.Module:
        options = {"norm_first": norm_first, "activation": "gelu" if norm_first else "relu"}
        layer = nn.TransformerEncoderLayer(C, H, 12, batch_first=batch_first, **options)
        return nn.TransformerEncoder(layer, 1, nn.LayerNorm(C), enable_nested_tensor=False)

    class Encoded(Net):
        def forward(self, x: Tensor) -> Tensor:
            tokens = self.patch(x).flatten(2)
            tokens = tokens.transpose(1, 2) if batch_first else tokens.permute(2, 0, 1)
            return self.head(self.inner(tokens).mean(1 if batch_first else 0))

    torch.manual_seed(0)
    model, shown = Encoded(encoder()).eval(), images()
    wanted = model(shown)
    changes = polynomial_(model, shown, road)
    assert [change.path for change in changes if "Attention" in change.after] == ["inner.layers.0.self_attn"]
    if road == "own":
        assert_close(model(shown), wanted)
    assert_close(fuse_at(model, shown)(shown), model(shown), rtol=1e-4, atol=1e-5)


def test_a_mask_of_an_encoder_stays():
    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(C, H, 12, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x, src_mask=nn.Transformer.generate_square_subsequent_mask(T), is_causal=True)

    model = network(Causal)
    wanted = model(images())
    polynomial_(model, images(), "own")
    assert_close(model(images()), wanted)


def test_a_decoder_that_asks_the_same_of_all_images_is_named():
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerDecoderLayer(C, H, 12, batch_first=True)
            self.asked = nn.Parameter(torch.randn(1, T, C))

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.asked.expand(len(x), -1, -1), x)

    with pytest.raises(RuleError, match="let queries, keys and values depend on the image"):
        polynomial_(network(Decoder), images(), "own")


def test_networks_of_modules_alone_are_entered():
    layers = nn.Conv2d(3, C, 4, 4), nn.Flatten(2), nn.TransformerEncoderLayer(T, H, 12, batch_first=True), nn.Flatten()
    model = nn.Sequential(*layers, nn.Linear(C * T, 3)).eval()
    assert_close(fuse_at(model, images())(images()), model(images()), rtol=1e-4, atol=1e-5)


def test_attention_of_another_scale_is_read():
    model = timm.create_model("deit_tiny_patch16_224", num_classes=4, img_size=32, depth=1).eval()
    model.blocks[0].attn.fused_attn, model.blocks[0].attn.scale = False, 1.0
    shown = torch.rand(2, 3, 32, 32)
    wanted = model(shown)
    polynomial_(model, shown, activation="own")
    assert model.get_submodule("blocks.0.attn.attention").scale == pytest.approx(1.0)
    assert_close(model(shown), wanted)
