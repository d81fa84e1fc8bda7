"""The quotas of clients: sessions, images an hour and in all, keys, preparations. Counts outlive a restart.

An image counts once: when its preparation begins, or when it comes if it needs none (CKKS). By then the count is where
it outlives the server, so nobody gets anything of an image for nothing by giving it up, leaving, or ending the server.
One server counts here, in a file or in memory; replicas count in :mod:`.shared.ledger`.
"""

import math
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from grpc import StatusCode

from privcirnet.errors import RuleError
from privcirnet.service.access import LOCAL
from privcirnet.service.refusals import ServiceError, Unwritten, busy

MINUTE_S, HOUR_S = 60, 3600


class Ledger(Protocol):
    """A ledger of begun images and sessions, of one server or of all replicas of a service. Any thread may ask."""

    def begin(self, client: str, count: int, limit: int, hour_limit: int) -> float:
        """Count images that begin, unless they are too many.

        Args:
            limit: most images that the client may begin in all; 0 for any number.
            hour_limit: most images in any hour; 0 for any number.

        Returns:
            0 if they are counted; else seconds until there is room for some, infinite for never.

        Raises:
            Unwritten: they cannot be counted.
            ServiceError: the shared ledger cannot be reached.
        """
        ...

    def enter(self, client: str, limit: int) -> bytes | None:
        """Take a place for a session of a client, of ``limit`` over all servers.

        Returns:
            The place, None if there is none.
        """
        ...

    def leave(self, client: str, place: bytes) -> None:
        """Give a place back, even if nobody can be told."""
        ...

    def reachable(self) -> bool:
        """Return whether something could be counted now."""
        ...

    def close(self) -> None:
        """End the use."""
        ...


