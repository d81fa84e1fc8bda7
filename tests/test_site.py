"""What the site is made of: every error is on its page, every public name in its API. `make docs` builds it strictly."""

import ast
import re

import pytest

import privcirnet
from tests.conftest import ROOT

pytestmark = pytest.mark.docs


@pytest.fixture
def rule_errors(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    import rule_errors

    return rule_errors


SOURCE = """
REMEDY = "read the manual"

class RuleError(ValueError): ...

class DoesNotFit(RuleError): ...

def literal():
    raise RuleError("it must be there", got=0, remedy="put it there")

def filled(name):
    raise DoesNotFit(f"{name} must be under 2^{40 + 2}", got=0, remedy=REMEDY)

def assigned(kind):
    rule, remedy = "one must be chosen" if kind else "it must be chosen", "choose"
    raise RuleError(rule, got=0, remedy=remedy)

def check(condition, rule, got, remedy):
    if not condition:
        raise RuleError(rule, got=got, remedy=remedy)

def check_name(what, got, known):
    check(got in known, f"{what} must be a known one", got, "use one of the known")

def caller(engine):
    check(engine, "there must be an engine", engine, remedy="use kernel")
    check_name("engine", engine, ())

def again(error):
    raise RuleError(error.rule, got=0, remedy="do it again")
"""


def test_rules_are_found_however_they_are_written(rule_errors, tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "module.py").write_text(SOURCE)
    found = rule_errors.collect(tmp_path / "package")
    assert {rule.module for rule in found} == {"package.module"}
    assert {(rule.rule, rule.remedy) for rule in found} == {
        ("it must be there", "put it there"),
        ("… must be under 2^…", "read the manual"),
        ("one must be chosen / it must be chosen", "choose"),
        ("there must be an engine", "use kernel"),
        ("engine must be a known one", "use one of the known"),
    }


def test_every_error_of_the_package_is_on_the_page(rule_errors):
    """Of each place that raises one with a literal rule, the rule is there; no rule or remedy is lost on the way."""
    rules = rule_errors.collect()
    page = rule_errors.rules_page(rules)
    literal = [
        call.args[0].value
        for path in (ROOT / "privcirnet").rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("RuleError", "DoesNotFit", "check", "_check")
        if len(call.args) and isinstance(call.args[0], ast.Constant)
    ]
    assert len(literal) > 100
    assert not [rule for rule in literal if f"| `{rule}` | " not in page]
    assert "| `he.… must be a known one` | " in page  # by two functions that raise what they are given
    assert len(re.findall(r"^\| `", page, flags=re.MULTILINE)) >= len({(rule.rule, rule.remedy) for rule in rules})
    assert len([rule for rule in rules if rule.remedy == rule_errors.BLANK]) <= 10


def test_every_public_name_is_in_the_api():
    text = (ROOT / "docs" / "api.md").read_text()
    assert sorted(re.findall(r"^::: privcirnet\.(\w+)$", text, flags=re.MULTILINE)) == sorted(privcirnet.__all__)
