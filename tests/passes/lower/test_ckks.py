"""From a trained network to a circuit of bootstrapped CKKS: in clear, in the simulator, and encrypted."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from privcirnet.errors import RuleError
from privcirnet.he.ckks.bootstrapping import Bootstrapping
from privcirnet.he.ckks.circuit import CkksCircuit
from privcirnet.he.ckks.evaluator import Cleartext
from privcirnet.he.ckks.network import CkksNetwork, sums_of
from privcirnet.he.ckks.program import CkksProgram
from privcirnet.he.ckks.simulator import Simulator
from privcirnet.models import resnet18_cifar, resnet20_cifar
from privcirnet.nn.activations import Square
from privcirnet.passes.convert import circulant_, uniform_sizes
from privcirnet.passes.lower import lower_real
from tests.he.ckks.test_bootstrapping import toy, with_low
from tests.he.ckks_toys import Pair


def images_of(size: int, count: int = 32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, 3, 2, 2, generator=generator) * 2 - 1
    return nn.functional.interpolate(coarse, size=size, mode="bilinear")


def settled(model: nn.Module, images: torch.Tensor) -> nn.Module:
    """A network with statistics of its own, as training leaves them."""
    model.train()
    with torch.no_grad():
        for _ in range(60):
            model(images)
    return model.eval()


def built(model: nn.Module, size: int) -> tuple[CkksCircuit, np.ndarray, np.ndarray]:
    """A circuit at n = 1024, images and the network's own logits."""
    images = images_of(size)
    settled(model, images)
    with torch.no_grad():
        logits = model.double()(images.double()).numpy()
    real = images.double().numpy()
    network = sums_of(lower_real(model, (3, size, size))).normalized(real)
    return CkksCircuit(network, Bootstrapping(with_low(toy(spare=5)), to_coefficients=2, to_slots=2)), real, logits


def program_of(model: nn.Module, size: int, log_step: int) -> CkksProgram:
    """The program of such a circuit."""
    circuit, images, _ = built(model, size)
    network = lower_real(model, (3, size, size))
    return CkksProgram(network, sums_of(network).seen(images), circuit.bootstrapping, log_step)


def resnet20(**given) -> nn.Module:
    torch.manual_seed(0)
    small = {"num_classes": 4, "blocks": 2, "width": 4, "image_size": 8, "activation": "aespa"}
    return resnet20_cifar(**small | given)


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ({}, 1),
        ({"activation": "square"}, 1),
        ({"width": 16}, 2),
        pytest.param({"blocks": 3}, 1, marks=pytest.mark.slow),
    ],
)
def test_the_circuit_in_clear_is_the_network(given, parts):
    """AESPA and batch norms folded, strides as phases, real and imaginary channels; layers of two ciphertexts."""
    circuit, images, logits = built(resnet20(**given), 8)
    np.testing.assert_allclose(circuit.network(images), logits, atol=1e-5 * np.abs(logits).max())
    assert circuit.layouts[0].parts == parts
    for image, want in zip(images[:2], logits, strict=False):
        found = circuit.logits(circuit(Cleartext(), circuit.encode(image)))
        np.testing.assert_allclose(found, want, atol=1e-5 * np.abs(logits).max())


def test_other_depths_and_circulant_weights_are_lowered_too():
    torch.manual_seed(0)
    model = resnet18_cifar(num_classes=4, width=8, image_size=16, activation="aespa")
    blocks = uniform_sizes(model, 4)
    assert blocks["classifier"] == 4
    circuit, images, logits = built(circulant_(model, blocks), 16)
    found = circuit.logits(circuit(Cleartext(), circuit.encode(images[0])))
    np.testing.assert_allclose(found, logits[0], atol=1e-5 * np.abs(logits).max())


def test_weights_beyond_the_memory_that_is_allowed_are_made_anew():
    circuit, images, _ = built(resnet20(), 8)
    sparing = CkksCircuit(circuit.network, circuit.bootstrapping, weights_gb=0)
    slots = circuit.encode(images[0])
    np.testing.assert_array_equal(sparing(Cleartext(), slots), circuit(Cleartext(), slots))
    assert circuit.weight_bytes > sparing.weight_bytes == 0


def test_an_encrypted_image_has_the_logits_of_the_network():
    """Five bootstrappings at n = 1024, with the scales of n = 65536."""
    circuit, images, logits = built(resnet20(), 8)
    parameters = circuit.bootstrapping.parameters
    simulator, level = Simulator(parameters), circuit.placement.image
    estimate = circuit(simulator, [simulator.fresh(level=level)])
    assert (len(circuit.placement.bootstrapped), estimate.level) == (5, 0)
    pair = Pair.of(parameters)
    machine = pair.machine(simulator.keys)
    (slots,) = circuit.encode(images[1])
    reply = circuit(machine, [pair.server.receive(pair.client.encrypt(slots, level), level)])
    found = circuit.logits(pair.slots(reply))
    assert np.abs(found - logits[1]).max() < 2**-20 * np.abs(logits).max()
    errors = np.abs(pair.slots(reply) - circuit(Cleartext(), [slots]))
    assert math.sqrt(estimate.variance) / 30 < np.sqrt((errors**2).mean()) < math.sqrt(estimate.variance)
    assert pair.server.counts["rotate"] == counts_in_clear(circuit, images[1])["rotate"]


