"""The group model/: the network."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class ModelConfig:
    """The network."""

    name: str = "digits_resnet"
    """of privcirnet.models, timm, or torchvision as in torchvision/resnet18."""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    """further arguments that it is created with, as +model.arguments.pretrained=true."""
    activation: str = ""
    """in place of its own activations: aespa or square, polynomials, which are fast; empty: those that it has."""

    def __post_init__(self) -> None:
        if self.activation:
            self.arguments = self.arguments | {"activation": self.activation}
