"""What a server hands out of a result, and what a client makes of it."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import unplanned
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.plan_program import Target, plan_program
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program import manifest
from privcirnet.he.program.exact import ExactStep
from privcirnet.he.program.operation import Node, Weights
from privcirnet.he.program.operations import Input, Linear
from privcirnet.he.program.program import Network, Program
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.parties.session import prepare
from privcirnet.he.protocol.rounds import answer
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.he.ring import modular
from tests.he.broken import ends_at_any_turn
from tests.he.networks import network
from tests.he.parties import check, parties


def largest_of(count: int) -> Program:
    """The place of the largest number of an image; logits are what it is above a sum."""
    layer, shape = unplanned(LinearShape.gemm(1, count, count), 1), (count, 1, 1)
    nodes = Node("x", Input(-3, 4), (), shape, 0), Node("head", Linear(layer), ("x",), shape, 0)
    same = Weights(1 + np.eye(count, dtype=np.int64)[..., None, None], np.zeros(count, dtype=np.int64))
    target = Target(COUNTED, LINKS["local"], truncation="exact", answer="top1")
    return plan_program(Network(nodes, {"head": same}), target).program


@pytest.mark.parametrize("count", [2, 3, 10, 100])
def test_a_client_is_given_the_class_alone_the_first_of_equal_ones(count: int) -> None:
    program = largest_of(count)
    images = np.full((6, count), -3)
    images[range(5), [0, 1, count // 2, count - 2, count - 1]] = 4
    images[4, 0] = 4
    client, session = parties(program, "cleartext")
    prepare(client, session, 4)
    for number, image in enumerate(images):
        used = "prepared" if number < 4 else ""
        traffic = check(program, client, session, image.reshape(-1, 1, 1), used)
        assert number > 3 or len(traffic) == schedule_of(program).rounds_online == 2 + 2 * (count - 1).bit_length()
        share = client.shares[program.output.name], session.shares[program.output.name]
        assert modular.add(*share, program.parameters.plain_modulus).item() == image.argmax()


@pytest.mark.parametrize("lost", ["request", "reply"])
def test_a_class_whose_image_ends_at_any_turn(lost: str) -> None:
    program = largest_of(2)
    ends_at_any_turn(program, lost, [i for i, n in enumerate(program.nodes) if isinstance(n.operation, ExactStep)])


def class_of(program: Program, client: int, server: int) -> int:
    """What a client has of the class from its share and from what is handed out of the server's."""
    message = answer.reveal_output(program, np.full((1, 1, 1), server, dtype=np.uint64))
    (part,) = wire.unframe(message, wire.OUTPUT, 1)
    assert int.from_bytes(part, "little") < 2 << (prod(program.logits.shape) - 1).bit_length()
    found = answer.result(program, np.full((1, 1, 1), client, dtype=np.uint64), part)
    return int(found.reshape(-1).argmax())


@pytest.mark.parametrize("count", [2, 3, 10])
def test_a_class_is_right_for_every_mask(count: int) -> None:
    """With a few bits of the server's share, also where the sum of both shares does not wrap."""
    program = largest_of(count)
    t = program.parameters.plain_modulus
    for true in range(count):
        for client in (*range(2 * count + 9), t // 2, *range(t - 2 * count, t)):
            assert class_of(program, client, (true - client) % t) == true


def test_a_client_that_shifts_its_share_has_the_class_modulo_a_power_of_two_and_a_carry() -> None:
    """A whole share told all of t's bits of what the client had made the result to be."""
    program = largest_of(8)
    t = program.parameters.plain_modulus
    for beyond, carry in ((8, 0), (1 << 10, 0), (t // 2, 1)):
        assert class_of(program, 12345, (5 + beyond - 12345) % t) == 5 - carry


def test_what_is_no_class_is_refused() -> None:
    program = largest_of(10)
    t = program.parameters.plain_modulus
    assert class_of(program, 2, 7) == 9
    for client, server in ((3, 7), (t - 5, 15)):
        with pytest.raises(
            answer.ImpossibleResultError, match=r"values of answer must have at most 4 bits, .* got class 10"
        ):
            class_of(program, client, server)
    many = [replace(node, shape=(t, 1, 1)) if node is program.logits else node for node in program.nodes]
    with pytest.raises(RuleError, match=f"number of classes must be under a quarter of the plain modulus: got {t} "):
        manifest._check_answer(replace(program, nodes=tuple(many)))
    with pytest.raises(RuleError, match=r"a class must be one number, behind logits: got shape \(10, 1, 1\)"):
        manifest.check(replace(program, nodes=program.nodes[:2]))


@pytest.mark.parametrize("damage", [lambda m: m[:-1], lambda m: m + b"\0", lambda m: b"", lambda m: b"\xff" * len(m)])
def test_a_damaged_part_is_refused(damage) -> None:
    zeros = np.zeros((10, 1, 1), dtype=np.uint64)
    (part,) = wire.unframe(answer.reveal_output(network(), zeros), wire.OUTPUT, 1)
    with pytest.raises(RuleError, match="a share must"):
        answer.result(network(), zeros, damage(part))


def test_a_result_that_is_wider_than_right_ones_is_refused() -> None:
    share, values = np.zeros((3, 1, 1), dtype=np.uint64), np.array([0, 100, 200]).reshape(3, 1, 1)
    (part,) = wire.unframe(answer.reveal_output(network(), values.astype(np.uint64)), wire.OUTPUT, 1)
    for bits in (8, 0):
        assert (answer.result(replace(network(), output_bits=bits), share, part) == values).all()
    narrow = replace(network(), output_bits=7)
    with pytest.raises(
        answer.ImpossibleResultError, match=r"values of head must have at most 7 bits.* got 8 bits"
    ) as caught:
        answer.result(narrow, share, part)
    assert (caught.value.values == values).all()
    with pytest.raises(answer.ImpossibleResultError, match="beyond the measured bounds"):
        answer.result(replace(narrow, bounds="measured"), share, part)
