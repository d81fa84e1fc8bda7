import pytest
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.errors import RuleError
from privcirnet.he.protocol import wire

MESSAGE = wire.frame(7, [b"abc", b"", b"\0" * 300])


@given(st.integers(0, 0xFFFF), st.lists(st.binary(max_size=40), max_size=20))
def test_round_trip(position: int, parts: list[bytes]) -> None:
    message = wire.frame(position, parts)
    assert wire.unframe(message, position) == parts
    assert wire.unframe(message, position, len(parts)) == parts


def test_golden_bytes() -> None:
    assert wire.frame(258, [b"ab", b""]) == b"PCN3" + bytes.fromhex("0201 0200 02000000") + b"ab" + bytes(4)
    assert wire.OUTPUT == 0xFFFF


def test_every_cut_and_every_tail_is_refused() -> None:
    for length in range(len(MESSAGE)):
        with pytest.raises(RuleError, match="a message must be"):
            wire.unframe(MESSAGE[:length], 7)
    with pytest.raises(RuleError, match="without a tail: got 1 bytes more"):
        wire.unframe(MESSAGE + b"\0", 7)


def test_another_step_or_number_of_parts_is_refused() -> None:
    with pytest.raises(RuleError, match="about step 8: got magic b'PCN3', step 7"):
        wire.unframe(MESSAGE, 8)
    with pytest.raises(RuleError, match="in 2 parts: got 3"):
        wire.unframe(MESSAGE, 7, 2)
    with pytest.raises(RuleError, match="magic b'PCN1'"):
        wire.unframe(b"PCN1" + MESSAGE[4:], 7)


def test_lengths_that_lie() -> None:
    """Part counts and lengths over what is there, up to the largest that the fields hold."""
    for start, size in ((6, 2), (8, 4)):
        for value in (4, 1000, 256**size - 1):
            message = MESSAGE[:start] + value.to_bytes(size, "little") + MESSAGE[start + size :]
            with pytest.raises(RuleError, match="a message must be"):
                wire.unframe(message, 7)
