"""Networks to and from checkpoints: the architecture is rebuilt from the facts, then the tensors are loaded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privcirnet.artifact.records import Bits, Checkpoint, InputSpec
from privcirnet.errors import RuleError, listed
from privcirnet.models import ENTRY_POINTS
from privcirnet.nn.example import random_images
from privcirnet.nn.functional.batch_norm import block_mean
from privcirnet.nn.graph import WeightedLayer
from privcirnet.nn.norm import BlockBatchNorm2d
from privcirnet.passes.convert import circulant_
from privcirnet.passes.fuse import fuse_at
from privcirnet.passes.quantize import with_quantizers
from privcirnet.passes.surgery import polynomial_
from privcirnet.passes.surgery.polynomial import ACTIVATIONS, check_activation
from privcirnet.train.architectures import load_weights_, made, read_weights
from privcirnet.train.recalibration import are_norms_frozen, freeze_norms_

CHOSEN = "activations"
"""Argument of any network: replacements of some of its activations, by module name, as in a plan."""


def create(
    name: str, num_classes: int, image: tuple[int, ...], arguments: Mapping[str, Any] | None = None
) -> nn.Module:
    """Create a network by its name.

    Args:
        name: name in :data:`privcirnet.models.ENTRY_POINTS`, of torchvision behind "torchvision/", or else of timm.
        image: size of an image, (C, H, W), of a signal or of a table's row.
        arguments: further arguments of the network's own; of those that are None, as in timm, it takes the default. One
            of others with ``activation`` aespa or square gets polynomials in place of its own activations and pools
            (:func:`privcirnet.passes.surgery.polynomial_`), any one those of :data:`CHOSEN`, by module name.

    Returns:
        The network, with random weights unless ``arguments`` has ``pretrained``.

    Raises:
        RuleError: unknown name or argument, or a network that has no polynomial form.
    """
    return create_from(name, num_classes, image, arguments)[0]


def create_from(
    name: str,
    num_classes: int,
    image: tuple[int, ...],
    arguments: Mapping[str, Any] | None = None,
    weights: str | Mapping[str, Tensor] = "",
) -> tuple[nn.Module, tuple[str, ...]]:
    """Create a network with given weights, which are loaded before activations are replaced.

    Args:
        weights: path of a file, see :func:`~privcirnet.train.architectures.read_weights`, empty for none; or the whole
            state of such a network before surgery.

    Returns:
        The network, and the names of tensors with random values where it has pretrained ones.
    """
    # None: the default, as in timm
    options = {key: value for key, value in (arguments or {}).items() if value is not None}
    activations = options.pop(CHOSEN, {})
    polynomial = options.pop("activation") if goes_through_surgery(name, options) else ""
    if name not in ENTRY_POINTS and "activation" in options:
        check_activation(options["activation"])
    model, fresh = made(name, num_classes, image[0], options)
    if weights and isinstance(weights, str):
        fresh = load_weights_(model, read_weights(Path(weights)), num_classes, weights)
    elif weights:
        model.load_state_dict(weights)  # type: ignore[arg-type]
    for activation in filter(None, (polynomial, activations)):
        polynomial_(model, random_images(image), activation)
    return model, fresh


def goes_through_surgery(name: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether a network is another's, made with polynomials in place of its own operations."""
    return CHOSEN in arguments or (name not in ENTRY_POINTS and arguments.get("activation") in ACTIVATIONS)


def build(checkpoint: Checkpoint, num_classes: int, image: tuple[int, ...]) -> nn.Module:
    """Return the network of a checkpoint, in evaluation mode."""
    model = create(checkpoint.model, num_classes, image, checkpoint.arguments)
    circulant_(model, {name: b for name, b in checkpoint.block_sizes.items() if b > 1}, pad=True)
    if checkpoint.bits:
        fused = fuse_at(model, random_images(image), checkpoint.composed)
        model = with_quantizers(fused, *checkpoint.bits)
    if checkpoint.frozen:
        freeze_norms_(model.eval())
    tensors = {name: torch.from_numpy(array.copy()) for name, array in checkpoint.tensors.items()}
    alike = {name: value for name, value in model.state_dict().items() if name.endswith(".exponents")}
    try:
        model.load_state_dict(alike | tensors)  # older files have one step for all outputs of a layer
    except RuntimeError as error:
        mismatch = "size mismatch" in str(error)  # of a stem or a classifier: images or classes are others
        remedy = "give the data= that it was trained on, or train it again" if mismatch else "train it again"
        got, remedy = listed(str(error).splitlines()[1].strip().split(", ")), f"{remedy} with this version"
        raise RuleError("a checkpoint's tensors must fit its architecture", got=got, remedy=remedy) from None
    return model.eval()


def load_shared(model: nn.Module, source: nn.Module) -> list[str]:
    """Return the names of tensors that only ``model`` has; those that both have are loaded from ``source``.

    A batch norm that is shared by blocks of channels takes the means of another norm's values for each channel.
    """
    state, source_state = model.state_dict(), source.state_dict()
    common = {name: _by_blocks(model, name, value) for name, value in source_state.items() if name in state}
    mismatched = [name for name, value in common.items() if value.shape != state[name].shape]
    lost = [name for name in weighted_layers(model) if name not in weighted_layers(source)]
    if mismatched or lost:
        rule = "replacing activations and norms must leave the layers as they are"
        raise RuleError(rule, got=", ".join((mismatched or lost)[:3]), remedy="train such a network from the start")
    model.load_state_dict(common, strict=False)
    return [name for name in state if name not in common]


def _by_blocks(model: nn.Module, name: str, value: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the form of the norm of that name, if that has one number for each block of channels."""
    norm = model.get_submodule(name.rpartition(".")[0])
    if (
        isinstance(norm, BlockBatchNorm2d)
        and norm.block_size > 1
        and value.shape == (norm.block_size * norm.num_features,)
    ):
        return block_mean(value, norm.block_size)
    return value


@dataclass
class BuiltNetwork:
    """A network and the facts that it can be rebuilt from.

    Attributes:
        name: see :func:`create`.
        block_sizes: block sizes of its circulant layers, by module name.
        bits: bits of a quantized network.
        fresh: names of tensors with new values because the network it starts from has none that fit.
        composed: layers that are one with the layer before them, in a quantized network, or will be.
    """

    model: nn.Module
    name: str
    block_sizes: dict[str, int]
    bits: Bits | None = None
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    fresh: tuple[str, ...] = ()
    composed: tuple[str, ...] = ()


def checkpoint_of(built: BuiltNetwork, stage: str, inputs: InputSpec | None = None) -> Checkpoint:
    """Return a network as a checkpoint; ``stage``: "train", "finetune", "replace" or "qat"."""
    facts = built.name, stage, built.block_sizes, built.bits, built.arguments, built.composed, inputs
    return Checkpoint(tensors_of(built.model), *facts, are_norms_frozen(built.model))


def tensors_of(model: nn.Module) -> dict[str, np.ndarray]:
    """Return a network's state in the form of a checkpoint."""
    return {key: value.detach().cpu().contiguous().numpy() for key, value in model.state_dict().items()}


def weighted_layers(model: nn.Module) -> dict[str, WeightedLayer]:
    """Return linear layers and convolutions by module name, in order of definition."""
    return {name: m for name, m in model.named_modules() if isinstance(m, WeightedLayer)}
