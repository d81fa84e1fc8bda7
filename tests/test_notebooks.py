"""Notebooks run from top to bottom on what train.py leaves."""

import json
import sys
import types
from pathlib import Path

import pytest
import torch

from privcirnet.artifact import write_checkpoint
from privcirnet.config import ModelConfig, QuantConfig, RecipeConfig
from privcirnet.data import load
from privcirnet.training import stages
from privcirnet.training.network import checkpoint_of

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    display = types.ModuleType("IPython.display")  # without its parent, which matplotlib would take for a notebook
    display.Image = lambda picture: picture.read_bytes()
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    torch.manual_seed(0)
    start = stages.begin(RecipeConfig(), QuantConfig(), ModelConfig(), load("digits"))
    write_checkpoint(tmp_path / "outputs" / "train" / "checkpoint.safetensors", checkpoint_of(start, "train"))
    names: dict[str, object] = {}
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), path.name, "exec"), names)
    assert "weight  Fisher" in capsys.readouterr().out
    assert (tmp_path / "outputs" / "prediction.png").is_file()
