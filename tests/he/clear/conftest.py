"""Every test of this folder twice: with compiled kernels, and as where Numba is not installed."""

import pytest

from privcirnet.he.clear import compiled


@pytest.fixture(params=["compiled", "numpy"], autouse=True)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(compiled, "installed", lambda: request.param == "compiled")
    return request.param
