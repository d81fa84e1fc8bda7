"""Refusals of calls: a broken rule, with gRPC's status and the time to come again; and their encoding."""

from typing import Any

import grpc

from privcirnet.errors import Lost, RuleError
from privcirnet.service.messages import Refusal

_METADATA, _RETRY = "privcirnet-refusal-bin", "grpc-retry-pushback-ms"
_MAX_TEXT = 500
"""Most characters of each text of a refusal."""
_ENDED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED
"""Statuses of refusals that end a session, but do not bar the next one."""


class Refused(RuleError):
    """A refusal of the server, with its reason.

    Attributes:
        retry_after_s: seconds after which it may be tried again; 0: never with the same.
    """

    def __init__(self, rule: str, *, got: object, remedy: str, retry_after_s: int = 0) -> None:
        super().__init__(rule, got=got, remedy=remedy)
        self.retry_after_s = retry_after_s


class SessionEndedError(Refused, Lost):
    """The end of a session: the server shuts down, or has waited too long; it or another replica takes a new one."""


class NoService(Lost):
    """An address at which nothing speaks this protocol to this client."""


class Unwritten(Exception):
    """A failure to write to the disk before an answer. Nothing is answered."""


class ServiceError(RuleError):
    """A rule that a client broke, or a lack of room for it now.

    Args:
        retry_after_s: seconds after which it may come again; 0: never with the same.
    """

    def __init__(
        self,
        rule: str,
        *,
        got: object,
        remedy: str,
        status: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT,
        retry_after_s: int = 0,
    ) -> None:
        super().__init__(rule, got=got, remedy=remedy)
        self.status, self.retry_after_s = status, retry_after_s


class SharedStateUnavailableError(ServiceError):
    """An outage of the state that replicas share. Nothing begins without it.

    Args:
        seconds: seconds after which it may be tried again.
    """

    def __init__(self, seconds: float) -> None:
        after = max(round(seconds + 0.5), 1)
        super().__init__(
            "a server must reach the state that it shares",
            got="it is out of reach",
            remedy=f"come again in {after} s",
            status=grpc.StatusCode.UNAVAILABLE,
            retry_after_s=after,
        )


def busy(rule: str, got: object, seconds: float) -> ServiceError:
    """Return a refusal for lack of room, which may be tried again after ``seconds``."""
    after = max(round(seconds + 0.5), 1)
    return _made(rule, got, f"come again in {after} s", grpc.StatusCode.RESOURCE_EXHAUSTED, after)


def stopping() -> ServiceError:
    """Return the refusal of a server that shuts down."""
    rule, remedy = "a server must stay up for a new image", "connect again: another replica may be there"
    return _made(rule, "it shuts down", remedy, grpc.StatusCode.UNAVAILABLE, 1)


def late(what: str, seconds: float) -> ServiceError:
    """Return the refusal of a client that was too slow."""
    got = f"none in {seconds:.3g} s"
    return _made(f"{what} must be in time", got, "connect again", grpc.StatusCode.DEADLINE_EXCEEDED)


def interrupted() -> ServiceError:
    """Return the refusal of a preparation whose worker was lost, which may begin anew at once."""
    rule, remedy = "a preparation's worker must stay until its end", "prepare again"
    return _made(rule, "it was lost", remedy, grpc.StatusCode.ABORTED, 1)


def unknown(rule: str, got: object, remedy: str) -> ServiceError:
    """Return the refusal of a program or version that the server does not have."""
    return _made(rule, got, remedy, grpc.StatusCode.NOT_FOUND)


def stranger(got: str) -> ServiceError:
    """Return the refusal of a client that is not authenticated."""
    rule, remedy = "a client must be known", "use the certificate or the token that the server's operator gave you"
    return _made(rule, got, remedy, grpc.StatusCode.UNAUTHENTICATED)


def garbled() -> ServiceError:
    """Return the refusal of bytes that are no message of inference.proto."""
    rule, remedy = "a message must be one of inference.proto", "use the same release on both sides"
    return ServiceError(rule, got="other bytes", remedy=remedy)


def failure() -> ServiceError:
    """Return the refusal after a failure of the server, without its cause."""
    return _made("a server must not fail", "it did", "ask whoever runs it", grpc.StatusCode.INTERNAL)


def _made(rule: str, got: object, remedy: str, status: grpc.StatusCode, after: int = 0) -> ServiceError:
    return ServiceError(rule, got=got, remedy=remedy, status=status, retry_after_s=after)


def packed(error: RuleError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str | bytes], ...]]:
    """Return gRPC's encoding of a broken rule: (status, text, trailing metadata).

    Args:
        error: :class:`ServiceError`, or any other: then the client's message is wrong, or its state here is lost.
    """
    rule, got, remedy = (_plain(str(text)) for text in (error.rule, error.got, error.remedy))
    after = error.retry_after_s
    wrong = grpc.StatusCode.ABORTED if after else grpc.StatusCode.INVALID_ARGUMENT
    status = error.status if isinstance(error, ServiceError) else wrong
    refusal = Refusal(rule=rule, got=got, remedy=remedy, retry_after_s=after)
    metadata: list[tuple[str, str | bytes]] = [(_METADATA, refusal.SerializeToString())]
    metadata.append((_RETRY, str(1000 * after if after else -1)))
    return status, rule, tuple(metadata)


def unpacked(error: Any, server: str) -> RuleError:
    """Return the error of a failed call, as the client's user reads it."""
    encoded = next((value for key, value in error.trailing_metadata() or () if key == _METADATA), None)
    try:
        refusal = Refusal.FromString(encoded) if encoded is not None else None
    except Exception:
        refusal = None
    if refusal is None or not refusal.rule:
        return _lost(error, server)
    rule, got, remedy = (_plain(text) for text in (refusal.rule, refusal.got, refusal.remedy))
    kind = SessionEndedError if error.code() in _ENDED else Refused
    return kind(f"{server} refused: {rule}", got=got, remedy=remedy, retry_after_s=refusal.retry_after_s)


def _lost(error: Any, server: str) -> RuleError:
    """Return gRPC's own error, in the words of this program."""
    details, status = _plain(error.details() or ""), error.code()
    if status == grpc.StatusCode.UNIMPLEMENTED:
        rule, remedy = "both sides must speak the same version of the protocol", "install the same release on both"
        return NoService(rule, got=f"another one from {server}", remedy=remedy)
    if "andshake" in details or "CERTIFICATE" in details or "ertificate" in details:
        rule, remedy = "server and client must have certificates of the same authority", "compare tls= on both sides"
        return NoService(rule, got=f"{server}: {details}", remedy=remedy)
    if "to connect" in details or "Connection refused" in details or "DNS" in details:
        rule, remedy = "a server must listen at its address", "start one with serve.py, or compare tls= on both sides"
        return NoService(rule, got=f"{server}: {details}", remedy=remedy)
    got = f"{status.name.lower().replace('_', ' ')}: {details} from {server}"
    return Lost("a peer must stay until both are done", got=got, remedy="connect again")


def _plain(text: str) -> str:
    """Return a text that a terminal and a log can show: one line, of no great length."""
    return "".join(c if c.isprintable() else "?" for c in text[:_MAX_TEXT])
