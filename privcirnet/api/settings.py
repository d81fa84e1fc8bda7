"""Settings of a verb: a typed config, and keywords of the same names."""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Integral, Real
from types import UnionType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from privcirnet.errors import RuleError, nearest

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
