"""Sensitivities of activations against differences of the loss, and their prices against whole programs."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from privcirnet.blocksizes.activations import OPTIONS, activation_figures, activation_moments, activation_sizes, rise
from privcirnet.errors import RuleError
from privcirnet.he.planning.fit import predicted_online, predicted_seconds
from privcirnet.he.planning.goal import Goal
from privcirnet.he.planning.profile import COUNTED, LINKS
from privcirnet.he.planning.target import Target
from privcirnet.nn.activations import Square
from privcirnet.passes.fuse import fuse
from privcirnet.passes.lower.usual import usual_draft

IMAGES, LABELS = torch.randn(6, 2, 4, 4, generator=torch.Generator().manual_seed(0)).double(), torch.arange(6) % 3


def network(*between: nn.Module, inplace: bool = False) -> nn.Sequential:
    """A convolution, a ReLU or what else is given, and a GELU behind another one."""
    torch.manual_seed(0)
    first = between or (nn.ReLU(inplace=inplace),)
    body = nn.Conv2d(2, 4, 3, padding=1), *first, nn.Conv2d(4, 4, 1), nn.GELU(), nn.AvgPool2d(4)
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(4, 3)).double()


@torch.no_grad()
def test_the_rise_is_that_of_squared_differences_of_the_loss():
    """Every value is nudged by itself; polynomials are fitted channel by channel with torch's own least squares."""
    model, step = network(), 1e-5
    found = activation_moments(model, IMAGES, LABELS, ["1"])["1"]
    for kind, degree in (("identity", 1), ("aespa", 2), ("square", 2)):
        wanted, x = 0.0, model[0](IMAGES)
        for channel in range(4):
            powers = torch.stack([x[:, channel].flatten() ** k for k in range(degree + 1)], 1)
            exact = x[:, channel].relu().flatten()[:, None]
            error = (exact - powers @ torch.linalg.lstsq(powers, exact).solution).reshape(6, 4, 4)
            for row in range(4):
                for column in range(4):
                    nudge = torch.zeros_like(x)
                    nudge[:, channel, row, column] = step
                    up, down = (
                        cross_entropy(model[2:](x.relu() + side * nudge), LABELS, reduction="none") for side in (1, -1)
                    )
                    wanted += ((up - down) / (2 * step) * error[:, row, column]).square().sum().item() / 6
        assert rise(found, found, kind) == pytest.approx(wanted, rel=1e-6)
    assert rise(found, found, "own") == 0


def test_a_polynomial_of_higher_degree_is_nearer_and_one_that_fits_costs_nothing():
    model = network()
    found = activation_moments(model, IMAGES, LABELS, ["1", "3"])
    for moments in found.values():
        assert 0 < rise(moments, moments, "aespa") < rise(moments, moments, "identity")
    with torch.no_grad():
        model[0].bias.fill_(100)  # where a ReLU does nothing
    (positive,) = activation_moments(model, IMAGES, LABELS, ["1"]).values()
    assert rise(positive, positive, "identity") < 1e-12 * rise(found["1"], found["1"], "identity")


def test_what_works_in_place_is_seen_as_it_was():
    apart, inplace = (activation_moments(network(inplace=kind), IMAGES, LABELS, ["1"]) for kind in (False, True))
    torch.testing.assert_close(inplace, apart)


def test_only_activations_that_can_become_polynomials_are_searched():
    gated = nn.Sequential(nn.Conv2d(2, 2, 1), nn.Sigmoid(), nn.SiLU(), nn.Tanh(), nn.ELU(), Square())
    assert activation_sizes(gated, IMAGES[:1].float()) == {"2": 32, "3": 32}
    relu = nn.ReLU()
    with pytest.raises(RuleError, match="an activation must run once an image: got 1; make each a module first"):
        activation_sizes(nn.Sequential(nn.Conv2d(2, 2, 1), relu, relu), IMAGES[:1].float())


@pytest.mark.parametrize("link", ["local", "wan"])
def test_prices_are_what_whole_programs_differ_by(link):
    """The same network with other activations has the same layers, and truncations beside them."""
    goal = Goal(COUNTED, LINKS[link])
    target = Target(COUNTED, LINKS[link], truncation="exact", nonlinear="exact")
    model = network(nn.ReLU6()).float()
    priced = activation_figures(model, activation_sizes(model, IMAGES[:1].float()), ["aespa", "identity"], goal)["1"]

    def whole(activation: nn.Module) -> list[float]:
        drafted = usual_draft(fuse(network(activation).float().eval()), (2, 4, 4), target)
        nodes = [node for node in drafted.nodes if not node.operation.layers]
        return [predict(nodes, COUNTED, LINKS[link]) for predict in (predicted_seconds, predicted_online)]

    own, square, nothing = (whole(each) for each in (nn.ReLU6(), Square(), nn.Identity()))
    for other, kind in ((square, "aespa"), (nothing, "identity")):
        dearer, cheaper = priced[OPTIONS["own"]], priced[OPTIONS[kind]]
        differences = dearer.seconds - cheaper.seconds, dearer.online - cheaper.online
        assert differences == pytest.approx([a - b for a, b in zip(own, other, strict=True)])
    assert priced[OPTIONS["aespa"]].rounds == 5
    assert priced[OPTIONS["identity"]].rounds == 2
