"""Correlated randomness: one party's half of the work that was done offline for one image, and its bytes.

Format, little-endian: magic "PCM2", a byte that says whose it is and three zeros, 16 bytes of serial number, the digest
of the program (32 bytes) and the owner (32 bytes); then all values that the party keeps, in the order of the program, 8
bytes each: the user waits while they are read, and words need no reading. The program alone says how many there are.
The store checks that bytes are those that were written (:mod:`protocol.offline.store_files`).
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.program import manifest
from privcirnet.he.program.program import Program
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.offline.store_files import DIGEST_BYTES, MAX_HELD, SERIAL_BYTES, UnusablePreparationError
from privcirnet.he.protocol.rounds.exchange import PLANES, SHARE, Correlation
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.sampling import wipe
from privcirnet.he.system import threads

_MAGIC, _SIDES = b"PCM2", {"client": b"c\0\0\0", "server": b"s\0\0\0"}
_COUNT = struct.Struct("<H")
_HEADER_BYTES = len(_MAGIC) + 4 + SERIAL_BYTES + 2 * DIGEST_BYTES
"""Bytes of the header, a multiple of 8: words follow it."""
_WORD = np.dtype("<u8")
_AT_ONCE = 1 << 18
"""Number of values that a thread checks at a time."""


@dataclass
class CorrelatedRandomness:
    """The correlated randomness of one party for one image.

    Attributes:
        serial: serial number, the same on both sides.
        kept: arrays by node, see :mod:`protocol.rounds.exchange`; for the client's input node, its image share.
    """

    serial: bytes
    kept: Mapping[str, Correlation]
    _spent: set[str] = field(default_factory=set[str], repr=False)

    def spend(self, node: str, but: str = "") -> None:
        """Overwrite a node's arrays with zeros while a cache still has them: they were used."""
        wipe(values for name, values in self.kept[node].items() if name != but)
        self._spent.add(node)

    def wipe(self, but: str = "") -> None:
        """Overwrite the arrays that were not spent with zeros."""
        for node in self.kept.keys() - self._spent:
            self.spend(node, but)


@dataclass(frozen=True)
class CorrelationFormat:
    """The format of one party's prepared work, and its binding.

    Attributes:
        side: "client" or "server".
        program: the party's program; the server's has weights, which its digest covers.
        owner: 32 bytes that stand for the client that the correlated randomness is shared with.
    """

    side: str
    program: Program
    owner: bytes = field(repr=False)

    @cached_property
    def sizes(self) -> dict[str, Mapping[str, int]]:
        """The number of values that are kept, by node and name."""
        online = {name: exchange.online for name, exchange in schedule_of(self.program).exchanges.items()}
        if self.side == "server":
            return {name: part.server_keeps for name, part in online.items()}
        source = self.program.nodes[0]
        return {
            source.name: {SHARE: int(np.prod(source.shape))},
            **{n: part.client_keeps for n, part in online.items()},
        }

    @cached_property
    def values(self) -> int:
        """The number of values that are kept."""
        return sum(sum(names.values()) for names in self.sizes.values())

    @property
    def length(self) -> int:
        """Bytes of :meth:`write`'s result."""
        return _HEADER_BYTES + _WORD.itemsize * self.values

    def write(self, correlated: CorrelatedRandomness) -> bytearray:
        """Return prepared work as bytes."""
        arrays = [correlated.kept[node][name] for node, names in self.sizes.items() for name in names]
        data = bytearray(self.length)
        data[:_HEADER_BYTES] = self._header(correlated.serial)
        np.concatenate(arrays, out=np.frombuffer(data, _WORD, offset=_HEADER_BYTES))
        return data

    def read(self, serial: bytes, data: bytes | bytearray) -> CorrelatedRandomness:
        """Return the prepared work of :meth:`write`.

        Args:
            data: bytes from a store. The arrays of the result are views of them where they can be written.
        """
        if len(data) != self.length:
            raise _unfit("have the program's length", f"{len(data)} bytes where {self.length} are due")
        if data[:_HEADER_BYTES] != self._header(serial):
            raise _unfit("be of this program, client, party and number", "prepared work of another")
        writable = data if isinstance(data, bytearray) else bytearray(data)
        flat = np.frombuffer(writable, _WORD, offset=_HEADER_BYTES)
        correlations, start, residues = dict[str, Correlation](), 0, list[Residues]()
        for node, names in self.sizes.items():
            arrays = dict[str, Residues]()
            for name, size in names.items():
                arrays[name], start = flat[start : start + size], start + size
                if name != PLANES:
                    residues += [arrays[name][part.start : part.stop] for part in threads.ranges(size, _AT_ONCE)]
            correlations[node] = arrays
        largest = threads.each(lambda part: part.max(), residues)
        if max(largest, default=0) >= self.program.parameters.plain_modulus:
            raise _unfit("hold residues", "a value that is none")
        return CorrelatedRandomness(serial, correlations)

    def _header(self, serial: bytes) -> bytes:
        return _MAGIC + _SIDES[self.side] + serial + self.digest + self.owner

    @cached_property
    def digest(self) -> bytes:
        """The digest of the program's description, and of its weights where it has some."""
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        digest.update(json.dumps(manifest.to_dict(self.program), sort_keys=True).encode())
        for name, weights in sorted(self.program.weights.items()):
            digest.update(name.encode() + weights.rows.astype("<i8").tobytes() + weights.bias.astype("<i8").tobytes())
        return digest.digest()


def join(serials: list[bytes]) -> bytes:
    """Return serial numbers as one part of a message; ``serials``: at most :data:`MAX_HELD`."""
    return b"".join(serials)


def split(part: bytes) -> list[bytes]:
    """Return the serial numbers of a part of a message."""
    if len(part) % SERIAL_BYTES or len(part) > MAX_HELD * SERIAL_BYTES:
        rule = f"serial numbers must have {SERIAL_BYTES} bytes each, and be at most {MAX_HELD}"
        raise RuleError(rule, got=f"{len(part)} bytes", remedy="use the same version on both sides")
    return [part[start : start + SERIAL_BYTES] for start in range(0, len(part), SERIAL_BYTES)]


def write_count(count: int) -> bytes:
    """Return the number of images to prepare at once, as a part of a message."""
    return _COUNT.pack(count)


def read_count(message: bytes, limit: int) -> int:
    """Return the number of images that a client asks to prepare at once; ``limit``: the most it may ask for."""
    (part,) = wire.unframe(message, wire.PREPARE, 1)
    count = _COUNT.unpack(part)[0] if len(part) == _COUNT.size else 0
    if not 1 <= count <= limit:
        rule = f"a client must ask for 1 to {limit} preparations at once"
        raise RuleError(rule, got=f"{part[: _COUNT.size].hex()} in {len(part)} bytes", remedy="use the same version")
    return count


def _unfit(rule: str, got: object) -> UnusablePreparationError:
    return UnusablePreparationError(f"prepared work must {rule}", got=got, remedy="it is dropped; prepare again")
