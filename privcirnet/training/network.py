"""Networks to and from checkpoints: the architecture is rebuilt from the facts, then the tensors are loaded."""

import difflib

import timm
import torch
from torch import nn

import privcirnet.models  # noqa: F401  (registers the project's networks with timm)
from privcirnet.artifact import Checkpoint
from privcirnet.errors import RuleError
from privcirnet.nn.convert import circulant_, fuse
from privcirnet.nn.quantize import quantize


def create(name: str, num_classes: int, in_chans: int) -> nn.Module:
    """A network by its timm name.

    Raises:
        RuleError: unknown name.
    """
    if not timm.is_model(name):
        close = difflib.get_close_matches(name, timm.list_models()) or ["digits_resnet"]
        raise RuleError("the model must be known to timm", got=repr(name), remedy=f"try one of {', '.join(close)}")
    return timm.create_model(name, num_classes=num_classes, in_chans=in_chans)


def build(checkpoint: Checkpoint, num_classes: int, in_chans: int) -> nn.Module:
    """The network of a checkpoint, in evaluation mode.

    Raises:
        RuleError: the tensors do not fit the architecture.
    """
    model = create(checkpoint.model, num_classes, in_chans)
    circulant_(model, {name: b for name, b in checkpoint.block_sizes.items() if b > 1})
    if checkpoint.bits:
        weight_bits, activation_bits = checkpoint.bits
        model = quantize(fuse(model), weight_bits=weight_bits, activation_bits=activation_bits)
    tensors = {name: torch.from_numpy(array.copy()) for name, array in checkpoint.tensors.items()}
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise RuleError(
            "a checkpoint's tensors must fit its architecture",
            got=str(error).splitlines()[1].strip(),
            remedy="train it again with this version",
        ) from None
    return model.eval()


def checkpoint_of(
    model: nn.Module, name: str, stage: str, block_sizes: dict[str, int], bits: tuple[int, int] | None = None
) -> Checkpoint:
    """A network as a checkpoint."""
    tensors = {key: value.detach().cpu().contiguous().numpy() for key, value in model.state_dict().items()}
    return Checkpoint(tensors, name, stage, block_sizes, bits)


def weighted_layers(model: nn.Module) -> dict[str, nn.Linear | nn.Conv2d]:
    """Linear layers and convolutions by module name, in order of definition."""
    return {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)}
