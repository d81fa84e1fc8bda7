"""In-place operations mean in a traced network what they mean in torch, or are refused."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privcirnet.errors import RuleError
from privcirnet.nn.graph import trace
from privcirnet.passes.shape_tracing import trace_at
from privcirnet.passes.surgery.polynomial import polynomial_


class Writing(nn.Module):
    """A convolution, some lines of code that write in place, and a classifier."""

    def __init__(self, lines) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.relu, self.dropout = nn.ReLU(inplace=True), nn.Dropout(inplace=True)
        self.classifier, self.lines = nn.Linear(4 * 36, 2), lines

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.lines(self, self.first(x)), 1))


EXACT = {
    "a method": "a.add_(net.second(a)); return a * a",
    "another name": "b = a; b += net.second(a); return a * a",
    "out=": "torch.add(a, net.second(a), out=a); return a * a",
    "a square": "a.square_(); return net.second(a)",
    "by itself": "a *= a; return net.second(a)",
    "a power": "a.pow_(2); return net.second(a) + a",
    "written through the result": "b = a.square_(); b.add_(net.second(b)); return a",
    "dropout by position": "F.dropout(a, 0.5, False, True); return a * a",
}
WITH_RELU = {
    "a module": "net.relu(a); return net.second(a)",
    "a module and its input": "b = net.relu(a); return net.second(b) + a",
    "a function": "F.relu(a, inplace=True); return net.second(a)",
    "by position": "F.relu(a, True); return net.second(a)",
    "relu_": "torch.relu_(a); return net.second(a)",
    "after a read": "b = net.second(a); F.relu_(a); return a + b",
}
VIEWS = {
    "a view and its base": "b = a.view(-1, 4, 36); b.relu_(); return a",
    "a base and its view": "b = torch.flatten(a, 2); a += net.second(a); return b.view(-1, 4, 6, 6)",
    "a part and the whole": "b, _ = a.chunk(2, 1); b.add_(1); return a",
}
PARTS = {"a part": "a[:, :2] = 0.5; return a", "negatives": "a[a < 0] = 0; return a"}


def written(text: str) -> Writing:
    """A network whose lines, of the network and the first layer's values, are this text."""
    names = dict[str, object]()
    exec(f"def lines(net, a):\n    {text}", {"torch": torch, "F": F}, names)
    return Writing(names["lines"])


@torch.no_grad()  # torch.add(out=) is impossible otherwise
@pytest.mark.parametrize("lines", [*EXACT.values(), *WITH_RELU.values()], ids=[*EXACT, *WITH_RELU])
def test_a_graph_computes_what_the_network_does(lines):
    model, images = written(lines).eval(), torch.randn(2, 3, 6, 6)
    wanted = model(images)
    for graph in (trace(model), trace_at(model, images)):
        assert torch.equal(graph(images), wanted)
        left = [node for node in graph.graph.nodes if str(node.target).endswith("_") or node.kwargs.get("inplace")]
        assert not left


@torch.no_grad()
@pytest.mark.parametrize("lines", EXACT.values(), ids=EXACT)
def test_surgery_keeps_what_is_exact(lines):
    model, images = written(lines).eval(), torch.randn(4, 3, 6, 6)
    wanted = model(images)
    polynomial_(model, images)
    torch.testing.assert_close(model.eval()(images), wanted)


@pytest.mark.parametrize("lines", WITH_RELU.values(), ids=WITH_RELU)
def test_surgery_replaces_an_activation_that_is_a_statement(lines):
    changes = polynomial_(written(lines), torch.randn(4, 3, 6, 6))
    assert [change.after.split()[-1] for change in changes] in (["Aespa2d"], ["Aespa2d", "Aespa2d"])


@pytest.mark.parametrize("lines", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("verb", [trace, lambda model: polynomial_(model, torch.zeros(1, 3, 6, 6))])
def test_views_of_what_was_written_to_are_refused(lines, verb):
    with pytest.raises(RuleError, match="a view must not be read after its memory was written to: got"):
        verb(written(lines))


def test_a_view_that_is_not_read_again_is_fine():
    model, images = written("return net.dropout(F.relu_(torch.flatten(a, 1)))").eval(), torch.randn(2, 3, 6, 6)
    assert torch.equal(trace(model)(images), model(images))


@pytest.mark.parametrize("verb", [trace, lambda model: trace_at(model, torch.zeros(1, 3, 6, 6))])
def test_a_parameter_that_is_written_to_is_refused(verb):
    model = written("net.second.bias.mul_(0.5); return a").requires_grad_(requires_grad=False)
    with pytest.raises(RuleError, match=r"a network must not change itself in its forward: got .*second.bias"):
        verb(model)


@pytest.mark.parametrize("lines", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("verb", [trace, lambda model: polynomial_(model, torch.zeros(1, 3, 6, 6))])
def test_parts_that_are_set_are_refused(lines, verb):
    with pytest.raises(RuleError, match=r"must not write to a part of a value: got first\[\.\.\.\] ="):
        verb(written(lines))
