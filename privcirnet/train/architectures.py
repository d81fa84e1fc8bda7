"""Networks by name: the project's own, torchvision's and timm's, which are imported only when they are asked for."""

# timm re-exports names without saying so to type checkers.
# pyright: reportPrivateImportUsage=false

import difflib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

from torch import nn

from privcirnet.artifact.hub import offline_without_hub
from privcirnet.errors import RuleError
from privcirnet.models import ENTRY_POINTS
from privcirnet.train.pretrained import load_weights_

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
            remedy = (
                "connect to the network once, leave what else it does not take out, or give a file as recipe.init"
            )
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
