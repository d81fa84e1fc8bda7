"""Profiles, which predictions rest on: seconds of a machine's operations at one (n, q).

A predicted latency has a unit: a machine's seconds, or under a counted profile the papers' units, HE-Rot + 0.135
HE-Pmult, which are no time.
"""

from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import DEFAULT_COEFFICIENT_BITS, DEFAULT_RING_DEGREE, MAX_PLAIN_BITS, ParameterSet

OPERATIONS = {
    "call": "server: what a layer takes beyond its operations",
    "encrypt": "client: encode n slots, encrypt, serialise",
    "receive": "server: check and load one ciphertext",
    "add_plain": "server: encode n slots and add them",
    "to_ntt": "server: an input ciphertext to NTT form",
    "hoist": "server: what all turns of an input ciphertext share",
    "rotate": "server: HE-Rot of an input ciphertext, to NTT form",
    "pmult": "server: HE-Pmult in NTT form, and a sum",
    "from_ntt": "server: an output ciphertext from NTT form",
    "giant": "server: HE-Rot of an inner sum, and a sum",
    "fold": "server: HE-Rot of an output ciphertext, and a sum",
    "pmult_plain": "server: encode n slots and multiply one ciphertext",
    "reply": "server: draw, encode and add a mask, flood the noise, switch down, serialise",
    "decrypt": "client: check, load, decrypt and decode one reply",
    "polynomial": "either: n coefficients to n slots",
    "transform": "either: one value through a transform of any length",
    "clear_call": "server, when the image comes: what a layer in clear takes beyond its operations",
    "clear_value": "server, when the image comes: one digit read, laid out or written",
    "clear_product": "server, when the image comes: one product of a digit and a weight",
    "clear_weight": "server, when the image comes: one weight read",
    "clear_depthwise": "server, when the image comes: one product of a depthwise layer",
}
ONLINE = tuple(name for name in OPERATIONS if name.startswith("clear_"))
"""Operations of the online phase of a prepared inference."""


_COUNTED = "counted"


@dataclass(frozen=True)
class Profile:
    """A profile: measured seconds per operation (keys of :data:`OPERATIONS`) of one machine at one (n, q).

    Bytes are predicted for a t of ``plain_bits`` bits, which the length of replies depends on; exact steps for a t - 1
    with ``plain_twos`` factors of two.

    The server's seconds are a share of many operations at once, on ``threads`` threads: a number of operations that the
    threads cannot share evenly takes as long as the next number that they can.
    """

    name: str
    ring_degree: int
    coefficient_bits: tuple[int, ...]
    seconds: dict[str, float] = field(hash=False)
    threads: int = 1
    plain_bits: int = MAX_PLAIN_BITS
    plain_twos: int = MAX_PLAIN_BITS

    def __post_init__(self) -> None:
        wrong = set(self.seconds) ^ set(OPERATIONS)
        if wrong or any(not s >= 0 for s in self.seconds.values()):
            raise RuleError(
                "a cost profile must hold a time for every operation",
                got=", ".join(sorted(wrong)) or "a time that is negative",
                remedy="measure it again with search.py he.profile=calibrate",
            )

    @property
    def parameter_set(self) -> ParameterSet:
        """The n and q that it was measured at."""
        return ParameterSet(self.ring_degree, tuple(self.coefficient_bits))

    @property
    def counted(self) -> bool:
        """True if its times are the papers' units, which are no seconds."""
        return self.name.partition(",")[0] == _COUNTED

    def to_dict(self) -> dict[str, object]:
        """Return plain data for JSON: the measurements, whatever t."""
        return {name: value for name, value in asdict(self).items() if not name.startswith("plain_")}


COUNTED = Profile(
    _COUNTED,
    DEFAULT_RING_DEGREE,
    DEFAULT_COEFFICIENT_BITS,
    {name: 1e-9 for name in OPERATIONS}
    | dict.fromkeys(("rotate", "giant", "fold"), 1.0)
    | dict.fromkeys(("pmult", "pmult_plain"), 0.135),
)
"""The papers' units: HE-Rot + 0.135 HE-Pmult, everything else free."""


UNITS = "units"
"""Name of the papers' units."""


class Unit(NamedTuple):
    """The unit of a column of latencies; ``scale``: how many of it are in a second, or in one of the papers' units."""

    name: str
    scale: float


def column_unit(counted: bool) -> Unit:
    """Return the unit of a column of latencies; ``counted``: whether they are in the papers' units."""
    return Unit(UNITS, 1.0) if counted else Unit("ms", 1e3)


def in_words(latency: float, counted: bool) -> str:
    """Return a latency with its unit.

    Args:
        latency: in seconds, or in the papers' units if it is counted.

    >>> in_words(0.0246, False), in_words(2.02, False), in_words(24165.57, True), in_words(0.00042, True)
    ('24.6 ms', '2.02 s', '24,166 units', '0.00042 units')
    """
    if counted:
        return f"{_three(latency)} {UNITS}"
    return f"{_three(1e3 * latency)} ms" if 0 < latency < 0.9995 else f"{_three(latency)} s"


def _three(value: float) -> str:
    """Return three digits where there are fewer than four before the point, two of small numbers."""
    if value < 0.095:
        return f"{value:.2g}"
    return f"{value:,.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"