class LocalLedger:
    """A ledger of one server.

    Args:
        file: file for counts of images; None: they are forgotten at the end.
        clock: clock in seconds since 1970.
    """

    def __init__(self, file: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._clock, self._lock = clock, threading.Lock()
        try:
            self._counts = sqlite3.connect(file or ":memory:", isolation_level=None, check_same_thread=False)
            self._counts.execute("PRAGMA journal_mode=WAL")
            self._counts.execute("PRAGMA synchronous=FULL")  # each count is on the disk when it is committed
            self._counts.execute(
                "CREATE TABLE IF NOT EXISTS images"
                " (client TEXT, minute INTEGER, count INTEGER, PRIMARY KEY (client, minute)) WITHOUT ROWID"
            )
        except sqlite3.Error as problem:
            got = f"{file}: {problem}"
            raise RuleError("the counts of images must be a file of its own", got=got, remedy="move it away") from None

    def begin(self, client: str, count: int, limit: int, hour_limit: int) -> float:
        minute = int(self._clock()) // MINUTE_S
        try:
            with self._lock, self._counts:
                self._counts.execute("BEGIN IMMEDIATE")  # another server of the same folder waits
                seconds = self._room(client, count, limit, hour_limit)
                if not seconds:
                    self._add(client, minute, count)
                    self._condense(client, minute - HOUR_S // MINUTE_S)
        except sqlite3.Error as problem:
            raise Unwritten(f"images cannot be counted: {problem}") from problem
        return seconds

    def enter(self, client: str, limit: int) -> bytes | None:
        return b""  # there is no other server, and this one knows its sessions

    def leave(self, client: str, place: bytes) -> None:
        pass

    def reachable(self) -> bool:
        return True  # whether a file can be written is seen when it is

    def close(self) -> None:
        self._counts.close()

    def _room(self, client: str, count: int, limit: int, hour_limit: int) -> float:
        """Return 0 if a client may begin some images more; else the seconds until then."""
        minute = int(self._clock()) // MINUTE_S
        since = minute - HOUR_S // MINUTE_S
        if limit and self._begun(client, 0) + count > limit:
            return math.inf
        if hour_limit and self._begun(client, since + 1) + count > hour_limit:
            oldest = self._first(client, since + 1) or minute
            return (oldest - since) * MINUTE_S - self._clock() % MINUTE_S
        return 0.0

    def _begun(self, client: str, since: int) -> int:
        query = "SELECT COALESCE(SUM(count), 0) FROM images WHERE client = ? AND minute >= ?"
        return self._counts.execute(query, (client, since)).fetchone()[0]

    def _first(self, client: str, since: int) -> int | None:
        query = "SELECT MIN(minute) FROM images WHERE client = ? AND minute >= ?"
        return self._counts.execute(query, (client, since)).fetchone()[0]

    def _add(self, client: str, minute: int, count: int) -> None:
        query = "INSERT INTO images VALUES (?, ?, ?) ON CONFLICT (client, minute) DO UPDATE SET count = count + ?"
        self._counts.execute(query, (client, minute, count, count))

    def _condense(self, client: str, before: int) -> None:
        """Put all minutes that no hour needs any more into the first row, 0."""
        query = "SELECT SUM(count) FROM images WHERE client = ? AND minute BETWEEN 1 AND ?"
        old = self._counts.execute(query, (client, before)).fetchone()[0]
        if old:
            self._counts.execute("DELETE FROM images WHERE client = ? AND minute BETWEEN 1 AND ?", (client, before))
            self._add(client, 0, old)


_SOON_S = 10.0
"""Seconds after which a session may have ended."""


@dataclass
class Quota:
    """The quota of one client.

    Attributes:
        sessions: at once; the server's last one is for others, unless quotas= names the client; 0: none, which shuts a
            client out, also of sessions that it has.
        images_hour: images begun or prepared in any hour; 0: any number.
        images: images begun or prepared in all; 0: any number.
        keys: sets of evaluation keys that are kept; older ones make room for new ones.
        prepared: inferences whose prepared work may lie at the server at once.
    """

    sessions: int = 4
    images_hour: int = 0
    images: int = 0
    keys: int = 8
    prepared: int = 16

    def __post_init__(self) -> None:
        wrong = [f"{name}={value}" for name, value in vars(self).items() if value < (name in ("keys", "prepared"))]
        if wrong:
            rule = "a quota must have sessions, images_hour, images >= 0 and keys, prepared >= 1"
            raise RuleError(rule, got=", ".join(wrong), remedy="use 0 for any number of images")


class Quotas:
    """The quotas of all clients, and what they have used.

    Args:
        default: quota of clients without one of their own; None: :class:`Quota`'s.
        by_client: quotas by a client's name.
        ledger: ledger of their use; None: one in memory, forgotten at the end.
    """

    def __init__(
        self, default: Quota | None = None, by_client: Mapping[str, Quota] | None = None, ledger: Ledger | None = None
    ) -> None:
        self._default, self._own = default or Quota(), dict(by_client or {})
        self._ledger = ledger or LocalLedger()
        self._here = Counter[str]()

    def change(self, default: Quota, by_client: Mapping[str, Quota]) -> None:
        """Set other quotas; sessions and images that have begun stay, and count."""
        self._default, self._own = default, dict(by_client)

    def of(self, client: str) -> Quota:
        """Return a client's quota."""
        return self._own.get(client, self._default)

    def admit(self, client: str) -> None:
        """Raise if a client is shut out, maybe since it came."""
        if not self.of(client).sessions:
            rule, remedy = "a client must have a quota of sessions", "ask whoever runs the server"
            raise ServiceError(rule, got=0, remedy=remedy)

    @contextmanager
    def session(self, client: str, max_sessions: int) -> Generator[None]:
        """Hold a place for a client's session. The last place is for another client, where clients have names."""
        self.admit(client)
        quota, shared = self.of(client).sessions, client != LOCAL and client not in self._own
        places = min(quota, max(max_sessions - 1, 1)) if shared else quota
        if self._here[client] >= places:
            raise busy(f"a client has at most {places} sessions at once", "one more", _SOON_S)
        if self._here.total() >= max_sessions:
            raise busy(f"a server has at most {max_sessions} sessions at once", "one more", _SOON_S)
        place = self._ledger.enter(client, quota)
        if place is None:
            raise busy(f"a client has at most {quota} sessions at once", "one more", _SOON_S)
        self._here[client] += 1
        try:
            yield
        finally:
            self._here[client] -= 1
            if not self._here[client]:
                del self._here[client]
            self._ledger.leave(client, place)

    def room(self, max_sessions: int) -> bool:
        """Return whether a session could begin now, of ``max_sessions``; it may take as long as an answer of Redis."""
        return self._here.total() < max_sessions and self._ledger.reachable()

    def images(self, client: str, count: int = 1) -> None:
        """Count images that begin, or whose preparation does, whether or not they end.

        Raises:
            ServiceError: the client would exceed its quota, or the ledger cannot be reached. No image is begun then.
            Unwritten: they cannot be counted.
        """
        quota, got = self.of(client), "one more" if count == 1 else f"{count} more"
        seconds = self._ledger.begin(client, count, quota.images, quota.images_hour)
        if math.isinf(seconds):
            remedy = "ask whoever runs the server"
            raise ServiceError(f"a client may begin {quota.images} images in all", got=got, remedy=remedy)
        if seconds:
            raise busy(f"a client may begin {quota.images_hour} images an hour", got, seconds)

    def preparation(self, client: str, prepared: int, count: int = 1) -> None:
        """Check that a client may prepare some inferences more."""
        quota = self.of(client).prepared
        if prepared + count > quota:
            rule, remedy = f"a client may have {quota} inferences prepared here", "use them first"
            got = "one more" if count == 1 else f"{prepared} and {count} more"
            raise ServiceError(rule, got=got, remedy=remedy, status=StatusCode.RESOURCE_EXHAUSTED)

    def close(self) -> None:
        """End the use of the ledger."""
        self._ledger.close()
