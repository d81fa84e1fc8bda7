"""Sensitivities of activations against divergences of predictions, and their prices against whole programs."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div

from privcirnet.blocksize_search.activations import (
    OPTIONS,
    activation_figures,
    activation_omegas,
    activation_sizes,
    replacement_errors,
)
from privcirnet.errors import RuleError
from privcirnet.he.planning.cost import Objective
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.plan_program import Target, predicted_online, predicted_seconds
from privcirnet.he.planning.profile import COUNTED
from privcirnet.nn.activations import Square
from privcirnet.passes.fuse import fuse
from privcirnet.passes.lower import usual_draft

IMAGES, LABELS = torch.randn(6, 2, 4, 4, generator=torch.Generator().manual_seed(0)).double(), torch.arange(6) % 3


def network(*between: nn.Module, inplace: bool = False) -> nn.Sequential:
    """A convolution, a ReLU or what else is given, and a GELU behind another one."""
    torch.manual_seed(0)
    first = between or (nn.ReLU(inplace=inplace),)
    body = nn.Conv2d(2, 4, 3, padding=1), *first, nn.Conv2d(4, 4, 1), nn.GELU(), nn.AvgPool2d(4)
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(4, 3)).double()


def omegas(model: nn.Module, images: Tensor = IMAGES) -> dict[str, Tensor]:
    """Of the model's first two activations, as AESPA, nothing and themselves, fitted to the images."""
    names = list(activation_sizes(model, images[:1]))
    errors = replacement_errors(model, [(images, LABELS)], dict.fromkeys(names, (-1, -3, 0)))
    return activation_omegas(model, images, errors)


@torch.no_grad()
@pytest.mark.parametrize(("option", "degree"), [(0, 2), (1, 1)])
def test_omega_is_twice_the_divergence_of_predictions(option, degree):
    """Of a small step towards the polynomials that torch's own least squares find; labels are drawn many times."""
    model, step = network(), 0.02
    x, many = model[0](IMAGES), IMAGES.repeat(4000, 1, 1, 1)
    exact, moved = x.relu(), x.relu()
    for channel in range(4):
        powers = torch.stack([x[:, channel].flatten() ** k for k in range(degree + 1)], 1)
        fit = powers @ torch.linalg.lstsq(powers, exact[:, channel].flatten()).solution
        moved[:, channel] += step * (fit.reshape(6, 4, 4) - exact[:, channel])
    before, after = (model[2:](values).log_softmax(1) for values in (exact, moved))
    divergence = kl_div(after, before, log_target=True, reduction="batchmean").item()
    errors = replacement_errors(model, [(IMAGES, LABELS)], {"1": (-1, -3)})
    found = activation_omegas(model, many, errors)["1"][option].item()
    assert found == pytest.approx(2 * divergence / step**2, rel=0.03)


def test_a_polynomial_of_higher_degree_is_nearer_and_one_that_fits_costs_nothing():
    model = network()
    for found in omegas(model).values():
        assert found[2] == 0 < found[0] < found[1]
    before = omegas(model)["1"][1]
    with torch.no_grad():
        model[0].bias.fill_(100)  # where a ReLU does nothing
    assert omegas(model)["1"][1] < 1e-12 * before


def test_what_works_in_place_is_seen_as_it_was():
    apart, inplace = (omegas(network(inplace=kind)) for kind in (False, True))
    torch.testing.assert_close(inplace, apart)


def test_only_activations_that_can_become_polynomials_are_searched():
    gated = nn.Sequential(nn.Conv2d(2, 2, 1), nn.Sigmoid(), nn.SiLU(), nn.Tanh(), nn.Softsign(), Square())
    assert activation_sizes(gated, IMAGES[:1].float()) == {"2": 32, "3": 32}
    relu = nn.ReLU()
    with pytest.raises(RuleError, match="an activation must run once an image: got 1; make each a module first"):
        activation_sizes(nn.Sequential(nn.Conv2d(2, 2, 1), relu, relu), IMAGES[:1].float())


@pytest.mark.parametrize("link", ["local", "wan"])
def test_prices_are_what_whole_programs_differ_by(link):
    """The same network with other activations has the same layers, and truncations beside them."""
    goal = Objective(COUNTED, LINKS[link])
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
    assert priced[OPTIONS["aespa"]].rounds == 3
    assert priced[OPTIONS["identity"]].rounds == 1
