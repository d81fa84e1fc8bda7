"""The greeting: a program's public description, which a server sends first. It is untrusted."""

import json
from typing import cast

from privcirnet.errors import RuleError
from privcirnet.he.program import limits, signature
from privcirnet.he.program.signature import PublicKey


def read_greeting(greeting: bytes, key: PublicKey | None, mode: str) -> object:
    """Return a greeting's plain data; nothing in it is checked but its length, its signature and its mode.

    Args:
        key: the key that must have signed the description; None for any.
        mode: mode of the client's program: "interactive" or "ckks".
    """
    if len(greeting) > limits.MAX_BYTES:
        rule, remedy = f"a greeting must have at most {limits.MAX_BYTES} bytes", "connect to a server"
        raise RuleError(rule, got=f"{len(greeting)} bytes", remedy=remedy)
    try:
        data = json.loads(greeting)
    except (ValueError, RecursionError):
        got, remedy = f"{len(greeting)} bytes that are not", "connect to a server"
        raise RuleError("a greeting must be JSON", got=got, remedy=remedy) from None
    if key is not None:
        _check_signature(key, data)
    if (server_mode := _mode(data) or mode) != mode:
        raise RuleError(
            f"the server's program must be {mode}", got=f"mode={server_mode}", remedy=f"give mode={server_mode}"
        )
    return data


def closed() -> RuleError:
    """Return the error for a client that is used after it was closed."""
    return RuleError("a client must be open", got="a closed one", remedy="make another from the server's greeting")


def _mode(greeting: object) -> str:
    """Return the mode of a greeting's program; "" if it has no known one."""
    names = cast(dict[str, object], greeting) if isinstance(greeting, dict) else ()
    return "interactive" if "nodes" in names else "ckks" if "format" in names else ""


def _check_signature(key: PublicKey, greeting: object) -> None:
    """Raise unless a greeting's description is signed with a key.

    Raises:
        RuleError: it is not.
    """
    description = dict(cast(dict[str, object], greeting)) if isinstance(greeting, dict) else {}
    hex_signature = description.pop("signature", "")
    try:
        signed = bytes.fromhex(hex_signature) if isinstance(hex_signature, str) else b""
    except ValueError:
        signed = b"no signature"
    signature.check_description(key, description, signed)
