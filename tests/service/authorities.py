"""Certificates of any kind: an authority's, one that it has signed, one that has expired."""

import hashlib
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Issued:
    """A certificate and its key.

    Args:
        name: common name.
        by: who signs it; None: itself.
        signs: whether it may sign others.
        hours: for which it holds from now on.
    """

    def __init__(self, name: str, by: "Issued | None" = None, signs: bool = False, hours: float = 24.0) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), datetime.now(UTC)
        builder = x509.CertificateBuilder(
            issuer_name=by._certificate.subject if by else subject,
            subject_name=subject,
            public_key=self._key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(hours=48),
            not_valid_after=now + timedelta(hours=hours),
        ).add_extension(x509.BasicConstraints(ca=signs, path_length=None), critical=True)
        if not signs:
            names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
            builder = builder.add_extension(names, critical=False)
        self._certificate = builder.sign(by._key if by else self._key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key(self) -> bytes:
        return self.locked(serialization.NoEncryption())

    def locked(self, how: serialization.KeySerializationEncryption) -> bytes:
        return self._key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)

    def write(self, folder: Path, name: str, *signers: "Issued") -> None:
        """Write the certificate, with those of its signers after it, and the key."""
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.crt").write_bytes(b"".join(one.pem for one in (self, *signers)))
        (folder / f"{name}.key").write_bytes(self.key)
        (folder / f"{name}.key").chmod(0o600)


def with_tokens(server: Path, client: Path, folder: Path, **tokens: str) -> Path:
    """Make folders of a trial into those of a server of bearer tokens, and of clients.

    Args:
        server: of :func:`make_trial`.
        client: the same.
        folder: of the folders to make: server, and one for each client.
        tokens: by client.

    Returns:
        The server's folder.
    """
    shutil.copytree(server, folder / "server")
    (folder / "server" / "clients.crt").unlink()
    digests = {name: hashlib.sha256(token.encode()).hexdigest() for name, token in tokens.items()}
    (folder / "server" / "tokens.json").write_text(json.dumps(digests))
    for name, token in tokens.items():
        shutil.copytree(client, folder / name)
        (folder / name / "client.token").write_text(token + "\n")
        (folder / name / "client.token").chmod(0o600)
    return folder / "server"
