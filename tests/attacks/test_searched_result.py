"""A client searches for what a rounded answer leaves out, with all that it was sent.

With its share shifted, what lies above the window is a column of weights. A check that a client can evaluate for any
result, such as a keyed hash with its key, is one that it can try all of them with: 2^14 in a quarter of a second.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from privcirnet.he.mpc.local import shares
from privcirnet.he.protocol.framing import wire
from privcirnet.he.protocol.rounds import answer, equality
from privcirnet.he.protocol.rounds.answer import Received
from privcirnet.he.protocol.rounds.equality import Question
from privcirnet.he.ring import sampling

T, BITS = (1 << 57) - 1, 7
PROGRAM = SimpleNamespace(
    answer="rounded",
    output_bits=BITS,
    bounds="proved",
    output=SimpleNamespace(name="head", shape=(1, 1, 1)),
    parameters=SimpleNamespace(plain_modulus=T),
)


def asked(y: int, guess: int) -> tuple[np.ndarray, Received]:
    """The client's share, and what it was given for a result y, after it has asked whether it is a guess."""
    q = sampling.uniform((1, 1, 1), 1 << 40)
    theirs = answer.hand_out(PROGRAM, q + np.uint64(y))
    (part,) = wire.unframe(next(theirs), wire.ROUNDED, 1)
    question = Question.about(shares.to_bytes(q + np.uint64(guess)))
    with pytest.raises(StopIteration) as end:
        theirs.send(wire.frame(wire.ROUNDED, [question.message]))
    return q, Received(part, question, *wire.unframe(end.value.value, wire.OUTPUT, 1))


def matching(q: np.ndarray, given: Received, candidates: range) -> list[int]:
    """The results that the client cannot tell from the right one, by what it can do with its scalar and their points."""
    own, others = given.answer[:32], given.answer[32:]
    scalar, found = given.question._scalar, []
    for candidate in candidates:
        point = equality.point(shares.to_bytes(q + np.uint64(candidate)))
        tried = {point, equality._times(scalar, point)}
        found += [candidate] if tried & {own, others} else []
    return found


def test_the_window_and_one_guess_are_all_that_a_client_learns() -> None:
    y = 1_234_567
    window = y % (2 << BITS)
    q, given = asked(y, window)
    assert (int.from_bytes(given.part, "little") - int(q[0, 0, 0])) % (2 << BITS) == window
    assert not given.question.affirmed(given.answer), "the guess is wrong"
    assert matching(q, given, range(window, 1 << 18, 2 << BITS)) == []
    assert matching(q, given, range(y, y + 1)) == [], "nor would it know the right one if it saw it"


def test_one_image_takes_one_question() -> None:
    """Its second one is no message that is due: it must ask for another image, which is counted."""
    theirs = answer.hand_out(PROGRAM, sampling.uniform((1, 1, 1), T))
    next(theirs)
    message = wire.frame(wire.ROUNDED, [Question.about(b"first").message])
    for _ in range(2):
        with pytest.raises(StopIteration):
            theirs.send(message)
