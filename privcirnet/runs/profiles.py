"""Profiles, which are read, or measured on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from privcirnet.artifact.records import read_profile, write_json
from privcirnet.config import HEConfig
from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import ParameterSet
from privcirnet.he.measure.calibrate import calibrate
from privcirnet.he.planning.parameter_choice import WIDE, sets_for
from privcirnet.he.planning.profile import COUNTED, Profile
from privcirnet.he.rlwe.parameters import TABLE
from privcirnet.runs.progress import ProgressBar, silent

PROFILE = "profile.json"
"""File of a search with the operation times behind its predictions."""
CALIBRATION_ROUNDS = 25
"""Number of rounds over all operations, of which medians are taken."""
RANKING_ROUNDS = 5
"""Number of rounds for a profile that only ranks sets of parameters, with its times scaled to each."""


def find_profile(
    he: HEConfig, engine: str = "", bar: ProgressBar = silent, rounds: int = CALIBRATION_ROUNDS, table: str = TABLE
) -> Profile:
    """Return the cost profile of a file, the papers' units, or this machine's, measured now.

    Where it is not a file's, it is at the set of the settings, or at a wide one if they leave it open.

    Args:
        engine: Name of the engine to measure; "" for the one of the settings.
        rounds: Number of rounds, if it is measured.

    Raises:
        RuleError: The file is no profile, or no set of parameters is secure with these settings.
    """
    if he.profile == "counted":
        parameter_set = _one_set(he)
        return replace(COUNTED, ring_degree=parameter_set.ring_degree, coefficient_bits=parameter_set.coefficient_bits)
    if he.profile != "calibrate":
        return read_profile(Path(he.profile))
    return measure(_one_set(he), engine or he.engine, bar, rounds, table)


@contextmanager
def kept(profile: Profile, he: HEConfig, path: Path) -> Iterator[None]:
    """Yield; where a rule stops the block that uses a measured profile, keep the profile and say where.

    Raises:
        RuleError: the block raised it; its remedy names the file.
    """
    try:
        yield
    except RuleError as error:
        if he.profile != "calibrate":
            raise
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, profile.to_dict())
        remedy = f"{error.remedy}; he.profile={path} is what was measured now"
        raise type(error)(error.rule, got=error.got, remedy=remedy) from error


def _one_set(he: HEConfig) -> ParameterSet:
    allowed = sets_for(he.ring_degree, he.coefficient_bits)
    return WIDE if WIDE in allowed else allowed[0]


def profile_at(profile: Profile, parameter_set: ParameterSet, engine: str, bar: ProgressBar = silent) -> Profile:
    """Return a profile at a set: the given one if it was measured there, else this machine's, measured now.

    The papers' units are the same at every set.
    """
    if profile.parameter_set == parameter_set:
        return profile
    if profile.seconds == COUNTED.seconds:
        return replace(profile, ring_degree=parameter_set.ring_degree, coefficient_bits=parameter_set.coefficient_bits)
    return measure(parameter_set, engine, bar)


def measure(
    parameter_set: ParameterSet,
    engine: str,
    bar: ProgressBar = silent,
    rounds: int = CALIBRATION_ROUNDS,
    table: str = TABLE,
) -> Profile:
    """Return this machine's profile at a set, measured now.

    Args:
        rounds: Number of timed rounds over all operations, after one that is not timed.
    """
    with bar(f"Calibration, {engine}, n = {parameter_set.ring_degree}", rounds + 1) as advance:
        return calibrate(parameter_set.ring_degree, parameter_set.coefficient_bits, rounds, advance, engine, table)
