"""A slow network in software: messages are delayed by the time of a link, whatever is between the parties.

The machine's network settings are not touched. Falcon 2023 (table II) limits bandwidths the same way to compare
encodings: 384, 44 and 9 MB/s.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from privcirnet.he.planning.profile import LINKS, NetworkLink
from privcirnet.he.protocol.parties.session import Handler


@dataclass(frozen=True)
class Throttled:
    """A session behind a link, whose replies are delayed.

    Attributes:
        link: link with the bandwidth and round trip of each message and its reply.
        wait: function that sleeps for some seconds.
    """

    session: Handler
    link: NetworkLink
    wait: Callable[[float], object] = time.sleep

    def handle(self, message: bytes) -> bytes:
        self.wait(self.link.round_trip / 2 + len(message) / self.link.bandwidth)
        reply = self.session.handle(message)
        self.wait(self.link.round_trip / 2 + len(reply) / self.link.bandwidth)
        return reply


def throttled(session: Handler, name: str) -> Handler:
    """Return a session behind a link.

    Args:
        name: name of the link in :data:`LINKS`; "" for the session as it is.
    """
    return Throttled(session, LINKS[name]) if name else session
