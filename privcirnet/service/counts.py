"""Counts of the images that clients begin, and the places of their sessions: of one server, in a file or in memory."""

import math
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from privcirnet.errors import RuleError
from privcirnet.service.refusals import Unwritten

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
