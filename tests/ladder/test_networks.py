"""What each network brings to the ladder: without it a step would carry less than it says."""

from collections import Counter

import pytest
from torch import nn

from privcirnet.artifact.program import read_program, write_program
from privcirnet.config import HEConfig
from privcirnet.errors import RuleError
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.plan_program import Target
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program import operations as op
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.nn.attention import PolynomialAttention
from privcirnet.nn.norm import TokenBatchNorm
from privcirnet.passes.fuse import fuse
from privcirnet.passes.lower import lower
from privcirnet.passes.quantize import quantize, with_quantizers
from tests.he.parties import protocol
from tests.ladder.case import LEVELS, LOG_STEP, Case, real
from tests.ladder.digits import DIGITS, rotations_of
from tests.ladder.exact import EXACT
from tests.ladder.mobilenetv2 import COMPOSED, DEPTHWISE, MOBILENETV2
from tests.ladder.padded import PADDED
from tests.ladder.surgery import DENSENET, RESNET
from tests.ladder.vit import VITS


def operations(case: Case) -> Counter[type]:
    return Counter(type(node.operation) for node in case.program.nodes)


def layers(case: Case) -> dict:
    return {node.module: layer for node, layer in case.program.linear_nodes}


@pytest.mark.parametrize("case", [DIGITS, MOBILENETV2, PADDED, *VITS], ids=lambda case: case.name)
def test_layers_have_their_block_sizes(case):
    sizes = {name: layer.block_size for name, layer in layers(case).items()}
    assert {name: sizes[name] for name in case.blocks} == case.blocks
    assert {name for name, b in sizes.items() if b > 1} <= {*case.blocks} or case is MOBILENETV2


def test_digits_have_strides_residuals_squares_and_rotations():
    found = operations(DIGITS)
    assert (found[op.Square], found[op.Add] > 0, found[op.SumPool] > 0, found[op.Flatten] > 0) == (2, True, True, True)
    assert {layer.shape.stride for layer in layers(DIGITS).values()} == {1, 2}
    assert any(all(rotations_of(layer)) for layer in layers(DIGITS).values()), "baby steps, giant steps and folds"


def test_mobilenetv2_has_depthwise_layers_in_pieces_and_a_layer_behind_a_residual():
    depthwise = {name: layer for name, layer in layers(MOBILENETV2).items() if layer.shape.kind == "depthwise"}
    assert {name: (layer.shape.groups, layer.shape.stride) for name, layer in depthwise.items()} == DEPTHWISE
    assert all((layer.layout.tiles, len(layer.pieces)) == (2, 3) for layer in depthwise.values())
    assert (operations(MOBILENETV2)[op.Square], operations(MOBILENETV2)[op.Add]) == (7, 1)
    program = MOBILENETV2.program
    by_name = {node.name: node.operation for node in program.nodes}
    assert sum(isinstance(by_name[node.inputs[0]], op.Add) for node, _ in program.linear_nodes) == 1
    squared = {node.inputs[0] for node in program.nodes if isinstance(node.operation, op.Square)}
    truncated = {node.inputs[0]: node.name for node in program.nodes if isinstance(node.operation, op.Truncate)}
    bare = {node.module for node, _ in program.linear_nodes if truncated.get(node.name) not in squared}
    assert bare == {*(f"{block}.project" for block in ("first", "down", "same")), "classifier"}


def test_a_depthwise_layer_has_a_block_for_each_channel_and_is_one_product_for_each_ciphertext(tmp_path):
    write_program(tmp_path / "program", MOBILENETV2.program, {})
    _, spectra = read_program(tmp_path / "program")
    _, _, meter = protocol(MOBILENETV2.program, "cleartext", MOBILENETV2.images[0].numpy())
    for node, layer in MOBILENETV2.program.linear_nodes:
        if layer.shape.kind == "depthwise":
            channels, phases = layer.shape.in_channels, layer.shape.stride**2
            assert spectra[node.name].shape == (channels, 1, phases, 1, *layer.layout.extent)
            counts = meter.counts[node.name]
            assert (counts["rotate"], counts["pmult"]) == (0, layer.ciphertexts_in)
            assert layer.ciphertexts_in == (3 if layer.shape.stride == 1 else 4 + 4 + 1)


