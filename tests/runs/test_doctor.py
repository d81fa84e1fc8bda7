"""What the doctor finds, and that it finds what is broken."""

import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

from privcirnet.cli import doctor
from privcirnet.cli import doctor as command
from privcirnet.errors import RuleError

REQUIRES = ["numpy>=2.0", "torch>=900", "nonesuch>=1", 'highspy>=1.15; extra == "highs"', 'nonesuch2; extra == "more"']


@pytest.fixture
def required(monkeypatch):
    """An installation whose metadata names packages that are too old or missing."""
    monkeypatch.setattr(metadata, "requires", lambda _: REQUIRES)


def test_a_healthy_installation(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["privcirnet doctor"])
    command.main()
    told = capsys.readouterr().out
    for part in ("packages", "torch", "cores", "vector units", "memory", "kernels", "SEAL", "optional"):
        assert part in told


def test_missing_and_old_packages_are_told_with_a_remedy(required):
    found = {finding.name: finding for finding in doctor.packages()}
    assert found["numpy"].remedy == ""
    assert found["torch"].said.endswith("not >=900")
    assert found["nonesuch"].said == "missing, not >=1"
    assert found["nonesuch"].remedy == "pip install 'nonesuch>=1'"
    assert "highspy" not in found
    with pytest.raises(RuleError, match=r"must work: got torch .* not >=900, nonesuch missing"):
        command.check(found.values())


def test_extras_that_are_missing_are_told_with_what_brings_them(required, monkeypatch):
    monkeypatch.setattr(metadata, "metadata", lambda _: Extras())
    found = {finding.name: finding.said for finding in doctor.extras()}
    assert found == {
        "highspy": metadata.version("highspy"),
        "nonesuch2": "not installed; pip install 'privcirnet[more]'",
    }


@pytest.mark.docs
def test_extras_are_those_of_the_page_on_installation():
    page = (Path(__file__).parents[2] / "docs" / "install.md").read_text()
    optional = {*metadata.metadata("privcirnet").get_all("Provides-Extra", [])} - doctor._FOR_DEVELOPERS
    assert optional == {*re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)}


class Extras:
    def get_all(self, name, default):
        assert name == "Provides-Extra"
        return ["highs", "more", "test", "dev"]


def test_what_is_broken_does_not_stop_the_diagnosis(monkeypatch):
    monkeypatch.setitem(sys.modules, "tenseal.sealapi", None)
    monkeypatch.delitem(sys.modules, "privcirnet.he.bfv.seal", raising=False)
    found = {finding.name: finding for finding in doctor.trials()}
    assert (found["torch"].remedy, found["kernels"].remedy) == ("", "")
    assert "tenseal" in found["SEAL"].said
    assert found["SEAL"].remedy == "pip install --force-reinstall tenseal"


def test_without_an_installation(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    with pytest.raises(RuleError, match="says of itself: got no installation of privcirnet"):
        list(doctor.packages())
