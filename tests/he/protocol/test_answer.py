"""What a server hands out of a result, and what a client makes of it."""

from dataclasses import replace

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.program.program import Program
from privcirnet.he.protocol import answer, shares
from privcirnet.he.ring import modular, sampling
from tests.he.networks import network

BITS, F = 5, 7


def rounded() -> Program:
    return replace(network(), answer="rounded", output_bits=BITS)


def truncated(y: np.ndarray, t: int) -> tuple[np.ndarray, np.ndarray]:
    """Both parties' shares of a truncated value, from uniform masks."""
    mask = sampling.uniform(y.shape, t)
    other = modular.subtract(modular.residues(y, t), mask, t)
    return shares.truncate_client(other, F, t), shares.truncate_server(mask, F)


def test_a_rounded_result_is_the_truncation_s() -> None:
    program = rounded()
    t = program.parameters.plain_modulus
    y = np.arange(-(2**11) + 2**F, 2**11 - 2**F, 3).reshape(-1, 1, 1)
    client, server = truncated(y, t)
    message = answer.hand_out(program, server)
    assert len(message) == 8 * y.size + 20
    found = answer.result(program, client, message)
    assert ((found == y >> F) | (found == -(-y >> F))).all()
    assert (found == modular.centered(modular.add(client, server, t), t)).all()


def test_nothing_beyond_the_window_is_handed_out() -> None:
    program = rounded()
    share = sampling.uniform((10, 1, 1), program.parameters.plain_modulus)
    words = np.frombuffer(answer.hand_out(program, share)[:80], dtype="<u8")
    assert (words < 2 ** (BITS + 1)).all()
    assert (words == share.reshape(-1) % 2 ** (BITS + 1)).all()
    assert answer.hand_out(program, share) != answer.hand_out(program, share), "the hash has a key of its own"


@pytest.mark.parametrize("factor", [2 ** (BITS + F + 2), -(2 ** (BITS + F)) - 2**F, 2**40])
def test_a_result_beyond_the_window_is_refused(factor: int) -> None:
    program = rounded()
    client, server = truncated(np.full((10, 1, 1), factor), program.parameters.plain_modulus)
    with pytest.raises(
        answer.WrongResult,
        match=r"values of head must have at most 5 bits, .* got more; do not use it, and do not let the server know",
    ):
        answer.result(program, client, answer.hand_out(program, server))


@pytest.mark.parametrize("damage", [lambda m: m[:-1], lambda m: m + b"\0", lambda m: b"", lambda m: b"\xff" * len(m)])
def test_a_damaged_part_is_refused(damage) -> None:
    program = rounded()
    client, server = truncated(np.ones((10, 1, 1), dtype=np.int64), program.parameters.plain_modulus)
    with pytest.raises(RuleError, match="a share must"):
        answer.result(program, client, damage(answer.hand_out(program, server)))


def test_width() -> None:
    values = np.arange(3)
    answer.check_width(network(), {"a": (7, 7), "b": (50, 0)}, values)
    with pytest.raises(answer.WrongResult, match=r"values of a must have at most 7 bits.* got 8 bits") as caught:
        answer.check_width(network(), {"a": (8, 7)}, values)
    assert (caught.value.values == values).all()
    measured = replace(network(), bounds="measured")
    with pytest.raises(answer.WrongResult, match="beyond the measured bounds always fail: export with images like it"):
        answer.check_width(measured, {"a": (8, 7)}, values)
