"""torch's MultiheadAttention as layers: circulant, searched, trained, saved, and as the module it was."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import privcirnet as pc
from privcirnet.data import load
from privcirnet.errors import RuleError
from privcirnet.nn.circulant import block_size_of
from privcirnet.passes.convert import candidates, circulant_, dense_state_dict, uniform_sizes
from privcirnet.passes.multihead import Multihead
from privcirnet.train.stages import start_circulant_

C, H = 16, 2
LATER = torch.ones(4, 4, dtype=torch.bool).triu(1)
"""Keys behind each query."""
Attend = Callable[[nn.Module, Tensor], Tensor]
WHOLE: dict[str, Attend] = {
    "of itself": lambda attention, x: attention(x, x, x, need_weights=False)[0],
    "with weights": lambda attention, x: attention(x, x, x)[0],
    "of few keys": lambda attention, x: attention(x, x[:, :2], x[:, :2])[0],
    "masked": lambda attention, x: attention(x, x, x, attn_mask=LATER)[0],
}


class Net(nn.Module):
    """An attention between patches."""

    def __init__(self, attend: Attend = WHOLE["of itself"], **options) -> None:
        super().__init__()
        self.patch, self.attend = nn.Conv2d(3, C, 4, 4), attend
        self.attention = nn.MultiheadAttention(C, H, **{"batch_first": True, **options})
        self.head = nn.Linear(C, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        return self.head((x + self.attend(self.attention, x)).mean(1))


def network(*arguments, **options) -> Net:
    torch.manual_seed(0)
    net = Net(*arguments, **options).eval()
    for parameter in net.attention.parameters():
        nn.init.normal_(parameter, std=0.3)
    return net


def images(count: int = 32) -> Tensor:
    return torch.randint(0, 17, (count, 3, 8, 8), generator=torch.Generator().manual_seed(0)) / 16


SIZES = {"attention.qkv": 4, "attention.out_proj": 2}


@pytest.mark.parametrize("attend", WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize("fitted", [False, True])
def test_an_attention_becomes_circulant_and_the_module_that_it_was(attend: Attend, fitted: bool) -> None:
    """The state loads into the network as its user wrote it, of which each third of the weight is circulant."""
    model = circulant_(network(attend), SIZES, images=images() if fitted else None)
    assert {name: block_size_of(model.get_submodule(name)) for name in SIZES} == SIZES
    again = network(attend)
    again.load_state_dict(dense_state_dict(model))
    assert torch.allclose(model(images()), again(images()), atol=1e-5)
    q, _, _ = again.attention.in_proj_weight.detach().chunk(3)
    assert torch.allclose(q[0, :4], q[1, :4].roll(-1)) or torch.allclose(q[0, :4], q[1, :4].roll(1))


def test_a_fit_to_images_is_nearer_than_a_projection() -> None:
    shown, dense = images(128), network()
    with torch.no_grad():
        errors = [
            float((circulant_(network(), SIZES, images=given)(shown) - dense(shown)).norm()) for given in (None, shown)
        ]
    assert errors[1] < 0.8 * errors[0], errors


def test_layers_of_an_attention_are_counted_and_searched() -> None:
    model = network()
    assert set(SIZES) < set(candidates(model, 4))
    assert uniform_sizes(model, 4) == {"patch": 1, "attention.qkv": 4, "attention.out_proj": 4, "head": 4}
    plan = pc.search(model, (images(64), torch.arange(64) % 4), profile="counted", progress=False, budget=pc.uniform(4))
    assert set(plan.block_sizes) == {"patch", *SIZES, "head"}
    assert isinstance(model.attention, nn.MultiheadAttention)


@pytest.mark.parametrize("sizes", [{"attention.qkv": 4, "attention.out_proj": 3}, {"attention.qkv": 4, "other": 2}])
def test_a_refusal_leaves_the_module(sizes: dict[str, int]) -> None:
    model = network()
    with pytest.raises(RuleError):
        circulant_(model, sizes)
    assert isinstance(model.attention, nn.MultiheadAttention)


def test_a_dense_plan_leaves_the_module() -> None:
    assert isinstance(circulant_(network(), dict.fromkeys(SIZES, 1)).attention, nn.MultiheadAttention)


@pytest.mark.parametrize(
    "options", [{"add_bias_kv": True, "add_zero_attn": True}, {"bias": False}, {"batch_first": False}]
)
def test_options_stay(options: dict[str, bool]) -> None:
    def attend(attention: nn.Module, x: Tensor) -> Tensor:
        return WHOLE["of itself"](attention, x if attention.batch_first else x.mT.movedim(-1, 0)).reshape(x.shape)

    model, again = circulant_(network(attend, **options), SIZES, images=images()), network(attend, **options)
    again.load_state_dict(dense_state_dict(model))
    assert torch.allclose(model(images()), again(images()), atol=1e-5)


def test_values_of_other_widths_leave_the_module() -> None:
    """Its queries, keys and values have weights of their own, and stay dense."""
    model = network(lambda attention, x: attention(x, x[..., :6], x[..., :5])[0], kdim=6, vdim=5)
    assert uniform_sizes(model, 4) == {"patch": 1, "attention.out_proj": 4, "head": 4}
    assert isinstance(circulant_(model, {"attention.out_proj": 4}).attention, nn.MultiheadAttention)


def test_it_loads_the_state_of_the_module() -> None:
    """As of a checkpoint from before, whose out_proj alone was circulant."""
    model, source = circulant_(network(), {"attention.out_proj": 2}), network()
    nn.init.normal_(source.attention.in_proj_weight)
    state = {key: value for key, value in model.state_dict().items() if ".qkv." not in key}
    state |= {key: value for key, value in source.state_dict().items() if "in_proj" in key}
    model.load_state_dict(state)
    assert torch.equal(model.attention.qkv.weight, source.attention.in_proj_weight)


def test_dropout_stays() -> None:
    model = circulant_(network(dropout=0.5), SIZES)
    assert torch.equal(model(images()), model(images()))
    model.train()
    assert not torch.equal(model(images()), model(images()))
    model.attend = WHOLE["with weights"]
    assert not torch.equal(model(images()), model(images()))


@pytest.mark.parametrize("attend", WHOLE.values(), ids=WHOLE)
def test_programs_have_every_bit_of_the_quantized_network(attend: Attend) -> None:
    quantized = pc.quantize(circulant_(network(attend), SIZES, images=images()), images())
    program = pc.compile(quantized, images(), profile="counted", progress=False)
    assert torch.equal(program(images(2)), quantized(images(2)))
    assert "b = 4" in str(program)


def test_torchs_encoder_layer_takes_it() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(C, H, 32, batch_first=True).eval()
    before = copy.deepcopy(layer)
    circulant_(layer, {"self_attn.qkv": 4, "linear1": 4})
    assert isinstance(layer.self_attn, Multihead)
    before.load_state_dict(dense_state_dict(layer))
    x = torch.randn(2, 5, C)
    assert torch.allclose(layer(x), before(x), atol=1e-5)


class Scaled(nn.MultiheadAttention):
    """An attention of a user's own, that computes something else."""

    def forward(self, *arguments, **options):
        return super().forward(*arguments, **options)[0] * 10, None


