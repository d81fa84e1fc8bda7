"""The network that each stage of train.py starts from.

train: random or pretrained weights, or those of another dense network where they fit. finetune: a dense network made
circulant, or changed in another way. replace: the same weights in a network with other activations. qat: batch
norms and AESPA folded, weights and activations quantized.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from privcirnet.artifact.records import (
    Bits,
    Checkpoint,
    plan_activations,
    plan_composed,
    plan_pads,
    read_checkpoint,
    read_plan,
)
from privcirnet.blocksize_search.curvature import diagonal_fisher
from privcirnet.config import ModelConfig, QuantConfig, RecipeConfig, run_file
from privcirnet.data.dataset import ImageData, some_images
from privcirnet.errors import RuleError
from privcirnet.models.pretrained import pretrained
from privcirnet.nn.checks import logits_of_one
from privcirnet.nn.circulant import reset_circulant_
from privcirnet.nn.functional.circulant import damped
from privcirnet.nn.quantization_steps import learn_steps_
from privcirnet.passes.convert import circulant_, dense_state_dict, uniform_sizes
from privcirnet.passes.equalize import equalize_
from privcirnet.passes.fuse import fuse_at
from privcirnet.passes.multihead import with_attention_layers
from privcirnet.passes.quantize import BITS, quantize
from privcirnet.passes.surgery.edit import name_unsupported
from privcirnet.train.architectures import LOADING, is_weights
from privcirnet.train.distillation import FeatureDistillation
from privcirnet.train.head import fit_head_
from privcirnet.train.network import (
    CHOSEN,
    BuiltNetwork,
    build,
    create_from,
    goes_through_surgery,
    load_shared,
    weighted_layers,
)
from privcirnet.train.recalibration import freeze_norms_, recalibrate_

CHECKPOINT = "checkpoint.safetensors"
_FISHER_SAMPLES = 512
FITTED, _PER_CLASS, _MOST_FITTED = 1024, 20, 4096
"""Number of images that the start is fitted to: at least, by class, and at most. More than where plans are compared, as
it is done once: with 200 classes MobileNetV2 at b = 4 starts from 18.4 % with 1,024, 23.6 % with 4,096 (of 45.6 %)."""


@dataclass(frozen=True)
class CompressionMethod:
    """A compression of the dense network by fine-tuning in place of circulant layers.

    Attributes:
        apply_: function of the network, in evaluation mode, and images; works in place.
        facts: plain data that identifies it, which a resumed run must have in common.
    """

    apply_: Callable[[nn.Module, ImageData], object]
    facts: Mapping[str, Any]


def begin(
    recipe: RecipeConfig,
    quant: QuantConfig,
    config: ModelConfig,
    data: ImageData,
    progress: Callable[[int], object] | None = None,
    change: CompressionMethod | None = None,
) -> BuiltNetwork:
    """Return the network that a stage starts from.

    Args:
        change: compression of the finetune stage; None: circulant layers by ``recipe``.

    Raises:
        RuleError: a missing or unsuitable input.
    """
    if recipe.stage == "train":
        return _first(recipe, config, data)
    checkpoint = read_checkpoint(run_file(recipe.init, CHECKPOINT, "the stage before"))
    if checkpoint.bits:
        rule, remedy = "a network must be quantized once", "give the run directory of the stage before"
        raise RuleError(rule, got=f"recipe.init={recipe.init} of stage {checkpoint.stage}", remedy=remedy)
    before = built(checkpoint, data)
    model = before.model
    if recipe.stage == "replace":
        plan = run_file(recipe.plan, "", "search.py") if recipe.plan else None
        activations = {CHOSEN: plan_activations(plan, checkpoint.model)} if plan else {}
        return _replaced(before, _lasting(config.arguments) | activations, data, recipe)
    if recipe.stage == "finetune" and change:
        change.apply_(model, data)
        return before
    if recipe.stage == "finetune":
        uniform = uniform_sizes(model, recipe.uniform, pad=recipe.pad) if recipe.uniform else None
        made_for = {"model": checkpoint.model, "checkpoint": checkpoint.digest()}
        block_sizes = uniform or read_plan(run_file(recipe.plan, "", "search.py"), **made_for)
        pad = recipe.pad if uniform else plan_pads(run_file(recipe.plan, "", "search.py"))
        start_circulant_(model, block_sizes, data, recipe.start, recipe.damping, progress, pad=pad)
        composed = () if uniform else plan_composed(run_file(recipe.plan, "", "search.py"))
        return BuiltNetwork(model, before.name, block_sizes, None, before.arguments, composed=composed)
    images = data.real(data.sample(quant.calibration_images)[0])
    wanted_bits = quant.weight_bits, quant.activation_bits, quant.stream_bits
    composed = tuple(quant.composed) or before.composed
    fused = fuse_at(model, images, composed)
    if quant.equalize:
        equalize_(fused, images)
    with name_unsupported(fused):
        quantized = quantize(fused, images, data.log_step, *wanted_bits, quantile=quant.calibration_quantile)
    if quant.learned_steps:
        learn_steps_(quantized)
    return BuiltNetwork(
        quantized, before.name, before.block_sizes, Bits(*quantized.meta[BITS]), before.arguments, composed=composed
    )


def _first(recipe: RecipeConfig, config: ModelConfig, data: ImageData) -> BuiltNetwork:
    """Return the network of the train stage: random, pretrained, or with the fitting tensors of another run."""
    trained = pretrained(recipe.init)
    if trained and config.name != trained.architecture:
        rule, remedy = "the network must be that of its weights", f"give model.name={trained.architecture}"
        raise RuleError(rule, got=f"model.name={config.name} for recipe.init={recipe.init}", remedy=remedy)
    init = run_file(recipe.init, CHECKPOINT, "train.py") if recipe.init and not trained else None
    weights = str(init) if init and is_weights(init) else ""
    model, fresh = create_from(config.name, len(data.classes), data.shape, config.arguments, weights)
    if trained:
        fresh = load_fitting_(model, trained.read_for(data.levels * 2.0**data.log_step))
        freeze_norms_(model)
    elif init and not weights:
        fresh = load_fitting_(model, read_checkpoint(init))
    fit_head_(model, fresh, data)
    return BuiltNetwork(model, config.name, {}, arguments=_lasting(config.arguments), fresh=fresh)


def _lasting(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a checkpoint needs, which has the weights itself."""
    return {name: value for name, value in arguments.items() if name not in LOADING}


