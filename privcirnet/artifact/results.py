"""A server's answers for many pictures: JSON lines, one a picture, to which one run after the other adds.

A line is in the file before the next picture is asked for, and on the disk a second later. A run that is killed loses
no answer; an incomplete last line is cut. Parquet is made of the lines at the end.
"""

import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from privcirnet.artifact.summaries import fit
from privcirnet.errors import RuleError
from privcirnet.he.system.files import replacing, room_for

LINES, PARQUET = ".jsonl", ".parquet"
_SYNC_S = 1.0
"""Seconds between two waits for the disk."""
_GROUP = 1 << 14
"""Rows of a Parquet file that are written together."""
_OTHER = "give another results=, or move this one away"


@dataclass(frozen=True)
class Logit:
    """One of the largest logits of a picture; ``name``: name of its class."""

    label: int
    name: str
    value: float


@dataclass(frozen=True)
class PictureResult:
    """The result of one picture.

    Attributes:
        path: absolute path, or one with its protocol.
        version: version of the program.
        label: label of its class; None where it was refused.
        name: name of its class.
        logits: largest logits, in falling order.
        margin: difference of the first and the second; None where there is no second.
        refused: reason for having no class: the picture cannot be read, or the result is not to be used; "" otherwise.
        seconds: time from its encryption to its answer.
        bytes_up: bytes from the client to the server.
        bytes_down: bytes back.
        prepared: whether it had prepared work.
    """

    path: str
    version: str
    label: int | None = None
    name: str | None = None
    logits: list[Logit] = field(default_factory=list[Logit])
    margin: float | None = None
    refused: str = ""
    seconds: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    prepared: bool = False


class Results:
    """A file of results, open for one run.

    Args:
        path: path of JSON lines, or of Parquet, which has its lines beside it.
        source: prefix of all paths.

    Attributes:
        rows: rows that were there.

    Raises:
        RuleError: another run writes it, or the file is damaged, of other pictures, or no result.
    """

    def __init__(self, path: Path, source: str) -> None:
        self.path, self._lines = path, path.with_suffix(LINES)
        if path.suffix == PARQUET and path.exists() and not self._lines.exists():
            raise RuleError("results in Parquet must have their lines beside them", got=path, remedy=_OTHER)
        if path.suffix == PARQUET:
            _parquet()  # a package that is missing is said at the start
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = _opened(self._lines)
        try:
            self.rows = self._read(source)
        except BaseException:
            self._file.close()
            raise
        self._synced = time.monotonic()

    def _read(self, source: str) -> dict[str, PictureResult]:
        """Return the rows of the file by their paths; an incomplete last line of a killed run is cut."""
        rows, end = dict[str, PictureResult](), 0
        lines = self._file.read().splitlines(keepends=True)
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                self._file.truncate(end)
                break
            try:
                row = fit(PictureResult, json.loads(line), "")
            except ValueError as error:
                got = f"line {number} of {self._lines}: {error}"
                raise RuleError("results must be whole lines of JSON, as written", got=got, remedy=_OTHER) from None
            if row.path != source and not row.path.startswith(f"{source.rstrip('/')}/"):
                rule, got = "results must be those of the same images=", f"{row.path}, not of {source}"
                raise RuleError(rule, got=f"{self._lines} with {got}", remedy=_OTHER)
            rows[row.path], end = row, end + len(line)
        self._file.seek(end)
        return rows

    def check_version(self, version: str) -> None:
        """Raise unless all rows are of a program's version."""
        mismatch = next((row.version for row in self.rows.values() if row.version != version), version)
        if mismatch != version:
            got = f"{self._lines} of version {mismatch}, and a program of version {version}"
            raise RuleError("results must be of one version of a program", got=got, remedy=_OTHER)

    def add(self, row: PictureResult) -> None:
        """Write a row, which other processes can read from now on.

        Raises:
            RuleError: the disk is full.
        """
        with room_for(self._lines):
            line = json.dumps(asdict(row)).encode() + b"\n"
            while line:  # a disk that is nearly full takes a part
                line = line[self._file.write(line) :]
            if time.monotonic() - self._synced >= _SYNC_S:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()

    def complete(self) -> None:
        """Make the Parquet file, if the results are to be one."""
        if self.path.suffix != PARQUET:
            return
        arrow, parquet = _parquet()
        schema = _schema(arrow)
        with (
            replacing(self.path) as draft,
            parquet.ParquetWriter(draft, schema) as writer,
            self._lines.open(encoding="utf-8") as lines,
        ):
            while group := [_readable(json.loads(line)) for line in islice(lines, _GROUP)]:
                writer.write_table(arrow.Table.from_pylist(group, schema=schema))

    def close(self) -> None:
        """Wait for the disk."""
        os.fsync(self._file.fileno())
        self._file.close()


def _opened(path: Path) -> BinaryIO:
    """Open a file of lines, its owner's alone, that no other run writes."""
    try:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0)
    except OSError as error:
        remedy = "give another results="
        raise RuleError("results must be a file that can be written", got=f"{path}: {error}", remedy=remedy) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        remedy = "wait for the other one, or give another results="
        raise RuleError("results must be written by one run at a time", got=path, remedy=remedy) from None
    return file


def _parquet() -> tuple[Any, Any]:
    """Return the packages that write Parquet."""
    try:
        import pyarrow  # pyright: ignore[reportMissingImports]
        from pyarrow import parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        rule, remedy = (
            "results in Parquet need pyarrow",
            "pip install 'privcirnet[parquet]', or give results=FILE.jsonl",
        )
        raise RuleError(rule, got="no such package", remedy=remedy) from None
    return pyarrow, parquet


def _schema(arrow: Any) -> Any:
    """Return the columns of :class:`PictureResult`."""
    text, whole, real = arrow.string(), arrow.int64(), arrow.float64()
    logit = arrow.struct([("label", whole), ("name", text), ("value", real)])
    kinds = {"label": whole, "logits": arrow.list_(logit), "margin": real, "seconds": real, "prepared": arrow.bool_()}
    kinds |= {"bytes_up": whole, "bytes_down": whole}
    return arrow.schema([(column.name, kinds.get(column.name, text)) for column in fields(PictureResult)])


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row whose path is text: names of files may have any bytes."""
    return row | {"path": row["path"].encode(errors="backslashreplace").decode()}
