"""The text of --help: all settings, each with its value and what it means."""

import re
from dataclasses import dataclass, field

import pytest

from benchmarks.bench import command as bench
from benchmarks.load import command as load
from papers.pareto import command as pareto
from papers.reproduce import command as reproduce
from privcirnet import config
from privcirnet.cli.settings import explained, listing, meanings, offers

pytestmark = pytest.mark.docs

SCHEMAS = {**config.SCHEMAS, "pareto": pareto.ParetoConfig, "reproduce": reproduce.ReproduceConfig}
SCHEMAS |= {"bench": bench.BenchConfig, "load": load.LoadConfig}


@dataclass
class Inner:
    """A group.

    Attributes:
        size: of it, which is explained
            on two lines.
    """

    size: int = 3


@dataclass
class Outer:
    """Settings."""

    inner: Inner = field(default_factory=Inner)
    sizes: list[int] = field(default_factory=lambda: [1, 2])
    """to choose from,
    as :class:`~privcirnet.Plan` has them."""
    bare: str = ""


def test_meanings_are_those_of_the_source():
    assert meanings(Outer) == {
        "inner.size": "of it, which is explained on two lines.",
        "sizes": "to choose from, as privcirnet.Plan has them.",
        "bare": "",
    }


def test_a_listing_has_the_command_lines_form():
    settings = {"inner": {"size": 3}, "sizes": [1, 2], "bare": ""}
    assert listing(Outer, settings, {"inner": ["big", "small"], "other": ["one"]}, 80).splitlines() == [
        "  sizes=[1,2]                         to choose from, as privcirnet.Plan has",
        "                                      them.",
        "  bare=",
        "",
        "inner=big, small",
        "  inner.size=3                        of it, which is explained on two lines.",
        "",
        "other=one",
    ]


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_setting_of_every_command_is_explained(name):
    assert [setting for setting, text in meanings(SCHEMAS[name]).items() if not text] == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_help_has_all_that_can_be_set(monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "100")
    text = explained(name, SCHEMAS[name], [])
    words = set(re.split(r"[\s,]+", text))
    shown = {word.partition("=")[0] for word in words if "=" in word}
    for offer in offers(name, SCHEMAS[name]):
        setting, _, option = offer.partition("=")
        parents = {setting[: dot.start()] for dot in re.finditer(r"\.", setting)}
        assert ({setting} | parents) & shown, offer
        assert not option or {option, offer} & words, offer
    assert "shared" not in text
    assert max(map(len, text.splitlines())) <= 160


def test_help_shows_settings_as_given():
    text = explained("train", SCHEMAS["train"], ["recipe=qat", "seed=7"])
    assert "  seed=7 " in text
    assert "  recipe.stage=qat " in text
    assert "  out=${root}/" in text
