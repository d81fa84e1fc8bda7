"""The ledger of all replicas: counts of images and places of sessions."""

import hashlib
import math
import secrets
import threading
from contextlib import suppress

from privcirnet.service.refusals import SharedStateUnavailableError
from privcirnet.service.shared.link import RedisConnection, Script, whole

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
