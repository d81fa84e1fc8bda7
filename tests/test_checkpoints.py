"""The trained networks that come with the project."""

from pathlib import Path

import numpy as np
import pytest
import torch

from papers.falcon2020.config import Falcon2020Config
from papers.falcon2020.lower import leveled_program
from papers.falcon2020.mode import Leveled
from papers.falcon2020.planning.exact_network import ExactNetwork
from privcirnet.artifact.records import read_checkpoint
from privcirnet.config import HEConfig
from privcirnet.data import Files, load
from privcirnet.data.dataset import ImageData
from privcirnet.he.ckks.bootstrapping import Bootstrapping, parameters_for
from privcirnet.he.ckks.circuit import CkksCircuit
from privcirnet.he.ckks.network import sums_of
from privcirnet.he.planning.parameter_choice import budget
from privcirnet.he.program.bounds import truncation_facts
from privcirnet.he.program.program import layers_of, squares_of
from privcirnet.passes.lower import lower_real
from privcirnet.runs.evaluation import evaluate
from privcirnet.runs.export import lower_for
from privcirnet.runs.interactive import Interactive
from privcirnet.runs.parties import RunOptions
from privcirnet.train import stages
from privcirnet.train.accuracy import predict
from tests.data.test_real import ARCHIVES
from tests.passes.lower.test_ckks import Noisy

FOLDER = Path(__file__).parents[1] / "checkpoints"
FILES = sorted(FOLDER.glob("*.safetensors"))
SQUARES = {
    "resnet18_cifar10": 17,
    "mobilenetv2_cifar10": 35,
    "mobilenetv2_cifar100": 35,
    "mobilenetv2_tiny_imagenet": 35,
    "vit_cifar10": 14,
    "tutorial_mnist": 2,
}
"""Of a file's network."""


def test_they_are_few_and_small_and_described():
    assert FILES
    described = (FOLDER / "README.md").read_text(encoding="utf-8")
    every = {str(file.relative_to(FOLDER)): file.stat().st_size for file in FOLDER.rglob("*.safetensors")}
    assert all(size < 5e6 and f"`{name}`" in described for name, size in every.items())
    assert sum(every.values()) < 25e6


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_step_of_an_encrypted_inference_follows_the_integer_network(file):
    """On smooth random images of moderate contrast, by the clear-text twin of the engine.

    With colours as far apart as they can be most such images explode in the transformer, which never saw any.
    An image's noise is hidden to 2^-30, and its result is wrong without being refused less often than that.
    """
    inputs = read_checkpoint(file).inputs
    channels, side, _ = inputs.shape
    coarse = torch.rand(64, channels, 4, 4, generator=torch.Generator().manual_seed(0))
    smooth = torch.nn.functional.interpolate(0.3 + 0.4 * coarse, size=side, mode="bilinear")
    images = (255 * smooth).to(torch.uint8)
    labels = torch.zeros(64, dtype=torch.int64)
    data = ImageData(images, labels, images, labels, inputs.log_step, inputs.levels, inputs.classes)
    network = stages.load_checkpoint(file, data).model
    planned = lower_for(HEConfig(profile="counted", bounds="measured", failure_bits=10), network, data)
    program, fitted = planned.program, planned.lowered.fitted
    assert len(squares_of(program.nodes)) == SQUARES[file.stem]
    assert budget(layers_of(program.nodes), program.parameters, squares_of(program.nodes)).distance >= 30
    assert truncation_facts(program, fitted.sizes)["unnoticed_per_image_log2"] <= -30
    found = evaluate(Interactive(program), images[:1].numpy().astype(np.int64), RunOptions("cleartext"))
    assert found.wrong == [[]]


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.skipif(not ARCHIVES.is_dir(), reason="there is no folder of image archives beside the project")
@pytest.mark.parametrize(
    ("file", "name", "bits", "planner", "right"),
    [
        ("lola_mnist", "mnist", (8, 4), "packed", 984),
        ("mnist_mlp", "mnist", (5, 3), "packed", 982),
        ("lola_cifar", "cifar10", (8, 4), "maps", 736),
    ],
)
def test_integers_of_leveled_networks(file, name, bits, planner, right, image_cache):
    """A thousand held-out images; see the table for all of them. One through the circuit, in clear."""
    data = load(name, files=Files(str(ARCHIVES), cache=str(image_cache)))
    model = stages.load_checkpoint(FOLDER / "leveled" / f"{file}.safetensors", data).model
    program = leveled_program(Falcon2020Config(weight_bits=bits[0], pixel_bits=bits[1]), model, data)
    assert program.planner == planner
    assert in_floats(program.exact, program.description.shifted(few(data)[0].numpy()), few(data)[1]) == right
    found = evaluate(Leveled(program), data.test_images[:1].numpy().astype(np.int64), RunOptions("cleartext"))
    assert found.wrong == [[]]


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.skipif(not ARCHIVES.is_dir(), reason="there is no folder of image archives beside the project")
def test_classes_of_resnet20_bear_the_errors_of_bootstrapping(image_cache):
    """Ten images through the circuit in clear, with errors of 2^-21: four times those of n = 65536."""
    data = load("cifar10", files=Files(str(ARCHIVES), cache=str(image_cache)))
    model = stages.load_checkpoint(FOLDER / "leveled" / "resnet20_cifar10.safetensors", data).model
    images = data.real(data.test_images[:10]).double()
    network = sums_of(lower_real(model, (3, 32, 32))).normalized(data.real(data.sample(64)[0]).double().numpy())
    circuit, want = CkksCircuit(network, Bootstrapping(parameters_for())), model.double()(images)
    for image, logits in zip(images.numpy(), want.detach().numpy(), strict=True):
        found = circuit.logits(circuit(Noisy(2**-21), circuit.encode(image)))
        assert found.argmax() == logits.argmax()
        assert 0 < np.abs(found - logits).max() < 1e-3


