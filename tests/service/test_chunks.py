"""Bodies in chunks, and their bytes."""

import pytest

from privcirnet.errors import RuleError
from privcirnet.service import messages
from privcirnet.service.messages import CHUNK, Body, Chunk, ChunkMessage, KeysUpload, Method, SessionRequest, split


@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 16_383, 16_384, CHUNK - 1, CHUNK])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("made", [Chunk, SessionRequest, KeysUpload])
def test_a_piece_has_the_bytes_that_protobuf_writes(made, last, size):
    piece, content = ChunkMessage(b"p" * size, last), made(data=b"p" * size, last=last).SerializeToString()
    assert piece.packed() == messages.write(piece) == content
    assert ChunkMessage.of(content) == (piece if size else None)


@pytest.mark.parametrize(
    "content",
    [
        SessionRequest(data=b"ab", keys=b"c").SerializeToString(),
        b"\x10\x01\x0a\x01a",
        b"\x0a\x01a\x10\x00",
        b"\x0a\x02a",
        b"\x0a\x80",
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x0a",
        b"",
    ],
)
def test_what_is_no_piece_is_left_to_protobuf(content):
    assert ChunkMessage.of(content) is None
    method = Method("", SessionRequest, Chunk, "")
    assert not isinstance(method.read_request(content), ChunkMessage)


def test_other_messages_are_no_pieces():
    """A program's name stands where a chunk has its data."""
    found = messages.METHODS["Describe"].read_request(messages.Program(name="n").SerializeToString())
    assert found.name == "n"


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_a_body_comes_back_whole(size):
    sent = bytes(range(256)) * (size // 256) + bytes(size % 256)
    body, chunks = Body(size), list(split(sent))
    assert [body.add(chunk) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert body.joined() == sent


@pytest.mark.parametrize(
    ("chunks", "match"),
    [
        ([(CHUNK, False), (1, True)], f"at most {CHUNK} bytes here: got {CHUNK + 1} bytes"),
        ([(CHUNK, False), (CHUNK, False)], f"got {2 * CHUNK} bytes and more"),
        ([(1, False)], "a chunk must have 1048576 bytes, the last one fewer: got 1 bytes"),
        ([(0, False)], "got 0 bytes"),
        ([(CHUNK + 1, True)], f"got {CHUNK + 1} bytes"),
    ],
)
def test_chunks_that_are_badly_cut_or_too_many(chunks, match):
    """A body of one-byte chunks would cost its receiver much more than its sender."""
    body = Body(CHUNK)
    with pytest.raises(RuleError, match=match):
        any(body.add(ChunkMessage(bytes(size), last)) for size, last in chunks)
