"""Evaluation keys that any replica can load: their index is in Redis, their bytes there, in a folder or with fsspec.

No store of bytes is trusted: whoever reads a body compares it with its SHA-256. A body has a random name, and none is
used before it is whole and in the index; what a replica leaves that is killed meanwhile is of no use to anybody.
"""

import hashlib
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from privcirnet.errors import RuleError
from privcirnet.he.rlwe.wire_bytes import Message
from privcirnet.he.system.files import private_folder
from privcirnet.service.limits import HANDSHAKE_S
from privcirnet.service.refusals import SharedStateUnavailableError, Unwritten, busy
from privcirnet.service.shared.link import DAY_MS, RedisConnection, Script, whole
from privcirnet.service.store import Registration, StoreLimits, digest, full, mapped, not_registered

_PIECE = 1 << 22
"""Bytes of a body in one string of Redis: short enough to be sent at once."""
_SOON_S = 10.0


class BlobStore(Protocol):
    """A store of bodies by name."""

    def put(self, name: str, file: BinaryIO) -> None:
        """Keep a file's bytes from its present position.

        Raises:
            Unwritten: it cannot be kept.
            SharedStateUnavailableError: the store cannot be reached.
        """
        ...

    def get(self, name: str, size: int) -> Message:
        """Return a body of ``size`` bytes; if it is not whole any more, some of it.

        Raises:
            SharedStateUnavailableError: the store cannot be reached.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove a body, if it is there and can be reached."""
        ...


