"""The schema of export.py."""

from dataclasses import dataclass, field

from privcirnet.config.checks import check_fields, check_place, choice, number
from privcirnet.config.ckks import CkksConfig, check_mode
from privcirnet.config.data import DataConfig
from privcirnet.config.encryption import HEConfig


@dataclass
class ExportConfig:
    """Settings of export.py: a quantized network becomes a program folder."""

    root: str = "outputs"
    """folder that holds the run directories."""
    out: str = "${root}/export"
    """this run's directory; the program is the folder program in it."""
    overwrite: bool = False
    """replace a complete run in the same folder that has other settings."""
    init: str = "${root}/qat"
    """run directory of the quantized network, or its checkpoint."""
    signing_key: str = ""
    """file of an Ed25519 key that signs the program; made, with its public half in FILE.pub, where there is none."""
    mode: str = "interactive"
    """interactive, or ckks: a residual network of squares or AESPA; one request and one answer for an image."""
    plaintexts: str = choice("compact", ("compact", "full"))
    """compact: each distinct slot value once; full: also every plaintext as n coefficients mod t."""
    rehearsed_images: int = number(128, least=0)
    """held-out images that are classified in clear with truncations at random, as encrypted ones are; 0: none."""
    data: DataConfig = field(default_factory=DataConfig)
    he: HEConfig = field(default_factory=lambda: HEConfig(profile="${root}/search/profile.json"))
    ckks: CkksConfig = field(default_factory=CkksConfig)

    def __post_init__(self) -> None:
        check_fields(self)
        check_place("out", self.out)
        check_mode(self.mode)
        if self.mode == "ckks" and self.init == f"{self.root}/qat":
            self.init = f"{self.root}/finetune"
