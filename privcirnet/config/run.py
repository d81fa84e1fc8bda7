"""What commands have in common that write a run directory: where it is, its images, its network."""

from dataclasses import dataclass, field

from privcirnet.config.checks import check, check_fields, check_name, check_place
from privcirnet.config.data import DataConfig
from privcirnet.config.encryption import HEConfig
from privcirnet.config.model import ModelConfig

MODES = ("interactive", "ckks")
"""How a network runs: rounds of both parties; or one request and one answer, in CKKS."""
LEVELED = "use mode=ckks, or python -m papers.falcon2020 for leveled BFV"
"""What to do where the mode leveled is asked for, or its settings."""


def check_mode(mode: str) -> None:
    """Raise unless a network can run so.

    Raises:
        RuleError: it is not one of :data:`MODES`.
    """
    check(mode != "leveled", "mode must be interactive or ckks", mode, LEVELED)
    check_name("mode", mode, MODES)


@dataclass
class RootConfig:
    """Where all commands read and write."""

    root: str = "outputs"
    """folder that holds the run directories."""


@dataclass
class ImagesConfig(RootConfig):
    """Images of a data set."""

    data: DataConfig = field(default_factory=DataConfig)


@dataclass
class NetworkConfig(ImagesConfig):
    """A network for them."""

    model: ModelConfig = field(default_factory=ModelConfig)


@dataclass
class RunConfig(ImagesConfig):
    """A run with a directory of its own."""

    out: str = "${root}/run"
    """this run's directory."""
    overwrite: bool = False
    """replace a complete run in the same folder that has other settings."""

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
class TrainedConfig(ModeConfig):
    """A run that takes up a trained network."""

    init: str = "${root}/train"
    """run directory of the network, or its checkpoint."""
    he: HEConfig = field(default_factory=HEConfig)
