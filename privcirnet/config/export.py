"""The schema of export.py."""

from dataclasses import dataclass, field

from privcirnet.config.checks import choice, number
from privcirnet.config.encryption import HEConfig
from privcirnet.config.run import TrainedConfig


@dataclass
class ExportConfig(TrainedConfig):
    """Settings of export.py: a quantized network becomes a program folder."""

    out: str = "${root}/export"
    """this run's directory; the program is the folder program in it."""
    init: str = "${root}/qat"
    signing_key: str = ""
    """file of an Ed25519 key that signs the program; made, with its public half in FILE.pub, where there is none."""
    plaintexts: str = choice("compact", ("compact", "full"))
    """compact: each distinct slot value once; full: also every plaintext as n coefficients mod t."""
    rehearsed_images: int = number(128, least=0)
    """held-out images that are classified in clear with truncations at random, as encrypted ones are; 0: none."""
    he: HEConfig = field(default_factory=lambda: HEConfig(profile="${root}/search/profile.json"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode == "ckks" and self.init == f"{self.root}/qat":
            self.init = f"{self.root}/finetune"
