"""The page's server, on loopback and nowhere else."""

import socket
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from privcirnet.errors import RuleError
from privcirnet.page.access import HOSTS, new_token
from privcirnet.page.app import Page
from privcirnet.page.connections import TimeoutProtocol
from privcirnet.page.content import Content
from privcirnet.page.inference import Classifier, Connect

_CONNECTIONS = 32
"""Most connections of browsers at once."""
_AT_END = 2
"""Seconds that answers may take when the page ends."""


def serve(connect: Connect, content: Content, port: int, announce: Callable[[str], object], prepare: int = 0) -> None:
    """Serve the page until it is interrupted.

    Args:
        connect: function that connects to the server that classifies; called once before the page is there.
        port: port to listen at; 0 for any that is free.
        announce: function called with the page's address, which is secret, when it can be opened.

    Raises:
        RuleError: no server that classifies, a program that pictures are no input of, or the port is taken.
    """
    classifier = Classifier(connect, content, prepare)
    try:
        page = Page(classifier, content)
        with listening(port) as listener, suppress(KeyboardInterrupt):
            address, server = web_server(page, listener)
            announce(address)
            server.run(sockets=[listener])
        page.close()
    finally:
        classifier.close()


def web_server(page: Page, listener: socket.socket) -> tuple[str, uvicorn.Server]:
    """Return the page's address, with a new token, and its server there."""
    token, port = new_token(), listener.getsockname()[1]
    config = uvicorn.Config(
        page.app(token, port),
        access_log=False,  # lines would have the token
        http=TimeoutProtocol,
        lifespan="off",
        limit_concurrency=_CONNECTIONS,
        log_level="warning",
        loop="asyncio",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_AT_END,
        ws="none",
    )
    return f"http://{HOSTS[0]}:{port}/{token}/", uvicorn.Server(config)


def listening(port: int) -> socket.socket:
    """Return a socket that listens on loopback; ``port``: 0 for any that is free."""
    try:
        return socket.create_server((HOSTS[0], port))
    except OSError as problem:
        got = f"{HOSTS[0]}:{port}: {problem.strerror or problem}"
        raise RuleError("the page must be able to listen at its port", got=got, remedy="use ui=true") from None