def load_fitting_(model: nn.Module, checkpoint: Checkpoint) -> tuple[str, ...]:
    """Return the names of tensors that a dense network does not fit by name and shape; the others are loaded."""
    dense = checkpoint.bits is None and all(b == 1 for b in checkpoint.block_sizes.values())
    tensors = {name: torch.from_numpy(array.copy()) for name, array in checkpoint.tensors.items()}
    state = model.state_dict()
    fitting = {name: tensor for name, tensor in tensors.items() if name in state and tensor.shape == state[name].shape}
    if not dense or not fitting.keys() & {name for name, _ in model.named_parameters()}:
        got = f"{checkpoint.model} of stage {checkpoint.stage}"
        remedy = "give a dense network of the same family, or none"
        raise RuleError("a dense network must start from one whose weights fit", got=got, remedy=remedy)
    model.load_state_dict(fitting, strict=False)
    return tuple(name for name in state if name not in fitting)


def start_circulant_(  # noqa: PLR0913
    model: nn.Module,
    block_sizes: Mapping[str, int],
    data: ImageData,
    start: str = "least_squares",
    damping: float = 1.0,
    progress: Callable[[int], object] | None = None,
    *,
    pad: bool = False,
) -> None:
    """Make a dense network circulant in place, in evaluation mode, with its statistics measured anew.

    Args:
        block_sizes: block sizes by module name; 1 leaves a layer dense.
        start: initial circulant weights. "least_squares": those with the nearest outputs on training images
            (:mod:`privcirnet.passes.least_squares_start`). "fisher": the nearest to the trained ones with each entry
            weighted by its Fisher information (PrivCirNet, Section 3.3). "frobenius": the nearest with equal weights.
            "random": new ones.

    Raises:
        RuleError: the block sizes do not fit the network, see :func:`privcirnet.passes.convert.circulant_`.
    """
    if start == "least_squares":
        count = max(FITTED, min(_PER_CLASS * len(data.classes), _MOST_FITTED))
        images = some_images(data, count).to(next(model.parameters()).device)
        circulant_(model, block_sizes, pad=pad, images=images)
        return
    sizes = {name: b for name, b in block_sizes.items() if b > 1}
    fisher: Mapping[str, Tensor] = {}
    if start == "fisher":
        fisher = fisher_information(with_attention_layers(model), data, list(sizes), progress=progress)
    circulant_(model, sizes, {name: damped(values, damping) for name, values in fisher.items()}, pad=pad)
    if start == "random":
        for layer in weighted_layers(model).values():
            reset_circulant_(layer)
    recalibrate_(model, data)


