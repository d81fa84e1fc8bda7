"""Fuzz a running service: ``python -m tests.service.fuzz serve``, and beside it ``... fuzz PORT FILE``.

Two processes of their own, because both take INSECURE parameters and because a fault in native code ends the server.
FILE holds what is being tried.
"""

import hashlib
import json
import mmap
import sys
import threading
from pathlib import Path
from random import Random
from typing import Any

import grpc

from privcirnet.he.program.interpreter import interpret
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import run
from privcirnet.service import messages
from privcirnet.service.client import ServiceClient
from privcirnet.service.limits import ServiceLimits, ServiceState
from privcirnet.service.log import Log
from privcirnet.service.messages import METHODS, split
from privcirnet.service.refusals import Refused, unpacked
from privcirnet.service.server import Service
from tests.he.protocol import mutations
from tests.he.protocol.fuzz import CHARACTERS, INSECURE, allow_insecure_parameters, network
from tests.he.protocol.fuzz_prepared import AHEAD, PreparedFuzz
from tests.he.protocol.mutations import Honest
from tests.service.running import catalogue

ENGINE = "kernel"
MUTATIONS = {
    "keys": 1200,
    "opening": 1000,
    "chunk": 1000,
}
"""Bodies of each kind, and gRPC messages: a session's first one, and one in the middle of an image."""
PREPARED = {"ahead agree": 1000, "ahead prepare": 1000, "ahead 1": 3000, "ahead 2": 1500, "online image": 1500}
"""Bodies of prepared inference."""
HANG = 90
"""Seconds after which a call hangs: the machine may have other work, and both processes share it."""
EVERY = 100
"""Mutations between two images of a correct client, which is connected all the time."""


def serve() -> None:
    """Serve on loopback until killed; the port is all that is printed."""
    allow_insecure_parameters()
    books = ServiceState(limits=ServiceLimits(sessions=8, timeout_s=60.0), log=Log(_complain))
    service = Service(catalogue(only=Server(network(*INSECURE), ENGINE)), books=books)
    sys.stdout.write(f"{service.address[1]}\n")
    sys.stdout.flush()
    service.run()


def _complain(line: str) -> None:
    if "the server failed" in line:
        sys.stderr.write(line + "\n")


