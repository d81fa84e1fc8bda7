"""Settings of a verb: a typed config, keywords of the same names, operation times given or measured once a process."""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from privcirnet.artifact.records import read_profile
from privcirnet.cli.console import progress_bar
from privcirnet.config import CompileConfig, HEConfig
from privcirnet.config.checks import check
from privcirnet.errors import RuleError, nearest
from privcirnet.he.planning.profile import Profile
from privcirnet.he.system import threads
from privcirnet.runs.profiles import find_profile
from privcirnet.runs.progress import ProgressBar, silent

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="DataclassInstance")
_TAKEN: dict[type, Any] = {int: Integral, float: Real, list: (list, tuple), str: (str, bool)}
"""Type of a field -> type that is accepted for it; amp may be True."""
_GROUP = re.compile(r"\b(?:recipe|he|quant)\.(?=\w)")
"""Group that the scripts write before a setting's name."""
_WORDS = {int: "an integer", float: "a number", bool: "True or False", str: "a text", list: "a list"}


def configured(verb: str, schema: type[C], config: C | None, keywords: Mapping[str, Any]) -> C:
    """Return a config with keywords in place of some of its fields.

    Args:
        verb: verb that they were given to.
        schema: dataclass of the verb's settings.
        config: config of this class; None for its defaults.
        keywords: values by field.

    Raises:
        RuleError: the config is of another type, a keyword is not a field, or a value has another type.
    """
    config = schema() if config is None else config
    if not isinstance(config, schema):  # pyright: ignore[reportUnnecessaryIsInstance]
        got, remedy = type(config).__name__, f"give {schema.__name__}(...), or its fields by name"
        raise RuleError(f"a config of {verb} must be a {schema.__name__}", got=got, remedy=remedy)
    types = get_type_hints(schema)
    for name in keywords:
        if name not in types:
            close = nearest(name, types)
            remedy = f"did you mean {close}=?" if close else f"help(privcirnet.{schema.__name__}) lists them"
            raise RuleError(f"a setting of {verb} must be a known one", got=name, remedy=remedy)
    updated = replace(config, **keywords)
    for name, value in vars(updated).items():
        kinds = _kinds(types[name])
        if not any(_is(value, kind) for kind in kinds):
            remedy = f"give {' or '.join(str(_WORDS.get(kind, kind.__name__)) for kind in kinds)}"
            raise RuleError(f"a setting of {verb} must have its type", got=f"{name}={value!r}", remedy=remedy)
    return updated


def _kinds(of: Any) -> tuple[type, ...]:
    """Return the classes that a type stands for."""
    return get_args(of) if isinstance(of, UnionType) else (get_origin(of) or of,)


def _is(value: object, kind: type) -> bool:
    return isinstance(value, _TAKEN.get(kind, kind)) and not (isinstance(value, bool) and kind in (int, float))


def verb(function: Callable[P, R]) -> Callable[P, R]:
    """Return a verb whose mistakes name settings as its arguments, learning_rate and not recipe.learning_rate."""

    @functools.wraps(function)
    def call(*arguments: P.args, **settings: P.kwargs) -> R:
        try:
            return function(*arguments, **settings)
        except RuleError as error:
            error.rule, error.remedy = _GROUP.sub("", error.rule), _GROUP.sub("", error.remedy)
            error.args = (f"{error.rule}: got {error.got}; {error.remedy}",)
            raise

    return call


def bars(visible: bool) -> ProgressBar:
    """Return the function that opens progress bars.

    Args:
        visible: whether they are shown.
    """
    return progress_bar if visible else silent


_PROFILE_WORDS = ("calibrate", "counted")
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
    if name not in _PROFILE_WORDS:
        close = "" if Path(name).exists() else nearest(name, _PROFILE_WORDS)
        check(not close, "profile must be a known word or a file", repr(name), f"did you mean {close!r}?")
        read_profile(Path(name))
    return name


def profile_for(profile: Profile | str | Path, he: HEConfig, bar: ProgressBar) -> Profile:
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
