"""Certificates for a trial: an authority that signs one server and one client, and is then forgotten."""

import ipaddress
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

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
