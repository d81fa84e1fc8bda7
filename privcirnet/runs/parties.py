"""Both parties as an audit of encrypted inference needs them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from privcirnet.he.protocol.parties.session import Handler

ClientT = TypeVar("ClientT")
ReportT = TypeVar("ReportT")


@dataclass(frozen=True)
class Parties(Generic[ClientT, ReportT]):
    """A client and the server that replies to it.

    Attributes:
        report: tells what the server did for the last request.
        seconds_setup: until the first request.
        throttle: name of the link that the server's messages are held up by; "" for none.
        apart: whether the server is a process of its own.
    """

    client: ClientT
    server: Handler
    report: Callable[[], ReportT]
    seconds_setup: float
    bytes_keys: int
    throttle: str = ""
    apart: bool = False