def few(data: ImageData) -> tuple[torch.Tensor, torch.Tensor]:
    """A thousand held-out images of all classes, which come sorted by class, with their labels."""
    step = len(data.test_images) // 1000
    return data.test_images[::step], data.test_labels[::step]


def in_floats(network: ExactNetwork, images: np.ndarray, labels: torch.Tensor) -> int:
    """How many images are right, with integers as floats of 53 bits."""
    x = torch.from_numpy(images).double()
    for number, layer in enumerate(network.layers):
        x = x * x if number else x
        weight, bias = (torch.from_numpy(values.astype(np.float64)) for values in (layer.weight, layer.bias))
        convolves = layer.shape.kernel > 1
        stride = (bias, layer.shape.stride, layer.shape.padding)
        x = torch.conv2d(x, weight, *stride) if convolves else x.flatten(1) @ weight[:, :, 0, 0].mT + bias
    return int((x.argmax(1) == labels).sum())


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.skipif(not ARCHIVES.is_dir(), reason="there is no folder of image archives beside the project")
@pytest.mark.parametrize(
    ("file", "model", "name", "right"),
    [
        ("resnet18_cifar10", "resnet18_tiny", "cifar10", 859),
        ("tutorial_mnist", "tutorial_mnist", "mnist", 984),
        ("mobilenetv2_cifar10", "mobilenetv2_cifar", "cifar10", 923),
        ("dense/mobilenetv2_cifar10", "mobilenetv2_cifar", "cifar10", 942),
        ("circulant/mobilenetv2_cifar10", "mobilenetv2_cifar", "cifar10", 937),
        ("dense/mobilenetv2_cifar100", "mobilenetv2_cifar", "cifar100", 740),
        ("circulant/mobilenetv2_cifar100", "mobilenetv2_cifar", "cifar100", 736),
        ("mobilenetv2_cifar100", "mobilenetv2_cifar", "cifar100", 722),
        ("dense/mobilenetv2_tiny_imagenet", "mobilenetv2_tiny", "tiny_imagenet", 452),
        ("circulant/mobilenetv2_tiny_imagenet", "mobilenetv2_tiny", "tiny_imagenet", 461),
        ("mobilenetv2_tiny_imagenet", "mobilenetv2_tiny", "tiny_imagenet", 437),
        ("dense/vit_cifar10", "vit_cifar", "cifar10", 940),
        ("circulant/vit_cifar10", "vit_cifar", "cifar10", 941),
        ("vit_cifar10", "vit_cifar", "cifar10", 918),
        ("leveled/resnet20_cifar10", "resnet20_cifar", "cifar10", 877),
    ],
)
def test_a_thousand_held_out_images(file, model, name, right, image_cache):
    """As many are right as when the table's accuracy was measured on all of them: see there for the command."""
    data = load(name, files=Files(str(ARCHIVES), cache=str(image_cache)))
    held = read_checkpoint(FOLDER / f"{file}.safetensors")
    assert (held.model, held.bits and held.bits[:2]) == (model, None if "/" in file else (8, 8))
    network = stages.load_checkpoint(FOLDER / f"{file}.safetensors", data).model
    images, labels = few(data)
    hits = predict(network, data, images).argmax(dim=1) == labels
    assert hits.sum().item() == pytest.approx(right, abs=2)
