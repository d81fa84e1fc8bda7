import dataclasses

import pytest
import torch

from privcirnet.artifact.records import write_checkpoint, write_plan
from privcirnet.config import ModelConfig, QuantConfig, RecipeConfig
from privcirnet.data import ImageData, load
from privcirnet.errors import RuleError
from privcirnet.nn.activations import Aespa
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.functional.circulant import damped, is_circulant, project
from privcirnet.nn.moves import ToTokens
from privcirnet.nn.quantization_steps import learned_steps
from privcirnet.nn.quantizers import quantizer_of
from privcirnet.passes.convert import circulant_
from privcirnet.train import stages
from privcirnet.train.accuracy import predict
from privcirnet.train.distillation import FeatureDistillation
from privcirnet.train.loop import fit
from privcirnet.train.network import BuiltNetwork, checkpoint_of
from privcirnet.train.recalibration import recalibrate_
from tests.nn.networks import rows_of
from tests.nn.quantized import log_steps

DATA = load("digits")
DATA = dataclasses.replace(DATA, train_images=DATA.train_images[:128], train_labels=DATA.train_labels[:128])
PLAN = {"stem": 1, "down": 4, "conv1": 8, "conv2": 16, "classifier": 2}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Runs of a dense stage, a search and a fine-tuning stage, without any training."""
    root = tmp_path_factory.mktemp("outputs")
    torch.manual_seed(0)
    start = stages.begin(RecipeConfig(), QuantConfig(), ModelConfig(), DATA)
    save(root / "train", start, "train")
    write_plan(root / "plan.json", PLAN)
    save(root / "finetune", finetune(root), "finetune")
    return root


def save(folder, start: BuiltNetwork, stage: str) -> None:
    checkpoint = checkpoint_of(start, stage)
    write_checkpoint(folder / stages.CHECKPOINT, checkpoint)


def recipe(stage: str, root, init: str, **changes: object) -> RecipeConfig:
    return RecipeConfig(stage=stage, init=str(root / init), plan=str(root / "plan.json"), **changes)


def finetune(root) -> BuiltNetwork:
    return stages.begin(recipe("finetune", root, "train"), QuantConfig(), ModelConfig(), DATA)


def test_the_dense_stage_starts_from_random_weights():
    torch.manual_seed(0)
    start = stages.begin(RecipeConfig(), QuantConfig(), ModelConfig(), DATA)
    other = stages.begin(RecipeConfig(), QuantConfig(), ModelConfig(), DATA)
    assert (start.name, start.block_sizes, start.bits) == ("digits_resnet", {}, None)
    assert start.model.classifier.weight.shape == (10, 32)
    assert not torch.equal(start.model.stem.weight, other.model.stem.weight)


def test_the_dense_stage_starts_from_the_weights_that_fit(root):
    given = stages.load_network(str(root / "train"), DATA)
    fewer = dataclasses.replace(DATA, classes=("0", "1", "2"), train_labels=DATA.train_labels % 3)
    start = stages.begin(RecipeConfig(init=str(root / "train")), QuantConfig(), ModelConfig(), fewer)
    assert start.fresh == ("classifier.weight", "classifier.bias")
    found, expected = start.model.state_dict(), given.state_dict()
    assert found["classifier.weight"].shape == (3, 32)
    right = start.model.eval()(DATA.real(DATA.train_images)).argmax(1) == fewer.train_labels
    assert right.float().mean() > 0.6, "the new layer is fitted"
    assert all(torch.equal(found[name], expected[name]) for name in expected if name not in start.fresh)


@pytest.mark.parametrize("init", ["finetune", "other"])
def test_the_dense_stage_refuses_what_cannot_fit(root, init):
    other = stages.begin(RecipeConfig(), QuantConfig(), ModelConfig("lola_mnist"), load_mnist_like())
    save(root / "other", other, "train")
    with pytest.raises(RuleError, match=r"from one whose weights fit: got .* of stage (train|finetune)"):
        stages.begin(RecipeConfig(init=str(root / init)), QuantConfig(), ModelConfig(), DATA)


def load_mnist_like() -> ImageData:
    return dataclasses.replace(DATA, train_images=torch.zeros(2, 1, 28, 28, dtype=torch.uint8))


def test_fine_tuning_starts_from_the_projection_weighed_by_fisher_information(root):
    dense = stages.load_network(str(root / "train"), DATA)
    settings = dataclasses.replace(recipe("finetune", root, "train"), start="fisher")
    start = stages.begin(settings, QuantConfig(), ModelConfig(), DATA)
    assert start.block_sizes == PLAN
    assert start.bits is None
    fisher = stages.fisher_information(dense, DATA, ["conv1", "conv2"])
    for name in ("conv1", "conv2"):
        layer, weight = start.model.get_submodule(name), dense.get_submodule(name).weight
        assert block_size_of(layer) == PLAN[name]
        assert torch.equal(rows_of(layer), project(weight, PLAN[name], damped(fisher[name], 1.0)))
        assert not torch.equal(rows_of(layer), project(weight, PLAN[name]))
    assert torch.equal(start.model.stem.weight, dense.stem.weight)
    assert start.model.norm1.block_size == 8


def test_a_plan_with_masks_is_refused(root, tmp_path):
    """They are for a pruned network, which would be trained as a dense one."""
    write_plan(tmp_path / "plan.json", dict.fromkeys(PLAN, 1), masks="masks.safetensors")
    settings = RecipeConfig(stage="finetune", init=str(root / "train"), plan=str(tmp_path / "plan.json"))
    with pytest.raises(RuleError, match=r"must be of block sizes alone: got .*plan\.json with masks"):
        stages.begin(settings, QuantConfig(), ModelConfig(), DATA)


def test_another_change_takes_the_place_of_circulant_layers(root):
    def zero_(model, data):
        assert data is DATA
        torch.nn.init.zeros_(model.classifier.weight)

    start = stages.begin(
        recipe("finetune", root, "train"),
        QuantConfig(),
        ModelConfig(),
        DATA,
        change=stages.CompressionMethod(zero_, {}),
    )
    assert not start.model.classifier.weight.any()
    assert all(block_size_of(start.model.get_submodule(name)) == 1 for name in PLAN)


@pytest.mark.parametrize(
    ("kind", "damping"),
    [("least_squares", 1.0), ("fisher", 0.0), ("fisher", 3.0), ("frobenius", 1.0), ("random", 1.0)],
)
def test_a_uniform_plan_and_what_it_starts_from(root, kind, damping):
    init = str(root / "train")
    settings = RecipeConfig(stage="finetune", init=init, uniform=4, start=kind, damping=damping)
    start = stages.begin(settings, QuantConfig(), ModelConfig(), DATA)
    dense = stages.load_network(str(root / "train"), DATA)
    assert start.block_sizes == {"stem": 1, "down": 4, "conv1": 4, "conv2": 4, "classifier": 2}
    fisher = stages.fisher_information(dense, DATA, ["conv1"])["conv1"]
    rows, weight = rows_of(start.model.get_submodule("conv1")), dense.get_submodule("conv1").weight
    assert torch.equal(rows, project(weight, 4, damped(fisher, damping))) == (kind == "fisher")
    assert torch.equal(rows, project(weight, 4)) == (kind == "frobenius")
    assert kind != "random" or 0.8 < rows.std() / weight.std() < 1.3
    fitted = circulant_(dense, start.block_sizes, images=next(DATA.sampled(stages.FITTED, stages.FITTED))[0])
    assert torch.equal(rows, rows_of(fitted.get_submodule("conv1"))) == (kind == "least_squares")


def test_quantization_starts_from_the_fused_network_calibrated_on_training_images(root):
    quant = QuantConfig(weight_bits=5, activation_bits=12, stream_bits=14, calibration_images=16)
    start = stages.begin(recipe("qat", root, "finetune"), quant, ModelConfig(), DATA)
    assert (start.block_sizes, start.bits) == (PLAN, (5, 12, 14))
    assert int(start.model.get_submodule("x_quantizer").log_step) == DATA.log_step
    assert {quantizer_of(start.model.get_submodule(name)).bits for name in PLAN} == {5}
    assert {name: block_size_of(start.model.get_submodule(name)) for name in PLAN} == PLAN
    before = predict(stages.load_network(str(root / "finetune"), DATA), DATA, DATA.train_images)
    after = predict(start.model, DATA, DATA.train_images)
    assert 0 < (after - before).abs().max() < 0.2 * (before.max() - before.min())


def test_steps_hold_a_share_of_the_calibration_images(root):
    def steps(quantile: float) -> list[int]:
        quant = QuantConfig(calibration_images=16, calibration_quantile=quantile)
        return list(log_steps(stages.begin(recipe("qat", root, "finetune"), quant, ModelConfig(), DATA).model).values())

    differences = [coarse - fine for coarse, fine in zip(steps(1.0), steps(0.1), strict=True)]
    assert min(differences) == 0
    assert max(differences) > 0
    with pytest.raises(RuleError, match="calibration_quantile"):
        QuantConfig(calibration_quantile=0)


def test_channels_are_equalized_before_quantization(root, tmp_path):
    settings = recipe("qat", root, "finetune")
    start = stages.begin(settings, QuantConfig(activation_bits=12, equalize=True), ModelConfig(), DATA)
    plain = stages.begin(settings, QuantConfig(activation_bits=12), ModelConfig(), DATA)
    want, found = (predict(network.model, DATA, DATA.test_images) for network in (plain, start))
    assert not torch.equal(start.model.get_submodule("conv1").weight, plain.model.get_submodule("conv1").weight)
    assert (found - want).abs().max() < 0.2 * (want.max() - want.min())
    save(tmp_path, start, "qat")
    assert torch.equal(predict(stages.load_network(str(tmp_path), DATA), DATA, DATA.test_images), found)


def test_a_saved_stage_is_loaded_whole(root, tmp_path):
    start = stages.begin(recipe("qat", root, "finetune"), QuantConfig(), ModelConfig(), DATA)
    save(tmp_path, start, "qat")
    loaded = stages.load_network(str(tmp_path), DATA)
    assert torch.equal(predict(loaded, DATA, DATA.test_images), predict(start.model, DATA, DATA.test_images))


def test_replacing_activations_keeps_the_weights_and_measures_statistics(tmp_path):
    def model(**arguments: str) -> ModelConfig:
        return ModelConfig("resnet18_cifar", {"width": 8, "image_size": 8, **arguments})

    torch.manual_seed(0)
    save(tmp_path / "train", stages.begin(RecipeConfig(), QuantConfig(), model(), DATA), "train")
    write_plan(tmp_path / "plan.json", {"layer2.0.conv1": 8, "layer2.0.conv2": 4})
    settings = RecipeConfig(stage="finetune", init=str(tmp_path / "train"), plan=str(tmp_path / "plan.json"))
    circulant = stages.begin(settings, QuantConfig(), ModelConfig(), DATA)
    save(tmp_path / "finetune", circulant, "finetune")
    # act2 of the second block scales, through its identity shortcut, what the first block's conv2 computes
    shared = {"layer2.0.act1": 8, "layer2.0.act2": 4, "layer2.1.act2": 4}
    settings = RecipeConfig(stage="replace", init=str(tmp_path / "finetune"))
    replaced = stages.begin(settings, QuantConfig(), ModelConfig(arguments={"activation": "aespa"}), DATA)
    assert replaced.arguments == {"width": 8, "image_size": 8, "activation": "aespa"}
    assert replaced.block_sizes == circulant.block_sizes
    activations = {name: m for name, m in replaced.model.named_modules() if isinstance(m, Aespa)}
    assert len(activations) == 17
    assert {name: m.block_size for name, m in activations.items() if m.block_size > 1} == shared
    assert all((m.running_var != 1).all() for m in activations.values())
    new, old = (rows_of(built.model.get_submodule("layer2.0.conv1")) for built in (replaced, circulant))
    assert torch.equal(new, old)
    save(tmp_path / "replace", replaced, "replace")
    loaded = stages.load_network(str(tmp_path / "replace"), DATA)
    assert torch.equal(predict(loaded, DATA, DATA.train_images), predict(replaced.model, DATA, DATA.train_images))
    with pytest.raises(RuleError, match=r"must leave the layers as they are: got stem.weight,"):
        stages.begin(settings, QuantConfig(), ModelConfig(arguments={"width": 16}), DATA)


def test_replacing_norms_of_a_circulant_transformer_keeps_what_they_scale_by(tmp_path):
    """A layer norm has one number for each channel, the batch norm before a circulant layer one for each block."""
    sizes = {"width": 16, "depth": 1, "heads": 2, "patch": 4, "image_size": 8, "mlp_ratio": 2}
    torch.manual_seed(0)
    save(
        tmp_path / "train", stages.begin(RecipeConfig(), QuantConfig(), ModelConfig("vit_cifar", sizes), DATA), "train"
    )
    write_plan(tmp_path / "plan.json", {"blocks.0.qkv": 4})
    settings = RecipeConfig(stage="finetune", init=str(tmp_path / "train"), plan=str(tmp_path / "plan.json"))
    circulant = stages.begin(settings, QuantConfig(), ModelConfig(), DATA)
    before = circulant.model.blocks[0].norm1
    torch.nn.init.normal_(before.weight)
    save(tmp_path / "finetune", circulant, "finetune")
    polynomial = ModelConfig(arguments={"norm": "batch", "attention": "polynomial", "activation": "aespa"})
    settings = RecipeConfig(stage="replace", init=str(tmp_path / "finetune"))
    replaced = stages.begin(settings, QuantConfig(), polynomial, DATA)
    after = replaced.model.blocks[0]
    assert (after.norm1.block_size, after.norm2.block_size) == (4, 1)
    assert torch.allclose(after.norm1.weight, before.weight.reshape(-1, 4).mean(1))
    assert torch.equal(rows_of(after.qkv), rows_of(circulant.model.blocks[0].qkv))


def test_layers_are_composed_as_the_plan_says_once_they_are_quantized(tmp_path):
    """The plan's, through fine-tuning and replacing; the qat stage's own instead, where it has any."""
    torch.manual_seed(0)
    wanted = ModelConfig("mobilenetv2_cifar", {"width": 0.1, "image_size": 8, "activation": "square"})
    save(tmp_path / "train", stages.begin(RecipeConfig(), QuantConfig(), wanted, DATA), "train")
    chosen = ["blocks.1.0.expand", "last"]
    layers = dict.fromkeys(("blocks.0.0.project", "blocks.1.0.expand", "blocks.6.0.project", "last"), 4)
    write_plan(tmp_path / "plan.json", layers, composed=chosen)
    settings = RecipeConfig(stage="finetune", init=str(tmp_path / "train"), plan=str(tmp_path / "plan.json"))
    circulant = stages.begin(settings, QuantConfig(), ModelConfig(), DATA)
    assert isinstance(circulant.model.blocks[0][0].project, torch.nn.Conv2d)
    save(tmp_path / "finetune", circulant, "finetune")
    settings = RecipeConfig(stage="qat", init=str(tmp_path / "finetune"))
    quantized = stages.begin(settings, QuantConfig(), ModelConfig(), DATA)
    assert quantized.composed == tuple(chosen)
    modules = dict(quantized.model.named_modules())
    assert not modules.keys() & {"blocks.0.0.project", "blocks.6.0.project"}
    assert [block_size_of(modules[name]) for name in chosen] == [4, 4]
    save(tmp_path / "qat", quantized, "qat")
    loaded = stages.load_network(str(tmp_path / "qat"), DATA)
    found, expected = (predict(model, DATA, DATA.train_images) for model in (loaded, quantized.model))
    assert expected.isfinite().all(1).sum() > 100  # of 128 images; others explode, as squares of random weights do
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    own = stages.begin(settings, QuantConfig(composed=["last"]), ModelConfig(), DATA)
    assert own.composed == ("last",)
    assert "blocks.0.0.project" in dict(own.model.named_modules())


def test_surgery_takes_positions_and_tokens_from_the_trained_weights(tmp_path):
    sizes = {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 2}
    torch.manual_seed(0)
    wanted = ModelConfig("vit_tiny_patch16_224", sizes)
    save(tmp_path / "train", stages.begin(RecipeConfig(), QuantConfig(), wanted, DATA), "train")
    write_plan(tmp_path / "plan.json", {"blocks.0.attn.qkv": 4, "blocks.0.mlp.fc1": 2})
    settings = RecipeConfig(stage="finetune", init=str(tmp_path / "train"), plan=str(tmp_path / "plan.json"))
    circulant = stages.begin(settings, QuantConfig(), ModelConfig(), DATA)
    save(tmp_path / "finetune", circulant, "finetune")
    settings = RecipeConfig(stage="replace", init=str(tmp_path / "finetune"))
    replaced = stages.begin(settings, QuantConfig(), ModelConfig(arguments={"activation": "aespa"}), DATA)
    before, after = circulant.model, replaced.model
    constants = before.pos_embed[0] + torch.cat([before.cls_token[0], torch.zeros(4, 8)])
    (tokens,) = (module for module in after.modules() if isinstance(module, ToTokens))
    assert torch.equal(tokens.bias, constants)
    rows = [rows_of(model.get_submodule("blocks.0.attn.qkv")) for model in (before, after)]
    assert torch.equal(*rows)
    assert block_size_of(after.get_submodule("blocks.0.mlp.fc1")) == 2
    save(tmp_path / "replace", replaced, "replace")
    loaded = stages.load_network(str(tmp_path / "replace"), DATA)
    assert torch.equal(predict(loaded, DATA, DATA.test_images), predict(after, DATA, DATA.test_images))


def test_a_stage_with_learned_steps_is_saved_as_any_other(root, tmp_path, monkeypatch):
    monkeypatch.setattr("privcirnet.train.optimization.STEPS_LEARNING_RATE", 0.3)
    config = recipe("qat", root, "finetune", epochs=2)
    start = stages.begin(config, QuantConfig(4, 5, 5, learned_steps=True), ModelConfig(), DATA)
    plain = stages.begin(config, QuantConfig(4, 5, 5, learned_steps=False), ModelConfig(), DATA)
    assert learned_steps(start.model)
    assert quantizer_of(start.model.get_submodule("conv1")).limits == (-7, 7)
    assert start.model.get_submodule("conv1_quantizer").limits == (-15, 15)
    assert not learned_steps(plain.model)
    calibrated = {name: value.clone() for name, value in plain.model.state_dict().items()}
    fit(start.model, DATA, config, seed=0)
    save(tmp_path, start, "qat")
    loaded = stages.load_network(str(tmp_path), DATA)
    assert torch.equal(predict(loaded, DATA, DATA.test_images), predict(start.model, DATA, DATA.test_images))
    assert loaded.state_dict().keys() == calibrated.keys()
    changed = [name for name, value in loaded.state_dict().items() if not torch.equal(value, calibrated[name])]
    assert any(name.endswith("_quantizer.log_step") for name in changed)
    assert "x_quantizer.log_step" not in changed


def test_progress_counts_samples(root):
    done: list[int] = []
    settings = dataclasses.replace(recipe("finetune", root, "train"), start="fisher")
    stages.begin(settings, QuantConfig(), ModelConfig(), DATA, done.append)
    assert done[-1] == 128


def test_unsuitable_inputs(root, tmp_path):
    def begin(config: RecipeConfig) -> BuiltNetwork:
        return stages.begin(config, QuantConfig(), ModelConfig(), DATA)

    with pytest.raises(RuleError, match=r"the result of the stage before must exist: got .*nothing"):
        begin(recipe("qat", root, "nothing"))
    with pytest.raises(RuleError, match=r"the result of search.py must exist: got .*missing.json"):
        begin(RecipeConfig(stage="finetune", init=str(root / "train"), plan=str(root / "missing.json")))
    with pytest.raises(RuleError, match="a layer must still have its plain dense weight: got 'down'"):
        begin(recipe("finetune", root, "finetune"))
    save(tmp_path, begin(recipe("qat", root, "finetune")), "qat")
    with pytest.raises(RuleError, match="a network must be quantized once"):
        begin(recipe("qat", root, str(tmp_path)))
    write_plan(tmp_path / "plan.json", {"convv1": 2})
    with pytest.raises(RuleError, match="must exist in the model: got 'convv1'; did you mean 'conv1'"):
        begin(RecipeConfig(stage="finetune", init=str(root / "train"), plan=str(tmp_path / "plan.json")))


def test_padded_layers_are_stored_and_quantized_as_others_are(root, tmp_path):
    """The digits' classifier has 10 outputs: 16 with blocks of 8. Layers before batch norms stay as they were."""
    settings = RecipeConfig(stage="finetune", init=str(root / "train"), uniform=8, pad=True)
    start = stages.begin(settings, QuantConfig(), ModelConfig(), DATA)
    plain = stages.begin(dataclasses.replace(settings, pad=False), QuantConfig(), ModelConfig(), DATA)
    assert start.block_sizes == plain.block_sizes | {"classifier": 8}
    assert plain.block_sizes["classifier"] == 2
    save(tmp_path / "finetune", start, "finetune")
    again = stages.load_checkpoint(tmp_path / "finetune" / stages.CHECKPOINT, DATA)
    images = DATA.real(DATA.train_images[:4])
    assert torch.equal(again.model(images), start.model(images))
    settings = RecipeConfig(stage="qat", init=str(tmp_path / "finetune"))
    quantized = stages.begin(settings, QuantConfig(), ModelConfig(), DATA).model
    assert is_circulant(quantized.get_submodule("classifier").weight, 8, pad=True)


