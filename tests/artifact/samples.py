"""A checkpoint and programs to write, and comparisons of what was read."""

import dataclasses
from functools import cache
from pathlib import Path

import numpy as np
import torch

from privcirnet.artifact.records import Bits, Checkpoint, InputSpec
from privcirnet.he.bfv.parameters import choose
from privcirnet.he.ckks.bootstrapping import Bootstrapping, parameters_for
from privcirnet.he.ckks.network import sums_of
from privcirnet.he.ckks.program import CkksProgram
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program.operation import Node, Weights
from privcirnet.he.program.operations import Input, Linear
from privcirnet.he.program.program import Program
from privcirnet.passes.lower import lower_real
from tests.passes.lower.test_ckks import images_of, resnet20, settled

CHECKPOINT = Checkpoint(
    {
        "scalar": np.array(7, dtype=np.int64),
        "turned": np.arange(12, dtype=np.float32).reshape(3, 4).T,
        "strided": np.arange(20, dtype=np.float64)[::3],
        "reversed": np.arange(5, dtype=np.float32)[::-1],
        "empty": np.zeros((0, 3), dtype=np.float32),
    },
    "digits_resnet",
    "qat",
    {"conv1": 8, "stem": 1},
    Bits(8, 6, 10),
    {"activation": "square"},
    inputs=InputSpec((1, 8, 8), -4, 16, ("zero", "one"), "digits"),
)


def layer_program(b: int, channels: int = 64, seed: int = 0) -> Program:
    """One 3 x 3 convolution."""
    shape = LinearShape(4, 4, channels, channels, 3, 1, 1)
    layer = cheapest_layer(shape, b, COUNTED, LINKS["local"])
    random = np.random.default_rng(seed)
    rows = random.integers(-127, 128, (channels // b, channels, 3, 3))
    weights = {"conv": Weights(rows, random.integers(-1000, 1000, channels))}
    image = Node("x", Input(0, 16), (), shape.input_shape, -4)
    nodes = (image, Node("conv", Linear(layer), ("x",), shape.output_shape, -11, "features.conv"))
    return Program(nodes, choose(layer.transform_lengths, 50), weights)


def assert_same_program(found: Program, expected: Program) -> None:
    bare = [dataclasses.replace(program, weights={}) for program in (found, expected)]
    assert bare[0] == bare[1]
    assert found.weights.keys() == expected.weights.keys()
    for name, weights in expected.weights.items():
        for tensor in ("rows", "bias"):
            assert getattr(found.weights[name], tensor).dtype == np.int64
            assert np.array_equal(getattr(found.weights[name], tensor), getattr(weights, tensor))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@cache
def ckks_program() -> CkksProgram:
    """A small residual network at n = 65536."""
    images = images_of(8)
    model = settled(resnet20(), images)
    with torch.no_grad():
        made = lower_real(model, (3, 8, 8))
    return CkksProgram(made, sums_of(made).seen(images.double().numpy()), Bootstrapping(parameters_for()), -8)
