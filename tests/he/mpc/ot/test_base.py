"""The first transfers: the chosen key and no other; points that are none are refused."""

import numpy as np
import pytest
from nacl import bindings

from privcirnet.errors import RuleError
from privcirnet.he.mpc.ot import base

CHOICES = [0, 1, 1, 0, 1]
GENERATOR = bindings.crypto_scalarmult_ed25519_base_noclamp((1).to_bytes(32, "little"))
P = 2**255 - 19
LOW_ORDER = [
    (1).to_bytes(32, "little"),  # the identity
    (0).to_bytes(32, "little"),  # order 4
    (P - 1).to_bytes(32, "little"),  # order 2
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),  # order 8
]


def test_the_chooser_gets_the_keys_of_its_choices_alone():
    chooser = base.BaseOtReceiver(CHOICES, b"s")
    pairs, point = base.send(chooser.message, len(CHOICES), b"s")
    keys = chooser.keys(point)
    assert [[(key == own).all() for own in two] for key, two in zip(keys, pairs, strict=True)] == [
        [choice == 0, choice == 1] for choice in CHOICES
    ]


def test_another_session_has_other_keys():
    chooser = base.BaseOtReceiver(CHOICES, b"s")
    pairs, point = base.send(chooser.message, len(CHOICES), b"another")
    assert not (chooser.keys(point)[:, None] == pairs).all(-1).any()


def test_messages_do_not_tell_the_choice():
    """The two points of a transfer are both uniform: their bytes are, whatever the choice."""
    firsts = [
        np.frombuffer(base.BaseOtReceiver([choice] * 400, b"s").message, np.uint8).reshape(-1, 64) for choice in (0, 1)
    ]
    for message in firsts:
        ones = np.unpackbits(message[:, :31], axis=1).mean(), np.unpackbits(message[:, 32:63], axis=1).mean()
        assert max(abs(x - 0.5) for x in ones) < 0.01


@pytest.mark.parametrize("point", LOW_ORDER)
def test_points_of_low_order_are_refused(point):
    message = bytearray(base.BaseOtReceiver([0], b"s").message)
    message[:32] = point
    with pytest.raises(RuleError, match="subgroup of prime order"):
        base.send(message, 1, b"s")
    with pytest.raises(RuleError, match="subgroup of prime order"):
        base.BaseOtReceiver([0], b"s").keys(point)


def test_points_beside_the_subgroup_and_the_curve_are_refused():
    """A point of the subgroup plus one of order 2 tells a secret scalar's lowest bit; off the curve is another group."""
    y = int.from_bytes(GENERATOR, "little") & (1 << 255) - 1
    mixed = (P - y).to_bytes(32, "little")  # -y and -x or x: the generator plus the point of order 2, up to a sign
    off = next(x.to_bytes(32, "little") for x in range(2, 99) if not _on_curve(x))
    for point in (mixed, off, b"\xff" * 32):
        with pytest.raises(RuleError, match="subgroup of prime order"):
            base.BaseOtReceiver([0], b"s").keys(point)


def _on_curve(y: int) -> bool:
    d = -121665 * pow(121666, -1, P) % P
    x2 = (y * y - 1) * pow(d * y * y + 1, -1, P) % P
    return pow(x2, (P - 1) // 2, P) in (0, 1)


def test_a_sender_is_not_led_to_the_identity():
    """A chooser that solves for a point whose sum with the relation is the identity gets no key of it."""
    other = base.BaseOtReceiver([0], b"s").message[32:]
    relation = base._answer(b"s", 0, 0, other)
    minus = bindings.crypto_core_ed25519_sub(GENERATOR, bindings.crypto_core_ed25519_add(GENERATOR, relation))
    with pytest.raises(RuleError, match="identity"):
        base.send(minus + other, 1, b"s")


@pytest.mark.parametrize("cut", [1, 32, 64])
def test_other_lengths_are_refused(cut):
    with pytest.raises(RuleError, match="points of oblivious transfers must have the length"):
        base.send(base.BaseOtReceiver(CHOICES, b"s").message[:-cut], len(CHOICES), b"s")
