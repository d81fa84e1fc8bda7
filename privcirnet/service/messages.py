"""The messages and methods of inference.proto.

inference.binpb is protoc's descriptor of inference.proto. Classes are made from it at import, so they fit
whichever release of protobuf is installed; a test compares both files.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from privcirnet.service.chunks import ChunkMessage

KEY_ID_BYTES = 32

_FILES = descriptor_pb2.FileDescriptorSet.FromString((Path(__file__).parent / "inference.binpb").read_bytes())
_POOL = descriptor_pool.DescriptorPool()
for _file in _FILES.file:
    _POOL.AddSerializedFile(_file.SerializeToString())


def _named(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


PACKAGE = _FILES.file[0].package
ProgramsRequest, Program, ProgramList = _named("ProgramsRequest"), _named("Program"), _named("ProgramList")
Chunk, SessionRequest, Refusal = _named("Chunk"), _named("SessionRequest"), _named("Refusal")
Keys, KeysKept, KeysUpload = _named("Keys"), _named("KeysKept"), _named("KeysUpload")


@dataclass(frozen=True)
class Method:
    """A method of the service.

    Attributes:
        shape: gRPC's kind: "unary_unary", "unary_stream", "stream_unary" or "stream_stream".
    """

    path: str
    request: Any
    response: Any
    shape: str

    def read_request(self, content: bytes) -> Any:
        """Return a client's message; None if it is malformed: the receiver must refuse it."""
        try:
            return _read(self.request, content)
        except DecodeError:
            return None

    def read_response(self, content: bytes) -> Any:
        """Return the server's message.

        Raises:
            DecodeError: it is no such message.
        """
        return _read(self.response, content)


_CHUNKED = Chunk, SessionRequest, KeysUpload


def _read(message_class: Any, content: bytes) -> Any:
    piece = ChunkMessage.of(content) if message_class in _CHUNKED else None
    return message_class.FromString(content) if piece is None else piece


def write(message: Any) -> bytes:
    """Return the bytes of a message."""
    return message.packed() if isinstance(message, ChunkMessage) else message.SerializeToString()


def _methods() -> dict[str, Method]:
    service = _POOL.FindServiceByName(SERVICE)
    words = {False: "unary", True: "stream"}
    return {
        method.name: Method(
            f"/{SERVICE}/{method.name}",
            message_factory.GetMessageClass(method.input_type),
            message_factory.GetMessageClass(method.output_type),
            f"{words[method.client_streaming]}_{words[method.server_streaming]}",
        )
        for method in service.methods
    }


SERVICE = f"{PACKAGE}.Inference"
METHODS = _methods()
"""Methods by name."""
