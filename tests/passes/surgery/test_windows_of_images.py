"""Windows of images in the batch, rolls, resampling and other forms of whole networks run exactly, bit for bit."""

import pytest
import torch
import torch.nn.functional as F
from timm.layers import ScaledStdConv2d, StdConv2d
from torch import Tensor, nn
from torch.testing import assert_close

import privcirnet as pc
from privcirnet.errors import RuleError
from privcirnet.nn.agreement import exact_value
from privcirnet.nn.attention import SoftmaxAttention
from privcirnet.nn.moves import Concat
from privcirnet.passes.surgery import exact_copy, polynomial_
from tests.nn.networks import Written


def images(side: int = 8, count: int = 4) -> Tensor:
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(0))


def exact(model: nn.Module, x: Tensor) -> nn.Module:
    """Return the rewritten network, which computes the same; its program's logits are the quantized network's."""
    model.eval()
    copied = exact_copy(model, x)
    assert_close(copied(x), model(x), atol=1e-5, rtol=1e-4)
    quantized = pc.quantize(model, x)
    program = pc.compile(quantized, x, profile="counted", nonlinear="exact", progress=False)
    logits = program(x[:2], check=True, engine="cleartext").double()
    assert torch.equal(logits, exact_value(quantized, x[:2]).flatten(1))
    return copied


