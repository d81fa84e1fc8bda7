"""Weights that a network begins with: state dicts of others, in files of safetensors or torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from privcirnet.artifact.records import CHECKPOINT_FORMAT
from privcirnet.errors import RuleError, first_line, listed
from privcirnet.nn.checks import check_weights

_INSIDE = ("state_dict", "model")
"""Keys under which training programs keep a state dict."""
_PREFIXES = ("module.", "_orig_mod.")
"""Prefixes of names in a state dict of DistributedDataParallel or torch.compile."""
_COUNTER = "num_batches_tracked"
"""Counter of batch norms, which compute the same without it; older files have none."""
_SHOWN = 3


def is_weights(path: Path) -> bool:
    """Return whether a file has another program's weights: it is no checkpoint of this one."""
    if path.suffix != ".safetensors":
        return path.is_file()
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return (file.metadata() or {}).get("format") != CHECKPOINT_FORMAT
    except (OSError, safetensors.SafetensorError):
        return False


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the state dict of a file.

    Args:
        path: a .safetensors file, or one of torch.save with nothing but tensors and plain data; the state dict may be
            under "state_dict" or "model", its names behind "module.".
    """
    remedy = "give a .safetensors file, or one of torch.save(model.state_dict(), FILE)"
    rule = "weights must be a file of tensors"
    if not path.is_file():
        raise RuleError(rule, got=f"{path}, which is no file", remedy=remedy)
    try:
        state = _read(path)
    except Exception as error:  # a damaged file makes torch raise whatever its bytes lead to
        torchs = path.suffix != ".safetensors" and not isinstance(error, OSError)
        why = "not of torch.save, or with objects besides tensors" if torchs else first_line(error)
        got = f"{path}: {why}"  # torch's own text tells how to load the file unsafely
        raise RuleError(rule, got=got, remedy=remedy) from error
    for key in _INSIDE:
        state = state[key] if isinstance(state, Mapping) and isinstance(state.get(key), Mapping) else state
    named = isinstance(state, Mapping) and state and all(isinstance(name, str) for name in state)
    if not named or not all(isinstance(value, Tensor) for value in state.values()):
        raise RuleError(rule, got=f"{path}: {type(state).__name__} without tensors by name", remedy=remedy)
    return {_bare(name): value for name, value in state.items()}


def load_weights_(model: nn.Module, tensors: Mapping[str, Tensor], num_classes: int, origin: str) -> tuple[str, ...]:
    """Load a state dict into a network whose number of classes may differ; nothing changes if it does not fit.

    Args:
        num_classes: number of logits; the last layer that has so many is the head, which keeps its random weights if
            the state dict has none or those of other classes.

    Returns:
        Names of the tensors that were not loaded.
    """
    state = model.state_dict()
    head = _head(model, num_classes)
    replaced = [n for n in state if n.rpartition(".")[0] == head]
    loaded = {name: value for name, value in tensors.items() if name in state or not name.endswith(_COUNTER)}
    weight = loaded.get(f"{head}.weight")
    if head and (weight is None or _is_of_other_classes(weight, state[f"{head}.weight"])):
        loaded = {name: value for name, value in loaded.items() if name not in replaced}
    else:
        replaced = []
    groups = {
        "missing": [n for n in state if n not in loaded and n not in replaced and not n.endswith(_COUNTER)],
        "unexpected": [n for n in loaded if n not in state],
        "of another shape": [n for n, value in loaded.items() if n in state and value.shape != state[n].shape],
    }
    if wrong := [f"{what} {listed(names, _SHOWN)}" for what, names in groups.items() if names]:
        remedy = "give the model.name and model.arguments that it was saved from"
        got = f"{origin}: {'; '.join(wrong)}"
        raise RuleError("a state dict must be of the network's architecture", got=got, remedy=remedy)
    before = {name: value.clone() for name, value in state.items()}
    model.load_state_dict(loaded, strict=False)
    try:
        check_weights(model)
    except RuleError:
        model.load_state_dict(before)
        raise
    return tuple(replaced)


def _read(path: Path) -> Any:
    if path.suffix == ".safetensors":
        return safetensors.torch.load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)


def _bare(name: str) -> str:
    while prefix := next((candidate for candidate in _PREFIXES if name.startswith(candidate)), ""):
        name = name.removeprefix(prefix)
    return name


def _head(model: nn.Module, num_classes: int) -> str:
    """Return the name of the last layer with as many outputs as there are classes, "" if there is none."""
    sizes = {
        name: layer.weight.shape[0] for name, layer in model.named_modules() if isinstance(layer, nn.Linear | nn.Conv2d)
    }
    return next((name for name in reversed(sizes) if sizes[name] == num_classes), "")


def _is_of_other_classes(weight: Tensor, target: Tensor) -> bool:
    return weight.shape[0] != target.shape[0] and weight.shape[1:] == target.shape[1:]
