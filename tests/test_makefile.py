"""Which environment the Makefile uses: the one that is active, else its own. Nothing is run."""

import os
import subprocess

import pytest

from tests.conftest import ROOT


def printed(target: str, **environment: str) -> str:
    """What make would run for a target."""
    kept = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "VENV", "MAKEFLAGS")}
    command = ["make", "--no-print-directory", "-n", "-W", "pyproject.toml", target]
    return subprocess.run(command, cwd=ROOT, env=kept | environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("target", ["demo", "test"])
def test_an_environment_that_is_active_is_used(target):
    found = printed(target, VIRTUAL_ENV="/active")
    assert "/active/bin/python -m pip install --progress-bar on -c constraints.txt -e ." in found
    assert ".venv" not in found


@pytest.mark.parametrize("target", ["demo", "test"])
def test_without_one_it_makes_its_own(target):
    found = printed(target)
    assert "\npython3 -m venv .venv\n" in found
    assert ".venv/bin/python -m pip install --progress-bar on -c constraints.txt -e ." in found


def test_one_that_is_named_comes_first():
    assert "/active" not in printed("demo", VIRTUAL_ENV="/active", VENV="/named")


def test_an_environment_that_is_active_is_not_removed():
    assert printed("clean").strip() == "rm -rf .venv outputs"
    assert printed("clean", VIRTUAL_ENV="/active").strip() == "rm -rf /active/installed* outputs"
    assert printed("clean", VIRTUAL_ENV="/active", VENV=".venv").strip() == "rm -rf .venv outputs"
