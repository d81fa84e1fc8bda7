"""Preparation farmed out: actors of a Ray cluster answer sessions' offline requests, the server keeps its halves.

An actor is the same party as the server: it has the weights, and of each session that prepares the client's evaluation
keys and what was drawn at random. So images never wait for a preparation, and other machines' cores do it. Quotas,
limits and the audit stay with the service; so do images.

A session's offline work stays with one actor, chosen when it begins. An actor that is lost loses those preparations:
each ends with a refusal after which the client may begin anew, with another actor or with the one that Ray starts in
its place. Ray is imported here alone, and only if there are workers. It is reached through its client: a process that
is of a cluster itself is ended with it.
"""

import asyncio
import logging
import os
import pickle
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from privcirnet.errors import RuleError, first_line
from privcirnet.he.bfv.weight_cache import WeightCache
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.offline.store import MemoryStore, PreparedStore, put_all
from privcirnet.he.protocol.parties.server import Server, Session
from privcirnet.he.rlwe.wire_bytes import Message
from privcirnet.he.system import threads
from privcirnet.service.address import is_loopback
from privcirnet.service.programs import ProgramVersion
from privcirnet.service.refusals import ServiceError, interrupted

_SCHEME = "ray://"
_CPUS = 4
"""Cores of an actor, where a machine has them: more do little for the layers of one client."""
_START_S, _RESTART_S, _PAUSE_S = 300.0, 20.0, 0.2
"""Seconds for actors to start and encode the weights, for one to start again, and between two attempts."""


@dataclass(frozen=True)
class ActorOptions:
    """The options of actors.

    Attributes:
        engine: "kernel" or another of the server's.
        gigabytes: memory of encoded weights in each actor, in GB.
        threads: number of threads of each actor.
    """

    engine: str
    gigabytes: float
    threads: int = 1


def check_where(where: str) -> None:
    """Raise unless a text says where a Ray cluster is, and the environment how it is protected."""
    if not where.startswith(_SCHEME):
        rule, remedy = "prepared_workers must be a Ray cluster", f"use {_SCHEME}HOST:10001"
        raise RuleError(rule, got=where, remedy=remedy)
    needed = {"RAY_AUTH_MODE": "token"}
    if not is_loopback(where.removeprefix(_SCHEME).rpartition(":")[0].strip("[]")):
        needed["RAY_USE_TLS"] = "1"
    if missing := [f"{name}={value}" for name, value in needed.items() if os.environ.get(name) != value]:
        rule, remedy = "a Ray cluster must be protected", "set it here and on all of its machines (docs/operations.md)"
        raise RuleError(rule, got=f"{where} without {' '.join(missing)}", remedy=remedy)


class Worker:
    """An actor, which does the offline work of some sessions. Broken rules are returned: Ray would log them."""

    def __init__(self, how: ActorOptions) -> None:
        threads.use(how.threads)
        self._how = how
        self._servers: dict[str, Server] = {}
        self._sessions: dict[str, tuple[Session, MemoryStore]] = {}

    def renew(self, programs: Mapping[str, list[Any]]) -> None:
        """Hold these programs, by version; sessions of others go on with theirs.

        Args:
            programs: Ray's references, in lists, so that Ray leaves them to whoever needs them.
        """
        self._servers = {version: self._server(version, program) for version, program in programs.items()}

    def open(self, name: str, version: str, program: list[Any], keep: bool, keys: bytes, owner: bytes) -> Any:
        """Begin the offline work of a session.

        Args:
            name: name of the session, for :meth:`handle`.
            program: Ray's reference, as in :meth:`renew`.
            keep: whether to hold the program for other sessions; an actor that was started again does not have it.

        Returns:
            None, or a broken rule.
        """
        store, server = MemoryStore(), self._server(version, program)
        if keep:
            self._servers[version] = server
        try:
            self._sessions[name] = server.session(keys, store, owner), store
        except RuleError as error:
            return error
        return None

    def handle(self, name: str, message: bytes) -> RuleError | tuple[bytes, dict[bytes, bytes | bytearray]] | None:
        """Return the reply to an offline request, and the server's halves that it completes, by serial.

        Returns:
            None: this actor does not know the session, whose actor it replaces.
        """
        if name not in self._sessions:
            return None
        session, store = self._sessions[name]
        try:
            reply = session.handle(message)
        except RuleError as error:
            return error
        return reply, {serial: store.take(serial) for serial in store.serials()}

    def close(self, name: str) -> None:
        """Forget a session, with its keys."""
        if name in self._sessions:
            self._sessions.pop(name)[0].close()

    def _server(self, version: str, program: list[Any]) -> Server:
        if version in self._servers:
            return self._servers[version]
        import ray

        read: Program = pickle.loads(ray.get(program[0]))
        return Server(read, self._how.engine, cache=WeightCache.of(self._how.gigabytes), watched=False)


