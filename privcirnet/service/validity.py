"""The validity of certificates: those of a folder when it is read, a client's at each of its calls.

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
"""Start and end of a certificate's validity."""
_DEEPEST = 8
"""Most certificates from a client's to its authority's."""


def now() -> datetime:
    """Return the time that certificates are compared with."""
    return datetime.now(UTC)


def check_pair(path: Path, certificate: bytes, key: bytes) -> None:
    """Raise unless a party can show a certificate: a chain in order, all of it in force, and its key."""
    chain = _read(path, certificate)
    if _public(path, key) != chain[0].public_key():
        rule, remedy = "a key must be its certificate's", "put both of them there, then read them again"
        raise RuleError(rule, got=f"{path.name} and {path.stem}.key of another one, in {path.parent}", remedy=remedy)
    for number, (member, signer) in enumerate(pairwise(chain), start=1):
        if not _issued(member, signer):
            rule, remedy = "each certificate of a chain must be signed by the next", "put its own first"
            raise RuleError(rule, got=f"number {number} of {path}, which is not", remedy=remedy)
    for member in chain:
        if not _holds(_term(member)):
            raise _expired(path, member)


def check_authority(path: Path, certificates: bytes) -> None:
    """Raise unless one of an authority's certificates holds."""
    roots = _read(path, certificates)
    if not any(_holds(_term(root)) for root in roots):
        raise _expired(path, roots[0])


def in_force(certificate: bytes, intermediates: bytes, authority: bytes) -> bool:
    """Return whether a client's certificate, with which it has connected some time ago, holds now.

    Args:
        intermediates: certificates that it has sent, which may have signed it; PEM.
    """
    term = _granted(certificate, intermediates, authority)
    return term is not None and _holds(term)


@lru_cache(maxsize=1 << 10)
def _granted(certificate: bytes, intermediates: bytes, authority: bytes) -> Term | None:
    """Return the term for which an authority has granted a certificate; None: it has not."""
    try:
        leaf = x509.load_pem_x509_certificate(certificate)
        between = x509.load_pem_x509_certificates(intermediates) if intermediates else []
        return _path(leaf, between, x509.load_pem_x509_certificates(authority), _DEEPEST)
    except ValueError:
        return None


def _path(
    leaf: x509.Certificate, between: Sequence[x509.Certificate], roots: Sequence[x509.Certificate], depth: int
) -> Term | None:
    for root in roots:
        if leaf == root or _issued(leaf, root):
            return _both(_term(leaf), _term(root))
    for signer in between if depth else ():
        if _issued(leaf, signer) and _signs(signer) and (term := _path(signer, between, roots, depth - 1)):
            return _both(_term(leaf), term)
    return None


def _issued(certificate: x509.Certificate, signer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(signer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _signs(certificate: x509.Certificate) -> bool:
    """Return whether a certificate may sign others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _term(certificate: x509.Certificate) -> Term:
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def _both(first: Term, second: Term) -> Term:
    return max(first[0], second[0]), min(first[1], second[1])


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
