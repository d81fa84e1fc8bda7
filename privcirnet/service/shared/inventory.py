"""The inventory of prepared work that all replicas share: who takes an entry out of Redis has it, once and for all."""

import secrets
from contextlib import suppress
from typing import Any

from privcirnet.he.protocol.offline.store import Item, Room
from privcirnet.he.protocol.offline.store_files import Label
from privcirnet.service.refusals import SharedStateUnavailableError
from privcirnet.service.shared.link import DAY_MS, RedisConnection, Script, whole

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
