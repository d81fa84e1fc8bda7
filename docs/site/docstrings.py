"""Docstrings as Markdown, for the site: roles such as ``:func:`name``` become links, doctests become blocks of code."""

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`(~?)([\w.]+)`")
_DOCTEST = re.compile(r"^([ ]*)>>> .*\n(?:\1\S.*\n?)*", re.MULTILINE)
_LITERAL = re.compile(r"::$", re.MULTILINE)


class MarkdownDocstrings(griffe.Extension):
    """Rewrites every docstring of a package once all of it is loaded."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Rewrite the docstrings of a package.

        Args:
            pkg: loaded.
        """
        _rewrite(pkg)


def _rewrite(member: griffe.Object) -> None:
    if member.docstring:
        text = _ROLE.sub(lambda role: _link(member, role[2], short=bool(role[1])), member.docstring.value)
        text = _DOCTEST.sub(lambda test: f"{test[1]}```pycon\n{test[0].rstrip()}\n{test[1]}```\n", text)
        member.docstring.value = _LITERAL.sub(":", text)
    for inner in member.members.values():
        if isinstance(inner, griffe.Object):
            _rewrite(inner)


def _link(member: griffe.Object, name: str, short: bool) -> str:
    """A link, which the site shows as plain code where it has no such name."""
    name = name.lstrip(".")
    shown = f"<code>{name.rpartition('.')[2] if short else name}</code>"
    try:
        path = name if name.startswith("privcirnet.") else member.resolve(name)
    except griffe.NameResolutionError:
        path = f"privcirnet.{name}"
    return f'<autoref optional identifier="{path}">{shown}</autoref>'