class Windowed(nn.Module):
    """Attention in windows of 2 x 2 of a map with its channels last, rolled or not, as in a Swin transformer.

    Args:
        shift: by how many rows and columns the map is rolled before.
        bias: whether each head and pair of places has a constant, read by a table of relative positions.
    """

    def __init__(self, shift: int = 0, bias: bool = False, side: int = 4) -> None:
        super().__init__()
        self.shift, self.side = shift, side
        self.patches, self.norm = nn.Conv2d(3, 8, 2, 2), nn.LayerNorm(8)
        self.qkv, self.back, self.head = nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 3)
        self.table = nn.Parameter(torch.randn(9, 2)) if bias else None
        places = torch.arange(2).repeat_interleave(2), torch.arange(2).repeat(2)
        self.register_buffer("pairs", sum((of[:, None] - of + 1) * 3**i for i, of in enumerate(places)).flatten())

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).permute(0, 2, 3, 1)
        y = self.norm(x)
        n, height, width, c = y.shape
        y = F.pad(y, (0, 0, 0, width % 2, 0, height % 2))
        rows, columns = y.shape[1] // 2, y.shape[2] // 2
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = y.view(n, rows, 2, columns, 2, c).transpose(2, 3).reshape(-1, 4, c)
        q, k, v = self.qkv(y).reshape(-1, 4, 3, 2, c // 2).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * 0.5) @ k.mT
        if self.table is not None:
            scores = scores + self.table[self.pairs].view(4, 4, 2).permute(2, 0, 1)
        if self.shift:
            number = torch.arange(rows * columns)
            mask = ((number[:, None, None] == len(number) - 1) & (torch.arange(4)[:, None] != torch.arange(4))) * -100.0
            scores = (scores.view(n, -1, 2, 4, 4) + mask[None, :, None]).view(-1, 2, 4, 4)
        y = self.back((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, 4, c))
        y = y.view(n, rows, columns, 2, 2, c).transpose(2, 3).reshape(n, 2 * rows, 2 * columns, c)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        return self.head((x + y[:, :height, :width]).mean((1, 2)))


@pytest.mark.parametrize(
    ("model", "side", "heads"),
    [
        (Windowed(), 8, 8),
        (Windowed(bias=True), 8, 8),
        (Windowed(shift=1, bias=True), 8, 8),
        (Windowed(shift=1), 6, 8),
    ],
    ids=["windows", "position bias", "shifted", "padded and cut"],
)
def test_attention_in_windows_has_a_head_of_the_image_for_each_of_a_window(model, side, heads):
    (attention,) = (part for part in exact(model, images(side)).modules() if isinstance(part, SoftmaxAttention))
    assert attention.heads == heads


def test_windows_become_heads_of_polynomial_attention():
    model = Windowed(bias=True).eval()
    polynomial_(model, images())
    assert pc.compile(model, images(), profile="counted", progress=False, failure_bits=10).integer


def test_windows_as_an_axis_of_their_own_become_heads():
    class Blocks(Windowed):
        def forward(self, x: Tensor) -> Tensor:
            y = self.patches(x).flatten(2).mT
            q, k, v = self.qkv(y).reshape(len(x), 4, 4, 3, 2, 4).permute(3, 0, 1, 4, 2, 5).unbind(0)
            return self.head(((q @ k.mT).softmax(-1) @ v).transpose(2, 3).flatten(3).flatten(1, 2)[:, 1])

    exact(Blocks(), images())


def test_masks_that_differ_from_image_to_image_are_refused():
    class Different(Windowed):
        def forward(self, x: Tensor) -> Tensor:
            y = self.patches(x).flatten(2).mT.reshape(-1, 4, 8)
            q, k, v = self.qkv(y).chunk(3, -1)
            scores = q @ k.mT + torch.arange(float(len(y)))[:, None, None] * torch.eye(4)
            return self.head((scores.softmax(-1) @ v).reshape(len(x), -1, 8).mean(1))

    with pytest.raises(RuleError, match="let masks and position biases be constants, the same for all images"):
        exact_copy(Different().eval(), images())


def test_a_batch_norm_of_all_tokens_of_a_batch_is_one_of_tokens():
    norm = nn.BatchNorm1d(6)
    with torch.no_grad():
        norm.running_mean.copy_(torch.randn(6)), norm.running_var.copy_(torch.rand(6) + 0.5)
    model = Written(
        lambda net, x: net.head(net.norm(net.fc(net.conv(x).flatten(2).mT).flatten(0, 1)).view(len(x), -1, 6).mean(1)),
        conv=nn.Conv2d(3, 4, 2, 2),
        fc=nn.Linear(4, 6),
        norm=norm,
        head=nn.Linear(6, 3),
    )
    exact(model, images())


def test_convolutions_of_windows_are_refused():
    model = Written(
        lambda net, x: net.conv(x.reshape(-1, 3, 4, 4)).reshape(len(x), -1),
        conv=nn.Conv2d(3, 4, 3),
    )
    with pytest.raises(RuleError, match=r"got reshape \(reshape\); use reshapes and permutations"):
        exact_copy(model.eval(), images())


@pytest.mark.parametrize(("shifts", "dims"), [(1, 2), (-3, 3), ((1, 2), (2, 3))])
def test_a_map_is_rolled(shifts, dims):
    model = Written(lambda net, x: net.conv(x).relu().roll(shifts, dims).flatten(1)[:, :20], conv=nn.Conv2d(3, 4, 3))
    exact(model, images())


def test_padding_by_nothing_is_left_out():
    model = Written(
        lambda net, x: net.fc(F.pad(net.conv(x).permute(0, 2, 3, 1), (0, 0, 0, 0, 0, 0)).flatten(1).relu()),
        conv=nn.Conv2d(3, 4, 3),
        fc=nn.Linear(144, 3),
    )
    assert not any(isinstance(part, Concat) for part in exact(model, images()).modules())


RESAMPLED = {
    "an adaptive average": lambda x: F.adaptive_avg_pool2d(x, (4, 5)),
    "an adaptive average that is larger": lambda x: F.adaptive_avg_pool2d(x, 8),
    "an adaptive maximum": lambda x: F.adaptive_max_pool2d(x, (4, 5)),
    "bilinear": lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "corners": lambda x: F.interpolate(x, (9, 6), mode="bilinear", align_corners=True),
    "bicubic": lambda x: F.interpolate(x, (5, 6), mode="bicubic"),
}


@pytest.mark.parametrize("function", RESAMPLED.values(), ids=RESAMPLED)
def test_resampling_takes_linear_layers_or_moves(function):
    model = Written(
        lambda net, x: net.last(function(net.conv(x).relu())).mean((2, 3)),
        conv=nn.Conv2d(3, 4, 3),
        last=nn.Conv2d(4, 3, 3),
    )
    exact(model, images())


def test_an_image_is_resampled():
    model = Written(
        lambda net, x: net.conv(F.interpolate(x, (6, 7), mode="bicubic")).relu().flatten(1), conv=nn.Conv2d(3, 4, 3)
    )
    exact(model, images())


def test_an_operation_that_mixes_channels_is_not_resampling():
    model = Written(lambda net, x: F.adaptive_avg_pool2d(net.conv(x), (3, 5)).sort(1)[0], conv=nn.Conv2d(3, 4, 3))
    with pytest.raises(RuleError, match=r"got sort \(sort\)"):
        exact_copy(model.eval(), images())


@pytest.mark.parametrize("kind", [StdConv2d, ScaledStdConv2d])
def test_standardized_weights_become_plain_ones(kind):
    model = nn.Sequential(
        kind(3, 8, 3, stride=2, padding=0),
        nn.ReLU(),
        kind(8, 8, 3, padding=0),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8, 3),
    )
    copied = exact(model, images())
    assert type(copied.get_submodule("2")) is nn.Conv2d
    assert not torch.equal(copied.get_submodule("2").weight, model[2].weight)


