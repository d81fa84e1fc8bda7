"""Once for all tests: a pair of parties in CKKS."""

import pytest

from tests.he.ckks_toys import Pair, insecure_ckks


@pytest.fixture(scope="session")
def pair() -> Pair:
    """A CKKS client and server; keys are made anew where a test needs other rotations."""
    return Pair.of(insecure_ckks(5))
