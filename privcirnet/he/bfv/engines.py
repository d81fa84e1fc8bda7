"""Engines by name, for both parties."""

from collections.abc import Callable
from typing import NamedTuple

from privcirnet.errors import RuleError
from privcirnet.he.bfv.interface import ClientEngine, SequentialClient, SequentialServer, ServerEngine
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.bfv.weight_cache import WeightCache

ENGINES = ("kernel", "tenseal", "cleartext")
"""kernel: our own, compiled by Numba; tenseal: SEAL's; both parties have the same. cleartext hides nothing."""


class Engine(NamedTuple):
    """Constructors of the parties.

    Attributes:
        client: maker of a client with fresh keys, from n, q, t.
        server: maker of a server, from n, q, t, and a :class:`WeightCache`, which the kernels use.
    """

    client: Callable[[Parameters], ClientEngine]
    server: Callable[..., ServerEngine]

    def parties(self, parameters: Parameters) -> tuple[ClientEngine, ServerEngine]:
        """Return both parties."""
        return self.client(parameters), self.server(parameters)


def check_engine(name: str) -> None:
    """Raise unless an engine is a known one: nobody gets the one that hides nothing without asking for it.

    Raises:
        RuleError: it is not one of :data:`ENGINES`.
    """
    if name not in ENGINES:
        raise RuleError("the engine must be a known one", got=repr(name), remedy=f"use one of {', '.join(ENGINES)}")


def engine_of(name: str) -> Engine:
    """Return an engine; its library is imported when it is needed.

    Args:
        name: key of :data:`ENGINES`.

    Raises:
        RuleError: unknown name.
    """
    check_engine(name)
    if name == "kernel":
        from privcirnet.he.bfv.client import KernelClient
        from privcirnet.he.bfv.kernel_engine import KernelServer

        return Engine(KernelClient, KernelServer)
    if name == "tenseal":
        from privcirnet.he.bfv.seal import TensealClient, TensealServer

        return _one_by_one(TensealClient, TensealServer)
    from privcirnet.he.bfv.cleartext import CleartextClient, CleartextServer

    return _one_by_one(CleartextClient, CleartextServer)


def _one_by_one(client: type[SequentialClient], server: type[SequentialServer]) -> Engine:
    """Return an engine that works on one ciphertext at a time."""

    def uncached(parameters: Parameters, _: WeightCache | None = None) -> ServerEngine:
        return server(parameters)

    return Engine(client, uncached)