class CrossCovariance(nn.Module):
    """Attention between channels whose queries and keys have length 1, with a factor of each head, as in EdgeNeXt."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.qkv, self.head = nn.Conv2d(3, 8, 2, 2), nn.Linear(8, 24), nn.Linear(8, 3)
        self.factor = nn.Parameter(torch.tensor([1.0, 3.0]).view(2, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).mT
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 4, 1).unbind(0)
        weights = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * self.factor).softmax(-1)
        return self.head((x + (weights @ v).permute(0, 3, 1, 2).flatten(2)).mean(1))


def test_vectors_of_length_one_and_factors_of_heads():
    exact(CrossCovariance(), images())
    polynomial_(CrossCovariance().eval(), images())


@pytest.mark.parametrize("dim", [1, 2, -1])
def test_vectors_are_normalized_along_any_axis(dim):
    model = Written(lambda net, x: net.fc(F.normalize(net.conv(x), dim=dim).flatten(1)), conv=nn.Conv2d(3, 4, 3))
    model.fc = nn.Linear(4 * 36, 3)
    exact(model, images())


def test_lengths_of_another_norm_are_refused():
    model = Written(lambda net, x: F.normalize(net.conv(x), p=1.0).flatten(1), conv=nn.Conv2d(3, 4, 3))
    with pytest.raises(RuleError, match=r"normalize \(normalize\); normalize vectors by their Euclidean lengths"):
        exact_copy(model.eval(), images())


@pytest.mark.parametrize("dim", [1, 3])
def test_a_softmax_outside_of_attention(dim):
    def separable(net: nn.Module, x: Tensor) -> Tensor:
        scores, keys, values = net.conv(x).split([1, 4, 4], 1)
        context = (keys * scores.softmax(dim)).sum(-1, keepdim=True)
        return net.head((values.relu() * context.expand_as(values)).mean((2, 3)))

    exact(Written(separable, conv=nn.Conv2d(3, 9, 1), head=nn.Linear(4, 3)), images())


@pytest.mark.parametrize("function", [lambda x: x.mean(2), lambda x: x.sum(3), lambda x: x.mean(-1, keepdim=True)])
def test_rows_and_columns_are_reduced_alone(function):
    model = Written(lambda net, x: function(net.conv(x).relu()).flatten(1), conv=nn.Conv2d(3, 4, (2, 4)))
    exact(model, images())


@pytest.mark.parametrize("between", [nn.LayerNorm(4), nn.Identity(), nn.ReLU6()])
def test_an_average_whose_divisor_is_no_power_of_two(between):
    model = nn.Sequential(
        *(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AvgPool2d(3), nn.Flatten(), nn.Unflatten(1, (4, 4))),
        *(between, nn.Flatten(), nn.Linear(16, 3)),
    )
    exact(model, images())
