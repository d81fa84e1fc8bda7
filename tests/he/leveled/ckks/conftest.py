"""Parties that several tests share: keys are made anew where a test needs other rotations."""

import pytest

from tests.he.ckks_toys import Pair, insecure_ckks


@pytest.fixture(scope="session")
def pair() -> Pair:
    return Pair.of(insecure_ckks(5))
