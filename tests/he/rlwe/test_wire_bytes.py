"""Lengths of what travels."""

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.rlwe import wire_bytes


def test_lengths_are_checked() -> None:
    wire_bytes.check_length(bytes(5), 5)
    with pytest.raises(RuleError, match="length that the parameters fix: got 5 bytes where 6 are due"):
        wire_bytes.check_length(bytes(5), 6)
    wire_bytes.check_keys_length(bytes(5), 5)
    with pytest.raises(RuleError, match="the plan's rotations fix: got 4 bytes where 5 are due"):
        wire_bytes.check_keys_length(bytes(4), 5)
