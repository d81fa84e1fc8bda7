"""The messages and methods of inference.proto, and bodies in chunks.

inference.binpb is what protoc makes of inference.proto: its descriptor. Classes are made from it at import, so they fit
whichever release of protobuf is installed; a test compares both files.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from privcirnet.errors import RuleError

CHUNK = 1 << 20
"""Bytes of every chunk of a body but the last."""
MAX_MESSAGE = CHUNK + 4096
"""Bytes of a gRPC message, at most: a chunk and what is around it."""
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
    """One method of the service.

    Attributes:
        path: that a call names.
        request: class of what the client sends.
        response: class of what the server sends.
        shape: "unary_unary", "unary_stream", "stream_unary" or "stream_stream", as gRPC calls them.
    """

    path: str
    request: Any
    response: Any
    shape: str

    def read_request(self, content: bytes) -> Any:
        """Return what a client sent; None if it is no such message, which whoever receives it must refuse.

        Args:
            content: its bytes.
        """
        try:
            return self.request.FromString(content)
        except DecodeError:
            return None


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
"""Method by name."""


def split(body: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield a body in chunks: (data, whether it is the last).

    Args:
        body: of any length; an empty one is one chunk.
    """
    for start in range(0, max(len(body), 1), CHUNK):
        yield body[start : start + CHUNK], start + CHUNK >= len(body)


class Body:
    """A body that comes in chunks.

    Args:
        most: bytes that it may have.
    """

    def __init__(self, most: int) -> None:
        self._most, self._chunks, self._size = most, list[bytes](), 0

    def add(self, chunk: Any) -> bool:
        """Take the next chunk.

        Args:
            chunk: with ``data`` and ``last``.

        Returns:
            whether the body is whole.

        Raises:
            RuleError: it is short but not the last, or makes the body too long.
        """
        data = checked_chunk(chunk, self._size, self._most)
        self._size += len(data)
        self._chunks.append(data)
        return chunk.last

    def joined(self) -> bytes:
        """The whole body."""
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)


def checked_chunk(chunk: Any, before: int, most: int) -> bytes:
    """Return the data of a chunk, which every look at the field would copy.

    Args:
        chunk: with ``data`` and ``last``.
        before: bytes of the body that came before.
        most: bytes that the body may have.

    Raises:
        RuleError: it is short but not the last, or makes the body too long.
    """
    data, last, remedy = chunk.data, chunk.last, "use the same version and program on both sides"
    size = len(data)
    if size > CHUNK or (size < CHUNK and not last):
        raise RuleError(f"a chunk must have {CHUNK} bytes, the last one fewer", got=f"{size} bytes", remedy=remedy)
    if before + size > most:
        rule = f"a message must have at most {most} bytes here"
        raise RuleError(rule, got=f"{before + size} bytes{'' if last else ' and more'}", remedy=remedy)
    return data
