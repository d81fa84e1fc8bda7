"""inference.proto and what is made of it."""

import subprocess
import sys

from google.protobuf import descriptor_pb2

from privcirnet.service import messages
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
