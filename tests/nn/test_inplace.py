"""In-place operations mean in a traced network what they mean in torch, or are refused."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privcirnet.errors import RuleError
from privcirnet.nn.graph import trace
from privcirnet.surgery.polynomial import polynomial_
from privcirnet.surgery.sizes import trace_at


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


def add_method(net, a):
    a.add_(net.second(a))
    return a * a


def add_to_another_name(net, a):
    b = a
    b += net.second(a)
    return a * a


def add_out(net, a):
    torch.add(a, net.second(a), out=a)
    return a * a


def square_statement(net, a):
    a.square_()
    return net.second(a)


def multiply_by_itself(net, a):
    a *= a
    return net.second(a)


def power(net, a):
    a.pow_(2)
    return net.second(a) + a


def written_through_the_result(net, a):
    b = a.square_()
    b.add_(net.second(b))
    return a


def dropout_by_position(net, a):
    F.dropout(a, 0.5, False, True)
    return a * a


def relu_module(net, a):
    net.relu(a)
    return net.second(a)


def relu_module_and_its_input(net, a):
    b = net.relu(a)
    return net.second(b) + a


def relu_function(net, a):
    F.relu(a, inplace=True)
    return net.second(a)


def relu_by_position(net, a):
    F.relu(a, True)
    return net.second(a)


def relu_underscore(net, a):
    torch.relu_(a)
    return net.second(a)


def relu_after_a_read(net, a):
    b = net.second(a)
    F.relu_(a)
    return a + b


EXACT = (
    *(add_method, add_to_another_name, add_out, square_statement, multiply_by_itself, power),
    *(written_through_the_result, dropout_by_position),
)
WITH_RELU = (
    *(relu_module, relu_module_and_its_input, relu_function, relu_by_position, relu_underscore, relu_after_a_read),
)


@torch.no_grad()  # torch.add(out=) is impossible otherwise
@pytest.mark.parametrize("lines", [*EXACT, *WITH_RELU])
def test_a_graph_computes_what_the_network_does(lines):
    model, images = Writing(lines).eval(), torch.randn(2, 3, 6, 6)
    wanted = model(images)
    for graph in (trace(model), trace_at(model, images)):
        assert torch.equal(graph(images), wanted)
        written = [node for node in graph.graph.nodes if str(node.target).endswith("_") or node.kwargs.get("inplace")]
        assert not written


@torch.no_grad()
@pytest.mark.parametrize("lines", EXACT)
def test_surgery_keeps_what_is_exact(lines):
    model, images = Writing(lines).eval(), torch.randn(4, 3, 6, 6)
    wanted = model(images)
    polynomial_(model, images)
    torch.testing.assert_close(model.eval()(images), wanted)


@pytest.mark.parametrize("lines", WITH_RELU)
def test_surgery_replaces_an_activation_that_is_a_statement(lines):
    changes = polynomial_(Writing(lines), torch.randn(4, 3, 6, 6))
    assert [change.after.split()[-1] for change in changes] in (["Aespa2d"], ["Aespa2d", "Aespa2d"])


def view_and_its_base(net, a):
    b = a.view(-1, 4, 36)
    b.relu_()
    return a


def base_and_its_view(net, a):
    b = torch.flatten(a, 2)
    a += net.second(a)
    return b.view(-1, 4, 6, 6)


def part_and_the_whole(net, a):
    b, _ = a.chunk(2, 1)
    b.add_(1)
    return a


@pytest.mark.parametrize("lines", [view_and_its_base, base_and_its_view, part_and_the_whole])
@pytest.mark.parametrize("verb", [trace, lambda model: polynomial_(model, torch.zeros(1, 3, 6, 6))])
def test_views_of_what_was_written_to_are_refused(lines, verb):
    with pytest.raises(RuleError, match="a view must not be read after its memory was written to: got"):
        verb(Writing(lines))


def test_a_view_that_is_not_read_again_is_fine():
    def lines(net, a):
        return net.dropout(F.relu_(torch.flatten(a, 1)))

    model, images = Writing(lines).eval(), torch.randn(2, 3, 6, 6)
    assert torch.equal(trace(model)(images), model(images))


@pytest.mark.parametrize("verb", [trace, lambda model: trace_at(model, torch.zeros(1, 3, 6, 6))])
def test_a_parameter_that_is_written_to_is_refused(verb):
    def lines(net, a):
        net.second.bias.mul_(0.5)
        return a

    with pytest.raises(RuleError, match=r"a network must not change itself in its forward: got .*second.bias"):
        verb(Writing(lines).requires_grad_(requires_grad=False))


def a_part_is_set(net, a):
    a[:, :2] = 0.5
    return a


def negatives_are_set(net, a):
    a[a < 0] = 0
    return a


@pytest.mark.parametrize("lines", [a_part_is_set, negatives_are_set])
@pytest.mark.parametrize("verb", [trace, lambda model: polynomial_(model, torch.zeros(1, 3, 6, 6))])
def test_parts_that_are_set_are_refused(lines, verb):
    with pytest.raises(
        RuleError, match=r"must not write to a part of a value: got first\[\.\.\.\] =; compute the parts"
    ):
        verb(Writing(lines))
