"""SECURITY.md: what it promises has tests, and its first lines say what matters most."""

import re

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.docs

TEXT = (ROOT / "SECURITY.md").read_text()


def section(heading: str) -> str:
    return re.split(r"^## ", TEXT.split(f"\n## {heading}\n")[1], flags=re.MULTILINE)[0]


def rows() -> dict[str, list[str]]:
    """Each promise, and the tests that its row names."""
    found = re.findall(r"^\| (.+?) \| (.+) \| (.+?) \|$", section("What holds"), flags=re.MULTILINE)
    return {promise: re.findall(r"`(tests/[\w/]+\.py)`", tests) for promise, _, tests in found if promise != "promise"}


def test_there_are_promises():
    assert len(rows()) >= 50


@pytest.mark.parametrize("promise", rows())
def test_a_promise_names_tests_that_exist(promise):
    assert rows()[promise]
    for path in rows()[promise]:
        assert (ROOT / path).is_file(), path
        assert "def test_" in (ROOT / path).read_text(), path


def test_every_attack_is_named():
    attacks = {path.name for path in (ROOT / "tests" / "attacks").glob("test_*.py")}
    assert len(attacks) >= 6
    assert not [name for name in attacks if f"`tests/attacks/{name}`" not in TEXT]


def test_the_first_lines_say_what_matters_most():
    first = TEXT.split("\n## ")[0]
    assert "Whoever may talk to the server can take the model, unless they follow the protocol." in first
