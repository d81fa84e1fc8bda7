"""Profiles: read, or measured on this machine."""

from dataclasses import replace
from pathlib import Path

from privcirnet.artifact import read_profile
from privcirnet.config import HEConfig
from privcirnet.he.measure.calibrate import calibrate
from privcirnet.he.params.parameters import ParameterSet
from privcirnet.he.planning.chooser import WIDE, sets_for
from privcirnet.he.planning.cost import COUNTED, Profile
from privcirnet.he.planning.fit import set_of
from privcirnet.pipeline.progress import Bar, silent

CALIBRATION_ROUNDS = 25


def find_profile(he: HEConfig, engine: str = "", bar: Bar = silent) -> Profile:
    """The cost profile of a file, the papers' units, or this machine's, measured now, at the given or a wide set.

    Args:
        he: what is asked for.
        engine: to measure; "": the one in ``he``.
        bar: shows progress.

    Raises:
        RuleError: the file is no profile, or no set of parameters is secure with these settings.
    """
    if he.profile == "counted":
        chosen = _one_set(he)
        return replace(COUNTED, ring_degree=chosen.ring_degree, coefficient_bits=chosen.coefficient_bits)
    if he.profile != "calibrate":
        return read_profile(Path(he.profile))
    return measure(_one_set(he), engine or he.engine, bar)


def _one_set(he: HEConfig) -> ParameterSet:
    allowed = sets_for(he.ring_degree, he.coefficient_bits)
    return WIDE if WIDE in allowed else allowed[0]


def profile_at(profile: Profile, wanted: ParameterSet, engine: str, bar: Bar = silent) -> Profile:
    """A profile at a set: this one if it was measured there, else this machine's, measured now.

    Args:
        profile: at any set.
        wanted: n and q.
        engine: to measure.
        bar: shows progress.
    """
    return profile if set_of(profile) == wanted else measure(wanted, engine, bar)


def measure(wanted: ParameterSet, engine: str, bar: Bar = silent) -> Profile:
    """Measure this machine's profile at a set.

    Args:
        wanted: n and q.
        engine: to measure.
        bar: shows progress.
    """
    with bar(f"Calibration, {engine}, n = {wanted.ring_degree}", CALIBRATION_ROUNDS + 1) as advance:
        return calibrate(wanted.ring_degree, wanted.coefficient_bits, CALIBRATION_ROUNDS, advance, engine)
