"""Networks as graphs."""

import pytest
import torch
from torch import nn

from privcirnet.nn.graph import evaluating, trace
from privcirnet.passes.convert import circulant_
from tests.nn.networks import SIZES, images, residual


def test_trace_keeps_the_toolkits_modules_whole():
    model = circulant_(residual(), SIZES)
    graph = trace(model).graph
    assert {node.op for node in graph.nodes if node.op != "placeholder"} == {
        "call_module",
        "call_function",
        "call_method",
        "output",
    }
    assert {"square", "gamma", "stem"} <= {node.target for node in graph.nodes}
    assert torch.equal(trace(model).eval()(images()), model.eval()(images()))


def test_evaluating_restores_each_modules_own_mode():
    model = residual().train()
    model.alpha.eval()
    seen = []

    def look() -> None:
        with evaluating(model):
            seen.extend(module.training for module in model.modules())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        look()
    assert seen
    assert not any(seen)
    assert [name for name, module in model.named_modules() if not module.training] == ["alpha"]


class Positions(nn.Module):
    """A network whose buffer takes its size from the images."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("positions", torch.arange(4.0)[None])

    def forward(self, x):
        return self.layer(x + self.positions.expand(x.shape[0], -1))


def test_a_buffer_may_be_expanded_to_the_images():
    model, x = Positions().eval(), torch.randn(3, 4)
    assert torch.equal(trace(model)(x), model(x))
    shown = torch.randn(64, 4)
    assert torch.allclose(circulant_(model, {"layer": 2}, images=shown)(x), trace(model)(x))
