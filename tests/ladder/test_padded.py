"""What a network of padded layers brings to the ladder."""

from tests.ladder.padded import BLOCKS, PADDED


def test_the_ladder_has_padded_layers_to_carry():
    layers = {node.module: layer for node, layer in PADDED.program.linear_nodes}
    assert {name: layer.block_size for name, layer in layers.items()} == BLOCKS
    padded = [name for name, layer in layers.items() if layer.shape.padded(layer.block_size) != layer.shape]
    assert padded == ["2", "6", "8"]
