"""The schema of bench.py."""

from dataclasses import dataclass, field

from benchmarks.bench.networks import NETWORKS
from privcirnet.config.checks import check, check_name, check_powers_of_two
from privcirnet.config.encryption import HEConfig
from privcirnet.he.bfv.engines import ENGINES
from privcirnet.he.bfv.parameters import DEFAULT_COEFFICIENT_BITS
from privcirnet.he.planning.planner import LAYOUTS, NAMES
from privcirnet.he.rlwe.parameters import TABLE, TABLES


@dataclass
class BenchConfig:
    """Settings of bench.py: one layer, a network, or encodings side by side; counts, bytes, seconds."""

    root: str = "outputs"
    """folder that holds the run directories."""
    out: str = "${root}/bench"
    """this run's directory."""
    layer: str = "gemm"
    """gemm or conv."""
    dims: list[int] = field(default_factory=lambda: [256, 192, 576])
    """gemm: d1, d2, d3; conv: H, W, C, K, R (same padding)."""
    stride: int = 1
    """of a conv."""
    groups: int = 1
    """channel groups of a conv; C = K = groups is depthwise."""
    block_size: int = 8
    """b; in a network the largest size up to it that a layer allows."""
    pad: bool = False
    """whether a single layer may be padded to whole blocks; false: b must divide."""
    network: str = ""
    """all layers of a network instead: {mobilenetv2,vit,resnet18}_cifar, mobilenetv2_imagenet, vit_tiny_imagenet."""
    suite: str = ""
    """instead: papers (encodings side by side), engines (kernel, tenseal), online (in clear), bootstrapping (CKKS)."""
    block_sizes: list[int] = field(default_factory=lambda: [1, 2, 4, 8])
    """of the suite."""
    encoding: str = "cirencode"
    """cirencode; for b = 1 bolt (1 x 1), neujeans, ensei; without rotations cheetah, falcon (groups); any: cheapest."""
    engine: str = "kernel"
    """of the server: kernel, tenseal, cleartext, or count: nothing is run."""
    compare: str = ""
    """another engine, run in turns with this one, each with the layout that suits it."""
    layout: str = "paper"
    """paper: sums encrypted, least HE-Rot + 0.135 HE-Pmult; best: least predicted time (papers.bench: published)."""
    against: str = ""
    """another layout of the same network, run in turns with this one."""
    explain: bool = False
    """show the planner's candidates side by side."""
    weights_gb: float = 0.0
    """serve the network from one process, keep that much of encoded weights, report peak memory; 0: do not."""
    repetitions: int = 3
    """timed runs; medians are reported."""
    plain_bits: int = 41
    """bits of t."""
    security_table: str = TABLE
    """of 128-bit security: 2024, or 2018, which allows the papers' sets, e.g. he.coefficient_bits=[43,43,44,44,44]."""
    threads: int = 0
    """number of threads; 0: one for each core."""
    he: HEConfig = field(
        default_factory=lambda: HEConfig(ring_degree=8192, coefficient_bits=list(DEFAULT_COEFFICIENT_BITS))
    )

    def __post_init__(self) -> None:
        sizes = {"gemm": 3, "conv": 5}
        check(self.layer in sizes, "layer must be gemm or conv", self.layer, "use layer=gemm")
        right = len(self.dims) == sizes[self.layer] and min(self.dims) > 0
        wanted = "[d1,d2,d3]" if self.layer == "gemm" else "[H,W,C,K,R]"
        check(right, f"dims of a {self.layer} must be {wanted}", self.dims, f"give dims={wanted}")
        check_name("encoding", self.encoding, NAMES)
        check_name("layout", self.layout, LAYOUTS)
        check_name("against", self.against, ("", *LAYOUTS))
        check(self.against != self.layout, "against must be another layout", self.against, "use layout=best")
        check_name("engine", self.engine, (*ENGINES, "count"))
        check_name("compare", self.compare, ("", *ENGINES))
        counted = self.compare and (self.engine in ("count", self.compare) or self.against or self.suite)
        check(
            not counted, "compare must be another engine, of one layout that runs", self.compare, "use compare=tenseal"
        )
        check_name("security_table", self.security_table, TABLES)
        check_name("suite", self.suite, ("", "papers", "engines", "online", "bootstrapping"))
        check_name("network", self.network, ("", *NETWORKS))
        check(not (self.suite and self.engine == "count"), "a suite must run", "engine=count", "use engine=kernel")
        check(bool(self.he.coefficient_bits), "bench.py needs one set of primes", "none", "give he.coefficient_bits")
        check(self.repetitions >= 1, "repetitions must be at least 1", self.repetitions, "use 3")
        check_powers_of_two("block_size", [self.block_size])
        check_powers_of_two("block_sizes", self.block_sizes)
