"""What MobileNetV2 brings to the ladder, and what is special about its depthwise layers."""

from privcirnet.artifact import read_program, write_program
from privcirnet.he.program import operations as op
from tests.he.parties import protocol
from tests.ladder.mobilenetv2 import BLOCKS, DEPTHWISE, MOBILENETV2


def depthwise_of(program):
    return [(node, layer) for node, layer in program.linear_nodes if layer.shape.kind == "depthwise"]


def test_spectra_of_depthwise_layers_have_a_block_for_each_channel(tmp_path):
    write_program(tmp_path / "program", MOBILENETV2.program, {})
    _, spectra = read_program(tmp_path / "program")
    for node, layer in depthwise_of(MOBILENETV2.program):
        channels, phases = layer.shape.in_channels, layer.shape.stride**2
        assert MOBILENETV2.program.weights[node.name].rows.shape == (channels, 1, 3, 3)
        assert spectra[node.name].shape == (channels, 1, phases, 1, *layer.layout.extent)


def test_a_depthwise_layer_is_one_product_for_each_ciphertext():
    _, _, meter = protocol(MOBILENETV2.program, "cleartext", MOBILENETV2.images[0].numpy())
    for node, layer in depthwise_of(MOBILENETV2.program):
        counts = meter.counts[node.name]
        assert (counts["rotate"], counts["pmult"]) == (0, layer.ciphertexts_in)
        assert layer.ciphertexts_in == (3 if layer.shape.stride == 1 else 4 + 4 + 1)


def test_the_ladder_has_something_to_carry():
    program = MOBILENETV2.program
    layers = {node.module: layer for node, layer in program.linear_nodes}
    depthwise = {name: layer for name, layer in layers.items() if layer.shape.kind == "depthwise"}
    found = {name: (layer.shape.groups, layer.shape.stride) for name, layer in depthwise.items()}
    assert found == DEPTHWISE
    assert {name: layers[name].block_size for name in BLOCKS} == BLOCKS
    assert all((layer.layout.tiles, len(layer.pieces)) == (2, 3) for layer in depthwise.values())
    operations = [node.operation for node in program.nodes]
    assert sum(isinstance(operation, op.Square) for operation in operations) == 7
    assert sum(isinstance(operation, op.Add) for operation in operations) == 1
    by_name = {node.name: node.operation for node in program.nodes}
    sources = [by_name[node.inputs[0]] for node, _ in program.linear_nodes]
    assert sum(isinstance(source, op.Add) for source in sources) == 1, "a layer behind a residual without activation"
    squared = {node.inputs[0] for node in program.nodes if isinstance(node.operation, op.Square)}
    truncated = {node.inputs[0]: node.name for node in program.nodes if isinstance(node.operation, op.Truncate)}
    names = {node.module: truncated.get(node.name) for node, _ in program.linear_nodes}
    assert {name for name, after in names.items() if after not in squared} == {
        *(f"{block}.project" for block in ("first", "down", "same")),
        "classifier",
    }
