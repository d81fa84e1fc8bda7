"""From a trained network to the integers of leveled inference, and to its encrypted-order circuit in clear."""

import numpy as np
import pytest
import torch
from torch import nn

from papers.falcon2020.lower import lower_exact
from papers.falcon2020.planning.exact_network import exact_network_of
from papers.falcon2020.planning.parameters import plan_for
from papers.falcon2020.planning.periodic import periodic_plan
from papers.falcon2020.protocol.inference import LeveledInferenceClient, LeveledInferenceServer
from privcirnet.errors import RuleError
from privcirnet.he.program.operations import Input
from privcirnet.nn.activations import Aespa1d, Square
from privcirnet.passes.convert import circulant_


def small(*behind_first: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    first, second = nn.Conv2d(1, 2, 3, stride=2, padding=1), nn.Linear(18, 6)
    layers = first, Square(), nn.Flatten(), *behind_first, second, Square(), nn.Linear(6, 3)
    return nn.Sequential(*layers).double().eval()


@torch.no_grad()
def on_grid_(model: nn.Module, log_step: int) -> None:
    """Weights and biases are multiples of 2^log_step, so that nothing is rounded."""
    for parameter in model.parameters():
        parameter.copy_((parameter * 2.0**-log_step).round() * 2.0**log_step)


@torch.no_grad()
def test_logits_are_the_network_s_bit_for_bit_through_the_circuit():
    """With weights of 4 bits and pixels of 3 every value is an integer that float64 carries."""
    model = circulant_(small(), {"3": 4}, pad=True)
    on_grid_(model, -4)
    images = torch.randint(0, 5, (3, 1, 6, 6), generator=torch.Generator().manual_seed(1))
    lowered = lower_exact(model, (1, 6, 6), Input(0, 4), -2, weight_bits=5)
    plan, parameters = plan_for(exact_network_of(lowered), periodic_plan)
    client = LeveledInferenceClient(plan.public, parameters, "cleartext")
    server = LeveledInferenceServer(plan, parameters, "cleartext")
    keys = server.load_keys(client.keys())
    for image, wanted in zip(images, model(images.double() * 2.0**-2).tolist(), strict=True):
        answer = server.answer(client.request(image.numpy()), keys)
        assert [float(value) * 2.0**lowered.output.log_step for value in client.results(answer)] == wanted


@torch.no_grad()
def test_eight_bits_are_close_and_aespa_is_folded():
    model = small()
    model[4] = Aespa1d(6).double().eval()  # type: ignore[assignment]
    images = torch.rand(4, 1, 6, 6, dtype=torch.float64).mul(256).floor()
    network = lower_exact(model, (1, 6, 6), Input(0, 255), -8)
    for image, wanted in zip(images, model(images * 2.0**-8).numpy(), strict=True):
        found = (
            exact_network_of(network).evaluate(image.long().numpy()).astype(np.float64) * 2.0**network.output.log_step
        )
        assert np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()


def test_what_is_not_a_line_of_layers_and_squares_is_refused():
    with pytest.raises(RuleError, match="a leveled network cannot have pools here: got sumpool '3'"):
        exact_network_of(lower_exact(small(nn.AvgPool2d(1)), (1, 6, 6), Input(0, 4), -2))
    model = small()
    model[1] = nn.ReLU()  # type: ignore[assignment]
    with pytest.raises(RuleError, match=r"must be one that runs encrypted: got 1 \(ReLU\)"):
        lower_exact(model, (1, 6, 6), Input(0, 4), -2)
    with pytest.raises(RuleError, match="must end in a linear layer: got 1 layers"):
        exact_network_of(lower_exact(nn.Sequential(nn.Conv2d(1, 2, 3), Square()), (1, 6, 6), Input(0, 4), -2))
