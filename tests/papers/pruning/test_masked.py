import pytest
import torch
from torch import nn

from papers.pruning.masked import prune_, start_of
from privcirnet.artifact.records import write_checkpoint
from privcirnet.config import ModelConfig, QuantConfig, RecipeConfig
from privcirnet.errors import RuleError
from privcirnet.nn.circulant import make_circulant_
from privcirnet.nn.materialize import has_plain_weights, materialize_weights_
from privcirnet.passes.convert import dense_state_dict
from privcirnet.train import stages
from privcirnet.train.accuracy import predict
from privcirnet.train.loop import fit
from privcirnet.train.network import checkpoint_of
from tests.nn.networks import assert_unchanged, residual, snapshot
from tests.train.test_stages import DATA


def halves(weight: torch.Tensor) -> torch.Tensor:
    return torch.rand(weight.shape, generator=torch.Generator().manual_seed(0)) < 0.5


def pruned() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    model = residual()
    masks = {name: halves(model.get_submodule(name).weight) for name in ("stem", "left", "head", "depthwise")}
    return prune_(model, masks), masks


def test_a_pruned_layer_computes_with_the_masked_weight():
    dense, (model, masks) = residual(), pruned()
    with torch.no_grad():
        for name, mask in masks.items():
            dense.get_submodule(name).weight.mul_(mask)
    x = torch.randn(2, 2, 8, 8, dtype=torch.float64)
    assert torch.equal(model.eval()(x), dense.eval()(x))
    assert "Pruned(kept=0." in repr(model)


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD])
def test_a_mask_survives_training_and_the_rest_is_trained(optimizer):
    model, masks = pruned()
    before = {name: model.get_submodule(name).weight.clone() for name in masks}
    steps = optimizer(model.parameters(), lr=0.01, weight_decay=0.1)
    for _ in range(3):
        steps.zero_grad()
        model(torch.randn(4, 2, 8, 8, dtype=torch.float64)).square().mean().backward()
        steps.step()
    for name, mask in masks.items():
        weight = model.get_submodule(name).weight
        assert not weight[~mask].any(), name
        assert (weight[mask] != before[name][mask]).all(), name


def test_the_dense_state_has_the_zeros_and_loads_into_a_plain_network():
    model, masks = pruned()
    plain = residual()
    plain.load_state_dict(dense_state_dict(model))
    assert all(not plain.get_submodule(name).weight[~mask].any() for name, mask in masks.items())
    x = torch.randn(2, 2, 8, 8, dtype=torch.float64)
    assert torch.equal(model.eval()(x), plain.eval()(x))


def test_what_is_assigned_is_masked():
    layer = nn.Linear(2, 1)
    prune_(nn.Sequential(layer), {"0": torch.tensor([[True, False]])})
    layer.weight = torch.tensor([[3.0, 4.0]])
    assert layer.weight.tolist() == [[3.0, 0.0]]


def test_nothing_changes_when_a_mask_does_not_fit():
    model = residual()
    before = snapshot(model)
    masks = {"stem": halves(model.stem.weight), "head": torch.ones(2, 2, dtype=torch.bool)}
    with pytest.raises(
        RuleError, match=r"a mask must have the shape of its weight: got \(2, 2\) for \(4, 16\) at 'head'"
    ):
        prune_(model, masks)
    assert_unchanged(model, before)
    assert has_plain_weights(model)


def test_a_circulant_layer_is_not_pruned():
    layer = nn.Linear(4, 4)
    make_circulant_(layer, 2)
    with pytest.raises(RuleError, match="a layer must still have its plain dense weight"):
        prune_(nn.Sequential(layer), {"0": torch.ones(4, 4, dtype=torch.bool)})


def test_fine_tuning_prunes_and_its_checkpoint_is_a_dense_one(tmp_path):
    torch.manual_seed(0)
    held = stages.begin(RecipeConfig(), QuantConfig(), ModelConfig(), DATA)
    write_checkpoint(tmp_path / "train" / stages.CHECKPOINT, checkpoint_of(held, "train"))
    dense = stages.load_network(str(tmp_path / "train"), DATA)
    masks = {name: dense.get_submodule(name).weight.detach() > 0 for name in ("conv1", "classifier")}
    settings = RecipeConfig(stage="finetune", init=str(tmp_path / "train"), epochs=1)
    start = stages.begin(settings, QuantConfig(), ModelConfig(), DATA, change=start_of(masks))
    assert not torch.equal(start.model.norm1.running_mean, dense.norm1.running_mean), "statistics are measured anew"
    fit(start.model, DATA, settings, 0)
    expected = predict(start.model, DATA, DATA.test_images)
    materialize_weights_(start.model)
    write_checkpoint(tmp_path / "tuned" / stages.CHECKPOINT, checkpoint_of(start, "finetune"))
    tuned = stages.load_network(str(tmp_path / "tuned"), DATA)
    assert torch.equal(predict(tuned, DATA, DATA.test_images), expected)
    for name, mask in masks.items():
        weight = tuned.get_submodule(name).weight.detach()
        assert not weight[~mask].any()
        assert not torch.equal(weight.clamp(min=0), dense.get_submodule(name).weight.detach().clamp(min=0))


def test_other_masks_are_other_facts_for_a_run_that_is_resumed():
    masks = {"conv1": torch.tensor([True, False])}
    assert start_of(masks).facts == start_of(masks).facts != start_of({"conv1": torch.tensor([True, True])}).facts
