"""The messages and methods of inference.proto, and bodies in chunks.

inference.binpb is protoc's descriptor of inference.proto. Classes are made from it at import, so they fit
whichever release of protobuf is installed; a test compares both files. The bytes of chunks are written and read here:
protobuf would copy each of them twice on either side.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from privcirnet.errors import RuleError

CHUNK = 1 << 20
"""Bytes of every chunk of a body but the last."""
MAX_MESSAGE = CHUNK + 4096
"""Most bytes of a gRPC message: a chunk and its framing."""
TRANSPORT = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.compression_enabled_algorithms_bitset", 1),  # none but identity: a call that names another is refused,
    ("grpc.per_message_decompression", 0),  # and until it is, nothing is inflated: a megabyte could become a thousand
)
"""Options of gRPC on both sides. They hold before either party has said who it is."""
_DATA, _LAST = b"\x0a", b"\x10\x01"
"""Protobuf's bytes before field 1 of bytes, and for field 2 that is true."""
_MORE, _BITS = 0x80, 7


class ChunkMessage(NamedTuple):
    """A message of inference.proto with a chunk alone: fields 1 and 2 of ``Chunk``, ``SessionRequest``, ``KeysUpload``.

    Attributes:
        last: whether it is the last of its body.
    """

    data: bytes
    last: bool

    def packed(self) -> bytes:
        """Return the message's bytes in protobuf."""
        before = _DATA + _varint(len(self.data)) if self.data else b""
        return b"".join((before, self.data, _LAST if self.last else b""))

    @classmethod
    def of(cls, content: bytes) -> "ChunkMessage | None":
        """Parse a chunk; return None if the message is something else, or written in another order.

        Args:
            content: bytes of the message.
        """
        if content[:1] != _DATA:
            return None
        size, start = 0, 1
        for byte in content[1:5]:
            size |= (byte & ~_MORE) << _BITS * (start - 1)
            start += 1
            if not byte & _MORE:
                break
        else:
            return None
        end, rest = start + size, len(content) - start - size
        if rest not in (0, len(_LAST)) or content[end:] not in (b"", _LAST):
            return None
        return cls(content[start:end], rest > 0)


def _varint(number: int) -> bytes:
    """Return protobuf's form of a number: seven bits a byte, the low ones first."""
    octets = bytearray()
    while number >= _MORE:
        octets.append(number & ~_MORE & 0xFF | _MORE)
        number >>= _BITS
    return bytes((*octets, number))


def split(body: bytes) -> Iterator[ChunkMessage]:
    """Yield a body in chunks.

    Args:
        body: bytes of any length; an empty one is one chunk.
    """
    for start in range(0, max(len(body), 1), CHUNK):
        yield ChunkMessage(body[start : start + CHUNK], start + CHUNK >= len(body))


class Body:
    """A body that comes in chunks.

    Args:
        max_bytes: most bytes that it may have.
    """

    def __init__(self, max_bytes: int) -> None:
        self._most, self._chunks, self._size = max_bytes, list[bytes](), 0

    def add(self, chunk: Any) -> bool:
        """Take the next chunk, and return whether the body is whole.

        Raises:
            RuleError: it is short but not the last, or makes the body too long.
        """
        data = checked(chunk, self._size, self._most)
        self._size += len(data)
        self._chunks.append(data)
        return chunk.last

    def joined(self) -> bytes:
        """Return the whole body."""
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)


def checked(chunk: Any, before: int, max_bytes: int) -> bytes:
    """Return the data of a chunk, which every look at a field of protobuf would copy.

    Args:
        before: bytes of the body that came before.
        max_bytes: most bytes that the body may have.
    """
    data, last, remedy = chunk.data, chunk.last, "use the same version and program on both sides"
    size = len(data)
    if size > CHUNK or (size < CHUNK and not last):
        raise RuleError(f"a chunk must have {CHUNK} bytes, the last one fewer", got=f"{size} bytes", remedy=remedy)
    if before + size > max_bytes:
        rule = f"a message must have at most {max_bytes} bytes here"
        raise RuleError(rule, got=f"{before + size} bytes{'' if last else ' and more'}", remedy=remedy)
    return data


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
