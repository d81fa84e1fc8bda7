"""The connection to Redis: it fails fast, says so once, and goes on by itself.

Whatever comes back is checked like a client's message: a script's reply has the form that its reader knows, or nothing
begins with it.
"""

import re
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from privcirnet.errors import RuleError
from privcirnet.service.address import is_loopback
from privcirnet.service.refusals import SharedStateUnavailableError

SCHEMES = ("redis", "rediss")
_TIMEOUT_S = 1.0
"""Seconds for a connection, and for an answer."""
_PAUSE_S = 2.0
"""Seconds between two looks, by a thread of their own, at a Redis that is out of reach; nobody waits meanwhile."""
_FORM = "1"
"""Version of the format in Redis."""


_UNREADABLE = (ValueError, TypeError, AttributeError)
"""Exceptions that a reader raises for a malformed reply."""


class Script(NamedTuple):
    """A script of Redis, which runs whole or not at all.

    Attributes:
        text: source in Lua; the common functions are before it.
        read: function that parses a reply; raises one of ``_UNREADABLE`` if it is malformed.
    """

    text: str
    read: Callable[[Any], Any]


DAY_MS = 86_400_000
_PLACE = re.compile(r"[\w.-]+(:\d+)?(/\d*)?|\[[0-9a-f:]+\](:\d+)?(/\d*)?")
"""Pattern of HOST:PORT/DB. More than that is left of a password with a slash."""
_COMMON = """
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
if not redis.call('GET', KEYS[#KEYS]) then return redis.error_reply('FORGOTTEN') end
local given, KEYS = KEYS, {}
for i = 1, #given - 1 do KEYS[i] = given[i] end
"""
"""Before each script: Redis's own clock, in milliseconds since 1970, whatever those of the replicas say.

The last key is there for as long as Redis has forgotten nothing: FLUSHALL would give clients their images again.
"""
_FORGOTTEN = "it has forgotten everything, as after FLUSHALL; restore it, or start a server anew to count from zero"


def is_url(state: str) -> bool:
    """Return whether ``state=`` names a Redis, not a folder."""
    return urlsplit(state).scheme in SCHEMES


def shown(url: str) -> str:
    """Return a URL for printing: without user and password.

    >>> shown("rediss://user:secret@example.org:6380/1?ssl_ca_certs=ca.crt")
    'rediss://example.org:6380/1'
    >>> shown("redis://:half/secret@example.org/1")
    'redis://'
    """
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2] + parts.path
    return f"{parts.scheme}://" + (place if _PLACE.fullmatch(place) else "")


