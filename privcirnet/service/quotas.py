"""What each client may ask for: sessions, images an hour and in all, keys, preparations. Counts outlive a restart.

An image counts once: when its preparation begins, or when it comes if it was not prepared. By then the count is on the
disk, so nobody gets anything of an image for nothing by giving it up, leaving, or ending the server.
"""

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from grpc import StatusCode

from privcirnet.errors import RuleError
from privcirnet.service.access import LOCAL
from privcirnet.service.refusals import Refusing, Unwritten, busy

_MINUTE_S, _HOUR_S = 60, 3600
_SOON_S = 10.0
"""Seconds after which a session may have ended."""


@dataclass
class Quota:
    """What one client may ask for.

    Attributes:
        sessions: at once; the server's last one is for others, unless quotas= names the client; 0: none, which shuts a
            client out, also of sessions that it has.
        images_hour: images begun or prepared in any hour; 0: any number.
        images: images begun or prepared in all; 0: any number.
        keys: sets of evaluation keys that are kept; older ones make room for new ones.
        prepared: inferences whose prepared work may lie at the server at once; 0: none.
    """

    sessions: int = 4
    images_hour: int = 0
    images: int = 0
    keys: int = 8
    prepared: int = 16

    def __post_init__(self) -> None:
        wrong = [f"{name}={value}" for name, value in vars(self).items() if value < (name == "keys")]
        if wrong:
            rule = "a quota must have sessions, images_hour, images, prepared >= 0 and keys >= 1"
            raise RuleError(rule, got=", ".join(wrong), remedy="use 0 for any number of images")


class Quotas:
    """The quotas of all clients, and what they have used.

    Args:
        default: of clients without one of their own; None: :class:`Quota`'s.
        own: by a client's name.
        file: for counts of images; None: they are forgotten at the end.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        default: Quota | None = None,
        own: Mapping[str, Quota] | None = None,
        file: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._default, self._own, self._clock = default or Quota(), dict(own or {}), clock
        self._sessions = Counter[str]()
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

    def change(self, default: Quota, own: Mapping[str, Quota]) -> None:
        """Set other quotas; sessions and images that have begun stay, and count."""
        self._default, self._own = default, dict(own)

    def of(self, client: str) -> Quota:
        """Return a client's quota."""
        return self._own.get(client, self._default)

    def admit(self, client: str) -> None:
        """Raise if a client is shut out, maybe since it came."""
        if not self.of(client).sessions:
            rule, remedy = "a client must have a quota of sessions", "ask whoever runs the server"
            raise Refusing(rule, got=0, remedy=remedy)

    @contextmanager
    def session(self, client: str, most: int) -> Generator[None]:
        """Yield once a client's session has a place. The last place is for another client, where clients have names."""
        self.admit(client)
        quota, shared = self.of(client).sessions, client != LOCAL and client not in self._own
        places = min(quota, max(most - 1, 1)) if shared else quota
        if self._sessions[client] >= places:
            raise busy(f"a client has at most {places} sessions at once", "one more", _SOON_S)
        if self._sessions.total() >= most:
            raise busy(f"a server has at most {most} sessions at once", "one more", _SOON_S)
        self._sessions[client] += 1
        try:
            yield
        finally:
            self._sessions[client] -= 1
            if not self._sessions[client]:
                del self._sessions[client]

    def images(self, client: str, count: int = 1) -> None:
        """Count images that begin, or whose preparation does, whether or not they end.

        Raises:
            Refusing: the client would begin more than it may. Nothing is counted then.
            Unwritten: they cannot be counted.
        """
        minute = int(self._clock()) // _MINUTE_S
        try:
            with self._counts:
                self._counts.execute("BEGIN IMMEDIATE")  # another server of the same folder waits
                self._check(client, count, minute)
                self._add(client, minute, count)
                self._condense(client, minute - _HOUR_S // _MINUTE_S)
        except sqlite3.Error as problem:
            raise Unwritten(f"images cannot be counted: {problem}") from problem

    def preparation(self, client: str, held: int, count: int = 1) -> None:
        """Check that a client may prepare some inferences more."""
        quota = self.of(client).prepared
        if held + count > quota:
            rule, remedy = f"a client may have {quota} inferences prepared here", "use them first, or run unprepared"
            got = "one more" if count == 1 else f"{held} and {count} more"
            raise Refusing(rule, got=got, remedy=remedy, status=StatusCode.RESOURCE_EXHAUSTED)

    def close(self) -> None:
        """Close the file."""
        self._counts.close()

    def _check(self, client: str, count: int, minute: int) -> None:
        """Raise unless a client may begin some images more."""
        quota, since = self.of(client), minute - _HOUR_S // _MINUTE_S
        got = "one more" if count == 1 else f"{count} more"
        if quota.images and self._begun(client, 0) + count > quota.images:
            remedy = "ask whoever runs the server"
            raise Refusing(f"a client may begin {quota.images} images in all", got=got, remedy=remedy)
        if quota.images_hour and self._begun(client, since + 1) + count > quota.images_hour:
            oldest = self._first(client, since + 1) or minute
            seconds = (oldest - since) * _MINUTE_S - self._clock() % _MINUTE_S
            raise busy(f"a client may begin {quota.images_hour} images an hour", got, seconds)

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
