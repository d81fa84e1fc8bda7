"""Certificates: an authority for a trial, which signs one server and one client, and the validity of any.

Those of a folder are checked when it is read, a client's at each of its calls: gRPC takes any files, and says nothing
of those that it cannot use. It checks a client's certificate at the connection's handshake alone, and not at all where
the client resumes an earlier connection, for up to two days.
"""

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from privcirnet.errors import RuleError

TRIAL_DAYS = 30
CLIENT = "trial"
"""Name of a trial's client."""


def make_trial(folder: Path, hosts: list[str], client: str = CLIENT) -> tuple[Path, Path]:
    """Make certificates and keys for a server and a client, valid for :data:`TRIAL_DAYS`.

    The authority's key is used here and kept nowhere, so nobody can sign another client with it.

    Returns:
        (the server's folder, the client's folder): see :mod:`.service.access`.
    """
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _signed("privcirnet trial", authority_key.public_key(), None, authority_key, [])
    parties = (("server", "server", hosts, ExtendedKeyUsageOID.SERVER_AUTH),)
    parties += (("client", client, list[str](), ExtendedKeyUsageOID.CLIENT_AUTH),)
    for party, name, names, usage in parties:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _signed(name, key.public_key(), authority, authority_key, names, usage)
        _write(folder / party / f"{party}.crt", _pem(certificate))
        _write(folder / party / f"{party}.key", _private(key))
    _write(folder / "server" / "clients.crt", _pem(authority))
    _write(folder / "client" / "ca.crt", _pem(authority))
    return folder / "server", folder / "client"


def _signed(
    name: str,
    key: ec.EllipticCurvePublicKey,
    issuer: x509.Certificate | None,
    signer: ec.EllipticCurvePrivateKey,
    hosts: list[str],
    usage: x509.ObjectIdentifier | None = None,
) -> x509.Certificate:
    subject, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), datetime.now(UTC)
    builder = x509.CertificateBuilder(
        issuer_name=issuer.subject if issuer else subject,
        subject_name=subject,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=now - timedelta(minutes=5),
        not_valid_after=now + timedelta(days=TRIAL_DAYS),
    ).add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    if usage:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    no_password = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, no_password)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


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