class ServiceFuzz:
    """Honest messages from two parties in this process, and a service to which mutated ones are sent."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._parties = PreparedFuzz(ENGINE)
        self.honest = dict(self._parties.honest)
        self.honest |= {kind: self._parties.honest[f"request {kind}"] for kind in PREPARED}
        self._channel = grpc.insecure_channel(f"{address[0]}:{address[1]}")
        self.client = ServiceClient(address, ENGINE)
        self.keys = self._parties.honest["keys"].content
        self._program = messages.Program(name="only")
        self._own = hashlib.sha256(self.keys).digest()
        self.register(self.keys)
        for name, message in {
            "opening": messages.SessionRequest(program=self._program, keys=self._own),
            "chunk": messages.SessionRequest(data=self._parties.requests[1], last=True),
        }.items():
            content = message.SerializeToString()
            self.honest[name] = Honest(content, [], [], [*self._parties.requests, *self._parties.replies])

    def register(self, keys: bytes) -> bytes:
        """Register keys, and return their id."""
        key_id = hashlib.sha256(keys).digest()
        first = messages.KeysUpload(program=self._program, id=key_id)
        parts = [messages.KeysUpload(data=data, last=last) for data, last in split(keys)]
        self._call("RegisterKeys", METHODS["RegisterKeys"].request.SerializeToString)(
            iter([first, *parts]), timeout=HANG
        )
        return key_id

    def converse(self, sent: list[bytes]) -> int:
        """Send gRPC messages of a session, each after the reply to the one before; return how many had one."""
        done = 0

        def paced() -> Any:
            for number, message in enumerate(sent):
                if number:
                    turns.acquire()
                yield message  # after the last one the stream is half closed: nothing more is awaited

        turns = threading.Semaphore(0)
        call = self._call("Session", None)(paced(), timeout=HANG)
        try:
            for chunk in call:
                if chunk.last:
                    done += 1
                    turns.release()
        finally:
            call.cancel()
            turns.release(len(sent))
        return done

    def attempt(self, kind: str, seed: int) -> bool:
        """Try one mutated message; return whether it was processed."""
        honest, random = self.honest[kind], Random(f"service {kind} {seed}")
        message = mutations.message(honest, random)
        if message == honest.content:
            message += b"\0"
        try:
            return self._tried(kind, message)
        except grpc.RpcError as error:
            reason = unpacked(error, "it")
            if "larger than max" in (error.details() or ""):  # gRPC's own limit on a message
                return False
            if not isinstance(reason, Refused) or error.code() == grpc.StatusCode.INTERNAL:
                raise
            if len(str(reason)) > CHARACTERS:
                raise AssertionError(f"an error of {len(str(reason))} characters") from None
            if kind not in ("opening", "chunk") and self._allows(kind, message):
                raise AssertionError(f"refused: {reason}") from None
            return False

    def _tried(self, kind: str, message: bytes) -> bool:
        key_id = self._own
        sent = [self._framed(due) for due in self._parties.requests]
        name, _, step = kind.partition(" ")
        if name == "keys":
            key_id = self.register(message)
            sent = sent[:1]
        elif kind in PREPARED:
            begun = self._parties.ahead[1 : max(1, AHEAD.index(step))] if name == "ahead" else []
            sent = [*(self._framed(request) for request, _ in begun), *self._chunked(message)]
        first = messages.SessionRequest(program=self._program, keys=key_id).SerializeToString()
        if name == "opening":
            first, sent = message, sent[:1]
        elif name == "chunk":
            sent = [sent[0], message]
        processed = self.converse([first, *sent]) == 1 + len(sent)
        assert name in ("opening", "chunk") or processed == self._allows(kind, message), f"{processed}"
        return processed

    def _allows(self, kind: str, message: bytes) -> bool:
        """The oracle: offline work, and in these sessions an agreement or an image, may be begun at any time."""
        if kind not in PREPARED:
            return self.honest[kind].allows(message)
        return self._parties.allowed[f"request {kind}"](message) or self._parties.begins(message, idle=True)

    def good_image(self) -> None:
        """The correct client gets its answer, exactly: the network has no truncation."""
        logits, _ = run(self.client.client, self.client, self._parties.image)
        assert (logits == interpret(self._parties.program, self._parties.image)["sum"]).all()

    def _framed(self, body: bytes) -> bytes:
        (message,) = self._chunked(body)
        return message

    def _chunked(self, body: bytes) -> list[bytes]:
        found = [messages.SessionRequest(data=data, last=last) for data, last in split(body)]
        return [message.SerializeToString() for message in found]

    def _call(self, name: str, serializer: Any) -> Any:
        method = METHODS[name]
        return getattr(self._channel, method.shape)(method.path, serializer, method.response.FromString)


def drive(port: int, place: mmap.mmap) -> None:
    """Try every mutation; a correct client asks in between."""
    allow_insecure_parameters()
    fuzz, found, tried = ServiceFuzz(("127.0.0.1", port)), {}, 0
    for kind, count in mutations.due(MUTATIONS | PREPARED).items():
        processed = 0
        fuzz.register(fuzz.keys)  # which mutated ones may have pushed out
        for seed in range(count):
            place[:64] = f"{kind} {seed}".encode().ljust(64)
            processed += fuzz.attempt(kind, seed)
            tried += 1
            if tried % EVERY == 0:
                fuzz.good_image()
                sys.stdout.write(".")
                sys.stdout.flush()
        found[kind] = {"tried": count, "processed": processed}
    fuzz.good_image()
    sys.stdout.write("\n" + json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        with Path(sys.argv[2]).open("r+b") as file, mmap.mmap(file.fileno(), 64) as shared:
            drive(int(sys.argv[1]), shared)