class RedisConnection:
    """A connection to Redis, for any thread.

    Args:
        url: URL for the ``redis`` package.
        name: name of the service, which all of its keys begin with; replicas of one name share everything.
        note: function called with a line when Redis is out of reach, with the reason, and when it is back.

    Raises:
        RuleError: it is out of reach, would forget what it must keep, or is beyond loopback without TLS and a password.
    """

    def __init__(self, url: str, name: str, note: Callable[[str], object] = lambda line: None) -> None:
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.exceptions import NoPermissionError
            from redis.retry import Retry
        except ImportError:
            rule, remedy = "state in Redis must have the redis package", "pip install 'privcirnet[redis]'"
            raise RuleError(rule, got="none installed", remedy=remedy) from None
        self._shown, self._name, self._note = shown(url), name, note
        self._gone: tuple[type[Exception], ...] = (redis.ConnectionError, redis.TimeoutError, OSError)
        self._errors: tuple[type[Exception], ...] = (redis.RedisError, OSError, *_UNREADABLE)
        self._lock, self._lost, self._ended = threading.Lock(), False, threading.Event()
        self._lasting = True
        self._scripts = dict[Script, Any]()
        patience = {"socket_timeout": _TIMEOUT_S, "socket_connect_timeout": _TIMEOUT_S}
        rule, remedy = "the state that replicas share must be within reach", "start it, or compare state="
        try:
            self._redis: Any = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), protocol=2, **patience)
        except ValueError:  # it would repeat what is wrong, which may be of a password
            raise RuleError(rule, got=self._shown, remedy="write redis://HOST:PORT/DB") from None
        self._check_protected(redis.SSLConnection)
        try:
            self._check(NoPermissionError)
        except self._errors as problem:
            raise RuleError(rule, got=f"{self._shown}: {problem}", remedy=remedy) from None

    def key(self, *parts: str) -> str:
        """Return the name of a key. All keys are in one slot of a cluster."""
        return ":".join((f"{{{self._name}}}", *parts))

    def run(self, script: Script, keys: Sequence[str], *arguments: str | bytes | int) -> Any:
        """Return the parsed reply of a script.

        Args:
            keys: names from :meth:`key`.

        Raises:
            SharedStateUnavailableError: Redis is out of reach, has no room, or gives a malformed answer; the script may
                have run.
        """
        if script not in self._scripts:
            self._scripts[script] = self._redis.register_script(_COMMON + script.text)
        with self._reached():
            return script.read(self._scripts[script](keys=[*keys, self.key("form")], args=arguments))

    def do(self, command: str, *arguments: str | bytes | int) -> Any:
        """Return the reply of one command; ``arguments``: a key first.

        Raises:
            SharedStateUnavailableError: see :meth:`run`.
        """
        with self._reached():
            return self._redis.execute_command(command, *arguments)

    def reachable(self) -> bool:
        """Return whether Redis answers, and has forgotten nothing."""
        try:
            form = self.do("GET", self.key("form"))
        except SharedStateUnavailableError:
            return False
        if form is None:
            self._lose(_FORGOTTEN)
        return form is not None

    def number(self) -> int:
        """Return the next number of a line of the audit log, of all replicas.

        Raises:
            SharedStateUnavailableError: see :meth:`run`.
        """
        return whole(self.do("INCR", self.key("audit")))

    def close(self) -> None:
        """Close all connections."""
        self._ended.set()
        self._redis.close()

    @contextmanager
    def _reached(self) -> Generator[None]:
        if self._lost:
            raise SharedStateUnavailableError(_PAUSE_S)
        try:
            yield
        except self._gone as problem:
            self._lose(problem)
            raise SharedStateUnavailableError(_PAUSE_S) from problem
        except self._errors as problem:
            if str(problem).startswith("FORGOTTEN"):
                self._lose(_FORGOTTEN)
                raise SharedStateUnavailableError(_PAUSE_S) from problem
            self._note(f"{self._shown} does not do as it is told: {problem}")
            raise SharedStateUnavailableError(_PAUSE_S) from problem

    def _lose(self, problem: object) -> None:
        with self._lock:
            was_lost, self._lost = self._lost, True
        if not was_lost:
            self._note(f"{self._shown} is out of reach: {problem}")
            threading.Thread(target=self._find, name="privcirnet redis", daemon=True).start()

    def _find(self) -> None:
        """Try Redis until it takes writes. One that was to keep everything, and has not, is not used."""
        warned = False
        while not self._ended.wait(_PAUSE_S):
            with suppress(*self._errors):
                form = self._redis.get(self.key("form"))
                if not form and self._lasting:
                    if not warned:
                        self._note(f"{self._shown} is of no use: {_FORGOTTEN}")
                    warned = True
                    continue
                self._redis.set(self.key("form"), _FORM)
                self._note(f"{self._shown} is within reach again" + ("" if form else ", and has forgotten everything"))
                self._lost = False
                return

    def _check_protected(self, encrypted: type) -> None:
        """Raise unless traffic to Redis is encrypted and its access authenticated."""
        pool = self._redis.connection_pool
        options: dict[str, Any] = pool.connection_kwargs
        if is_loopback(options.get("host", "localhost")):
            return
        plain = not issubclass(pool.connection_class, encrypted) or options.get("ssl_cert_reqs") == "none"
        credential = options.get("password") or options.get("ssl_certfile")
        if plain or not credential:
            lacks = " and ".join(["TLS"] * plain + ["a password"] * (not credential))
            rule = "Redis beyond loopback must be reached by TLS and with a password"
            remedy = "write rediss://:PASSWORD@HOST:PORT/DB (docs/operations.md)"
            raise RuleError(rule, got=f"{self._shown} without {lacks}", remedy=remedy)

    def _check(self, forbidden: type[Exception]) -> None:
        """Raise unless Redis keeps all writes; note those that it would lose in a power cut."""
        if not self._redis.set(self.key("form"), _FORM, nx=True):
            form = self._redis.get(self.key("form"))
            if form != _FORM.encode():
                rule, remedy = "replicas that share state must be of one release", "use another DB in state="
                raise RuleError(rule, got=f"{self._shown}: form {form!r:.20}", remedy=remedy)
        try:
            about = self._redis.info()
            fsync = self._redis.config_get("appendfsync").get("appendfsync")
        except forbidden as problem:
            self._note(f"{self._shown} does not say whether it keeps what it is told: {problem}")
            return
        policy = about.get("maxmemory_policy")
        if policy != "noeviction":
            rule, remedy = "Redis must keep what it is told", "set maxmemory-policy noeviction"
            raise RuleError(rule, got=f"{self._shown}: maxmemory-policy {policy}", remedy=remedy)
        self._lasting = bool(about.get("aof_enabled"))
        if not self._lasting:
            self._note(f"{self._shown} has appendonly off: when it ends, counts are lost")
        elif fsync not in ("always", b"always"):
            self._note(f"{self._shown} has another appendfsync than always: a power cut may lose the last counts")


def whole(value: Any, limit: int = 1 << 53) -> int:
    """Return a number of a reply.

    Raises:
        ValueError: it is none, or not in [-1, limit].
    """
    number = int(value)
    if not -1 <= number <= limit:
        raise ValueError(f"a number of {number}")
    return number