def counts_in_clear(circuit: CkksCircuit, image: np.ndarray):
    clear = Cleartext()
    circuit(clear, circuit.encode(image))
    return clear.counts


class Noisy(Cleartext):
    """Every bootstrapped value gets an error, as large as a bootstrapping's."""

    def __init__(self, deviation: float) -> None:
        super().__init__()
        self._deviation, self._random = deviation, np.random.default_rng(0)

    def lowered(self, value, level):
        return value + self._random.normal(0, self._deviation, value.shape)


def test_classes_bear_the_errors_of_bootstrapping():
    """Errors of 2^-21, four times those of n = 65536: ten images keep their classes, and logits are right to 10 bits."""
    circuit, images, logits = built(resnet20(), 8)
    for image, want in zip(images[:10], logits, strict=False):
        found = circuit.logits(circuit(Noisy(2**-21), circuit.encode(image)))
        assert found.argmax() == want.argmax()
        assert 0 < np.abs(found - want).max() < 2**-10 * np.abs(logits).max()


def test_what_is_refused():
    circuit, images, _ = built(resnet20(), 8)
    network: CkksNetwork = circuit.network
    with pytest.raises(RuleError, match=r"at most 3 levels: got 6 up to .layer2.0.act2."):
        _ = CkksCircuit(network, Bootstrapping(toy(spare=3), to_coefficients=2, to_slots=2)).placement
    simulator = Simulator(circuit.bootstrapping.parameters)
    with pytest.raises(RuleError, match=r"above 0: got level 0 in layer 'layer1.0.act1"):
        circuit(simulator, [simulator.fresh(level=3)])
    with pytest.raises(RuleError, match=r"keep the bound .* in layer 'image'"):
        circuit(Cleartext(), circuit.encode(100 * images[0]))
    with pytest.raises(RuleError, match=r"one ciphertext and have a channel for each class: got 16 channels .* 20"):
        built(resnet20(num_classes=20), 8)
    with pytest.raises(RuleError, match=r"must be one that runs encrypted: got 1 \(ReLU\)"):
        lower_real(nn.Sequential(nn.Conv2d(3, 2, 3, padding=1), nn.ReLU(), nn.Conv2d(2, 2, 1), Square()), (3, 8, 8))


CONV = nn.Conv2d(3, 2, 3, padding=1)
OTHERS = {
    "squares but those of sums of convolutions of squares, and of squares here: got square '2'": [Square()],
    "moved values but for means of whole maps, and one linear layer behind": [nn.Flatten(), nn.Linear(128, 4)],
    "pools but for windows as large as the maps here: got sumpool '2'": [nn.AvgPool2d(4)],
    "layers of anything but squares here: got linear '3'": [nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 1)],
    "grouped layers": [nn.Conv2d(2, 2, 1, groups=2)],
    "a padding other than half the kernel": [nn.Conv2d(2, 2, 3)],
    "must have squares, then an average pool of whole maps, and one linear layer: got 1": [nn.Conv2d(2, 2, 1)],
}


@pytest.mark.parametrize("rule", OTHERS)
def test_what_is_no_sum_of_convolutions_and_squares_is_refused(rule):
    with pytest.raises(RuleError, match=rule):
        sums_of(lower_real(nn.Sequential(CONV, Square(), *OTHERS[rule]), (3, 8, 8)))


def test_rectangular_convolutions_lie_in_square_ones():
    torch.manual_seed(0)
    conv, head = nn.Conv2d(3, 2, (3, 1), padding=(1, 0)), nn.Linear(2, 3)
    model = nn.Sequential(conv, Square(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), head).double().eval()
    images = images_of(8, 2).double()
    with torch.no_grad():
        found = sums_of(lower_real(model, (3, 8, 8)))(images.numpy())
        np.testing.assert_allclose(found, model(images).numpy(), atol=1e-12)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"kernel_size": 3, "padding": 1, "padding_mode": "reflect"}, r"a convolution must pad with zeros: got 0"),
        ({"kernel_size": 3, "padding": (1, 0)}, r"cannot have a stride for each axis, a padding other .*: got .* '0'"),
        ({"kernel_size": 3, "padding": 1, "stride": (2, 1)}, r"cannot have a stride for each axis, .*: got .* '0'"),
    ],
    ids=str,
)
def test_convolutions_that_are_no_square_ones_with_zeros_are_refused(options, rule):
    with pytest.raises(RuleError, match=rule):
        sums_of(lower_real(nn.Sequential(nn.Conv2d(3, 2, **options), Square(), nn.Conv2d(2, 2, 1)), (3, 8, 8)))
