"""Habits of names and docstrings, counted in the package: the ceilings only fall."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.docs

SUBJECTLESS = frozenset(
    "what who whose whom which where when why how whether of that those likewise from to with by for".split()
)
VAGUE = frozenset(
    "found own made told kept held given each others other one known wanted seen taken said asked noted left met "
    "chosen begun shown stays apart together most least".split()
)


@cache
def trees() -> list[ast.Module]:
    return [ast.parse(path.read_text()) for path in sorted((ROOT / "privcirnet").rglob("*.py"))]


def subjectless() -> Iterator[str]:
    """First lines of docstrings that begin with a word that is no subject, noun or verb."""
    for node in (node for tree in trees() for node in ast.walk(tree)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            line = (ast.get_docstring(node) or " ").splitlines()[0]
            if line.split(" ")[0].strip(",.:`'\"").lower() in SUBJECTLESS:
                yield line


def vague() -> Iterator[str]:
    """Variables and parameters whose name says nothing of the value."""
    for node in (node for tree in trees() for node in ast.walk(tree)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE:
            yield f"{node.lineno} {node.id}"
        elif isinstance(node, ast.arg) and node.arg in VAGUE:
            yield f"{node.lineno} {node.arg}"


def twice() -> Iterator[str]:
    """Public classes of one name in several modules."""
    names = Counter(n.name for tree in trees() for n in tree.body if isinstance(n, ast.ClassDef) and n.name[0] != "_")
    return (name for name, count in names.items() if count > 1)


@pytest.mark.parametrize(("habit", "ceiling"), [(subjectless, 14), (vague, 87), (twice, 10)])
def test_a_habit_does_not_come_back(habit, ceiling):
    places = list(habit())
    assert len(places) <= ceiling, f"{habit.__doc__} {places[:10]}"
