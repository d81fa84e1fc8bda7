"""The text of ``--help``: every setting with its value and meaning, read from the schema's source."""

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

_NAMES = 36
"""Number of columns of a setting and its value; longer ones get a line of their own."""
_REFERENCE = re.compile(r":\w+:`[~.]*([^`]*)`")
_ATTRIBUTE = re.compile(r"^ {8}(\w+): ((?:.|\n {9,})*)", re.M)


def meanings(schema: type, prefix: str = "") -> dict[str, str]:
    """Return the meaning of each setting, by its name in a command line; a group's are ``group.setting``.

    It is the docstring below a field, or the line under "Attributes" in the class's.
    """
    texts = {}
    for kind in (kind for kind in reversed(schema.__mro__) if is_dataclass(kind)):
        texts |= _written_at(kind)
    by_setting, types = {}, get_type_hints(schema)
    for field in fields(schema):
        kind = types[field.name]
        if is_dataclass(kind) and isinstance(kind, type):
            by_setting |= meanings(kind, f"{prefix}{field.name}.")
        else:
            text = " ".join(texts.get(field.name, "").split())
            by_setting[f"{prefix}{field.name}"] = _REFERENCE.sub(r"\1", text)
    return by_setting


def _written_at(schema: type) -> dict[str, str]:
    """Return the descriptions of a class's own fields from its source."""
    texts = dict(_ATTRIBUTE.findall((schema.__doc__ or "").partition("Attributes:")[2]))
    node = ast.parse(textwrap.dedent(inspect.getsource(schema))).body[0]
    assert isinstance(node, ast.ClassDef)
    for before, statement in itertools.pairwise(node.body):
        match before, statement:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = text
            case _:
                pass
    return texts


def listing(schema: type, settings: Mapping[str, Any], groups: Mapping[str, Sequence[str]], width: int) -> str:
    """Return the lines of all settings, and before a group's those of its options.

    Args:
        width: number of columns of the terminal, 60 at least.
    """
    lines, section = [], ""
    names = meanings(schema)
    for name in sorted(names, key=lambda name: "." in name):  # those of groups behind all others
        if (group := name.rpartition(".")[0].partition(".")[0]) != section:
            lines += ["", *_options(group, groups.get(group, ()), width)]
            section = group
        lines += _entry(f"{name}={written(_value(settings, name))}", names[name], width)
    for group in (group for group in groups if group not in settings):
        lines += ["", *_options(group, groups[group], width)]
    return "\n".join(lines)


def written(value: Any) -> str:
    """Return a value in the syntax of a command line.

    >>> [written(value) for value in (True, [1, 2], "", {"a": {"b": 1.5}})]
    ['true', '[1,2]', '', '{a:{b:1.5}}']
    """
    match value:
        case bool():
            return str(value).lower()
        case list():
            return f"[{','.join(written(part) for part in value)}]"
        case dict():
            return f"{{{','.join(f'{key}:{written(part)}' for key, part in value.items())}}}"
        case _:
            return str(value)


def _options(group: str, options: Sequence[str], width: int) -> list[str]:
    """Return the lines of a group's options."""
    indent = " " * (len(group) + 1)
    return textwrap.wrap(f"{group}={', '.join(options)}", width, subsequent_indent=indent) if options else []


def _value(settings: Any, name: str) -> Any:
    for part in name.split("."):
        settings = settings[part]
    return settings


def _entry(setting: str, text: str, width: int) -> list[str]:
    """Return the lines of a setting: its meaning beside it, or below where it is long."""
    indent = " " * (_NAMES + 2)
    wrapper = textwrap.TextWrapper(width, indent, indent, break_long_words=False, break_on_hyphens=False)
    lines = wrapper.wrap(text)
    first = f"  {setting}"
    if len(first) < _NAMES and lines:
        return [first.ljust(_NAMES + 2) + lines[0].lstrip(), *lines[1:]]
    return [first, *lines]
