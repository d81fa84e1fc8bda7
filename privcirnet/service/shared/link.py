"""The way to Redis: it fails fast, says so once, and goes on by itself.

Whatever comes back is checked like a client's message: a script's reply has the form that its reader knows, or Redis
counts as out of reach.
"""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from privcirnet.errors import RuleError
from privcirnet.service.refusals import Unreachable

SCHEMES = ("redis", "rediss")
_TIMEOUT_S = 1.0
"""Seconds for a connection, and for an answer."""
_PAUSE_S = 2.0
"""Seconds after a failure in which nothing is tried: the loop of the service waits once, not for every call."""
_FORM = "1"
"""Version of what lies in Redis."""


_UNREADABLE = (ValueError, TypeError, AttributeError)
"""What a reader raises of a reply that is none."""


class Script(NamedTuple):
    """What Redis does at once, whole or not at all.

    Attributes:
        text: in Lua; the common functions are before it.
        read: turns what comes back into what it means; raises one of ``_UNREADABLE`` if it is no such.
    """

    text: str
    read: Callable[[Any], Any]


_COMMON = """
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
"""
"""Before each script: Redis's own clock, in milliseconds since 1970, whatever those of the replicas say."""


def is_url(state: str) -> bool:
    """Return whether ``state=`` names a Redis, not a folder."""
    return urlsplit(state).scheme in SCHEMES


def shown(url: str) -> str:
    """Return a URL as it may be printed: without who asks, and with what password.

    >>> shown("rediss://user:secret@example.org:6380/1?ssl_ca_certs=ca.crt")
    'rediss://example.org:6380/1'
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class Link:
    """A connection to Redis, for any thread.

    Args:
        url: as the ``redis`` package reads it.
        name: of the service, which all of its keys begin with; replicas of one name share everything.
        note: is told in a line when Redis is out of reach, why, and when it is there again.

    Raises:
        RuleError: it is out of reach, or would forget what it must keep.
    """

    def __init__(self, url: str, name: str, note: Callable[[str], object] = lambda line: None) -> None:
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError:
            rule, remedy = "state in Redis must have the redis package", "pip install 'privcirnet[redis]'"
            raise RuleError(rule, got="none installed", remedy=remedy) from None
        self._shown, self._name, self._note = shown(url), name, note
        self._errors: tuple[type[Exception], ...] = (redis.RedisError, OSError, *_UNREADABLE)
        self._refused: type[Exception] = redis.ResponseError
        self._lock, self._until, self._lost = threading.Lock(), 0.0, False
        self._scripts = dict[Script, Any]()
        patience = {"socket_timeout": _TIMEOUT_S, "socket_connect_timeout": _TIMEOUT_S}
        try:
            self._redis: Any = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), protocol=2, **patience)
            self._check(self._redis.info())
        except self._errors as problem:
            rule = "the state that replicas share must be within reach"
            raise RuleError(rule, got=f"{self._shown}: {problem}", remedy="start it, or compare state=") from None

    def key(self, *parts: str) -> str:
        """Return the name of a key. All are in one slot of a cluster."""
        return ":".join((f"{{{self._name}}}", *parts))

    def run(self, script: Script, keys: Sequence[str], *given: str | bytes | int) -> Any:
        """Return what a script returns, as its reader reads it.

        Args:
            keys: as :meth:`key` names them.

        Raises:
            Unreachable: Redis is, or it has no room; whether the script ran is not known.
        """
        if script not in self._scripts:
            self._scripts[script] = self._redis.register_script(_COMMON + script.text)
        with self._reached():
            return script.read(self._scripts[script](keys=keys, args=given))

    def do(self, command: str, *given: str | bytes | int) -> Any:
        """Return what one command returns; ``given``: to it, a key first.

        Raises:
            Unreachable: see :meth:`run`.
        """
        with self._reached():
            return self._redis.execute_command(command, *given)

    def number(self) -> int:
        """Return the next number of a line of the audit log, of all replicas.

        Raises:
            Unreachable: see :meth:`run`.
        """
        return whole(self.do("INCR", self.key("audit")))

    def close(self) -> None:
        """Close all connections."""
        self._redis.close()

    @contextmanager
    def _reached(self) -> Generator[None]:
        if time.monotonic() < self._until:
            raise Unreachable(_PAUSE_S)
        try:
            yield
        except self._errors as problem:
            self._until = time.monotonic() + _PAUSE_S
            self._say(True, f"{self._shown} is out of reach: {problem}")
            raise Unreachable(_PAUSE_S) from problem
        if self._lost:
            self._say(False, f"{self._shown} is within reach again")

    def _say(self, lost: bool, line: str) -> None:
        with self._lock:
            changed, self._lost = self._lost != lost, lost
        if changed:
            self._note(line)

    def _check(self, about: dict[str, Any]) -> None:
        """Raise unless Redis keeps all it is told; say what it would lose in a power cut."""
        policy = about.get("maxmemory_policy", "unknown")
        if policy != "noeviction":
            rule, remedy = "Redis must keep what it is told", "set maxmemory-policy noeviction"
            raise RuleError(rule, got=f"{self._shown}: maxmemory-policy {policy}", remedy=remedy)
        found = self._redis.set(self.key("form"), _FORM, nx=True, get=False) or self._redis.get(self.key("form"))
        if found not in (True, _FORM.encode()):
            rule, remedy = (
                "replicas that share state must be of one release",
                "drain the others, or use another state_name=",
            )
            raise RuleError(rule, got=f"{self._shown}: form {found!r:.20}", remedy=remedy)
        if not about.get("aof_enabled"):
            self._note(f"{self._shown} has appendonly off: what is counted may be lost when it ends")
        elif self._fsync() not in ("always", ""):
            self._note(f"{self._shown} has appendfsync {self._fsync()}: a power cut may lose the last counts")

    def _fsync(self) -> str:
        """When Redis writes; "" where one may not ask."""
        try:
            return str(self._redis.config_get("appendfsync").get("appendfsync", b""), "ascii")
        except (self._refused, TypeError):
            return ""


def whole(value: Any, most: int = 1 << 53) -> int:
    """Return a number that came back.

    Raises:
        ValueError: it is none, or not in [-1, most].
    """
    number = int(value)
    if not -1 <= number <= most:
        raise ValueError(f"a number of {number}")
    return number