def test_a_composed_network_has_a_layer_and_an_exchange_less_for_each_pair():
    found, apart = layers(COMPOSED), layers(MOBILENETV2)
    assert found.keys() == apart.keys() - {f"{name}.project" for name in ("first", "down", "same")}
    assert {name: found[name].block_size for name in COMPOSED.composed} == dict.fromkeys(COMPOSED.composed, 4)
    sizes = {name: (found[name].shape.in_channels, found[name].shape.out_channels) for name in COMPOSED.composed}
    assert sizes == {"down.expand": (8, 24), "same.expand": (24, 12 + 36), "last": (36 + 12, 20)}
    assert [operations(COMPOSED)[kind] for kind in (op.Concat, op.SliceChannels, op.Add)] == [1, 2, 0]
    assert len(schedule_of(MOBILENETV2.program).exchanges) - len(schedule_of(COMPOSED.program).exchanges) == 3


def test_padded_layers_are_padded():
    padded = [name for name, layer in layers(PADDED).items() if layer.shape.padded(layer.block_size) != layer.shape]
    assert padded == ["2", "6", "8"]


def test_timms_networks_have_finer_summands_groups_and_features_that_are_concatenated():
    scaled = [node.operation for node in RESNET.program.nodes if isinstance(node.operation, op.Scale)]
    assert (scaled, operations(RESNET)[op.Add]) == ([op.Scale(2)], 4)
    assert layers(RESNET)["layer3.0.conv2"].shape.groups == 2
    counts = [node.operation.count for node in DENSENET.program.nodes if isinstance(node.operation, op.Concat)]
    assert counts == [2, 3, 2, 3]
    assert sum(layer.shape.kind == "depthwise" for layer in layers(DENSENET).values()) == 6, "each norm has a layer"


@pytest.mark.parametrize("case", VITS, ids=lambda case: case.name)
def test_transformers_have_products_of_scores_and_moves_of_tokens(case):
    assert not [m for m in case.fused.modules() if isinstance(m, TokenBatchNorm | PolynomialAttention)]
    wanted = {op.Tokens: 1, op.Take: 1, op.SliceChannels: 6, op.Transpose: 2, op.MatMul: 4, op.Square: 4}
    assert {kind: operations(case)[kind] for kind in wanted} == wanted
    known = {node.name: node for node in case.program.nodes}
    products = [node for node in case.program.nodes if isinstance(node.operation, op.MatMul)]
    assert all(isinstance(known[node.inputs[0]].operation, op.Truncate) for node in products)
    assert sum(bool(case.program.weights[node.name].bias.any()) for node in products) == 2, "a constant for each head"


def test_activations_are_refused_unless_they_are_exact():
    with pytest.raises(RuleError, match=r"\(ReLU\).*or he\.nonlinear=exact"):
        lower(EXACT.quantized, EXACT.shape, LEVELS, LOG_STEP, Target(COUNTED, LINKS["local"]))
    with pytest.raises(
        RuleError, match=r"he\.nonlinear must be a known one: got 'client-aided'; use one of auto, exact, refused"
    ):
        HEConfig(nonlinear="client-aided")


def test_own_activations_norms_gates_and_pools_are_exact():
    """A truncation before an activation is part of it; of a sum, a product or a norm it is exact, too."""
    found = operations(EXACT)
    assert (found[op.ExactReLU], found[op.ExactTruncate], found[op.Truncate]) == (2 + 4 + 2, 1 + 2 + 3, 0)
    tables = [node.operation for node in EXACT.program.nodes if isinstance(node.operation, op.ExactTable)]
    assert [table.function for table in tables] == ["rsqrt", "silu", "sigmoid", "hardsigmoid", "gelu"]
    assert {table.high - table.low for table in tables[1:]} == {255}
    groups = [node.operation.groups for node in EXACT.program.nodes if isinstance(node.operation, op.MatMul)]
    assert groups == [2, 8, 4]
    assert {kind for kind in found if kind.composite} == set()


def test_an_activation_without_a_form_is_named():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Softsign(), nn.Flatten(), nn.Linear(144, 4)).double()
    with pytest.raises(
        RuleError, match=r"an exact form: got 1 \(Softsign\); replace it by polynomial_, or use one of ReLU"
    ):
        quantize(fuse(model.eval()), real(DIGITS.images), LOG_STEP)
    network = with_quantizers(fuse(model.eval()))
    with pytest.raises(RuleError, match=r"one that runs encrypted: got 1 \(Softsign\)"):
        lower(network, DIGITS.shape, LEVELS, LOG_STEP, Target(COUNTED, LINKS["local"]))
