"""Access to a service: the credentials of a server and of a client, and a client's name.

A server's folder has server.crt and server.key, and one of these: clients.crt, the authority that signs its clients'
certificates (mutual TLS; a client is called what the certificate's common name says), or tokens.json, which maps names
to SHA-256 of bearer tokens. A client's folder has ca.crt, the authority that signed the server's certificate, and
either client.crt and client.key, or client.token. TLS is version 1.3: :func:`.service.require_tls13` sees to it.
"""

import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import grpc

from privcirnet.errors import RuleError
from privcirnet.service import require_tls13
from privcirnet.service.certificates import check_authority, check_pair, in_force
from privcirnet.service.refusals import stranger

LOCAL = "local"
"""Name of every client of a plain server on loopback."""
_BEARER = "Bearer "
_MAX_NAME = 64
_DIGEST = re.compile("[0-9a-f]{64}")


class _Shown:
    """The certificates of new connections. gRPC asks at each connection whether there are newer ones.

    Attributes:
        current: configuration of gRPC: the server's chain and key, and its clients' authority.
    """

    def __init__(self, first: Any) -> None:
        self.current, self._new = first, False

    def change(self, later: Any) -> None:
        """Use other certificates from the next connection on."""
        self.current, self._new = later, True

    def __call__(self) -> Any:
        new, self._new = self._new, False
        return self.current if new else None


@dataclass(frozen=True)
class ServerAccess:
    """The access rules of a server.

    Attributes:
        credentials: TLS credentials; None: plain, on loopback only.
        tokens: names by SHA-256 of a bearer token, in hexadecimal; None: certificates or nothing identify clients.
        authority: authority of clients' certificates, PEM; empty: none.
    """

    credentials: Any = None
    tokens: dict[str, str] | None = field(default=None, repr=False)
    authority: bytes = b""
    _shown: _Shown | None = field(default=None, repr=False)

    @classmethod
    def of(cls, folder: Path | None) -> "ServerAccess":
        """Return the access that a server's folder gives.

        Args:
            folder: folder of a server, see above; None for plain text.
        """
        if folder is None:
            return cls()
        require_tls13()
        certificate, key = _bytes(folder / "server.crt"), _secret(folder / "server.key")
        clients, tokens = folder / "clients.crt", folder / "tokens.json"
        if clients.is_file() == tokens.is_file():
            got = "both" if tokens.is_file() else "neither"
            rule = "a server's folder must have clients.crt or tokens.json"
            raise RuleError(rule, got=f"{got} in {folder}", remedy="say in one way who its clients are")
        check_pair(folder / "server.crt", certificate, key)
        authority = _bytes(clients) if clients.is_file() else None
        if authority is not None:
            check_authority(clients, authority)
        certificates = _Shown(grpc.ssl_server_certificate_configuration([(key, certificate)], authority))
        credentials = grpc.dynamic_ssl_server_credentials(certificates.current, certificates, authority is not None)
        return cls(credentials, None if authority else _tokens(tokens), authority or b"", certificates)

    def renewed(self, later: "ServerAccess") -> "ServerAccess":
        """Return later access for a server that listens with this one, and show its certificates from now on."""
        if (self.tokens is None) != (later.tokens is None):
            rule, got = (
                "a server's clients must show who they are as when it began",
                "the other of clients.crt, tokens.json",
            )
            raise RuleError(rule, got=got, remedy="restart it")
        if self._shown and later._shown:
            self._shown.change(later._shown.current)
        return replace(self, tokens=later.tokens, authority=later.authority)

    def name_of(self, context: Any) -> str:
        """Return the name of a call's client."""
        if self.credentials is None:
            return LOCAL
        if self.tokens is None:
            auth_context = context.auth_context()
            certificate, intermediates = (
                b"".join(auth_context.get(f"x509_pem_cert{which}", [])) for which in ("", "_chain")
            )
            if not in_force(certificate, intermediates, self.authority):
                raise stranger("a certificate that has expired, or of another authority")
            names = auth_context.get("x509_common_name", [])
            return _checked(names[0].decode(errors="replace") if len(names) == 1 else "")
        headers = [value for key, value in context.invocation_metadata() or () if key == "authorization"]
        if len(headers) != 1 or not str(headers[0]).startswith(_BEARER):
            raise stranger("no bearer token")
        token = str(headers[0]).removeprefix(_BEARER)
        name = self.tokens.get(hashlib.sha256(token.encode()).hexdigest())
        if name is None:
            raise stranger("another token")
        return name


@dataclass(frozen=True)
class ClientAccess:
    """The credentials that a client shows to a server.

    Attributes:
        credentials: TLS credentials; None: plain, for a server on loopback.
    """

    credentials: Any = None
    metadata: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, folder: Path | None) -> "ClientAccess":
        """Return the access that a client's folder gives; None: plain text.

        Raises:
            RuleError: a file is missing or damaged, certificates do not hold, the key is another one's, or a secret can
                be read by everyone.
        """
        if folder is None:
            return cls()
        require_tls13()
        authority, token = _bytes(folder / "ca.crt"), folder / "client.token"
        check_authority(folder / "ca.crt", authority)
        if token.is_file():
            text = _secret(token).decode("ascii", "replace").strip()
            return cls(grpc.ssl_channel_credentials(authority), (("authorization", _BEARER + text),))
        certificate, key = _bytes(folder / "client.crt"), _secret(folder / "client.key")
        check_pair(folder / "client.crt", certificate, key)
        return cls(grpc.ssl_channel_credentials(authority, key, certificate))


PLAIN_SERVER, PLAIN_CLIENT = ServerAccess(), ClientAccess()
"""Access of parties on one machine."""


def _checked(name: str) -> str:
    if not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise stranger("a certificate without a common name")
    return name


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        got, remedy = (
            f"{path}: {problem.strerror}",
            "serve.py tls=trial makes an example; docs/operations.md lists them",
        )
        raise RuleError("a folder for TLS must have its files", got=got, remedy=remedy) from None


def _secret(path: Path) -> bytes:
    content = _bytes(path)
    if path.stat().st_mode & 0o007:
        raise RuleError("a secret must not be readable by everyone", got=path, remedy=f"chmod 600 {path}")
    return content


def _tokens(path: Path) -> dict[str, str]:
    rule, remedy = "tokens.json must map names to SHA-256 of tokens", '{"alice": "9f86d081..."}, each one once'
    try:
        parsed = json.loads(_bytes(path))
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise RuleError(rule, got=path, remedy=remedy)
    digests = cast(dict[str, object], parsed)
    tokens = {str(digest).lower(): name for name, digest in digests.items()}
    named = all(0 < len(name) <= _MAX_NAME and name.isprintable() for name in digests)
    if len(tokens) != len(digests) or not named or not all(_DIGEST.fullmatch(digest) for digest in tokens):
        raise RuleError(rule, got=path, remedy=remedy)
    return tokens