def hooked(attention: nn.MultiheadAttention) -> nn.MultiheadAttention:
    attention.register_forward_pre_hook(lambda _, values: tuple(value * 10 for value in values))
    return attention


def patched(attention: nn.MultiheadAttention) -> nn.MultiheadAttention:
    forward = attention.forward
    attention.forward = lambda *arguments, **options: (forward(*arguments, **options)[0] * 10, None)
    return attention


@pytest.mark.parametrize(
    "change",
    [hooked, patched, lambda attention: Scaled(C, H, batch_first=True)],
    ids=["a pre-hook", "a forward", "a subclass"],
)
def test_an_attention_that_computes_something_else_is_left_alone_or_refused(change) -> None:
    """Block sizes of 2 of a weight that is circulant already change nothing."""
    model = network()
    model.attention = change(model.attention).eval()
    circulant_(source := network(), {"attention.out_proj": 2})
    model.attention.out_proj.weight = nn.Parameter(source.attention.out_proj.weight.detach())
    before = model(images())
    assert "attention.qkv" not in candidates(model, 4)
    circulant_(model, {"attention.out_proj": 2})
    assert torch.allclose(model(images()), before, atol=1e-5)
    with pytest.raises(RuleError):
        pc.quantize(model, images())


def test_an_attention_of_two_names_is_left_alone() -> None:
    model = network()
    model.same = model.attention
    assert not any(name.endswith("qkv") for name in uniform_sizes(model, 4))


def test_an_attention_that_runs_twice_is_named() -> None:
    model = network(lambda attention, x: attention(attention(x, x, x)[0], x, x)[0])
    with pytest.raises(RuleError, match="a layer must run once an image: got attention"):
        pc.quantize(model, images())


def test_values_of_two_axes_change_nothing() -> None:
    model = network(lambda attention, x: attention(x[:, 0], x[:, 0], x[:, 0])[0][:, None])
    with pytest.raises(RuleError, match="over the tokens of each image"):
        circulant_(model, SIZES, images=images())
    assert isinstance(model.attention, nn.MultiheadAttention)


def test_a_misspelt_layer_of_an_attention_is_named() -> None:
    with pytest.raises(RuleError, match="a layer name must exist"):
        circulant_(network(), {"attention.qkv": 1, "attention.typo": 1})


def test_padding_of_torchs_encoder_stays() -> None:
    """Without a nested tensor, which only torch's own attention reads."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(C, H, 32, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2).eval(), torch.randn(2, 5, C)
    padding = (torch.arange(5) >= 3).repeat(2, 1)
    again = copy.deepcopy(model)
    again.use_nested_tensor = False
    circulant_(model, {"layers.0.self_attn.qkv": 4, "layers.1.linear1": 4})
    again.load_state_dict(dense_state_dict(model))
    with torch.no_grad():
        result, expected = model(x, src_key_padding_mask=padding), again(x, src_key_padding_mask=padding)
    assert torch.allclose(result[:, :3], expected[:, :3], atol=1e-5)


def test_its_attributes_stay() -> None:
    attention = circulant_(network(), SIZES).attention
    assert (attention.embed_dim, attention.num_heads, attention.head_dim) == (C, H, C // H)


@pytest.mark.parametrize("start", ["least_squares", "fisher", "frobenius"])
def test_fine_tuning_starts_from_its_layers(start: str) -> None:
    model = network()
    model.patch, model.head = nn.Conv2d(1, C, 4, 4), nn.Linear(C, 10)
    start_circulant_(model, SIZES, load("digits").limited(64), start)
    assert {name: block_size_of(model.get_submodule(name)) for name in SIZES} == SIZES
