"""The group model/: the network."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class ModelConfig:
    """The network."""

    name: str = "digits_resnet"
    """of privcirnet.models, timm, or torchvision as in torchvision/resnet18."""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    """further arguments that it is created with, as +model.arguments.activation=square or pretrained=true."""
    weights: str = ""
    """file of the weights that train begins with: .safetensors or a torch state dict; empty for none."""
