"""inference.proto, what is made of it, and bodies in chunks."""

import subprocess
import sys

import pytest
from google.protobuf import descriptor_pb2

from privcirnet.errors import RuleError
from privcirnet.service import messages
from privcirnet.service.messages import CHUNK, Body, Chunk, split
from tests.conftest import ROOT


def test_the_descriptor_is_that_of_the_proto(tmp_path):
    """With whichever protoc is installed; after a change: make proto."""
    folder, made = ROOT / "privcirnet" / "service", tmp_path / "inference.binpb"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--descriptor_set_out={made}"]
    subprocess.run([*command, "inference.proto"], check=True)
    stored, fresh = (descriptor_pb2.FileDescriptorSet.FromString(p.read_bytes()) for p in (folder / made.name, made))
    assert stored == fresh


def test_methods_have_the_shapes_that_grpc_names():
    assert {name: method.shape for name, method in messages.METHODS.items()} == {
        "Programs": "unary_unary",
        "Describe": "unary_stream",
        "FindKeys": "unary_unary",
        "RegisterKeys": "stream_unary",
        "Session": "stream_stream",
    }


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_a_body_comes_back_whole(size):
    sent = bytes(range(256)) * (size // 256) + bytes(size % 256)
    body, chunks = Body(size), [Chunk(data=data, last=last) for data, last in split(sent)]
    assert [body.add(chunk) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert body.joined() == sent


@pytest.mark.parametrize(
    ("chunks", "match"),
    [
        ([(CHUNK, False), (1, True)], f"at most {CHUNK} bytes here: got {CHUNK + 1} bytes;"),
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
        any(body.add(Chunk(data=bytes(size), last=last)) for size, last in chunks)
