"""Blocks of scripts as README and docs have them, in order; and by defaults on a network and pictures of one's own."""

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from privcirnet.cli import SUBCOMMANDS
from tests.conftest import ROOT
from tests.scripts import call, summary

SMALL = {
    "train": ["epochs=1", "limit=200"],
    "search": ["profile=counted", "samples=32", "sweep=0", "limit=200"],
    "export": ["limit=200", "rehearsed_images=2"],
    "infer": ["engine=cleartext", "limit=200", "images=2"],
    "report": [],
}
"""Script -> settings that let it run for seconds, and as it is in all else."""
PAGES = ["quickstart", "training", "inference", "parameters", "prepared", "quantization"]
"""Of docs/, those with blocks about the digits."""
ELSEWHERE = re.compile(r"data=|\w+/\w+=|server=|ui=|checkpoints/|model=|weight_bits=|[A-Z]{3,}")
"""Data that is large, a page, a server, another network, or a training that no single epoch does."""


def runnable(page: Path) -> list[list[list[str]]]:
    """The words behind "python" of each line, of each block whose scripts all run alone on the digits."""
    blocks = re.findall(r"^```bash\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = [[shlex.split(line, comments=True) for line in b.replace("\\\n", " ").splitlines()] for b in blocks]
    found = [[words for words in block if words] for block in lines]
    scripts = [f"{name}.py" for name in SMALL]
    own = [b for b in found if b and all(words[0] == "python" and words[1] in scripts for words in b)]
    return [[words[1:] for words in b] for b in own if not any(ELSEWHERE.search(" ".join(words)) for words in b)]


def run(monkeypatch, words: list[str], *more: str) -> None:
    script = words[0].removesuffix(".py")
    call(monkeypatch, script, *words[1:], *SMALL[script], *(() if script == "report" else more))


@pytest.mark.slow
def test_the_readmes_scripts_run_in_order(tmp_path, monkeypatch):
    """As they stand, but for fewer images and epochs: seven scripts, of which three train."""
    monkeypatch.chdir(tmp_path)
    (block,) = runnable(ROOT / "README.md")
    assert {words[0].removesuffix(".py") for words in block} == set(SMALL) <= set(SUBCOMMANDS)
    for words in block:
        run(monkeypatch, words)
    outputs = Path("outputs")
    assert summary(outputs, "qat")["config"]["recipe"]["init"] == "outputs/finetune"
    assert summary(outputs, "infer_rehearsal")["audit"]["argmax_equal"] == 2
    assert (outputs / "report.html").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_a_pages_scripts_run(page, digits_chain, tmp_path, monkeypatch):
    """Behind a chain on the digits: several scripts each."""
    blocks = runnable(ROOT / "docs" / f"{page}.md")
    assert blocks, "take the page out of the list"
    shutil.copytree(digits_chain, tmp_path / "outputs")
    monkeypatch.chdir(tmp_path)
    for words in (words for block in blocks for words in block):
        run(monkeypatch, words, "overwrite=true")


def pictures(folder: Path) -> None:
    """Write a data set of CIFAR's shape: four classes of noise on a grey of their own."""
    draw = np.random.default_rng(0)
    for split, count in {"train": 8, "test": 2}.items():
        for number in range(4):
            (place := folder / split / f"class{number}").mkdir(parents=True)
            for index in range(count):
                pixels = np.clip(draw.normal(40 + 50 * number, 30, (32, 32, 3)), 0, 255)
                Image.fromarray(pixels.astype(np.uint8)).save(place / f"{index}.png")


@pytest.mark.slow
@pytest.mark.parametrize("road", ["exact", "polynomial"])
def test_a_network_of_timm_by_defaults(road, tmp_path, monkeypatch, capsys):
    """Ten layers of 512 channels, trained, searched and exported: a minute."""
    pictures(tmp_path / "pictures")
    at = f"root={tmp_path}", "data=imagefolder", f"data.root={tmp_path}/pictures", "data.cache="
    call(monkeypatch, "train", *at, "model.name=resnet10t", "epochs=1")
    call(monkeypatch, "search", *at, "profile=counted", "samples=8", "sweep=0")
    call(monkeypatch, "train", *at, "recipe=finetune", "epochs=1")
    begins = "finetune" if road == "exact" else "replace"
    if road == "polynomial":
        call(monkeypatch, "train", *at, "recipe=replace", "activation=aespa", "epochs=1")
    call(monkeypatch, "train", *at, "recipe=qat", f"init={tmp_path}/{begins}", "epochs=0")
    capsys.readouterr()
    call(monkeypatch, "export", *at, "rehearsed_images=0")
    words = {"proved": "bits, proved\n", "measured": "bits, measured, as "}
    assert words[summary(tmp_path, "export")["bounds"]] in capsys.readouterr().out
    call(monkeypatch, "infer", *at, "images=1", "engine=cleartext")
    assert summary(tmp_path, "infer_rehearsal")["audit"]["argmax_equal"] == 1
