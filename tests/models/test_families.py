"""One small network of each of timm's families: what becomes circulant, what stays dense, and why."""

import re

import pytest
import timm
import torch
from torch import nn

from privcirnet.errors import RuleError
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.graph import trace
from privcirnet.passes.convert import candidates, circulant_

FAMILIES = {
    "convnext_atto": (64, r"stem\.0|head\.fc"),
    "deit_tiny_patch16_224": (224, r"patch_embed\.proj|head"),
    "densenet121": (32, r"features\.conv0|classifier"),
    "dla46_c": (64, r"base_layer\.0|fc"),
    "edgenext_xx_small": (64, r"stem\.0|head\.fc"),
    "efficientformer_l1": (224, r"stem\.conv1|head|head_dist"),
    "efficientnet_lite0": (64, r"conv_stem|classifier"),
    "ghostnet_050": (
        64,
        r"conv_stem|classifier|blocks\.(1\.0\.ghost2|[234]\.0\.ghost[12]|6\.[012]\.ghost1)\.primary_conv\.0",
    ),
    "gmlp_ti16_224": (224, r"stem\.proj|head"),
    "hgnetv2_b0": (64, r"stem\.stem1\.conv|head\.fc"),
    "levit_128s": (224, r"stem\.conv1\.linear|head\.linear|head_dist\.linear"),
    "mixer_s32_224": (224, r"stem\.proj|head|blocks\.\d\.mlp_tokens\.fc[12]"),
    "mobilenetv3_small_050": (64, r"conv_stem|classifier"),
    "nf_regnet_b0": (64, r"stem\.conv|head\.fc"),
    "pit_ti_224": (224, r"patch_embed\.conv|head"),
    "poolformer_s12": (64, r"stem\.conv|head\.fc"),
    "regnetx_002": (64, r"stem\.conv|head\.fc"),
    "repvgg_a0": (64, r"stem\.conv_(kxk|1x1)\.conv|head\.fc"),
    "resnet10t": (64, r"conv1\.0|fc"),
    "swin_tiny_patch4_window7_224": (224, r"patch_embed\.proj|head\.fc"),
}
"""Name -> side of the image, the layers without groups that stay dense because 4 does not divide their channels: the
first layer sees 3, the last makes 10, GhostNet has 6, 10, 18 ..., Mixer's token layers 49."""

BRANCHING = ("mobilevit_xxs", "mobilevitv2_050", "tiny_vit_5m_224")
"""Their forward branches on the size of a tensor: they are traced at one size of images."""


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model(name, num_classes=10).eval()


def expected_rule(layer: nn.Module) -> str:
    """Why a layer with an untied weight stays dense at b = 4, told without the code under test."""
    assert isinstance(layer, nn.Linear | nn.Conv2d)
    if isinstance(layer, nn.Conv2d) and layer.groups > 1:
        return "a circulant convolution must have one group"
    indivisible = layer.weight.shape[0] % 4 or layer.weight.shape[1] % 4
    return "block size must divide both weight dimensions" if indivisible else ""


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_converts_and_runs(name):
    size, dense = FAMILIES[name]
    model = network(name)
    reasons = candidates(model, 4)
    rules = {key: reason.split(":")[0] for key, reason in reasons.items()}
    assert rules == {key: expected_rule(model.get_submodule(key)) for key in reasons}
    divides_not = [key for key, rule in rules.items() if rule.startswith("block size")]
    assert divides_not == [key for key in reasons if re.fullmatch(dense, key)] != []
    names = [key for key, reason in reasons.items() if not reason]
    assert len(names) >= 10
    before = sum(p.numel() for p in model.parameters())
    weights = sum(model.get_submodule(key).weight.numel() for key in names)
    circulant_(model, dict.fromkeys(names, 4))
    assert all(block_size_of(model.get_submodule(key)) == 4 for key in names)
    assert sum(p.numel() for p in model.parameters()) <= before - 3 * weights // 4
    with torch.no_grad():
        logits = model(torch.rand(1, 3, size, size))
    assert logits.shape == (1, 10)
    assert logits.isfinite().all()


@pytest.mark.parametrize("name", BRANCHING)
def test_the_batch_norms_of_a_family_that_branches_on_sizes_are_found(name):
    """They are shared by the blocks of the layers that they are folded into."""
    model = network(name)
    names = [key for key, reason in candidates(model, 4).items() if not reason]
    with pytest.raises(RuleError, match=r"traceable by torch\.fx"):
        trace(model)
    convs = {key for key in names if f"{key.removesuffix('conv')}bn" in dict(model.named_modules())}
    assert len(convs) >= 5
    circulant_(model, dict.fromkeys(names, 4))
    norms = [model.get_submodule(f"{key.removesuffix('conv')}bn") for key in convs]
    assert {norm.block_size for norm in norms} == {4}
