"""Oblivious transfers in both directions of a session."""

import numpy as np

from tests.he.mpc.transfers import both


def test_no_two_rows_of_a_session_are_hashed_alike() -> None:
    """Both directions number their rows from 0, so each has a hash of its own."""
    (ours, theirs), hashed = both(), list[np.ndarray]()
    for chooser, helper in ((ours, theirs), (theirs, ours)):
        chosen, message = chooser.choose(2, 64)
        offered = helper.help(2, 64, message)
        rows = np.zeros((1, 2), dtype=np.uint64)
        for keys in (chosen.keys, *offered.keys):
            assert keys.first == 0
            hashed.append(keys.hashed(rows, 0, np.zeros((1, 2), np.uint64)))
        choices = np.unpackbits(chosen.choices[1].view(np.uint8), bitorder="little").astype(bool)
        first, second = (keys[1] for keys in offered.keys)
        assert (np.where(choices[:, None], second, first) == chosen.keys[1]).all()
    assert (hashed[0] == hashed[1]).all(), "both parties' of one direction"
    assert (hashed[0] != hashed[3]).any(), "of the two directions"
