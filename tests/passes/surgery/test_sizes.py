"""Tracing at one image size: what is computed from shapes is no part of the graph."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.passes.shape_tracing import trace_at


class Branching(nn.Module):
    """Branches on sizes, counts channels, unpacks chunks and loops over them; a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.scale = nn.Conv2d(3, 8, 3), nn.Parameter(torch.rand(8, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        n, _, height, width = x.shape
        if height > 8 or x.size(-1) != width:
            x = F.avg_pool2d(x, 2)
        x = self.conv(x) * self.scale
        if x.ndim == 4 and x.is_floating_point() and len(x) == n:
            left, right = x.chunk(2, 1)
            x = left + right
        for part in x.split(2, 1):
            x = x + part.mean()
        return x.view(n, -1)


@pytest.mark.parametrize("size", [8, 16])
def test_the_graph_is_the_forward_at_that_size(size):
    torch.manual_seed(0)
    model, images = Branching().eval(), torch.rand(2, 3, size, size)
    graph = trace_at(model, images)
    others = torch.rand(2, 3, size, size)
    assert_close(graph(others), model(others))
    pools = [node for node in graph.graph.nodes if node.target is F.avg_pool2d]
    assert len(pools) == (size > 8)
    assert graph.conv is model.conv


def test_shapes_are_noted():
    graph = trace_at(Branching(), torch.rand(2, 3, 8, 8))
    shapes = {node.name: node.meta.get("shape") for node in graph.graph.nodes}
    assert shapes["conv"] == (2, 8, 6, 6)
    assert shapes["chunk"] is None
    assert shapes["view"] == (2, 144)


def test_modes_are_left_as_they_were():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Dropout()).train()
    model[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trace_at(model, torch.rand(2, 3, 4, 4))
    assert [m.training for m in model] == [True, False, True]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class OnValues(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("model", "got"),
    [(OnValues(), "OnValues on .* control flow"), (nn.Conv2d(4, 4, 1), r"Conv2d on \(2, 3, 8, 8\): RuntimeError")],
)
def test_what_cannot_be_traced(model, got):
    with pytest.raises(RuleError, match=rf"traceable by torch.fx at its image size: got {got}"):
        trace_at(model, torch.rand(2, 3, 8, 8))


class Counting(nn.Module):
    """Counts its calls, in a number or in a buffer; records its last size, which is no harm."""

    def __init__(self, buffer: bool) -> None:
        super().__init__()
        self.calls, self.conv = 0, nn.Conv2d(3, 4, 1)
        self.register_buffer("seen", torch.zeros(()))
        self.buffer = buffer

    def forward(self, x: Tensor) -> Tensor:
        self.size = x.shape[-1]
        if self.buffer:
            self.seen.add_(1)
        else:
            self.calls += 1
        return self.conv(x)


@pytest.mark.parametrize(("buffer", "name"), [(False, "calls"), (True, "seen")])
def test_a_network_that_changes_itself_is_refused(buffer, name):
    with pytest.raises(RuleError, match=rf"must not change itself in its forward: got {name}"):
        trace_at(Counting(buffer), torch.rand(2, 3, 4, 4))
