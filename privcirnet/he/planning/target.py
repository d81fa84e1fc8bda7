"""The target of a program, and a profile's times at other sets than its own.

A profile is measured at one set; for another its times are scaled by what the operations do: a rotation transforms
every digit (one for each data prime) to every prime, n log n each; everything else on a ciphertext is n log n for each
data prime. Good enough to rank sets, not to promise seconds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from privcirnet.he.bfv.parameters import ParameterSet
from privcirnet.he.planning.profile import ONLINE, NetworkLink, Profile
from privcirnet.he.program import bounds


@dataclass(frozen=True)
class Target:
    """The target that a program is compiled for.

    Attributes:
        profile: operation times that plans are chosen by; its n and q are the program's, unless ``auto``.
        link: the network between the parties.
        failure_bits: an image has a wrong truncation with probability at most 2^-failure_bits; with
            measured bounds that is the mean over images like those.
        sets: n and q to choose from with ``auto``, otherwise to compare the profile's with.
        auto: take the fastest of ``sets`` that fits.
        seen: each node's real values on images, for measured bounds; None for proved ones.
        margin_bits: measured bounds: values of other images may exceed these 2^margin_bits times.
        truncation: "random", or "exact" by two-party computation (:mod:`program.exact`).
        nonlinear: treatment of activations that are no polynomials: "refused", or "exact" (:mod:`program.exact`), which
            needs exact truncations.
        answer: result for the client, one of :data:`program.program.ANSWERS`; "top1" needs exact truncations.
    """

    profile: Profile
    link: NetworkLink
    failure_bits: int = 18
    sets: tuple[ParameterSet, ...] = ()
    auto: bool = False
    seen: Mapping[str, bounds.ObservedRange] | None = None
    margin_bits: int = 2
    truncation: str = "random"
    nonlinear: str = "refused"
    answer: str = "logits"

    def at(self, parameters: ParameterSet) -> "Target":
        """Return the same target with one set, no choice, and the profile's times scaled to it."""
        return replace(self, profile=scaled(self.profile, parameters), sets=(), auto=False)


def scaled(profile: Profile, parameters: ParameterSet) -> Profile:
    """Return the profile's times as they would be at another set; at its own, the profile itself."""
    measured = profile.parameter_set
    if parameters == measured:
        return profile
    transforms = _transforms(parameters) / _transforms(measured)
    digits = len(parameters.coefficient_bits) / len(measured.coefficient_bits)
    factors = {"transform": 1.0, "rotate": transforms * digits} | dict.fromkeys(ONLINE, 1.0)
    seconds = {name: s * factors.get(name, transforms) for name, s in profile.seconds.items()}
    set_of = {"ring_degree": parameters.ring_degree, "coefficient_bits": parameters.coefficient_bits}
    return replace(profile, name=f"{profile.name}, scaled", seconds=seconds, **set_of)


def _transforms(parameters: ParameterSet) -> float:
    """Return the work of one transform of a ciphertext: n log n for each data prime."""
    return parameters.ring_degree * math.log2(parameters.ring_degree) * (len(parameters.coefficient_bits) - 1)