class RedisBlobs:
    """Bodies in Redis, in pieces.

    Args:
        days: days after which a body goes by itself.
    """

    def __init__(self, link: RedisConnection, days: float) -> None:
        self._link, self._milliseconds = link, round(DAY_MS * (days + 1))

    def put(self, name: str, file: BinaryIO) -> None:
        number = 0
        while piece := file.read(_PIECE):
            self._link.do("SET", self._key(name, number), piece, "PX", self._milliseconds)
            number += 1

    def get(self, name: str, size: int) -> Message:
        body = bytearray()
        for number in range(-(-size // _PIECE)):
            body += self._link.do("GETRANGE", self._key(name, number), 0, _PIECE)
        return body

    def remove(self, name: str) -> None:
        with suppress(SharedStateUnavailableError):
            number = 0
            while self._link.do("DEL", self._key(name, number)):
                number += 1

    def _key(self, name: str, number: int) -> str:
        return self._link.key("body", name, str(number))


class InFolder:
    """Bodies in a folder that all replicas share."""

    def __init__(self, folder: Path) -> None:
        private_folder(folder)
        self._folder = folder

    def put(self, name: str, file: BinaryIO) -> None:
        path = self._folder / name
        with _writing(self._folder):
            try:
                with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as body:
                    shutil.copyfileobj(file, body)
                    body.flush()
                    os.fsync(body.fileno())
            except OSError:
                path.unlink(missing_ok=True)
                raise

    def get(self, name: str, size: int) -> Message:
        try:
            return mapped(self._folder / name)
        except FileNotFoundError:
            return b""
        except OSError as problem:
            raise SharedStateUnavailableError(_SOON_S) from problem

    def remove(self, name: str) -> None:
        with suppress(OSError):
            (self._folder / name).unlink()


class InObjectStore:
    """Bodies wherever fsspec reaches, such as ``s3://bucket/keys``.

    Args:
        url: URL of fsspec; its library finds the credentials.
    """

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs

            self._files, self._root = url_to_fs(url)
        except (ImportError, ValueError) as problem:
            rule, remedy = "keys.folder= must be a folder, or a URL of fsspec", "pip install 'privcirnet[s3]' for s3://"
            raise RuleError(rule, got=problem, remedy=remedy) from None

    def put(self, name: str, file: BinaryIO) -> None:
        with _writing(self._root), self._files.open(self._path(name), "wb") as body:
            shutil.copyfileobj(file, body)

    def get(self, name: str, size: int) -> Message:
        try:
            with self._files.open(self._path(name), "rb") as body:
                return body.read(size + 1)
        except FileNotFoundError:
            return b""
        except Exception as problem:  # each file system has its own
            raise SharedStateUnavailableError(_SOON_S) from problem

    def remove(self, name: str) -> None:
        with suppress(Exception):
            self._files.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def bodies_in(folder: str, link: RedisConnection, days: float) -> BlobStore:
    """Return the store of keys' bodies, once one could be written and removed there.

    Args:
        folder: path, URL of fsspec, or "" for Redis.
        days: days after which a body goes by itself, where it can.

    Raises:
        RuleError: nothing can be written there.
    """
    if not folder:
        return RedisBlobs(link, days)
    blobs = InObjectStore(folder) if "://" in folder else InFolder(Path(folder))
    name = f"probe-{os.urandom(8).hex()}"
    try:
        with open(os.devnull, "rb") as nothing:
            blobs.put(name, nothing)
    except Unwritten as problem:
        raise RuleError("keys.folder= must be written to", got=problem, remedy="compare keys.folder=") from None
    blobs.remove(name)
    return blobs


@contextmanager
def _writing(place: Path | str) -> Generator[None]:
    try:
        yield
    except Exception as problem:  # each file system has its own
        raise Unwritten(f"keys cannot be kept in {place}: {problem}") from problem


_NAME = re.compile(rb"[0-9a-f]{32}")
_DRAFT_S = 600.0
"""Seconds for which room is held for stalled keys: those of a replica that died."""


class _Found(NamedTuple):
    registered: int
    size: int
    body: str


def _read_found(reply: Any) -> tuple[int, _Found | None]:
    """Return Redis's time in ms, and the index's entry of some keys."""
    now, value = reply
    return whole(now), _Found(*_split(value)) if value else None


def _read_room(reply: Any) -> tuple[int, list[str]]:
    """Return the seconds until there is room (0: now, -1: too many on their way) and bodies that left the index."""
    seconds, gone = reply
    return whole(seconds), [_name(body) for body in gone]


def _split(value: bytes) -> tuple[int, int, str]:
    registered, size, body = value.split(b" ")
    return whole(registered), whole(size), _name(body)


def _name(body: bytes) -> str:
    """Return a body's name, which becomes a file's: nothing else may come from Redis."""
    if not _NAME.fullmatch(body):
        raise ValueError("a body's name")
    return body.decode("ascii")


_FIND = Script("return {now, redis.call('HGET', KEYS[1], ARGV[1]) or ''}", _read_found)

_ROOM = Script(
    """
local owner, size, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local limit, days = tonumber(ARGV[4]), tonumber(ARGV[5])
local mine, gone, total, first, coming = {}, {}, 0, nil, 0
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
for _, draft in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  total = total + tonumber(string.match(draft, ' (%d+)$'))
  if string.sub(draft, 1, #owner) == owner then coming = coming + 1 end
end
if coming >= most then return {-1, gone} end
local function drop(field, body)
  redis.call('HDEL', KEYS[1], field)
  table.insert(gone, body)
end
local rows = redis.call('HGETALL', KEYS[1])
for i = 1, #rows, 2 do
  local at, bytes, body = string.match(rows[i + 1], '^(%d+) (%d+) (%x+)$')
  at, bytes = tonumber(at), tonumber(bytes)
  if at <= now - days then
    drop(rows[i], body)
  else
    total = total + bytes
    if string.sub(rows[i], 1, #owner) == owner then
      table.insert(mine, {at, rows[i], body, bytes})
    else
      first = math.min(first or at, at)
    end
  end
end
table.sort(mine, function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end)
for i, one in ipairs(mine) do
  if i <= #mine + coming + 1 - most then
    drop(one[2], one[3])
    total = total - one[4]
  else
    first = math.min(first or one[1], one[1])
  end
end
if total + size > limit then
  return {first and math.max(math.ceil((first + days - now) / 1000), 1) or 60, gone}
end
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[7]), ARGV[6])
return {0, gone}
""",
    _read_room,
)
"""Hold room for keys on their way; the client's oldest, and all that have expired, go."""

_STAY = Script("return redis.call('ZADD', KEYS[2], 'XX', now + tonumber(ARGV[2]), ARGV[1])", whole)

_KEEP = Script(
    """
local before = redis.call('HGET', KEYS[1], ARGV[1])
local at = string.format('%.0f', math.max(now, tonumber(redis.call('GET', KEYS[3]) or 0) + 1))
redis.call('SET', KEYS[3], at)
redis.call('HSET', KEYS[1], ARGV[1], at .. ' ' .. ARGV[2] .. ' ' .. ARGV[3])
redis.call('ZREM', KEYS[2], ARGV[4])
return {0, {before and string.match(before, '%x+$') or nil}}
""",
    _read_room,
)
"""Register keys; their times differ, so that of two of one millisecond, too, one is the older."""

_FORGET = Script(
    """
local before = redis.call('HGET', KEYS[1], ARGV[1])
local body = before and string.match(before, '%x+$')
if not body or (ARGV[2] ~= '' and ARGV[2] ~= body) then return {0, {}} end
redis.call('HDEL', KEYS[1], ARGV[1])
return {0, {body}}
""",
    _read_room,
)

_SIZE = Script(
    """
local total = 0
for _, value in ipairs(redis.call('HVALS', KEYS[1])) do
  total = total + tonumber(string.match(value, '^%d+ (%d+) '))
end
for _, draft in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], now, '+inf')) do
  total = total + tonumber(string.match(draft, ' (%d+)$'))
end
return total
""",
    whole,
)


class SharedKeys:
    """The keys of all clients of all replicas."""

    def __init__(self, limits: StoreLimits, link: RedisConnection) -> None:
        self._limits, self._link = limits, link
        self._bodies: BlobStore = bodies_in(limits.folder, link, limits.days)
        self._keys = [link.key("keys"), link.key("keys", "drafts"), link.key("keys", "last")]
        self._removing = ThreadPoolExecutor(1, thread_name_prefix="privcirnet keys")

    @property
    def size(self) -> int:
        return self._link.run(_SIZE, self._keys)

    def seconds_left(self, client: str, key_id: bytes) -> float:
        now, entry = self._find(client, key_id)
        return max((entry.registered + self._days - now) / 1000, 0.0) if entry else 0.0

    def load(self, client: str, key_id: bytes) -> Message:
        now, entry = self._find(client, key_id)
        if entry and entry.registered + self._days > now:
            body = self._bodies.get(entry.body, entry.size)
            if hashlib.sha256(body).digest() == key_id:
                return body
            self._forget(client, key_id, entry.body)
        raise not_registered(key_id)

    def receive(self, client: str, key_id: bytes, size: int, max_keys: int) -> Registration:
        owner, limit, body = digest(client), self._limits.bytes, secrets.token_hex(16)
        draft, lasts = f"{owner} {body} {size}", round(1000 * _DRAFT_S)
        seconds, gone = self._link.run(_ROOM, self._keys, owner, size, max_keys, limit, self._days, draft, lasts)
        self._remove(gone)
        if seconds < 0:
            raise busy(f"a client registers at most {max_keys} sets of keys at once", "one more", HANDSHAKE_S)
        if seconds:
            raise full(limit, size, seconds)
        return _Draft(self, _field(client, key_id), key_id, size, draft)

    def forget(self, client: str, key_id: bytes) -> None:
        self._forget(client, key_id, "")

    def close(self) -> None:
        self._removing.shutdown()

    @property
    def _days(self) -> int:
        """The milliseconds for which keys are kept."""
        return round(self._limits.days * DAY_MS)

    def _find(self, client: str, key_id: bytes) -> tuple[int, _Found | None]:
        return self._link.run(_FIND, self._keys, _field(client, key_id))

    def _forget(self, client: str, key_id: bytes, body: str) -> None:
        """Forget a client's keys if ``body`` is still theirs."""
        self._remove(self._link.run(_FORGET, self._keys, _field(client, key_id), body)[1])

    def _remove(self, bodies: list[str]) -> None:
        with suppress(RuntimeError):  # closed: what is not in the index is of no use
            for body in bodies:
                self._removing.submit(self._bodies.remove, body)


class _Draft(Registration):
    """Keys that are being received in a file without a name, and then taken to the other bodies."""

    def __init__(self, store: SharedKeys, field: str, key_id: bytes, promised: int, draft: str) -> None:
        super().__init__(key_id, promised)
        self._store, self._field, self._draft, self._body = store, field, draft, draft.split(" ")[1]
        self._file = tempfile.TemporaryFile()
        self._settled = self._kept = self._ended = False
        self._until = time.monotonic() + _DRAFT_S / 10

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        if time.monotonic() > self._until:
            self._stay()

    def _stay(self) -> None:
        """Renew the hold on the room."""
        self._until = time.monotonic() + _DRAFT_S / 10
        with suppress(SharedStateUnavailableError):
            self._store._link.run(_STAY, self._store._keys, self._draft, round(1000 * _DRAFT_S))

    def settle(self) -> None:
        super().settle()
        self._stay()
        self._file.seek(0)
        try:
            self._store._bodies.put(self._body, self._file)
            self._settled = True
        finally:
            if self._ended or not self._settled:  # nobody waits for it, or it is not whole
                self._store._remove([self._body])

    def finish(self) -> None:
        if not self._settled:
            self.settle()
        arguments = self._field, self._size, self._body, self._draft
        _, gone = self._store._link.run(_KEEP, self._store._keys, *arguments)
        self._kept = True
        self._store._remove(gone)

    def cancel(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._file.close()
        if self._kept:
            return
        if self._settled:
            self._store._remove([self._body])
        with suppress(SharedStateUnavailableError):  # its room comes free by itself
            self._store._link.do("ZREM", self._store._keys[1], self._draft)


def _field(client: str, key_id: bytes) -> str:
    return f"{digest(client)}.{key_id.hex()}"