def _replaced(before: BuiltNetwork, arguments: dict[str, Any], data: ImageData, recipe: RecipeConfig) -> BuiltNetwork:
    """Return the network with other arguments, the tensors that both have, and measured statistics.

    Surgery takes its replacements of positions and gates from the weights, so another's network has these before.
    """
    merged = before.arguments | arguments
    operated = goes_through_surgery(before.name, merged) and not goes_through_surgery(before.name, before.arguments)
    state = dense_state_dict(before.model) if operated else ""
    model, _ = create_from(before.name, len(data.classes), data.shape, merged, state)
    circulant_(model, {name: b for name, b in before.block_sizes.items() if b > 1}, pad=True)
    if not operated:
        load_shared(model, before.model)
    with _company(model, recipe, data):
        recalibrate_(model, data)
    return BuiltNetwork(model, before.name, before.block_sizes, None, merged, composed=before.composed)


@contextmanager
def _company(model: nn.Module, recipe: RecipeConfig, data: ImageData) -> Iterator[None]:
    """Keep a network near the one that it imitates: statistics with an exploded batch in them would spoil it."""
    if not recipe.imitate:
        yield
        return
    imitation = FeatureDistillation(model, load_network(recipe.original or recipe.init, data), recipe.imitate, epochs=1)
    with imitation.beside(model):
        yield
    imitation.detach()


def load_checkpoint(path: Path, data: ImageData) -> BuiltNetwork:
    """Return the network of a checkpoint file, in evaluation mode.

    Raises:
        RuleError: the file is missing or damaged, or its tensors do not fit the architecture.
    """
    return built(read_checkpoint(path), data)


def built(checkpoint: Checkpoint, data: ImageData) -> BuiltNetwork:
    """Return the network that a checkpoint holds, in evaluation mode.

    Raises:
        RuleError: the tensors do not fit the architecture, or the images the network.
    """
    try:
        model = build(checkpoint, len(data.classes), data.shape)
        logits_of_one(model, data.real(data.train_images[:1]))
    except RuleError as error:
        made_for, actual = checkpoint.inputs, (data.shape, len(data.classes))
        if made_for is None or actual == (expected := (made_for.shape, len(made_for.classes))):
            raise
        rule = "a network must get images like those that it was trained on"
        got = "{} in {} classes for {} in {}".format(*actual, *expected)
        raise RuleError(rule, got=got, remedy=f"give data={made_for.data or '...'}") from error
    return BuiltNetwork(
        model,
        checkpoint.model,
        checkpoint.block_sizes,
        checkpoint.bits,
        checkpoint.arguments,
        composed=checkpoint.composed,
    )


def load_network(run: str, data: ImageData) -> nn.Module:
    """Return the trained network of a run directory, in evaluation mode.

    Raises:
        RuleError: the checkpoint is missing or damaged, or its tensors do not fit the architecture.
    """
    return load_checkpoint(run_file(run, CHECKPOINT, "train.py"), data).model


def fisher_information(
    model: nn.Module,
    data: ImageData,
    names: list[str],
    samples: int = _FISHER_SAMPLES,
    progress: Callable[[int], object] | None = None,
) -> dict[str, Tensor]:
    """Return the diagonal Fisher information of layers' weights on training images.

    Returns:
        Information in each weight's shape, float64, by layer name.

    Raises:
        RuleError: a layer is not a plain linear or convolutional one.
    """
    return diagonal_fisher(model, data.sampled(samples, 64), names, samples, progress=progress)
