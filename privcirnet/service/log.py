"""The logs of a service: events for its operator, and an audit log of clients' actions.

A line has facts about a connection, never a secret: no key, no token, no share, nothing of an image. Lines of one kind
about one client are limited in number, and what is left out is counted; the audit log is complete: what cannot be
written there is not answered either.
"""

import errno
import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from privcirnet.service.refusals import SharedStateUnavailableError, Unwritten

Write = Callable[[str], object]
"""Function that takes one line."""

FORMS = ("text", "json")
_ENDS = {"session closed", "prepared", "image"}
"""Lines about the end of work whose start has a numbered line: written without a number if there is none."""
_LINES, _SECONDS = 20, 60.0
"""Most lines of one kind about one client, and the seconds in which they are counted."""
_KINDS = 1 << 12
"""Most kinds and clients that are remembered; beyond it they are forgotten all at once."""


class Log:
    """The events and the audit log of a service.

    Args:
        form: format: "json", or "text" for a terminal.
        audit: function that takes the audit log's lines, JSON, or raises OSError; None for no such log.
        clock: clock in seconds.
        number: function that numbers the next line of the audit log, which replicas count together, or raises
            :class:`service.refusals.SharedStateUnavailableError`; None for no numbers.
    """

    def __init__(
        self,
        write: Write = lambda line: None,
        form: str = "text",
        audit: Write | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        number: Callable[[], int] | None = None,
    ) -> None:
        self._write, self._form, self._audit, self._clock, self._number = write, form, audit, clock, number
        self._seen: dict[tuple[str, object], tuple[float, int]] = {}

    def event(self, what: str, **facts: object) -> None:
        """Write an event, unless there were too many like it.

        Args:
            facts: facts about it; ``client`` is the client that it concerns.
        """
        left_out = self._left_out(what, facts.get("client"))
        if left_out is not None:
            self._write(self._line(what, facts | ({"left_out": left_out} if left_out else {})))

    def record(self, what: str, client: str, **facts: object) -> None:
        """Write a line of the audit log alone.

        Raises:
            Unwritten: it cannot be written; the client must get no answer.
            SharedStateUnavailableError: it would have no number.
        """
        if self._audit is not None:
            try:
                self._audit(_json(what, {**self._numbered(what), "client": client, **facts}))
            except OSError as problem:
                raise Unwritten(f"the audit log cannot be written: {problem}") from problem

    def audit(self, what: str, client: str, **facts: object) -> None:
        """Write a line of the audit log, and an event.

        Raises:
            Unwritten: see :meth:`record`.
            SharedStateUnavailableError: see :meth:`record`.
        """
        self.record(what, client, **facts)
        self.event(what, client=client, **facts)

    def _numbered(self, what: str) -> dict[str, object]:
        if self._number is None:
            return {}
        try:
            return {"number": self._number()}
        except SharedStateUnavailableError:
            if what in _ENDS:
                return {"number": None}
            raise

    def _left_out(self, what: str, client: object) -> int | None:
        """Return the number of lines like this one that were left out before it; None to leave it out as well."""
        now, key = self._clock(), (what, client)
        if len(self._seen) > _KINDS:
            self._seen.clear()
        began, count = self._seen.get(key, (now, 0))
        fresh = now - began >= _SECONDS
        left_out = max(count - _LINES, 0) if fresh else 0
        began, count = (now, 0) if fresh else (began, count)
        self._seen[key] = began, count + 1
        return left_out if count < _LINES else None

    def _line(self, what: str, facts: dict[str, object]) -> str:
        if self._form == "json":
            return _json(what, facts)
        texts = (f"{name}={json.dumps(value, default=str)}" for name, value in facts.items() if value not in (None, ""))
        return " ".join([datetime.now().strftime("%H:%M:%S"), what, *texts])


def appending(path: Path) -> Write:
    """Return a function that appends lines to a file, its owner's alone, which may be rotated meanwhile.

    A line that the disk took in part ends where it was cut; the next one is whole again.
    """
    path.touch(0o600)
    path.chmod(0o600)

    def append(line: str) -> None:
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(file).st_size
            cut = size > 0 and os.pread(file, 1, size - 1) != b"\n"
            data = b"\n" * cut + line.encode() + b"\n"
            if os.write(file, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            os.fsync(file)
        finally:
            os.close(file)

    return append


def _json(what: str, facts: dict[str, object]) -> str:
    return json.dumps(
        {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": what, **facts}, default=str
    )
