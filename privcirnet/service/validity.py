"""Which certificates hold: those of a folder when it is read, a client's at each of its calls.

gRPC takes any files, and says nothing of those that it cannot use. It checks a client's certificate at the connection's
handshake alone, and not at all where the client resumes an earlier connection, for up to two days.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from privcirnet.errors import RuleError

Term = tuple[datetime, datetime]
"""Since when and until when a certificate holds."""
_DEEPEST = 8
"""Certificates from a client's to its authority's."""


def now() -> datetime:
    """Return the time that certificates are compared with."""
    return datetime.now(UTC)


def check_pair(path: Path, certificate: bytes, key: bytes) -> None:
    """Raise unless a party can show a certificate: a chain in order, all of it in force, and its key."""
    chain = _read(path, certificate)
    if _public(path, key) != chain[0].public_key():
        rule, remedy = "a key must be its certificate's", "put both of them there, then read them again"
        raise RuleError(rule, got=f"{path.name} and {path.stem}.key of another one, in {path.parent}", remedy=remedy)
    for number, (one, signer) in enumerate(pairwise(chain), start=1):
        if not _issued(one, signer):
            rule, remedy = "each certificate of a chain must be signed by the next", "put its own first"
            raise RuleError(rule, got=f"number {number} of {path}, which is not", remedy=remedy)
    for one in chain:
        if not _holds(_term(one)):
            raise _expired(path, one)


def check_authority(path: Path, certificates: bytes) -> None:
    """Raise unless an authority can have signed something that holds: one of its certificates does."""
    found = _read(path, certificates)
    if not any(_holds(_term(one)) for one in found):
        raise _expired(path, found[0])


def in_force(certificate: bytes, others: bytes, authority: bytes) -> bool:
    """Return whether a client's certificate, with which it has connected some time ago, holds now.

    Args:
        others: that it has sent, which may have signed it; PEM.
    """
    term = _granted(certificate, others, authority)
    return term is not None and _holds(term)


@lru_cache(maxsize=1 << 10)
def _granted(certificate: bytes, others: bytes, authority: bytes) -> Term | None:
    """For how long an authority has granted a certificate; None: it has not."""
    try:
        own = x509.load_pem_x509_certificate(certificate)
        between = x509.load_pem_x509_certificates(others) if others else []
        return _path(own, between, x509.load_pem_x509_certificates(authority), _DEEPEST)
    except ValueError:
        return None


def _path(
    own: x509.Certificate, between: Sequence[x509.Certificate], roots: Sequence[x509.Certificate], left: int
) -> Term | None:
    for root in roots:
        if own == root or _issued(own, root):
            return _both(_term(own), _term(root))
    for signer in between if left else ():
        if _issued(own, signer) and _signs(signer) and (found := _path(signer, between, roots, left - 1)):
            return _both(_term(own), found)
    return None


def _issued(one: x509.Certificate, signer: x509.Certificate) -> bool:
    try:
        one.verify_directly_issued_by(signer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _signs(certificate: x509.Certificate) -> bool:
    """Whether it may sign others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _term(certificate: x509.Certificate) -> Term:
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def _both(one: Term, other: Term) -> Term:
    return max(one[0], other[0]), min(one[1], other[1])


def _holds(term: Term) -> bool:
    return term[0] <= now() <= term[1]


def _read(path: Path, content: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        raise RuleError("certificates must be in PEM", got=f"{path}, which has none", remedy="put them there") from None


def _public(path: Path, key: bytes) -> PublicKeyTypes:
    try:
        return load_pem_private_key(key, None).public_key()
    except (ValueError, TypeError):
        rule, remedy = "a key must be in PEM, without a password", "openssl pkey -in KEY -out KEY takes one away"
        raise RuleError(rule, got=path.with_suffix(".key"), remedy=remedy) from None


def _expired(path: Path, certificate: x509.Certificate) -> RuleError:
    since, until = (time.strftime("%Y-%m-%d %H:%M:%S UTC") for time in _term(certificate))
    got = f"{path}, which holds from {since} to {until}"
    return RuleError("a certificate must be in force", got=got, remedy="renew it")
