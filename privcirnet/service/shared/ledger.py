"""The ledger and the inventory of all replicas: counts of images, places of sessions, prepared work.

Who takes prepared work out of Redis has it, once and for all.
"""

import hashlib
import math
import secrets
import threading
from contextlib import suppress
from typing import Any

from privcirnet.he.protocol.offline.store import Item, Room
from privcirnet.he.protocol.offline.store_files import Label
from privcirnet.service.refusals import SharedStateUnavailableError
from privcirnet.service.shared.link import DAY_MS, RedisConnection, Script, whole

_LEASE_S = 15.0
"""Seconds after which the sessions of a dead replica are free; a live one renews three times as often."""

_BEGIN = Script(
    """
local count, most, hourly = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local minute = math.floor(now / 60000)
local since, total, recent, old, first, past = minute - 60, 0, 0, 0, minute, {}
local rows = redis.call('HGETALL', KEYS[1])
for i = 1, #rows, 2 do
  local at, n = tonumber(rows[i]), tonumber(rows[i + 1])
  total = total + n
  if at > since then
    recent, first = recent + n, math.min(first, at)
  elseif at > 0 then
    old = old + n
    table.insert(past, rows[i])
  end
end
if most > 0 and total + count > most then return -1 end
if hourly > 0 and recent + count > hourly then
  return math.max((first - since) * 60 - math.floor(now / 1000) % 60, 1)
end
redis.call('HINCRBY', KEYS[1], tostring(minute), count)
if old > 0 then
  redis.call('HINCRBY', KEYS[1], '0', old)
  redis.call('HDEL', KEYS[1], unpack(past))
end
return 0
""",
    whole,
)
"""Count images of a client by minute; row 0 has those that no hour needs any more."""

_ENTER = Script(
    """
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[3]), ARGV[1])
redis.call('PEXPIRE', KEYS[1], 2 * tonumber(ARGV[3]))
return 1
""",
    whole,
)
_RENEW = Script(
    """
for i, key in ipairs(KEYS) do
  redis.call('ZADD', key, now + tonumber(ARGV[1]), ARGV[i + 1])
  redis.call('PEXPIRE', key, 2 * tonumber(ARGV[1]))
end
return 0
""",
    whole,
)


class SharedLedger:
    """A ledger of all replicas of a service. The count is Redis's, and so is the clock.

    A session's place is a lease, renewed while the session lives: those of a replica that died come free by themselves,
    and those of one that lives are there again when Redis is.
    """

    def __init__(self, link: RedisConnection) -> None:
        self._link, self._places = link, dict[bytes, str]()
        self._ended = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="privcirnet leases", daemon=True)
        self._renewing.start()

    def begin(self, client: str, count: int, limit: int, hour_limit: int) -> float:
        seconds = self._link.run(_BEGIN, [self._key("images", client)], count, limit, hour_limit)
        return math.inf if seconds < 0 else float(seconds)

    def enter(self, client: str, limit: int) -> bytes | None:
        place, key = secrets.token_bytes(16), self._key("sessions", client)
        if self._link.run(_ENTER, [key], place, limit, _milliseconds()) != 1:
            return None
        self._places[place] = key
        return place

    def leave(self, client: str, place: bytes) -> None:
        key = self._places.pop(place)
        with suppress(SharedStateUnavailableError):  # the lease ends by itself
            self._link.do("ZREM", key, place)

    def reachable(self) -> bool:
        return self._link.reachable()

    def close(self) -> None:
        self._ended.set()
        self._renewing.join()

    def _renew(self) -> None:
        while not self._ended.wait(_LEASE_S / 3):
            places = self._places.copy()
            if places:
                with suppress(SharedStateUnavailableError):
                    self._link.run(_RENEW, [*places.values()], _milliseconds(), *places)
                    for place in places.keys() - self._places.keys():  # it left meanwhile
                        self._link.do("ZREM", places[place], place)

    def _key(self, what: str, client: str) -> str:
        return self._link.key(what, hashlib.sha256(client.encode()).hexdigest()[:32])


def _milliseconds() -> int:
    return round(1000 * _LEASE_S)


_FOLDER = "folder"


