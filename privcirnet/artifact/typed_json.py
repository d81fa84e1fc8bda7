"""Records as JSON and back: a value that does not fit its field is named by its key."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

Record = TypeVar("Record")


def plain(value: Any) -> Any:
    """Return a record as data for JSON; attributes that are None are left out."""
    if is_dataclass(value):
        attributes = {f.name: getattr(value, f.name) for f in fields(value)}
        return {name: plain(entry) for name, entry in attributes.items() if entry is not None}
    if isinstance(value, Mapping):
        return {name: plain(entry) for name, entry in value.items()}
    return [plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def read_record(kind: type[Record], path: Path) -> Record:
    """Return the record that a JSON file holds.

    Raises:
        ValueError: the file is not JSON, or a value does not fit its field; the message names the key.
        OSError: the file cannot be read.
    """
    return fit(kind, json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None), "")


def fit(hint: Any, value: Any, key: str) -> Any:
    """Return a JSON value as an annotated type.

    Args:
        value: value from JSON.

    Raises:
        ValueError: the value does not fit.

    >>> fit(dict[int, float], {"1": 2}, "latency")
    {1: 2.0}
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return None if value is None else fit(arguments[0], value, key)
    if is_dataclass(hint):
        return _fit_record(hint, _instance(dict, value, key), key)
    if origin is dict:
        items = _instance(dict, value, key).items()
        return {_fit_key(arguments[0], k, key): fit(arguments[1], v, f"{key}.{k}") for k, v in items}
    if origin is list:
        return [fit(arguments[0], v, f"{key}[{i}]") for i, v in enumerate(_instance(list, value, key))]
    if hint is float:
        return float(_instance((int, float), value, key))
    return _instance(hint, value, key)


def _fit_key(hint: type, value: str, key: str) -> Any:
    """Return a key of a JSON object, which is always a string, as ``hint`` (int or str)."""
    if hint is int and not value.isdecimal():
        raise ValueError(f"the keys of {key!r} must be whole numbers, not {value!r}")
    return hint(value)


def _fit_record(kind: Any, value: dict[str, Any], key: str) -> Any:
    hints = get_type_hints(kind)
    record_fields = {f.name: f for f in fields(kind)}
    missing = [n for n, f in record_fields.items() if n not in value and MISSING is f.default is f.default_factory]
    if missing:
        raise ValueError(f"{f'{key}.{missing[0]}'.lstrip('.')!r} is missing")
    return kind(
        **{name: fit(hints[name], value[name], f"{key}.{name}".lstrip(".")) for name in record_fields if name in value}
    )


def _instance(kind: Any, value: Any, key: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        names = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
        raise ValueError(f"{key or 'the whole file'!r} must be {names}, not {type(value).__name__}")
    return value
