"""What networks of timm bring to the ladder."""

from privcirnet.he.program import operations as op
from tests.ladder.surgery import DENSENET, RESNET


def operations(case):
    return [node.operation for node in case.program.nodes]


def test_a_summand_behind_a_pool_is_finer_than_the_others():
    scaled = [operation for operation in operations(RESNET) if isinstance(operation, op.Scale)]
    assert scaled == [op.Scale(2)]
    assert sum(isinstance(operation, op.Add) for operation in operations(RESNET)) == 4


def test_layers_have_groups_that_are_no_channels():
    groups = {node.module: layer.shape.groups for node, layer in RESNET.program.linear_nodes}
    assert groups["layer3.0.conv2"] == 2


def test_features_are_concatenated_and_each_norm_has_a_layer():
    counts = [operation.count for operation in operations(DENSENET) if isinstance(operation, op.Concat)]
    assert counts == [2, 3, 2, 3]
    depthwise = [node.module for node, layer in DENSENET.program.linear_nodes if layer.shape.kind == "depthwise"]
    assert len(depthwise) == 6