class _Seat:
    """One actor, and the thread that waits for it."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="privcirnet preparation")
        self.lanes, self.lost = 0, False

    def ask(self, method: str, *arguments: Any, timeout_s: float | None = None) -> Any:
        """Return the actor's result.

        Raises:
            RuleError: the actor raised it, or (:class:`ServiceError`) is lost.
        """
        try:
            result = self._ray.get(getattr(self._actor, method).remote(*arguments), timeout=timeout_s)
        except self._ray.exceptions.RayTaskError:  # a fault of its own
            raise
        except Exception:  # of several kinds: the actor, its machine or the whole cluster may be gone
            self.lost = True
            raise interrupted() from None
        self.lost = False
        if isinstance(result, RuleError):
            raise result
        return result

    def tell(self, method: str, *arguments: Any) -> None:
        """Call a method without a result, after the thread's present work."""

        def send() -> None:
            with suppress(Exception):  # whoever is lost has forgotten
                getattr(self._actor, method).remote(*arguments)

        with suppress(RuntimeError):  # all of it has ended
            self.thread.submit(send)


@dataclass
class Lane:
    """The offline work of one session.

    Args:
        seat: function that chooses the actor.
        version: version of the program.
        program: Ray's reference to it.
        offered: function that tells whether other clients may still ask for it.
        keys: function that loads the client's keys.
        store: store for the server's halves.
    """

    seat: Callable[[], _Seat]
    version: str
    program: Any
    offered: Callable[[], bool]
    keys: Callable[[], Message]
    store: PreparedStore
    owner: bytes
    _name: str = field(default_factory=lambda: secrets.token_hex(16))
    _seat: _Seat | None = None
    _open: bool = False

    async def handle(self, message: bytes) -> bytes:
        """Return the reply to an offline request; the server's halves are kept before the last one is returned.

        Raises:
            RuleError: it is not the request that is due, or (:class:`ServiceError`) its actor was lost.
        """
        if self._seat is None:
            self._seat = self.seat()
            self._seat.lanes += 1
        return await asyncio.get_running_loop().run_in_executor(self._seat.thread, self._handle, self._seat, message)

    def close(self) -> None:
        """Have the actor forget the session, after its present work."""
        if self._seat is not None:
            self._seat.lanes -= 1
            self._seat.tell("close", self._name)
            self._seat = None

    def _handle(self, seat: _Seat, message: bytes) -> bytes:
        if not self._open:
            self._begin(seat)
            self._open = True
        answer = seat.ask("handle", self._name, message)
        if answer is None:
            raise interrupted()
        reply, halves = answer
        put_all(self.store, halves.items())
        return reply

    def _begin(self, seat: _Seat) -> None:
        """Open the session, and wait for an actor that Ray is starting again."""
        keys, end = bytes(self.keys()), time.monotonic() + _RESTART_S
        while True:
            try:
                seat.ask("open", self._name, self.version, [self.program], self.offered(), keys, self.owner)
                return
            except ServiceError:
                if time.monotonic() > end:
                    raise
                time.sleep(_PAUSE_S)


