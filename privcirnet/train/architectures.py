"""Networks by name, and the weights that they begin with: the project's own networks, torchvision's and timm's.

The libraries are imported only when they are asked for. Weights are state dicts of others, in files of safetensors or
torch.
"""

import difflib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from privcirnet.artifact.hub import offline_without_hub
from privcirnet.artifact.records import CHECKPOINT_FORMAT
from privcirnet.errors import RuleError, first_line, listed
from privcirnet.models import ENTRY_POINTS
from privcirnet.nn.checks import check_weights
from privcirnet.nn.graph import WeightedLayer

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
    sizes = {name: layer.weight.shape[0] for name, layer in model.named_modules() if isinstance(layer, WeightedLayer)}
    return next((name for name in reversed(sizes) if sizes[name] == num_classes), "")


def _is_of_other_classes(weight: Tensor, target: Tensor) -> bool:
    return weight.shape[0] != target.shape[0] and weight.shape[1:] == target.shape[1:]


# timm re-exports names without saying so to type checkers.
# pyright: reportPrivateImportUsage=false


TORCHVISION = "torchvision/"
"""Prefix of the names of torchvision's networks."""
LOADING = ("pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir")
"""Arguments that choose a network's first weights, not its architecture."""


def made(name: str, num_classes: int, channels: int, arguments: Mapping[str, Any]) -> tuple[nn.Module, tuple[str, ...]]:
    """Make a network by its name.

    Args:
        name: name in :data:`privcirnet.models.ENTRY_POINTS`, of torchvision behind "torchvision/", or else of timm.

    Returns:
        The network, and for a pretrained one the names of tensors with random values: those of a head with another
        number of classes.
    """
    make = maker_of(name)
    try:
        network = make(num_classes=num_classes, in_chans=channels, **arguments)
    except RuleError:
        raise
    except Exception as error:
        if not arguments:
            raise
        message = " ".join(line.strip() for line in str(error).splitlines()[:2])[:300]
        got = f"{name}: {type(error).__name__}: {message}"
        if arguments.get("pretrained"):
            remedy = "connect to the network once, leave what else it does not take out, or give a file as recipe.init"
            raise RuleError("pretrained weights must be there and fit", got=got, remedy=remedy) from error
        remedy = "leave out what this network does not take"
        raise RuleError("model.arguments must be the network's own", got=got, remedy=remedy) from error
    return network if isinstance(network, tuple) else (network, ())


def maker_of(name: str) -> Callable[..., Any]:
    """Return the function that creates a network by its name.

    Raises:
        RuleError: no network has the name.
    """
    return ENTRY_POINTS.get(name) or (_of_torchvision(name) if name.startswith(TORCHVISION) else _of_timm(name))


def _of_timm(name: str) -> Callable[..., tuple[nn.Module, tuple[str, ...]]]:
    """Return the function that creates a network of timm."""
    import timm

    if not timm.is_model(name):
        close = difflib.get_close_matches(name, [*ENTRY_POINTS, *timm.list_models()]) or ["digits_resnet"]
        rule = "the model must be one of privcirnet.models, torchvision or timm"
        raise RuleError(rule, got=repr(name), remedy=f"try one of {', '.join(close)}")

    def make(num_classes: int, in_chans: int, **arguments: Any) -> tuple[nn.Module, tuple[str, ...]]:
        with offline_without_hub() if arguments.get("pretrained") else nullcontext():
            model = timm.create_model(name, num_classes=num_classes, in_chans=in_chans, **arguments)
        facts: dict[str, Any] = model.pretrained_cfg  # type: ignore[assignment]
        if not arguments.get("pretrained") or facts["num_classes"] == num_classes:
            return model, ()
        heads = (classifier,) if isinstance(classifier := facts["classifier"], str) else classifier
        return model, tuple(key for key in model.state_dict() if key.rpartition(".")[0] in heads)

    return make


def _of_torchvision(name: str) -> Callable[..., tuple[nn.Module, tuple[str, ...]]]:
    """Return the function that creates a network of torchvision."""
    from torchvision import models

    model_name = name.removeprefix(TORCHVISION)
    if model_name not in (available := models.list_models(models)):
        close = difflib.get_close_matches(model_name, available) or ["resnet18"]
        rule, remedy = (
            "torchvision must have the network",
            f"try {', '.join(TORCHVISION + candidate for candidate in close)}",
        )
        raise RuleError(rule, got=repr(model_name), remedy=remedy)

    def make(
        num_classes: int, in_chans: int, pretrained: bool = False, **arguments: Any
    ) -> tuple[nn.Module, tuple[str, ...]]:
        if in_chans != 3:
            remedy = "use one of timm's, which read any number"
            raise RuleError("networks of torchvision read three channels", got=in_chans, remedy=remedy)
        model = partial(models.get_model, model_name, num_classes=num_classes)(**arguments)
        if not pretrained:
            return model, ()
        weights = models.get_model_weights(model_name)["DEFAULT"]
        tensors = weights.get_state_dict(progress=False, check_hash=True)
        return model, load_weights_(model, tensors, num_classes, str(weights))

    return make
