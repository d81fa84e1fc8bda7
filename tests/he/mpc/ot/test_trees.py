"""Trees of keys: all leaves but one; a maker that offers other sums is caught, unless it guessed the path."""

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.mpc.ot import trees

TREES, DEPTH = 8, 3


@pytest.fixture
def made():
    rng = np.random.default_rng(0)
    paths = rng.integers(0, 2, (TREES, DEPTH), dtype=np.uint64)
    pads = rng.integers(0, 1 << 63, (TREES, DEPTH, 2, 2), dtype=np.uint64)
    leaves, message = trees.make(rng.integers(0, 1 << 63, (TREES, 2), dtype=np.uint64), pads, b"s")
    keys = np.take_along_axis(pads, (1 - paths)[..., None, None].astype(int), axis=2)[:, :, 0]
    return paths, keys, leaves, message


def holes(paths):
    return (paths * (np.uint64(1) << np.arange(DEPTH - 1, -1, -1, dtype=np.uint64))).sum(1).astype(int)


def test_all_leaves_but_one(made):
    paths, keys, leaves, message = made
    held = trees.hold(paths, keys, message, b"s")
    expected = leaves.copy()
    expected[np.arange(TREES), holes(paths)] = 0
    assert (held == expected).all()
    assert leaves.all(-1).all()
    assert len(message) == trees.message_bytes(TREES, DEPTH)
    assert len({leaf.tobytes() for leaf in leaves.reshape(-1, 2)}) == TREES << DEPTH


def test_another_session_has_another_tree(made):
    paths, keys, _, message = made
    with pytest.raises(RuleError, match="sums of keys must be those of trees"):
        trees.hold(paths, keys, message, b"another")


@pytest.mark.parametrize("level", range(DEPTH))
def test_a_wrong_sum_is_noticed_on_the_side_that_is_taken_and_nowhere_else(made, level):
    """This is the guess that is left: whoever offers a wrong left sum learns whether the path goes right."""
    paths, keys, _, message = made
    words = np.frombuffer(message[: TREES * DEPTH * 32], np.uint64).reshape(TREES, DEPTH, 2, 2).copy()
    taken = int(1 - paths[2, level])
    for side in (0, 1):
        changed = words.copy()
        changed[2, level, side, 0] ^= np.uint64(1)
        cheat = changed.tobytes() + message[TREES * DEPTH * 32 :]
        if side == taken:
            with pytest.raises(RuleError, match="sums of keys"):
                trees.hold(paths, keys, cheat, b"s")
        else:
            trees.hold(paths, keys, cheat, b"s")


def test_a_wrong_proof_is_refused(made):
    paths, keys, _, message = made
    for at in (TREES * DEPTH * 32, len(message) - 1):
        cheat = bytearray(message)
        cheat[at] ^= 1
        with pytest.raises(RuleError, match="sums of keys"):
            trees.hold(paths, keys, cheat, b"s")
    with pytest.raises(RuleError, match="trees of keys must have the length"):
        trees.hold(paths, keys, message[:-1], b"s")