class PreparedWorkers:
    """Actors of a Ray cluster that do the offline work of a service's clients.

    Args:
        where: place of the Ray cluster, see :func:`check_where`.
        actors: number of actors; 0: one for every four cores of the cluster, one at least.
        how: options of all actors; the cluster sets ``threads``.

    Raises:
        RuleError: Ray is not installed, not reached, or has too few cores.
    """

    def __init__(self, where: str, actors: int, how: ActorOptions) -> None:
        self._ray = _connected(where)
        places, cores = self._places()
        if actors > places or not places:
            self.close()
            rule, remedy = "a Ray cluster must have the cores of all actors", "add machines, or use prepared_actors=0"
            raise RuleError(rule, got=f"{places} times {cores} for {max(actors, 1)}", remedy=remedy)
        actor_class = self._ray.remote(Worker).options(num_cpus=cores, max_restarts=-1)
        how = ActorOptions(how.engine, how.gigabytes, cores)
        self._seats = [_Seat(self._ray, actor_class.remote(how)) for _ in range(actors or places)]
        self._programs: dict[str, Any] = {}
        self.cores = cores

    @property
    def actors(self) -> int:
        """The number of actors."""
        return len(self._seats)

    def renew(self, offers: Collection[ProgramVersion]) -> None:
        """Have all actors hold the programs on offer, and nothing else. It takes as long as encoding the weights.

        Raises:
            RuleError: the actors do not start.
        """
        offered = {offer.version: offer for offer in offers if isinstance(offer.server, Server)}
        self._programs = {version: self._program(offer) for version, offer in offered.items()}
        for renewed in self._renewed():
            try:
                renewed.result()
            except ServiceError:
                rule, remedy = "the actors of prepared_workers must start", "see Ray's logs, and its free cores"
                raise RuleError(rule, got=f"none of {self.actors} in {_START_S:g} s", remedy=remedy) from None

    def lane(
        self, offer: ProgramVersion, keys: Callable[[], Message], store: PreparedStore, owner: bytes
    ) -> Lane | None:
        """Return the lane for a session's offline work; None if its program has none, or no actor answers.

        Args:
            keys: function that loads the client's keys, when something is prepared.
            store: store for the server's halves.
        """
        if not isinstance(offer.server, Server):
            return None
        if all(seat.lost for seat in self._seats):  # the server prepares by itself until one of them is back
            with suppress(RuntimeError):  # all of it has ended
                self._renewed()
            return None
        program, version = self._program(offer), offer.version
        return Lane(self._free, version, program, lambda: version in self._programs, keys, store, owner)

    def close(self) -> None:
        """End the actors."""
        for seat in getattr(self, "_seats", ()):
            seat.thread.shutdown(wait=False, cancel_futures=True)
        self._ray.shutdown()

    def _renewed(self) -> "list[Future[Any]]":
        """Have all actors hold the programs; an actor that answers is lost no more."""
        programs = {version: [program] for version, program in self._programs.items()}
        return [seat.thread.submit(seat.ask, "renew", programs, timeout_s=_START_S) for seat in self._seats]

    def _program(self, offer: ProgramVersion) -> Any:
        """Return Ray's reference to a program."""
        assert isinstance(offer.server, Server)
        if offer.version in self._programs:
            return self._programs[offer.version]
        return self._ray.put(pickle.dumps(offer.server.program))

    def _free(self) -> _Seat:
        """Return the actor with the fewest sessions, of those that answered last."""
        return min(self._seats, key=lambda seat: (seat.lost, seat.lanes))

    def _places(self) -> tuple[int, int]:
        """Return (number of actors that the machines have room for, cores of each)."""
        cpus = [int(node["Resources"].get("CPU", 0)) for node in self._ray.nodes() if node["Alive"]]
        machines = [cores for cores in cpus if cores]
        per_actor = min([_CPUS, *machines])
        return sum(cores // per_actor for cores in machines), per_actor


def _connected(where: str) -> Any:
    """Connect to Ray, and return its module."""
    check_where(where)
    try:
        import ray
        import ray.exceptions
    except ImportError:
        remedy = 'pip install "privcirnet[ray]"'
        raise RuleError("prepared_workers needs Ray", got="none", remedy=remedy) from None
    try:
        ray.init(where, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # of several kinds
        got, remedy = f"{where}: {first_line(error)}", "start it, and compare releases of Ray and Python on both sides"
        raise RuleError("prepared_workers must be reached", got=got, remedy=remedy) from None
    return ray
