"""Every test of this folder twice: with compiled kernels, and as where Numba is not installed."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from privcirnet.he.clear import compiled


@pytest.fixture(params=["compiled", "numpy"], autouse=True)
def implementation(request: pytest.FixtureRequest) -> Iterator[None]:
    with compiled.by_numpy() if request.param == "numpy" else nullcontext():
        assert compiled.installed() == (request.param == "compiled")
        yield
