"""Which activations and pools have an exact form, and that it is torch's."""

import numpy as np
import pytest
import torch
from torch import nn

from privcirnet.errors import RuleError
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.plan_program import Target
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program import operations as op
from privcirnet.he.program.interpreter import interpret
from privcirnet.nn.quantizers import ActivationQuantizer
from privcirnet.nn.supported_modules import has_exact_form
from privcirnet.passes.fuse import fuse
from privcirnet.passes.lower import lower
from privcirnet.passes.lower.builder import Rounding, exact_form, max_pool
from privcirnet.passes.quantize import quantize, with_quantizers

TABLES = [
    *(nn.GELU(), nn.GELU(approximate="tanh"), nn.SiLU(), nn.Hardswish(), nn.Mish(), nn.LeakyReLU()),
    *(nn.Sigmoid(), nn.Hardsigmoid(), nn.Tanh()),
]
EXACTLY = Target(COUNTED, LINKS["local"], truncation="exact", nonlinear="exact")


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(2),
        nn.MaxPool2d(3, 2, 1),
        nn.MaxPool2d((3, 2), (1, 3), (1, 0)),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.MaxPool2d(2, 2, 1, ceil_mode=True),
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(2, 8, 9), (2, 5, 7), (1, 6, 6)])
def test_max_pools_are_torchs(pool, shape):
    x = torch.randint(-100, 100, shape, generator=torch.Generator().manual_seed(0))
    operation, wanted = max_pool(pool, shape), pool(x[None].double())[0]
    assert operation.shape_after([shape]) == tuple(wanted.shape)
    assert np.array_equal(operation.values(x.numpy()), wanted.long().numpy())


def test_what_has_an_exact_form():
    some = nn.ReLU(), nn.ReLU6(), *TABLES, nn.MaxPool2d(2, 2, 1)
    assert all(has_exact_form(module) for module in some)
    pools = nn.MaxPool2d(2, dilation=2), nn.MaxPool2d(2, return_indices=True)
    others = nn.ELU(-1.0), nn.Softplus(1, 1), nn.Softsign(), *pools, None
    assert not any(has_exact_form(module) for module in others)


def model(activation: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), activation, nn.Flatten(), nn.Linear(144, 4)).double()


def test_a_truncation_is_part_of_the_relu_behind_it():
    images = torch.rand(8, 1, 8, 8).double()
    graph = quantize(fuse(model(nn.ReLU())), images, -4)
    nodes = lower(graph, (1, 8, 8), 16, -4, EXACTLY).nodes
    assert [node.operation.kind for node in nodes] == ["input", "linear", "exact_relu", "flatten", "linear"]
    assert isinstance(nodes[2].operation, op.ExactReLU)
    assert nodes[2].log_step == nodes[1].log_step + nodes[2].operation.bits


class Residual(nn.Module):
    """A block whose shortcut is what comes in, or a layer of it."""

    def __init__(self, shortcut: nn.Module, activation: nn.Module) -> None:
        super().__init__()
        self.stem, self.relu, self.one, self.two = nn.Conv2d(1, 4, 3), nn.ReLU(), *(nn.Conv2d(4, 4, 1) for _ in "ab")
        self.shortcut, self.after, self.act = shortcut, nn.ReLU(), activation
        self.flatten, self.head = nn.Flatten(), nn.Linear(144, 4)

    def forward(self, x):
        x = self.relu(self.stem(x))
        return self.head(self.flatten(self.act(self.two(self.after(self.one(x))) + self.shortcut(x))))


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.ReLU6()], ids=str)
@pytest.mark.parametrize("shortcut", [nn.Identity(), nn.Conv2d(4, 4, 1)], ids=["identity", "layer"])
def test_the_relu_behind_a_sum_rounds_its_last_summand(shortcut, activation):
    """The quantized network rounds it before, which gives the same: that of a layer beside it stays."""
    torch.manual_seed(0)
    images = torch.rand(8, 1, 8, 8).double()
    graph = quantize(fuse(Residual(shortcut, activation).double()), images, -4)
    network = lower(graph, (1, 8, 8), 16, -4, EXACTLY)
    truncated = [node.name for node in network.nodes if isinstance(node.operation, op.ExactTruncate)]
    assert truncated == (["shortcut_quantizer"] if isinstance(shortcut, nn.Conv2d) else [])
    integers = (images * 16).round()
    logits = [interpret(network, image.long().numpy())[network.nodes[-1].name].reshape(-1) for image in integers]
    with torch.no_grad():
        wanted = graph.eval()(integers / 16).numpy()
    assert np.array_equal(np.array(logits) * 2.0 ** network.nodes[-1].log_step, wanted)


@pytest.mark.parametrize("activation", TABLES, ids=str)
def test_a_truncation_is_part_of_the_table_behind_it(activation):
    images = torch.rand(8, 1, 8, 8).double()
    graph = quantize(fuse(model(activation)), images, -4)
    nodes = lower(graph, (1, 8, 8), 16, -4, EXACTLY).nodes
    assert [node.operation.kind for node in nodes] == ["input", "linear", "exact_table", "flatten", "linear"]
    table = nodes[2].operation
    assert isinstance(table, op.ExactTable)
    assert (table.log_step_in, table.log_step_out) == (nodes[1].log_step + table.bits, nodes[2].log_step)
    x = torch.arange(table.low, table.high + 1, dtype=torch.float64) * 2.0**table.log_step_in
    behind = next(m for name, m in graph.named_modules() if name == "_1_quantizer")
    assert np.array_equal(table.entries, (behind(activation(x)) * 2.0**-table.log_step_out).numpy())


@pytest.mark.parametrize("first", [nn.ReLU(), nn.ReLU6()], ids=str)
def test_a_relu_before_a_coarser_table_rounds_for_itself_alone(first):
    torch.manual_seed(0)
    images = torch.rand(8, 1, 8, 8).double() * 4
    graph = quantize(fuse(model(nn.Sequential(first, nn.Hardsigmoid())).double()), images, -2)
    steps = {name: int(each.log_step) for name, each in graph.named_modules() if isinstance(each, ActivationQuantizer)}
    assert steps["_1_1_input_quantizer"] > steps["_0_quantizer"]
    network = lower(graph, (1, 8, 8), 16, -2, EXACTLY)
    integers = (images * 4).round()
    logits = [interpret(network, image.long().numpy())[network.nodes[-1].name].reshape(-1) for image in integers]
    with torch.no_grad():
        wanted = graph.eval()(integers / 4).numpy()
    assert np.array_equal(np.array(logits) * 2.0 ** network.nodes[-1].log_step, wanted)


def test_a_table_needs_a_clip_before():
    with pytest.raises(RuleError, match="must be quantized and clipped before: got act"):
        exact_form("gelu", "act", Rounding(-9, -4, -4))


def test_what_has_none_is_named_with_what_can_be_done():
    graph = with_quantizers(fuse(model(nn.Softsign())))
    with pytest.raises(RuleError, match=r"1 \(Softsign\); use Conv2d, "):
        lower(graph, (1, 8, 8), 16, -4, EXACTLY)


def test_a_clip_between_two_steps_is_refused():
    assert exact_form("relu6", "act", Rounding(-9, 1, 1)) == op.ExactReLU(10, most=3)
    with pytest.raises(RuleError, match="a ReLU6 must clip at a whole number of steps: got step 2\\^2 at act"):
        exact_form("relu6", "act", Rounding(-9, 2, 2))
