"""What a server tells a client first: a program's public description. It comes from anybody."""

import json
from typing import cast

from privcirnet.errors import RuleError
from privcirnet.he.program import limits, signature
from privcirnet.he.program.signature import PublicKey


def read_greeting(greeting: bytes, key: PublicKey | None, mode: str) -> object:
    """Return a greeting's plain data; nothing in it is checked but its length, its signature and its mode.

    Args:
        key: with which the description must be signed; None for any.
        mode: of the program that the client is for: "interactive" or "ckks".
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
    if (made := _mode(data) or mode) != mode:
        raise RuleError(f"the server's program must be {mode}", got=f"mode={made}", remedy=f"give mode={made}")
    return data


def closed() -> RuleError:
    """Return the error for a client that is used after it was closed."""
    return RuleError("a client must be open", got="a closed one", remedy="make another from the server's greeting")


def _mode(greeting: object) -> str:
    """What a greeting is of; "" if it is of nothing that is known."""
    names = cast(dict[str, object], greeting) if isinstance(greeting, dict) else ()
    return "interactive" if "nodes" in names else "ckks" if "format" in names else ""


def _check_signature(key: PublicKey, greeting: object) -> None:
    """Raise unless a greeting's description is signed with a key.

    Raises:
        RuleError: it is not.
    """
    description = dict(cast(dict[str, object], greeting)) if isinstance(greeting, dict) else {}
    found = description.pop("signature", "")
    try:
        signed = bytes.fromhex(found) if isinstance(found, str) else b""
    except ValueError:
        signed = b"no signature"
    signature.check_description(key, description, signed)
