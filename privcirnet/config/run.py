"""What commands have in common that write a run directory: where it is, its images, its network."""

from dataclasses import dataclass, field

from privcirnet.config.checks import check_fields, check_place
from privcirnet.config.ckks import CkksConfig, check_mode
from privcirnet.config.data import DataConfig
from privcirnet.config.encryption import HEConfig


@dataclass
class RootConfig:
    """Where all commands read and write."""

    root: str = "outputs"
    """folder that holds the run directories."""


@dataclass
class RunConfig(RootConfig):
    """A run with a directory of its own."""

    out: str = "${root}/run"
    """this run's directory."""
    overwrite: bool = False
    """replace a complete run in the same folder that has other settings."""
    data: DataConfig = field(default_factory=DataConfig)

    def __post_init__(self) -> None:
        check_fields(self)
        check_place("out", self.out)


@dataclass
class ModeConfig(RunConfig):
    """A run of one of the two ways in which networks run encrypted."""

    mode: str = "interactive"
    """interactive, or ckks: one request and one answer for an image, of a residual network of squares or AESPA."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_mode(self.mode)


@dataclass
class NetworkConfig(ModeConfig):
    """A run that takes up a trained network."""

    init: str = "${root}/train"
    """run directory of the network, or its checkpoint."""
    he: HEConfig = field(default_factory=HEConfig)
    ckks: CkksConfig = field(default_factory=CkksConfig)
