"""Each rearrangement against its picture."""

import numpy as np
import pytest

from privcirnet.he.program.rearrangement import (
    Channels,
    Flatten,
    Gather,
    Rearrangement,
    Take,
    Tokens,
    Transpose,
    rearrange,
    shape_after,
)

REARRANGED = {
    Flatten(): lambda x: x.reshape(-1),
    Take(2): lambda x: x[:, 2, 0],
    Channels(1, 3): lambda x: x[1:4],
    Transpose(2): lambda x: np.stack([[x[3 * h + a, p, 0] for a in range(3)] for h in range(2) for p in range(4)]),
    Gather((2, 3, 1), 5, (2, 3), (0, 4)): lambda x: np.stack([x.reshape(-1)[[5, 9, 13]]] * 2),
    Gather((1, 4, 2), 23, (4, 2), (-1, -4)): lambda x: x[:, ::-1][::-1].reshape(6, 4)[:2].T,
    Gather((1, 1, 1), 7, (), ()): lambda x: x.reshape(-1)[7],
    Tokens(): lambda x: np.stack([[0, *x[c, :, 0]] for c in range(6)]),
}


@pytest.mark.parametrize("operation", REARRANGED, ids=lambda operation: type(operation).__name__)
def test_values_go_to_their_places(operation: Rearrangement) -> None:
    x = np.arange(1, 25).reshape(6, 4, 1)
    found = rearrange(operation, x)
    assert found.shape == shape_after(operation, x.shape)
    assert found.reshape(-1).tolist() == REARRANGED[operation](x).reshape(-1).tolist()
