"""The schema of `python -m papers.falcon2020`."""

from dataclasses import dataclass, field

from papers.falcon2020.planning.plans import OWN, PLANS
from privcirnet.config import DataConfig
from privcirnet.config.checks import check, check_name, check_place
from privcirnet.he.bfv.engines import ENGINES


@dataclass
class Falcon2020Config:
    """Settings of python -m papers.falcon2020: a trained network of squares, one request and one answer in BFV."""

    root: str = "outputs"
    """folder that holds the run directories."""
    out: str = "${root}/falcon2020"
    """this run's directory."""
    overwrite: bool = False
    """replace a complete run in the same folder that has other settings."""
    init: str = "${root}/finetune"
    """run directory of the trained network, which is not quantized, or its checkpoint."""
    images: int = 32
    """held-out images, from the first; 0: say what the program is and run none."""
    plan: str = "auto"
    """auto (the fastest that fits), packed, periodic, maps (two convolutions), lola, or batch: many images in one."""
    weight_bits: int = 8
    """of a weight, sign included; weights are rounded, activations are not."""
    pixel_bits: int = 4
    """of a pixel; the lower bits of stored pixels are dropped."""
    engine: str = "kernel"
    """kernel (compiled, on all cores), tenseal (SEAL's evaluator) or cleartext (hides nothing)."""
    processes: int = 1
    """both parties in one process, or each in its own with gRPC on loopback in between (2)."""
    weights_gb: float = 4.0
    """of encoded weights in memory, at most; others are encoded again for every image."""
    threads: int = 0
    """number of threads; 0: one for each core."""
    data: DataConfig = field(default_factory=DataConfig)

    def __post_init__(self) -> None:
        check_place("out", self.out)
        check(self.images >= 0, "images must be 0 or more", self.images, "use 32")
        check_name("plan", self.plan, ("auto", *PLANS))
        check(2 <= self.weight_bits <= 16, "weight_bits must be in [2, 16]", self.weight_bits, "use 8")
        check(1 <= self.pixel_bits <= 8, "pixel_bits must be in [1, 8]", self.pixel_bits, "use 4")
        check_name("engine", self.engine, ENGINES)
        check(self.processes in (1, 2), "processes must be 1 or 2", self.processes, "use 2 for a server of its own")
        check(min(two := (self.weights_gb, self.threads)) >= 0, "weights_gb, threads must be 0 or more", two, "use 0")

    @property
    def planners(self) -> tuple[str, ...]:
        """Names of the plans that compete."""
        return OWN if self.plan == "auto" else (self.plan,)

    @property
    def engine_of_parameters(self) -> str:
        """Engine that parameters are chosen for: requests of the kernels carry all plain moduli, SEAL's one."""
        return "tenseal" if self.engine == "tenseal" else "kernel"
