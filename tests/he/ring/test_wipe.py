import numpy as np

from privcirnet.he.ring.sampling import wipe


def test_arrays_are_zeroed_and_others_passed_over() -> None:
    secret, constant = np.arange(6, dtype=np.uint64), np.arange(3, dtype=np.uint64)
    constant.flags.writeable = False
    view = secret.reshape(2, 3)
    wipe([view, None, constant])
    assert not secret.any()
    assert constant.any()
