"""The limits on connections: strangers hold one for a moment only, and no address all of them.

gRPC accepts connections by itself, tells Python of none before a call, and cannot close one. So this module looks at
the own sockets of the process, twice a second, and shuts down those that have not come to a call with a name in time,
or are too many of one address. gRPC then sees that the peer has gone. No byte takes another way because of it.
"""

import asyncio
import os
import socket
import stat
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import unquote

from privcirnet.service.limits import HANDSHAKE_S, ServiceLimits
from privcirnet.service.log import Log
from privcirnet.service.metrics import Metrics

_FOLDER = "/dev/fd"
"""Folder of the process's open files, by number."""


_LOOK_S = 0.5
"""Seconds from one look to the next, and grace of a newcomer whatever its address has open."""


_NETWORK = 64
"""Bits of an IPv6 address that identify a customer, who chooses the others."""


_SILENT, _MANY, _FULL = "no call with a name in time", "too many of one address", "too many strangers"


REASONS = (_SILENT, _MANY, _FULL)
"""Reasons for closing a connection."""


class Peer(NamedTuple):
    """The other end of a connection."""

    host: IPv4Address | IPv6Address
    port: int

    @classmethod
    def of(cls, host: str, port: int) -> "Peer":
        """Return a peer from the system's name.

        Args:
            host: address, also of IPv4 in the form of IPv6, with or without a zone.
        """
        address = ip_address(host.partition("%")[0])
        return cls(getattr(address, "ipv4_mapped", None) or address, port)

    @classmethod
    def of_call(cls, text: str) -> "Peer":
        """Return the peer of a call; ``text``: gRPC's form, "ipv4:127.0.0.1:5050" or "ipv6:%5B::1%5D:5050"."""
        host, _, port = unquote(text.partition(":")[2]).rpartition(":")
        return cls.of(host.strip("[]"), int(port))

    @property
    def address(self) -> str:
        """The unit by which connections are counted: an address of IPv4, a network of IPv6."""
        host = self.host
        return str(host) if host.version == 4 else str(ip_network((host, _NETWORK), strict=False))


class Connections:
    """The connections of a service.

    Args:
        limits: most connections of one address, and of all of them; strangers have at most half of those.
        log: log of the number closed, with address and reason.
        clock: clock in seconds.
    """

    def __init__(
        self, limits: ServiceLimits, log: Log, metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits, self._log, self._metrics, self._clock = limits, log, metrics, clock
        self._since, self._named = dict[Peer, float](), Counter[Peer]()

    def know(self, call: str) -> None:
        """Keep a connection open: a call on it came from a client with a name."""
        self._named[Peer.of_call(call)] += 1

    @contextmanager
    def staying(self, call: str) -> Generator[None]:
        """Keep a connection open for a while, whoever holds it.

        Yields:
            nothing, once.
        """
        peer = Peer.of_call(call)
        self._named[peer] += 1
        try:
            yield
        finally:
            self._named[peer] -= 1

    async def keep(self, port: int) -> None:
        """Watch the connections until cancelled."""
        if not os.path.isdir(_FOLDER):
            self._log.event("connections are not watched", why=f"this system has no {_FOLDER}")
            return
        while True:
            try:
                self.look(port)
            except OSError as problem:  # too many open files, say
                self._log.event("connections are not watched", why=str(problem))
            await asyncio.sleep(_LOOK_S)

    def look(self, port: int) -> None:
        """Close the connections that must not stay."""
        with ExitStack() as stack:
            sockets = dict(_accepted(port, stack))
            unwelcome = self.unwelcome(sockets)
            for peer in unwelcome:
                try:
                    sockets[peer].shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it has gone
        self._metrics.connections.set(len(sockets))
        for (address, why), count in Counter((peer.address, why) for peer, why in unwelcome.items()).items():
            self._metrics.closed.labels(why).inc(count)
            self._log.event("connections closed", peer=address, count=count, why=why)

    def unwelcome(self, peers: Iterable[Peer]) -> dict[Peer, str]:
        """Return the connections that must go, with the reasons."""
        now = self._clock()
        self._since = {peer: self._since.get(peer, now) for peer in peers}
        self._named = Counter({peer: self._named[peer] for peer in self._since if self._named[peer] > 0})
        strangers = sorted((peer for peer in self._since if peer not in self._named), key=self._since.__getitem__)
        silent = [peer for peer in strangers if now - self._since[peer] >= HANDSHAKE_S]
        waiting = strangers[len(silent) :]
        unwelcome, room = dict.fromkeys(silent, _SILENT), self._limits.most // 2
        limit, of_address = self._limits.of_address, Counter(peer.address for peer in (*waiting, *self._named))
        for remaining, peer in zip(range(len(waiting), 0, -1), waiting, strict=True):  # the oldest first
            if self._since[peer] < now and (remaining > room or of_address[peer.address] > limit):
                unwelcome[peer] = _FULL if remaining > room else _MANY
                of_address[peer.address] -= 1
        clients = Counter[str]()
        for peer in sorted(self._named, key=self._since.__getitem__):  # the newest go, whatever strangers do
            clients[peer.address] += 1
            if clients[peer.address] > limit:
                unwelcome[peer] = _MANY
        return unwelcome


def _accepted(port: int, stack: ExitStack) -> Iterable[tuple[Peer, socket.socket]]:
    """Yield the process's sockets of this port, each under another number that the stack gives back."""
    for name in os.listdir(_FOLDER):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                connection = stack.enter_context(socket.socket(fileno=os.dup(int(name))))
                if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getsockname()[1] == port:
                    yield Peer.of(*connection.getpeername()[:2]), connection
        except OSError:
            continue  # it listens, or was closed meanwhile
