"""Settings of a verb's encryption, and operation times for it: given, or measured once a process."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from privcirnet.api.settings import configured
from privcirnet.artifact import read_profile
from privcirnet.config import CompileConfig, HEConfig
from privcirnet.config.checks import check
from privcirnet.errors import nearest
from privcirnet.he.planning.profile import Profile
from privcirnet.he.system import threads
from privcirnet.runs.profiles import find_profile
from privcirnet.runs.progress import Bar

_WORDS = ("calibrate", "counted")
_measured: dict[tuple[int, ...], Profile] = {}
"""This machine's profiles by number of threads and primes: a search that a rule stops need not measure again."""


def encryption(
    verb: str, config: CompileConfig | None, settings: Mapping[str, Any], profile: Profile | str | Path
) -> HEConfig:
    """Return a verb's settings in the form of the scripts; arguments as for :func:`configured`, and its profile."""
    fields = asdict(configured(verb, CompileConfig, config, settings))
    return HEConfig(**fields, profile=named(profile))


def named(profile: Profile | str | Path) -> str:
    """Return the name in settings of a profile that a verb was given.

    Raises:
        RuleError: the word is not known, or no profile's file.
    """
    name = "calibrate" if isinstance(profile, Profile) else str(profile) or "calibrate"
    if name not in _WORDS:
        close = "" if Path(name).exists() else nearest(name, _WORDS)
        check(not close, "profile must be a known word or a file", repr(name), f"did you mean {close!r}?")
        read_profile(Path(name))
    return name


def profile_for(profile: Profile | str | Path, he: HEConfig, bar: Bar) -> Profile:
    """Return the profile that a verb was given, or this machine's.

    Args:
        profile: operation times, a file's path, "counted" or "calibrate".
        he: settings, with a profile named that has no operation times.
        bar: progress bar, if this machine is measured.

    Raises:
        RuleError: the file is no profile.
    """
    if isinstance(profile, Profile):
        return profile
    if he.profile != "calibrate":
        return find_profile(he, bar=bar)
    key = threads.count(), he.ring_degree, *he.coefficient_bits
    if key not in _measured:
        _measured[key] = find_profile(he, bar=bar)
    return _measured[key]
