"""The group model/: the network."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class ModelConfig:
    """The network."""

    name: str = "digits_resnet"
    """of privcirnet.models or timm."""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    """further arguments that it is created with, for example +model.arguments.activation=square."""
