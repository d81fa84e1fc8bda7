"""A program is compared with its quantized network, and with the network that the user began with."""

import pytest
import torch
from torch import nn

import privcirnet as pc
from privcirnet.errors import RuleError
from privcirnet.passes import comparisons, lower

IMAGES = torch.rand(16, 3, 8, 8, generator=torch.Generator().manual_seed(0))
OPTIONS = {"profile": "counted", "progress": False}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), pc.Square(), nn.Conv2d(4, 4, 3), pc.Square()
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 3)).eval()


@pytest.fixture(scope="module")
def quantized():
    return pc.quantize(pc.fuse(network()), IMAGES)


def test_a_quantized_network_that_computes_more_names_the_layer():
    quantized = pc.quantize(pc.fuse(network()), IMAGES)
    quantized.get_submodule("3").register_forward_hook(lambda module, given, result: result + 0.5)
    with pytest.raises(RuleError, match="compute what its quantized network does: got other values from '3' on"):
        pc.compile(quantized, IMAGES, **OPTIONS)


def test_a_layer_that_is_lowered_wrongly_is_found(quantized, monkeypatch):
    right = lower.quantized

    def wrong(module, log_step, name):
        b, found, step = right(module, log_step, name)
        return b, type(found)(-found.rows, found.bias) if name == "3" else found, step

    monkeypatch.setattr(lower, "quantized", wrong)
    with pytest.raises(RuleError, match="got other values from '3' on"):
        pc.compile(quantized, IMAGES, **OPTIONS)


def test_a_reference_is_compared(quantized):
    reference = network()
    for right in (reference, network().double()):
        pc.compile(quantized, IMAGES, reference=right, **OPTIONS)
    with torch.no_grad():
        reference[3].bias.add_(10)
    with pytest.raises(RuleError, match=r"logits must be within 0.25 of those of the reference: got .* from '_3' on"):
        pc.compile(quantized, IMAGES, reference=reference, **OPTIONS)
    pc.compile(quantized, IMAGES, reference=reference, tolerance=100.0, **OPTIONS)


def test_a_bias_that_all_classes_have_hides_no_difference():
    biased, reference = network(), network()
    with torch.no_grad():
        for model, factor in ((biased, 1.0), (reference, 3.0)):
            model[-1].weight.mul_(factor)
            model[-1].bias.add_(1e4)
    quantized = pc.quantize(pc.fuse(biased), IMAGES)
    with pytest.raises(RuleError, match=r"logits must be within 0.25 of those of the reference"):
        pc.compile(quantized, IMAGES, reference=reference, **OPTIONS)


def test_a_reference_with_a_hook_names_the_hook(quantized):
    reference = network()
    reference[6].register_forward_hook(lambda module, given, result: result / 0.1)
    with pytest.raises(RuleError, match=r"forward hooks that change values at 6 \(Linear\)"):
        pc.compile(quantized, IMAGES, reference=reference, **OPTIONS)


class Around(nn.Module):
    """A network around a reference."""

    def __init__(self, inner, returns) -> None:
        super().__init__()
        self.inner, self.returns = inner, returns

    def forward(self, x):
        return self.returns(self.inner(x))


def test_a_reference_that_returns_no_tensor_is_refused(quantized):
    with pytest.raises(RuleError, match="must return one tensor: got Around returns a dict"):
        pc.compile(quantized, IMAGES, reference=Around(network(), lambda logits: {"logits": logits}), **OPTIONS)


def test_a_reference_that_cannot_be_traced_is_compared(quantized):
    def branching(logits):
        return logits if logits.sum() < 1e9 else -logits

    reference = network()
    pc.compile(quantized, IMAGES, reference=Around(reference, branching), **OPTIONS)
    with torch.no_grad():
        reference[3].bias.add_(10)
    with pytest.raises(
        RuleError, match=r"within 0\.25 of those of the reference: got .* of their size; of the reference"
    ):
        pc.compile(quantized, IMAGES, reference=Around(reference, branching), **OPTIONS)


@pytest.mark.parametrize("head", [nn.Sigmoid(), nn.Tanh(), nn.Hardsigmoid(), nn.GELU()], ids=str)
def test_a_last_function_is_rounded_behind_and_before(head):
    """Of large logits, which the few bits of other functions would leave no differences to."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3), head).eval()
    with torch.no_grad():
        model[3].weight.mul_(10)
        quantized, wanted = pc.quantize(model, IMAGES), model(IMAGES)
        found = quantized(IMAGES)
    program = pc.compile(quantized, IMAGES, **OPTIONS)
    assert torch.equal(program(IMAGES[:4], engine="cleartext", check=True), found[:4])
    assert program.integer.output.log_step < -10
    assert (found - wanted).abs().max() < 0.1 * wanted.abs().max()


def test_an_exact_program_is_compared_on_all_images_bit_for_bit(monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3)).eval()
    quantized, right = pc.quantize(model, IMAGES), comparisons.interpret

    def wrong(program, image):
        """One unit off in the last image alone."""
        found, seen[0] = right(program, image), seen[0] + 1
        return found | {program.logits.name: found[program.logits.name] + (seen[0] == len(IMAGES))}

    seen = [0]
    pc.compile(quantized, IMAGES, **OPTIONS)
    monkeypatch.setattr(comparisons, "interpret", wrong)
    with pytest.raises(RuleError, match="compute what its quantized network does"):
        pc.compile(quantized, IMAGES, **OPTIONS)
