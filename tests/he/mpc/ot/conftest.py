"""Real base transfers: they are what is tested."""

import pytest


@pytest.fixture(autouse=True)
def base_transfers() -> None:
    """In place of those that hide nothing."""
