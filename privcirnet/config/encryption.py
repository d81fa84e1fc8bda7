"""Encryption, cost model and truncation: the settings of privcirnet.compile, and the group he/ of the scripts."""

from dataclasses import dataclass, field, replace

from privcirnet.config.checks import check, check_fields, choice, number
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.parameter_choice import sets_for
from privcirnet.he.program.program import ANSWERS, TRANSFERS

BOUNDS = ("auto", "proved", "measured")
"""Of what he.bounds may be."""


@dataclass
class CompileConfig:
    """How :func:`privcirnet.compile` encrypts, bounds and truncates."""

    ring_degree: int = 0
    """n, slots of a ciphertext; 0: the fastest that the program's bounds allow."""
    coefficient_bits: list[int] = field(default_factory=list[int])
    """bits of the primes of q, the special prime last; empty: a known set for n. Needs ring_degree."""
    engine: str = choice("kernel", ("kernel", "tenseal"))
    """of the server that is measured: kernel (compiled, all cores) or tenseal."""
    link: str = choice("local", LINKS)
    """local, lan, wan44 or wan: the network that latencies are predicted for."""
    truncation: str = choice("random", ("random", "exact"))
    """of activations: random, on shares, without a message; or exact, by two-party computation in prepared images:
    every value is the integer network's, with a smaller plain modulus. nonlinear=exact implies it."""
    ot: str = choice("auto", ("auto", *TRANSFERS))
    """oblivious transfers of exact steps: softspoken (3.9 bytes each), silent (0.17, after 1.2 MB for a session), or
    auto: silent where an image takes many."""
    failure_bits: int = number(18, least=0, most=128)
    """random truncation: an image is wrong with probability at most 2^-failure_bits."""
    bounds: str = choice("auto", BOUNDS)
    """of values: proved for every image; measured on images, for deep networks; or auto: proved where parameters carry
    what is proved, and there are no exact steps, which pay for each bit; else measured."""
    margin_bits: int = number(2, least=0, most=16)
    """measured bounds: factor 2^margin_bits over the values seen; an image that exceeds it gets a wrong answer."""
    answer: str = choice("logits", ANSWERS)
    """what a client is given: logits; or top1: the class alone, which needs truncation=exact or nonlinear=exact."""
    stack_gb: float = number(0.25, least=0)
    """10^9 bytes that a server may spend on weights with which layers prepare several images together; 0: none."""
    nonlinear: str = choice("auto", ("auto", "exact", "refused"))
    """non-polynomial activations and max pools: exact: by two-party computation, as the quantized network has them;
    refused; or auto: exact where needed."""

    @property
    def exact(self) -> bool:
        """Whether truncations are exact, as they are where activations are."""
        return "exact" in (self.truncation, self.nonlinear)


@dataclass
class HEConfig(CompileConfig):
    """Encryption, cost model and truncation."""

    profile: str = "calibrate"
    """a profile.json, "calibrate" to measure this machine, or "counted" for the papers' units."""
    bound_images: int = number(256, least=1)
    """training images on which measured bounds are measured, and how large the values of a CKKS program are."""

    def __post_init__(self) -> None:
        check_fields(self, "he.")
        explicit = self.ring_degree > 0 or not self.coefficient_bits
        check(explicit, "he.coefficient_bits needs he.ring_degree", self.coefficient_bits, "give both")
        sets_for(self.ring_degree, self.coefficient_bits)
        known = self.exact or self.nonlinear == "auto" or self.answer != "top1"
        remedy = "use he.truncation=exact, or he.answer=logits"
        check(known, "he.answer=top1 needs he.truncation=exact", self.truncation, remedy)

    @property
    def bounds_tried(self) -> tuple[str, ...]:
        """Kinds of bounds; the first that fits is taken."""
        if self.bounds != "auto":
            return (self.bounds,)
        if self.exact:
            return ("measured",)
        return "proved", "measured"

    def settled(self, *, exact: bool) -> "HEConfig":
        """Return the settings for a network; ``exact``: whether it has something that only runs so."""
        if self.nonlinear != "auto":
            return self
        return replace(self, nonlinear="exact" if exact else "refused")
