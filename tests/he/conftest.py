"""Once for all tests: a pair of parties in CKKS; and base transfers that hide nothing, but in ``mpc/ot``."""

import pytest

from tests.he.ckks_toys import Pair, insecure_ckks
from tests.he.mpc.ot import toy_base


@pytest.fixture(scope="session")
def pair() -> Pair:
    """A CKKS client and server; keys are made anew where a test needs other rotations."""
    return Pair.of(insecure_ckks(5))


@pytest.fixture(autouse=True)
def base_transfers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ladder, the service and the attacks begin with real ones."""
    toy_base.put(monkeypatch)
