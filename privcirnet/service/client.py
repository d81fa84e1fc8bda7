"""The client's end of a service, used like a session in the client's own process, and its retries."""

import hashlib
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar, cast

import grpc

from privcirnet.errors import Interrupted, Lost, RuleError
from privcirnet.he.program import limits
from privcirnet.he.program.signature import PublicKey
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.interface import ServedClient
from privcirnet.he.protocol.offline.store import Binding, PreparedStore, PreparedWork
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.session import agree
from privcirnet.service import messages
from privcirnet.service.access import PLAIN_CLIENT, ClientAccess
from privcirnet.service.address import is_loopback, show_address
from privcirnet.service.messages import TRANSPORT, Body, split
from privcirnet.service.programs import digest_of
from privcirnet.service.refusals import NoService, Refused, unpacked

T = TypeVar("T")

_LONGEST_S = 60.0
"""Most seconds that a client waits; a longer wait is reported instead."""


@dataclass(frozen=True)
class Retries:
    """The retries of an attempt.

    Attributes:
        most: most retries of one attempt; 0: none.
        note: function called with a line about each, and the reason.
        sleep: function that waits for some seconds.
    """

    most: int = 0
    note: Callable[[str], object] = lambda line: None
    sleep: Callable[[float], object] = time.sleep

    def run(self, attempt: Callable[[bool], T], *lasting: type[RuleError]) -> T:
        """Return an attempt's result.

        Args:
            attempt: function called with True if an earlier attempt has failed.
            lasting: errors after which trying again is of no use.
        """
        for failed in range(self.most):
            try:
                return attempt(failed > 0)
            except lasting:
                raise
            except RuleError as error:
                seconds = _pause(error, failed)
                if seconds is None:
                    raise
                self.note(f"comes again in {seconds:.1f} s ({failed + 1} of {self.most}): {error}")
                self.sleep(seconds)
        return attempt(self.most > 0)


def _pause(error: RuleError, failed: int) -> float | None:
    """Return the seconds until the next attempt; None where there should be none."""
    if isinstance(error, Lost):  # at once: another replica may be there; then not all clients in the same moment
        return 2.0 ** (failed - 1) * random.uniform(0.5, 1.5) if failed else 0.0
    after = error.retry_after_s
    return after * random.uniform(1.0, 1.25) if 0 < after <= _LONGEST_S else None


