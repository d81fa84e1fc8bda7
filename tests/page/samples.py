"""A small network on 8 x 8 digits, a client with both parties in this process, and the page over it."""

import io
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
from PIL import Image

from privcirnet.he.ckks.program import CkksProgram
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Input, Linear, Square, Truncate
from privcirnet.he.program.program import Program
from privcirnet.he.program.rearrangement import Flatten
from privcirnet.he.protocol.one_message.session import OneMessageClient, OneMessageServer
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.page.content import Content, TestImages
from privcirnet.page.inference import Classifier
from privcirnet.page.server import Page, listening, web_server
from tests.he.layer_examples import paper_layer
from tests.he.networks import N, with_weights

DIGITS = tuple("0123456789")
TESTS = TestImages(np.random.default_rng(1).integers(0, 17, (3, 1, 8, 8), dtype=np.uint8), [3, 1, 4])


def program(channels: int = 1, levels: int = 16) -> Program:
    """Convolution, square, linear layer."""
    first = paper_layer(LinearShape(8, 8, channels, 4, 3, 2, 1), 1, N)
    maps, flat = (4, 4, 4), (64, 1, 1)
    head = paper_layer(LinearShape.gemm(1, 64, 10), 2, N)
    nodes = (
        Node("x", Input(0, levels), (), (channels, 8, 8), -4),
        Node("first", Linear(first), ("x",), maps, -8, "stem"),
        Node("first_t", Truncate(4), ("first",), maps, -4),
        Node("square", Square(), ("first_t",), maps, -8),
        Node("square_t", Truncate(2), ("square",), maps, -6),
        Node("flat", Flatten(), ("square_t",), flat, -6),
        Node("head", Linear(head), ("flat",), (10, 1, 1), -10),
    )
    return with_weights(nodes, 46, 0)


class InProcess:
    """A connection that is none: both parties here, the client's keys accepted.

    Attributes:
        before: called with the number of each request before it is replied to.
    """

    def __init__(self, server: Server | OneMessageServer, engine: str) -> None:
        self.party = (OneMessageClient if isinstance(server, OneMessageServer) else Client)(server.greeting(), engine)
        keys = self.party.keys()
        self.bytes_keys, self._session, self.requests = len(keys), server.session(keys), 0
        self.before = lambda number: None

    def handle(self, message: bytes) -> bytes:
        self.before(self.requests)
        self.requests += 1
        return self._session.handle(message)

    def reopen(self) -> None:
        """Its session goes on after a refusal."""


class Service:
    """Opens connections in this process, and remembers them."""

    def __init__(self, served: Program | CkksProgram, engine: str = "cleartext") -> None:
        kind = Server if isinstance(served, Program) else OneMessageServer
        self.server, self.engine = kind(served, engine), engine
        self.opened: list[InProcess] = []
        self.open, self.before = 0, lambda number: None

    @contextmanager
    def connect(self) -> Generator[InProcess]:
        self.opened.append(InProcess(self.server, self.engine))
        self.opened[-1].before = self.before
        self.open += 1
        try:
            yield self.opened[-1]
        finally:
            self.open -= 1


def content(**changes) -> Content:
    return Content(**{"data": "digits", "place": "here", "classes": DIGITS, "tests": TESTS, **changes})


def page(service: Service, prepare: int = 0, **changes) -> SimpleNamespace:
    found = content(**changes)
    classifier = Classifier(service.connect, found, prepare)
    return SimpleNamespace(page=Page(classifier, found), classifier=classifier)


def picture(size=(20, 30), kind: str = "png", mode: str = "RGB", **options) -> bytes:
    """A file with a dark disc-like blot on a light ground."""
    width, height = size
    across, down = np.meshgrid(np.linspace(-1, 1, width), np.linspace(-1, 1, height))
    blot = np.where(across**2 + down**2 < 0.3, 30, 240).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(blot).convert(mode).save(stream, kind, **options)
    return stream.getvalue()


@contextmanager
def served(page: Page) -> Generator[str]:
    """The page at an address of its own, in a thread of this process."""
    with listening(0) as listener:
        address, server = web_server(page, listener)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield address
        finally:
            server.should_exit = True
            thread.join(10)
            page.close()
