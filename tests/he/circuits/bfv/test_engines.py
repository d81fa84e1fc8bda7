"""Engines by name."""

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.circuits.bfv.engines import sequential


@pytest.mark.parametrize("name", ["kernel", "gpu"])
def test_nobody_gets_the_engine_that_hides_nothing_without_asking_for_it(name):
    with pytest.raises(RuleError, match=f"the engine must be one that works on single ciphertexts: got '{name}'"):
        sequential(name)
