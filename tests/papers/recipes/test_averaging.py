"""Means of networks: the mean of all weights, written by the command, with statistics of its own where a stage begins."""

import dataclasses
import sys
from pathlib import Path

import pytest
import torch

from papers.recipes import __main__ as command
from papers.recipes import averaging
from privcirnet.artifact.records import read_checkpoint
from privcirnet.cli import ladder
from privcirnet.cli.settings import composed
from privcirnet.config import LadderConfig, ModelConfig, QuantConfig, RecipeConfig
from privcirnet.errors import RuleError
from privcirnet.train import stages
from tests.train.test_stages import DATA, save


@pytest.fixture
def networks(tmp_path):
    found = []
    for seed in (1, 2, 3):
        torch.manual_seed(seed)
        found.append(stages.begin(RecipeConfig(), QuantConfig(), ModelConfig(), DATA))
        save(tmp_path / str(seed), found[-1], "train")
    return found


def mean(monkeypatch, tmp_path, *runs):
    file = tmp_path / "mean.safetensors"
    monkeypatch.setattr(sys, "argv", ["averaging", str(file), *(str(tmp_path / run) for run in runs)])
    command.main()
    return file


def test_a_soup_is_the_mean_of_the_weights_with_its_own_statistics(networks, monkeypatch, tmp_path):
    file = mean(monkeypatch, tmp_path, "1", "2", "3")
    settings = RecipeConfig(stage="replace", init=str(file))
    found = stages.begin(settings, QuantConfig(), ModelConfig(), DATA).model
    for name, weight in found.named_parameters():
        torch.testing.assert_close(weight, sum(network.model.get_parameter(name) for network in networks) / 3)
    first = stages.begin(dataclasses.replace(settings, init=str(tmp_path / "1")), QuantConfig(), ModelConfig(), DATA)
    assert any(not torch.equal(a, b) for a, b in zip(found.buffers(), first.model.buffers(), strict=True))


def test_networks_of_another_kind_are_refused(networks, tmp_path):
    save(tmp_path / "2", dataclasses.replace(networks[1], composed=("classifier",)), "train")
    held = [read_checkpoint(tmp_path / run / stages.CHECKPOINT) for run in ("1", "2")]
    with pytest.raises(RuleError, match="differ in their weights alone to be averaged: got digits_resnet of stage tr"):
        averaging.mean_of(held)


@pytest.mark.docs
def test_the_chain_of_soups_branches_where_its_means_are():
    where = "hydra.searchpath=[pkg://papers.recipes]"
    config = composed("ladder", LadderConfig, [where, "experiment=mobilenetv2_cifar100_soup", "data.root=/images"])
    trained = [stage for stage in ladder.stages(config, composed) if stage.script == "train"]
    begun = {stage.name: Path(stage.settings.recipe.init).name for stage in trained}
    assert begun == {
        "train": "",
        "finetune": "train",
        "replace_circulant": "finetune",
        "replace_circulant_mean": "circulant_mean.safetensors",
        "replace": "finetune",
        "replace_on": "replace",
        "replace_mixed": "replace",
        "replace_mean": "mean.safetensors",
        "qat": "replace_mean",
    }
