"""A server makes a client fill its memory with Galois keys, by a greeting of a few thousand bytes.

The attacker describes a network whose layers are all modest, but rotate by other steps each. A client makes keys for
all steps of a program, six times whose size it needs while it makes them, before it has asked for anything.
"""

import json

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import choose, key_bytes
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_pieces import Piece
from privcirnet.he.program import limits, manifest
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Input, Linear
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.parties.client import Client

N, CHANNELS = 8192, 2048
LANES = (256, 512, 1024, 2048)


def greedy(lanes: tuple[int, ...]) -> Program:
    """Layers of matrices, one after the other, each with a piece of so many lanes and 255 keys."""
    shape, nodes = LinearShape.gemm(1, CHANNELS, CHANNELS), [Node("x", Input(0, 1), (), (CHANNELS, 1, 1), 0)]
    for count in lanes:
        layer = SpectralLayer(shape, 1, N, (1, 1), (Piece(1, 1, count, 256, giants_on_shares=True),))
        nodes.append(Node(f"with {count}", Linear(layer), (nodes[-1].name,), shape.output_shape, 0))
    return Program(tuple(nodes), choose({1}, 46))


@pytest.mark.parametrize("lanes", LANES)
def test_each_layer_alone_is_modest(lanes: int) -> None:
    manifest.check(greedy((lanes,)))


def test_the_keys_of_a_whole_program_are_bounded() -> None:
    program = greedy(LANES)
    greeting = json.dumps(manifest.to_dict(program)).encode()
    asked = len(program.column_steps) * key_bytes(program.parameters)
    assert len(greeting) < 4000
    assert asked > 1.5 * limits.MAX_KEY_BYTES
    with pytest.raises(RuleError, match=rf"at most 268435456 bytes: got \d+ keys of {asked} bytes"):
        Client(greeting)
