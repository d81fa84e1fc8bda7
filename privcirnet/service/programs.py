"""The programs that a service offers, by name; a version is a checksum of a program."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from privcirnet.artifact.folder import MANIFEST
from privcirnet.he.protocol.interface import Served
from privcirnet.he.protocol.wire import MessageSizes
from privcirnet.service.refusals import unknown

_VERSION_DIGITS = 12
"""Number of hexadecimal digits of a version."""


def version_of(folder: Path) -> str:
    """Return the version of a program in a folder: a checksum of its manifest, which has those of its weights."""
    return hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()[:_VERSION_DIGITS]


def digest_of(version: str, greeting: bytes) -> bytes:
    """Return the digest that prepared work of a program is bound to: its version and its public description.

    Returns:
        32 bytes.
    """
    return hashlib.sha256(f"{version}:".encode() + greeting).digest()


@dataclass(frozen=True)
class ProgramVersion:
    """A version of a program.

    Attributes:
        name: name by which clients ask for it.
        version: checksum, see :func:`version_of`.
        took: seconds of work on the last request of each round, by the image's first position and the round's number.
    """

    name: str
    version: str
    server: Served
    took: dict[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float], compare=False, repr=False)

    @classmethod
    def of(cls, name: str, server: Served) -> "ProgramVersion":
        """Return a server's program, whose version is a checksum of its public description."""
        return cls(name, hashlib.sha256(server.greeting()).hexdigest()[:_VERSION_DIGITS], server)

    @property
    def facts(self) -> dict[str, object]:
        """The facts for a log."""
        return {"program": self.name, "version": self.version}

    @cached_property
    def greeting(self) -> bytes:
        """The program's public description."""
        return self.server.greeting()

    @cached_property
    def digest(self) -> bytes:
        """The digest that prepared work is bound to, see :func:`digest_of`."""
        return digest_of(self.version, self.greeting)

    @cached_property
    def most(self) -> MessageSizes:
        """The sizes of its longest messages."""
        return self.server.sizes


class Catalogue:
    """The programs that clients can ask for now. Sessions keep the version that they began with.

    Args:
        offers: programs, one for each name, at least one.
    """

    def __init__(self, offers: Mapping[str, ProgramVersion]) -> None:
        self._offers = dict(offers)

    @property
    def offers(self) -> list[ProgramVersion]:
        """All programs on offer."""
        return [*self._offers.values()]

    def find(self, name: str, version: str) -> ProgramVersion:
        """Return the program that a client asks for: "" is the only program, and the current version."""
        remedy = f"ask for one of {', '.join(sorted(self._offers))}"
        if not name and len(self._offers) > 1:
            raise unknown("a client of several programs must name one", "no name", remedy)
        offer = self._offers.get(name) if name else next(iter(self._offers.values()))
        if offer is None:
            raise unknown("a program must be offered here", repr(name[:64]), remedy)
        if version and version != offer.version:
            remedy = f"read the description again: it is {offer.version} now"
            raise unknown("a program's version must be the current one", repr(version[:64]), remedy)
        return offer