def _read_added(reply: Any) -> tuple[bool, bool, int, int]:
    """Return (whether it was added, whether it existed, bytes here, inferences of the peer)."""
    added, existed, used, count = map(whole, reply)
    return added == 1, existed == 1, used, count


def _read_items(reply: Any) -> dict[Label, tuple[int, int, str]]:
    """Return (size, time in microseconds, place) by label."""
    items: dict[Label, tuple[int, int, str]] = {}
    for label, value in zip(reply[::2], reply[1::2], strict=True):
        size, since, place = value.split(b" ")
        items[Label.read(label)] = whole(size), whole(since), place.decode("ascii")
    return items


def _read_labels(reply: Any) -> list[Label]:
    return [Label.read(label) for label in reply]


_ADD = Script(
    """
local size, limit, most, lasts = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[6])
local known, count = redis.call('HEXISTS', KEYS[1], ARGV[1]), redis.call('HLEN', KEYS[1])
local used = tonumber(redis.call('GET', KEYS[3]) or '0')
if known == 1 or (limit >= 0 and used + size > limit) or (most >= 0 and count >= most) then
  return {0, known, used, count}
end
local exactly = tonumber(time[1]) * 1000000 + tonumber(time[2])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. string.format('%.0f', exactly) .. ' ' .. ARGV[5])
redis.call('ZADD', KEYS[2], now, ARGV[1])
redis.call('INCRBY', KEYS[3], size)
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, lasts) end
return {1, known, used, count}
""",
    _read_added,
)
"""An entry is in the table of its peer, and in the list of its place by age, whose bytes are counted."""

_CLAIM = Script(
    """
local value = redis.call('HGET', KEYS[1], ARGV[1])
if not value then return 0 end
local size, place = string.match(value, '^(%d+) %d+ (%w+)$')
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2] .. place, ARGV[1])
redis.call('DECRBY', KEYS[3] .. place, size)
return 1
""",
    whole,
)

_OF = Script("return redis.call('HGETALL', KEYS[1])", _read_items)

_HERE = Script("return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[1]))", _read_labels)

_SIZE = Script("return tonumber(redis.call('GET', KEYS[1]) or '0')", whole)


class SharedInventory:
    """The inventory of all replicas of a service.

    Args:
        folder: whether the bodies are in a folder that all replicas share; else they are in this one's memory.
        days: days for which an entry is kept at least, if nobody takes it.
    """

    def __init__(self, link: RedisConnection, folder: bool, days: float) -> None:
        self._link, self._place = link, _FOLDER if folder else secrets.token_hex(16)
        self._lasts = round((days + 1) * DAY_MS)
        self._ages, self._bytes = self._aged(self._place), self._counted(self._place)

    @property
    def size(self) -> int:
        return self._link.run(_SIZE, [self._bytes])

    def add(self, label: Label, size: int, room: Room) -> None:
        keys = [self._of(label.peer), self._ages, self._bytes]
        limits = [-1 if limit is None else limit for limit in (room.limit, room.most)]
        arguments = label.to_bytes(), size, *limits, self._place, self._lasts
        added, *state = self._link.run(_ADD, keys, *arguments)
        if not added:
            room.check(label, size, *state)
            raise SharedStateUnavailableError(0.0)  # it was not added, and nothing is in the way

    def claim(self, label: Label) -> bool:
        keys = [self._of(label.peer), self._aged(""), self._counted("")]
        return self._link.run(_CLAIM, keys, label.to_bytes()) == 1

    def of(self, peer: bytes) -> dict[Label, Item]:
        items = self._link.run(_OF, [self._of(peer)]).items()
        ordered = sorted(items, key=lambda item: item[1][1])
        return {label: Item(size, since / 1e6, place == self._place) for label, (size, since, place) in ordered}

    def here(self, older: float = 0.0) -> list[Label]:
        return self._link.run(_HERE, [self._ages], round(1000 * older))

    def close(self) -> None:
        if self._place != _FOLDER:
            with suppress(SharedStateUnavailableError):  # they are of no use to anybody, and go by themselves
                for label in self.here():
                    self.claim(label)

    def _of(self, peer: bytes) -> str:
        return self._link.key("prepared", "of", peer.hex())

    def _aged(self, place: str) -> str:
        return self._link.key("prepared", "in", place)

    def _counted(self, place: str) -> str:
        return self._link.key("prepared", "bytes", place)
