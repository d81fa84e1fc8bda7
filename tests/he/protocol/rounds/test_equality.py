"""Whether two parties have the same bytes: who asks learns it, and nothing else of them."""

import os

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.protocol.rounds import equality
from privcirnet.he.protocol.rounds.equality import Question, answered

SMALL = [0, 1, 2**255 - 20, 325606250916557431795983626356110631294008115727848805560023387167927233504]
"""u-coordinates of points of order 1, 2, 4 and 8."""


@pytest.mark.parametrize(("own", "others"), [(b"", b""), (b"a", b"a"), (b"a", b"b"), (b"a", b""), (b"a", b"a\0")])
def test_equal_bytes_are_affirmed_and_no_others(own, others):
    question = Question.about(own)
    assert question.affirmed(answered(others, question.message)) == (own == others)


def test_a_question_says_nothing_and_is_never_the_same():
    """It is a point of the curve, as a random one is: on its twist it would tell one bit of what it is about."""
    messages = {Question.about(b"a").message for _ in range(50)}
    assert len(messages) == 50
    values = [bytes([number]) for number in range(100)]
    points = [int.from_bytes(equality.point(value), "little") for value in values]
    assert len({*points}) == 100
    assert all(map(equality.on_curve, points))
    assert all(equality.on_curve(int.from_bytes(message, "little")) for message in messages)
    assert 60 < sum(equality.on_curve(int.from_bytes(os.urandom(31), "little")) for _ in range(200)) < 140


def test_an_answer_serves_one_question():
    first, second = Question.about(b"a"), Question.about(b"a")
    answer = answered(b"a", first.message)
    assert first.affirmed(answer)
    assert not second.affirmed(answer)
    assert answered(b"a", first.message) != answer


@pytest.mark.parametrize("message", [b"", bytes(31), bytes(33), *(u.to_bytes(32, "little") for u in SMALL)])
def test_what_is_no_point_is_refused(message):
    """A point of small order would tell bits of the other party's scalar."""
    with pytest.raises(RuleError, match="a question about a result must be a point of Curve25519: got"):
        answered(b"a", message)
    assert not Question.about(b"a").affirmed(message + message), "nor is a wrong answer an error"
