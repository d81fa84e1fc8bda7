"""Signatures of programs, Ed25519: whoever exports a program signs it, and servers and clients pin the public key.

Two things are signed, because two parties read different things. A server reads the program's folder, whose manifest
has the checksums of all files. A client reads the public description, which the server's greeting holds.

Key files are PEM, as ``openssl genpkey -algorithm ed25519`` makes them. A signature is 64 bytes.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization as formats
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey as PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey as PublicKey

from privcirnet.errors import RuleError

BYTES = 64
"""Bytes of a signature."""
_FOLDER, _DESCRIPTION = b"privcirnet program folder 1\n", b"privcirnet program description 1\n"
"""First bytes of a signed message: its kind, so that none passes for the other."""


def make_keys(path: Path) -> Path:
    """Return the path of a public key, ``.pub``, written beside a new private key that its owner alone can read.

    Args:
        path: path of the private key; it must not exist.
    """
    key, public = PrivateKey.generate(), path.with_name(f"{path.name}.pub")
    secret = key.private_bytes(formats.Encoding.PEM, formats.PrivateFormat.PKCS8, formats.NoEncryption())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secret)
        public.write_bytes(
            key.public_key().public_bytes(formats.Encoding.PEM, formats.PublicFormat.SubjectPublicKeyInfo)
        )
    except OSError as error:
        rule, remedy = "a new signing key needs a file of its own", "choose another path"
        raise RuleError(rule, got=f"{path}: {error.strerror}", remedy=remedy) from None
    return public


def read_private(path: Path) -> PrivateKey:
    """Return the private key of a file."""
    try:
        key = formats.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise _no_key("private", path, error) from None
    if not isinstance(key, PrivateKey):
        raise _no_key("private", path, type(key).__name__)
    return key


def read_public(path: Path) -> PublicKey:
    """Return the public key of a file."""
    try:
        key = formats.load_pem_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _no_key("public", path, error) from None
    if not isinstance(key, PublicKey):
        raise _no_key("public", path, type(key).__name__)
    return key


def pinned(name: str) -> PublicKey | None:
    """Return the public key that a setting names."""
    return read_public(Path(name)) if name else None


def sign_folder(key: PrivateKey, manifest: bytes) -> bytes:
    """Return the signature of a program's folder."""
    return key.sign(_FOLDER + manifest)


def sign_description(key: PrivateKey, description: Mapping[str, Any]) -> bytes:
    """Return the signature of a public description; ``description``: plain data, see :mod:`program.manifest`."""
    return key.sign(_DESCRIPTION + _canonical(description))


def check_folder(key: PublicKey, manifest: bytes, signature: bytes) -> None:
    """Raise unless a folder is signed with a key.

    Args:
        signature: result of :func:`sign_folder`; empty for none.
    """
    _verify(key, _FOLDER + manifest, signature, "the program", "export it again with its signing_key=")


def check_description(key: PublicKey, description: Mapping[str, Any], signature: bytes) -> None:
    """Raise unless a public description is signed with a key.

    Args:
        signature: result of :func:`sign_description`; empty for none.
    """
    _verify(key, _DESCRIPTION + _canonical(description), signature, "the server's program", "do not use this server")


def _verify(key: PublicKey, message: bytes, signature: bytes, what: str, remedy: str) -> None:
    try:
        key.verify(signature, message)
    except InvalidSignature:
        got = "a signature that is not" if signature else "none"
        raise RuleError(f"{what} must be signed with the key that model_key names", got=got, remedy=remedy) from None


def _canonical(description: Mapping[str, Any]) -> bytes:
    return json.dumps(description, sort_keys=True, separators=(",", ":")).encode()


def _no_key(kind: str, path: Path, problem: object) -> RuleError:
    rule, remedy = f"a {kind} key must be Ed25519's, in a PEM file", "export.py signing_key=FILE makes a pair"
    return RuleError(rule, got=f"{path}: {problem}", remedy=remedy)
