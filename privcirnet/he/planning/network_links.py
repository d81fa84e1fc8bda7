"""Networks between the parties: their bandwidth and round trip, by name."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class NetworkLink:
    """The network between the parties.

    Attributes:
        bandwidth: bytes a second.
        round_trip: seconds.
    """

    bandwidth: float
    round_trip: float

    @property
    def counts(self) -> bool:
        """True if bytes cost time."""
        return math.isfinite(self.bandwidth)


LINKS = {
    "local": NetworkLink(math.inf, 0.0),
    "lan": NetworkLink(384e6, 0.3e-3),
    "wan44": NetworkLink(44e6, 40e-3),
    "wan": NetworkLink(9e6, 80e-3),
}
"""local: both parties in one process; lan: the papers' setting (384 MB/s, 0.3 ms); wan44: Cheetah's WAN (44 MB/s, 40
ms); wan: 9 MB/s, 80 ms. Falcon 2023's table II has the three bandwidths."""
