"""What each stage of train.py starts from: random weights, a dense network made circulant, or a fused one quantized."""

from collections.abc import Callable
from pathlib import Path

from torch import Tensor, nn

from privcirnet.artifact import read_checkpoint, read_plan
from privcirnet.config import ModelConfig, QuantConfig, RecipeConfig, run_file
from privcirnet.data.dataset import ImageData, batches
from privcirnet.nn.convert import circulant_
from privcirnet.nn.fuse import fuse
from privcirnet.nn.quantize import quantize
from privcirnet.search.fisher import diagonal_fisher
from privcirnet.training.network import Built, build, create

CHECKPOINT = "checkpoint.safetensors"
_FISHER_SAMPLES = 512


def begin(
    recipe: RecipeConfig,
    quant: QuantConfig,
    wanted: ModelConfig,
    data: ImageData,
    progress: Callable[[int], object] | None = None,
) -> Built:
    """The network that a stage starts from.

    Args:
        recipe: names the stage and where its input is.
        quant: formats for the qat stage.
        wanted: network of the train stage.
        data: images for Fisher information (finetune) and calibration (qat).
        progress: called with samples done while Fisher information is measured.

    Raises:
        RuleError: a missing or unsuitable input.
    """
    classes, channels = len(data.classes), data.train_images.shape[1]
    if recipe.stage == "train":
        model = create(wanted.name, classes, channels, wanted.arguments)
        return Built(model, wanted.name, {}, arguments=wanted.arguments)
    before = load_checkpoint(run_file(recipe.init, CHECKPOINT, "the stage before"), data)
    model = before.model
    if recipe.stage == "finetune":
        block_sizes = read_plan(run_file(recipe.plan, "", "search.py"))
        importance = fisher_information(model, data, [n for n, b in block_sizes.items() if b > 1], progress=progress)
        circulant_(model, {name: b for name, b in block_sizes.items() if b > 1}, importance)
        return Built(model, before.name, block_sizes, None, before.arguments)
    images = data.real(data.train_images[: quant.calibration_images])
    bits = (quant.weight_bits, quant.activation_bits)
    quantized = quantize(fuse(model), [images], data.log_step, *bits)
    return Built(quantized, before.name, before.block_sizes, bits, before.arguments)


def load_checkpoint(path: Path, data: ImageData) -> Built:
    """The network of a checkpoint file, in evaluation mode."""
    held = read_checkpoint(path)
    model = build(held, len(data.classes), data.train_images.shape[1])
    return Built(model, held.model, held.block_sizes, held.bits, held.arguments)


def load_network(run: str, data: ImageData) -> nn.Module:
    """The trained network of a run directory, in evaluation mode."""
    return load_checkpoint(run_file(run, CHECKPOINT, "train.py"), data).model


def fisher_information(
    model: nn.Module,
    data: ImageData,
    names: list[str],
    samples: int = _FISHER_SAMPLES,
    progress: Callable[[int], object] | None = None,
) -> dict[str, Tensor]:
    """Diagonal Fisher information of layers' weights on training images."""
    loader = ((data.real(images), labels) for images, labels in batches(data.train_images, data.train_labels, 64))
    return diagonal_fisher(model, loader, names, samples, progress=progress)
