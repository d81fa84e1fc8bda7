"""The client: what it refuses."""

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.client import Client
from privcirnet.he.protocol.server import Server, Session
from tests.he.networks import network, random_image
from tests.he.parties import check, requests, strange


def test_replies_that_are_not_due_are_refused(cleartext: tuple[Program, Client, Session]) -> None:
    program, client, session = cleartext
    image = random_image(program)
    count = len(list(requests(client, session, image)))
    for position in range(count):
        for kind in range(8):
            exchange = client.infer(image)
            message = next(exchange)
            for _ in range(position):
                message = exchange.send(session.handle(message))
            reply = session.handle(message)
            with pytest.raises(RuleError, match="must"):
                exchange.send(strange(reply)[kind])
            with pytest.raises(RuleError, match="must"):
                session.handle(b"")
    check(program, client, session, image)


@pytest.mark.parametrize(
    ("image", "match"),
    [
        (np.zeros((4, 8, 7), dtype=np.int64), r"input shape: got \(4, 8, 7\) for \(4, 8, 8\)"),
        (np.zeros((256,), dtype=np.int64), "input shape"),
        (np.full((4, 8, 8), 16), r"integers in \[-8, 15\]: got int64 in \[16, 16\]"),
        (np.full((4, 8, 8), -9), "integers in"),
        (np.full((4, 8, 8), 0.5), "integers in .*: got float64"),
        (np.full((4, 8, 8), True), "integers in .*: got bool"),
    ],
)
def test_images_are_checked(cleartext: tuple[Program, Client, Session], image: np.ndarray, match: str) -> None:
    with pytest.raises(RuleError, match=match):
        next(cleartext[1].infer(image))


@pytest.mark.parametrize("greeting", [b"", b"\xff\xfe", b"{", b"[]", b"[" * 100000, b"9" * 10000])
def test_greetings_are_checked(greeting: bytes) -> None:
    with pytest.raises(RuleError, match="must be"):
        Client(greeting, "cleartext")


def test_an_insecure_greeting_is_refused() -> None:
    text = Server(network(), "cleartext").greeting().replace(b'"ring_degree": 8192', b'"ring_degree": 256')
    with pytest.raises(RuleError, match="128-bit table: got 256"):
        Client(text, "cleartext")