def test_a_plan_says_whether_its_layers_are_padded(root, tmp_path):
    plan = {"classifier": 8, "conv1": 8}
    write_plan(tmp_path / "plan.json", plan)
    settings = dataclasses.replace(recipe("finetune", root, "train"), plan=str(tmp_path / "plan.json"))
    with pytest.raises(RuleError, match=r"must divide both weight dimensions: got 8 for \(10, .*\(pad=true\)"):
        stages.begin(settings, QuantConfig(), ModelConfig(), DATA)
    write_plan(tmp_path / "plan.json", plan, pad=True)
    assert stages.begin(settings, QuantConfig(), ModelConfig(), DATA).block_sizes == plan


def test_statistics_of_a_network_that_imitates_are_measured_near_its_original(tmp_path):
    """Alone, what explodes in one block would be in the statistics of all behind it."""
    for seed in (1, 2):
        torch.manual_seed(seed)
        save(tmp_path / str(seed), stages.begin(RecipeConfig(), QuantConfig(), ModelConfig(), DATA), "train")
    settings = RecipeConfig(stage="replace", init=str(tmp_path / "1"), imitate="stem", original=str(tmp_path / "2"))
    found = stages.begin(settings, QuantConfig(), ModelConfig(), DATA).model
    other = stages.load_network(settings.original, DATA)
    wanted = stages.load_network(settings.init, DATA)
    imitation = FeatureDistillation(wanted, other, "stem", 1)
    with imitation.beside(wanted):
        recalibrate_(wanted, DATA)
    alone = stages.begin(RecipeConfig(stage="replace", init=settings.init), QuantConfig(), ModelConfig(), DATA).model
    assert found.state_dict().keys() == wanted.state_dict().keys()
    assert all(torch.equal(found.state_dict()[name], value) for name, value in wanted.state_dict().items())
    assert any(not torch.equal(found.state_dict()[name], value) for name, value in alone.state_dict().items())
    assert not found.stem._forward_hooks
    assert not found._forward_pre_hooks
