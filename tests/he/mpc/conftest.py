"""All ways in which kernels compute AES, for the tests that compare each with OpenSSL."""

import pytest

from privcirnet.he.mpc.kernels import aes


@pytest.fixture(params=[aes.Vaes, aes.AesNi, aes.OpenSsl])
def aes_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[aes.Aes]:
    """The kind that ciphers have until the test's end, if this host has it."""
    if request.param not in aes.kinds():
        pytest.skip(f"this processor has no {request.param.__name__}")
    monkeypatch.setattr(aes, "kinds", lambda: (request.param,))
    return request.param
