"""Engines by name, for both modes."""

from typing import NamedTuple

from privcirnet.errors import RuleError
from privcirnet.he.circuits.bfv.sequential import Sequential, SequentialClient

ENGINES = ("kernel", "tenseal", "cleartext")
"""kernel: our own, compiled by Numba; tenseal: SEAL's; either client with either server. cleartext hides nothing."""


class Pair(NamedTuple):
    """Both parties of an engine that works on one ciphertext at a time; each is made of n, q and t."""

    client: type[SequentialClient]
    server: type[Sequential]


def check_engine(name: str) -> None:
    """Raise unless an engine is a known one.

    Raises:
        RuleError: it is not one of :data:`ENGINES`.
    """
    if name not in ENGINES:
        raise RuleError("the engine must be a known one", got=repr(name), remedy=f"use one of {', '.join(ENGINES)}")


def sequential(name: str) -> Pair:
    """Return an engine that works on one ciphertext at a time.

    Args:
        name: "tenseal", which is imported when it is needed, or "cleartext".

    Raises:
        RuleError: another name: nobody gets the engine that hides nothing without asking for it.
    """
    if name == "tenseal":
        from privcirnet.he.circuits.bfv.seal import TensealClient, TensealServer

        return Pair(TensealClient, TensealServer)
    if name == "cleartext":
        from privcirnet.he.circuits.bfv.cleartext import CleartextClient, CleartextServer

        return Pair(CleartextClient, CleartextServer)
    raise RuleError("the engine must be one that works on single ciphertexts", got=repr(name), remedy="use tenseal")