AFFINITY = "privcirnet-affinity"
"""Key of the metadata of every call, by which a proxy keeps a client at one of several replicas."""
TIMEOUT_S = 600.0
"""Seconds that a server may take to reply: it may have other clients to serve first."""
Party = Callable[[bytes, str, PublicKey | None, PreparedStore, bytes], ServedClient]
"""Function (greeting, engine, key, store of prepared work, owner) -> client."""
_CONNECTING_S = 10.0
"""Seconds that a server may take to accept a connection and to describe its program."""
_REOPENING_S = 0.0, 0.2, 1.0
"""Seconds between the attempts to begin another session on a connection."""
_WATCH_S = 0.1
"""Seconds between two looks at whether a reply is overdue."""
_OPTIONS = (
    *TRANSPORT,
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_metadata_size", 1 << 14),
    ("grpc.initial_reconnect_backoff_ms", 200),  # Retries decides when to come again
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class ServiceClient:
    """A connection to a service, and a session that replies to one client's requests; ``with`` closes both.

    Args:
        engine: engine of the server: "kernel", "tenseal" (slower); "cleartext" hides nothing.
        timeout_s: seconds to wait for a reply.
        access: credentials of the client; plain text is for a server on loopback only.
        program: name of one of the server's programs; "" for its only one.
        key: the key that must have signed the program; None for any.
        prepared_work: store of prepared work; None: memory, for as long as this client. With some for this server and
            program, keys are made when they are needed.
        party: function that makes the client of a program.
        retries: retries where the server is busy, or is lost while :meth:`persist` runs; None: none.

    Attributes:
        bytes_keys: bytes of the keys, which are sent once; 0 while there are none.
        seconds: time to connect, to make the keys and to have the server load them.

    Raises:
        RuleError: no service listens there; the description is damaged or not secure; the client is refused.
    """

    def __init__(  # noqa: PLR0913
        self,
        address: tuple[str, int],
        engine: str = "kernel",
        timeout_s: float = TIMEOUT_S,
        access: ClientAccess = PLAIN_CLIENT,
        program: str = "",
        key: PublicKey | None = None,
        *,
        prepared_work: PreparedWork | None = None,
        party: Party = Client,
        retries: Retries | None = None,
    ) -> None:
        started = time.perf_counter()
        self._prepared_work = PreparedWork() if prepared_work is None else prepared_work
        self._name, self._timeout_s = f"the server at {show_address(address)}", timeout_s
        self._channel, self._retries = _channel(address, access), retries or Retries()
        self._stream: _Stream | None = None
        self._process, self._lock = os.getpid(), threading.RLock()
        try:
            owner = self._prepared_work.owner
            self._access, self._moves = access, 0
            self._metadata = self._shown(owner)
            greeting = self._retries.run(lambda again: self._met(program), NoService)
            self.version: str = self._program.version
            self._binding = Binding(
                digest_of(self.version, greeting), f"{show_address(address)}/{self._program.name}", owner
            )
            self._prepared_work.retain([self._binding.program], self._binding.peer)
            self.store = self._prepared_work.of(self._binding)
            self._party = party(greeting, engine, key, self.store, owner)
            self._most = self._party.sizes.reply
            self._keys: bytes | None = None
            self._id, self._begun = b"", dict[bool, int]()
            self.bytes_keys = 0
            self._retries.run(lambda again: self._opened())
        except BaseException:
            self.close()
            raise
        self.seconds = time.perf_counter() - started

    @property
    def client(self) -> Client:
        """The client of an interactive program; the server has accepted its keys, if they were made."""
        assert isinstance(self._party, Client)
        return self._party

    @property
    def party(self) -> ServedClient:
        """The client, whichever its program is."""
        return self._party

    @property
    def prepared(self) -> int:
        """The number of prepared inferences."""
        return len(self.store.serials())

    def persist(self, attempt: Callable[[], T]) -> T:
        """Return an attempt's result; it is made again, in a new session, where the server was lost.

        Args:
            attempt: function that begins anew each time: no random value of a failed attempt is used again.

        Raises:
            RuleError: the error of the last attempt, or a refusal that would not change.
        """

        def attempted(again: bool) -> T:
            if again:
                self.reopen()
            return attempt()

        return self._retries.run(attempted)

    def reopen(self) -> None:
        """Begin a new session with the same keys, which are only sent if the server does not have them.

        Prepared work that the server does not have any more is dropped: nothing of a copied folder is used again.
        """
        with self._alone():
            self._open()
            if self.store.serials():
                agree(self._party, self)

    def _open(self) -> None:
        """Begin a new session. All sessions begin here, and end the work of the one before."""
        before = self._stream
        if before is not None:
            before.close()
        self._begun.clear()
        self._party.forget_session()
        for pause in () if before is None else _REOPENING_S:
            try:
                return self._start()
            except Lost:  # a connection that is still ending takes calls with it
                time.sleep(pause)
        self._start()

    def _start(self) -> None:
        """Open the stream of a session, with keys that the server has."""
        for again in (False, True):
            self._register()
            self._stream = _Stream(self._call("Session"), self._metadata, self._name)
            opening = {"program": self._program, "keys": self._id, "owner": self._binding.owner}
            self._stream.send(messages.SessionRequest(**opening))
            try:
                self._stream.receive(0, self._timeout_s)
            except Refused as refused:
                if again or self._keys is None or self._found():
                    if refused.retry_after_s and not self.store.serials():
                        self._moves += 1  # a proxy may find room at another replica
                        self._metadata = self._shown(self._binding.owner)
                    raise
            else:
                return

    def handle(self, message: bytes) -> bytes:
        """Return the server's reply to a request. Where a session has ended, the next image begins another one.

        Raises:
            RuleError: the server refused, hung up, or sent something else; or another thread or process asks.
        """
        with self._alone():
            offline = wire.is_offline(message)
            self._begin(message, offline)
            assert self._stream is not None
            try:
                for piece in split(message):
                    self._stream.send(piece)
                reply = self._stream.receive(self._most, self._timeout_s)
            except BaseException:
                self._begun.clear()
                raise
            if wire.ends(reply):
                self._begun.pop(offline, None)
            return reply

    def _begin(self, message: bytes, offline: bool) -> None:
        """Ensure a session for a request, with keys if it needs them.

        Raises:
            Interrupted: it is of a preparation that began in another session.
            RuleError: the server refused the session.
        """
        kind = wire.begins(message)
        if kind not in (wire.AGREE, wire.PREPARE, wire.ONLINE) and (offline or offline in self._begun):
            if offline not in self._begun:
                rule, remedy = "a preparation must end in the session that it began in", "prepare again"
                raise Interrupted(rule, got="another session", remedy=remedy)
            return
        if self._keys is None and kind not in (wire.AGREE, wire.ONLINE):
            self._make_keys()
            self._open()
        elif self._stream is None or self._stream.ended:
            self._open()
        self._begun[offline] = kind

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Lock the connection for use.

        Raises:
            RuleError: another thread does, or this is a copy (fork) of the process that opened it.
        """
        if self._process != os.getpid():
            rule, got = "a connection must be used by the process that opened it", "a copy of the process (fork)"
            raise RuleError(rule, got=got, remedy="connect in each process")
        if not self._lock.acquire(blocking=False):
            rule, remedy = "a connection must be used by one thread at a time", "give each thread a client of its own"
            raise RuleError(rule, got="a second one", remedy=remedy)
        try:
            yield
        finally:
            self._lock.release()

    def _opened(self) -> None:
        """Begin the first session: with prepared work if there is any, else with keys."""
        if self.store.serials():
            self.reopen()  # which drops those that the server does not have
        if not self.store.serials():
            if self._keys is None:
                self._make_keys()
            self.reopen()

    def _shown(self, owner: bytes) -> tuple[tuple[str, str], ...]:
        """Return the metadata of every call: the client's identity, and a hash that all its sessions share.

        It stays the same where the client has no keys yet, and where a later process finds prepared work, whose other
        half is at one replica. It tells nothing of what it is made of.

        Args:
            owner: owner that prepared work is bound to.
        """
        mixed = hashlib.sha256(AFFINITY.encode() + owner + self._moves.to_bytes(4, "big"))
        return *self._access.metadata, (AFFINITY, mixed.hexdigest()[:32])

    def _make_keys(self) -> None:
        self._keys = self._party.keys()
        self._id = hashlib.sha256(self._keys).digest()
        self.bytes_keys = len(self._keys)

    def close(self) -> None:
        """End the session and the connection; zero the client's shares. A copy of the process has no connection."""
        if self._process == os.getpid():
            if self._stream is not None:
                self._stream.close()
            self._channel.close()
        if hasattr(self, "_party"):
            self._party.close()

    def __enter__(self) -> "ServiceClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, name: str) -> Any:
        method = messages.METHODS[name]
        make = getattr(self._channel, method.shape)
        return make(method.path, messages.write, method.read_response)

    def _asked(self, name: str, request: Any, timeout_s: float) -> Any:
        """Return the response of a unary call."""
        try:
            return self._call(name)(request, timeout=timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            raise unpacked(error, self._name) from None

    def _chosen(self, name: str) -> Any:
        programs = self._asked("Programs", messages.ProgramsRequest(), _CONNECTING_S).programs
        matching = [program for program in programs if program.name == name or not name]
        if len(matching) != 1:
            names = ", ".join(sorted(repr(program.name)[:40] for program in programs)[:10])
            raise RuleError("a client must name a program of its server", got=repr(name), remedy=f"it has {names}")
        return matching[0]

    def _met(self, name: str) -> bytes:
        """Return the public description of one of the server's programs, and use it from now on."""
        self._program = self._chosen(name)
        return self._described()

    def _described(self) -> bytes:
        call = self._call("Describe")(self._program, timeout=self._timeout_s, metadata=self._metadata)
        return _joined(call, limits.MAX_BYTES, self._name)

    def _found(self) -> bool:
        return self._asked("FindKeys", messages.Keys(id=self._id), self._timeout_s).found

    def _register(self) -> None:
        if self._keys is not None and not self._found():
            self._asked("RegisterKeys", self._upload(), self._timeout_s + self.bytes_keys / (1 << 15))

    def _upload(self) -> Iterator[Any]:
        yield messages.KeysUpload(program=self._program, id=self._id)
        yield from split(self._keys or b"")


class _Stream:
    """The stream of one session: gRPC's own thread sends the messages of the queue, the caller's receives."""

    def __init__(self, call: Any, metadata: Any, server: str) -> None:
        self._server, self._outbox = server, queue.SimpleQueue[Any]()
        self._call = call(iter(self._outbox.get, None), metadata=metadata)
        self._due, self._ended = float("inf"), threading.Event()
        threading.Thread(target=self._watch, name="privcirnet watch", daemon=True).start()

    @property
    def ended(self) -> bool:
        """True if nothing comes any more, as far as it is known here."""
        return self._ended.is_set() or self._call.done()

    def send(self, message: Any) -> None:
        self._outbox.put(message)

    def receive(self, max_bytes: int, seconds: float) -> bytes:
        """Return the next body; the call is cancelled if it does not come."""
        self._due = time.monotonic() + seconds
        try:
            return _joined(self._call, max_bytes, self._server, f"nothing in {seconds:.3g} s")
        except RuleError:
            self.close()
            raise
        finally:
            self._due = float("inf")

    def close(self) -> None:
        self._ended.set()
        self._outbox.put(None)
        self._call.cancel()

    def _watch(self) -> None:
        """Cancel a call that is overdue: reading itself has no deadline, and a timer for each reply costs a thread."""
        while not self._ended.wait(_WATCH_S):
            if time.monotonic() > self._due:
                self._call.cancel()


def _channel(address: tuple[str, int], access: ClientAccess) -> Any:
    if access.credentials is not None:
        return grpc.secure_channel(show_address(address), access.credentials, _OPTIONS)
    if not is_loopback(address[0]):
        remedy = "use tls=DIR with what the server's operator gave you, or a tunnel"
        raise RuleError("a client must use TLS beyond loopback", got=show_address(address), remedy=remedy)
    return grpc.insecure_channel(show_address(address), _OPTIONS)


def _joined(call: Any, max_bytes: int, server: str, cancelled: str = "") -> bytes:
    """Return the body of a call that comes in chunks."""
    body = Body(max_bytes)
    try:
        for chunk in call:
            if body.add(chunk):
                return body.joined()
        got = "the end of a message"
    except grpc.FutureCancelledError:
        got = cancelled
    except grpc.RpcError as error:
        if cast(Any, error).code() != grpc.StatusCode.CANCELLED:
            raise unpacked(error, server) from None
        got = cancelled
    raise Lost("a peer must stay until both are done", got=f"{got} from {server}", remedy="connect again")
