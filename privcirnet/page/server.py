"""The page's server, on loopback and nowhere else, its few addresses, and access to them.

Any website that is open in the same browser can send requests to loopback. Five things keep it out: a random token in
the address, which no other page can read; the Host that a browser says it calls, which a foreign name that was pointed
at loopback betrays; the Origin, which a browser adds to what another page sends; no permission to read across origins;
and a policy that lets the page itself load and call nothing else.

Connections have a deadline for requests: silent ones would keep the page's own browser out. uvicorn ends a connection
that is idle after an answer. It waits for ever for one that has sent nothing yet, or half a request, and counts all of
them.
"""

import asyncio
import secrets
import socket
import threading
from asyncio import BaseTransport, TimerHandle
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from importlib.resources import files
from typing import Any

import h11
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from privcirnet.data.picture import MOST_BYTES, Prepared
from privcirnet.errors import RuleError
from privcirnet.page.content import Content, for_canvas, png
from privcirnet.page.inference import Classifier, Connect, Event, plain
from privcirnet.runs.pictures import preparation_for

HOSTS = ("127.0.0.1", "localhost")
_POLICY = "; ".join(
    [
        *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'"),
        *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"),
    ]
)
SECURITY_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",  # the address has the token
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
_OPEN = "open the address that infer.py printed"


def new_token() -> str:
    """Return 256 random bits of the operating system, for an address."""
    return secrets.token_urlsafe(32)


class Guard:
    """A guard that passes only the page's own requests, and adds the security headers to every answer.

    Args:
        app: application behind it.
        token: first part of every path.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, token.encode()
        self._hosts = {f"{host}:{port}" for host in HOSTS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it before anything reads it."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                security = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *security]
            await send(message)

        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})  # the page has none
            return
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send_with_headers)
            return
        answer = refused(403, refusal)
        answer.headers["connection"] = "close"  # what else a stranger sends is not waited for
        await answer(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> RuleError | None:
        headers = Headers(scope=scope)
        host, origins = headers.get("host", ""), headers.getlist("origin")
        if host not in self._hosts:
            return RuleError("the page must be called by its own name", got=f"Host {host[:80]!r}", remedy=_OPEN)
        if not _all_equal(origins, f"http://{host}") or (scope["method"] not in ("GET", "HEAD") and not origins):
            got = f"Origin {', '.join(origins)[:80] or 'none'!r}"
            return RuleError("requests must come from the page itself", got=got, remedy=_OPEN)
        first = scope["path"].split("/")[1:2]
        if not first or not secrets.compare_digest(first[0].encode(), self._token):
            return RuleError("the address must have this run's token", got="another or none", remedy=_OPEN)
        return None


def refused(status: int, error: RuleError) -> JSONResponse:
    """Return an error as an answer that the page shows."""
    return JSONResponse(plain(error), status)


def _all_equal(values: Iterable[str], expected: str) -> bool:
    return all(value == expected for value in values)


_LONGEST_ROUND = 60.0
"""Seconds that an image waits for the last round of one that was stopped."""
_PATIENCE = 1.0
"""Seconds that an image waits for the running one to end or stop: the two come on different connections."""
_FILES = {
    "": ("page", "static/page.html", "text/html"),
    "page.css": ("page", "static/page.css", "text/css"),
    "page.js": ("page", "static/page.js", "text/javascript"),
    "drawing.js": ("page", "static/drawing.js", "text/javascript"),
    "icon.svg": ("page", "static/icon.svg", "image/svg+xml"),
    "base.css": ("report", "base.css", "text/css"),
}
"""Files (package, file, media type) by last part of the path; the report's colours and type are the page's."""

Prepare = Callable[[], Prepared]
Events = asyncio.Queue[Event | None]
"""Events of one inference; None after the last one."""


class Page:
    """The page of one client."""

    def __init__(self, classifier: Classifier, content: Content) -> None:
        self._classifier, self._content = classifier, content
        self._subject = classifier.subject
        content.check(self._subject)
        self._preparation = preparation_for(self._subject, content.data, content.low)
        self._tests = () if content.tests is None else content.tests.pixels
        self._numbers = {str(number): number for number in range(len(self._tests))}
        self._busy, self._stop = threading.Lock(), threading.Event()
        package = {name: files(f"privcirnet.{name}") for name in ("page", "report")}
        self._files = {path: (package[p].joinpath(name).read_bytes(), kind) for path, (p, name, kind) in _FILES.items()}

    def app(self, token: str, port: int) -> ASGIApp:
        """Return the ASGI application, guarded."""
        base = "/{token}"
        routes = [
            Route(f"{base}/facts", self._facts),
            Route(f"{base}/stock", self._stock),
            Route(f"{base}/tests/{{number}}.png", self._test_image),
            Route(f"{base}/classify", self._upload, methods=["POST"]),
            Route(f"{base}/classify/{{number}}", self._classify_test, methods=["POST"]),
            Route(f"{base}/{{file}}", self._file),
            Route(f"{base}/", self._file),
        ]
        return Guard(Starlette(routes=routes), token, port)

    def close(self) -> None:
        """Stop the running inference, wait for its round, and end the connection."""
        self._stop.set()
        if self._busy.acquire(timeout=5.0):
            self._classifier.close()

    async def _file(self, request: Request) -> Response:
        content, kind = self._files.get(request.path_params.get("file", ""), (None, None))
        return Response(status_code=404) if content is None else Response(content, media_type=kind)

    async def _facts(self, request: Request) -> Response:
        return JSONResponse({**self._content.facts(), **self._subject.facts(), "most_bytes": MOST_BYTES})

    async def _stock(self, request: Request) -> Response:
        return JSONResponse(self._classifier.stock())

    async def _test_image(self, request: Request) -> Response:
        number = self._numbers.get(request.path_params["number"])
        if number is None:
            return Response(status_code=404)
        return Response(
            png(self._tests[number] - self._preparation.low, self._preparation.levels), media_type="image/png"
        )

    async def _classify_test(self, request: Request) -> Response:
        number = self._numbers.get(request.path_params["number"])
        if number is None:
            return Response(status_code=404)
        pixels = self._tests[number].astype(np.int64)
        words = f"Test image {number + 1} of {self._content.data}, as it is"
        return await self._classify(lambda: Prepared(pixels, (words,)))

    async def _upload(self, request: Request) -> Response:
        content = bytearray()
        try:
            async for chunk in request.stream():
                content += chunk
                if len(content) > MOST_BYTES:
                    rule = f"an image file must have at most {MOST_BYTES >> 20} MiB"
                    return refused(413, RuleError(rule, got="more", remedy="make the picture smaller"))
        except ClientDisconnect:
            return Response(status_code=400)  # which nobody reads
        return await self._classify(lambda: self._preparation.prepare(bytes(content)))

    async def _classify(self, prepare: Prepare) -> Response:
        """Prepare an image and answer with the events of its inference, unless another one runs."""
        if not await self._has_room():
            rule, remedy = "images must be classified one at a time", "wait for the answer, or stop the one that runs"
            return refused(409, RuleError(rule, got="a second one", remedy=remedy))
        try:
            prepared = await run_in_threadpool(prepare)
        except RuleError as error:
            self._busy.release()
            return refused(422, error)
        except BaseException:
            self._busy.release()
            raise
        picture = for_canvas(prepared.pixels - self._preparation.low, self._preparation.levels)
        first = Event("image", {**picture, "steps": prepared.steps})
        stop, events = self._start(prepared)
        return StreamingResponse(_told(first, events, stop), media_type="text/event-stream")

    async def _has_room(self) -> bool:
        """Take the turn of the running inference if it ends soon, or when the last round of a stopped one is done."""
        if await run_in_threadpool(self._busy.acquire, timeout=_PATIENCE):
            return True
        return self._stop.is_set() and await run_in_threadpool(self._busy.acquire, timeout=_LONGEST_ROUND)

    def _start(self, prepared: Prepared) -> tuple[threading.Event, Events]:
        """Begin the inference in a thread of its own, which ends, and makes room, even if nobody listens."""
        loop, events = asyncio.get_running_loop(), Events()
        stop = self._stop = threading.Event()

        def tell(event: Event | None) -> None:
            with suppress(RuntimeError):  # the page is being closed
                loop.call_soon_threadsafe(events.put_nowait, event)

        def work() -> None:
            try:
                self._classifier.classify(prepared.pixels, tell, stop)
            finally:
                self._busy.release()
                tell(None)

        threading.Thread(target=work, daemon=True).start()
        return stop, events


async def _told(first: Event, events: Events, stop: threading.Event) -> AsyncIterator[bytes]:
    """Yield an inference's events; it is stopped if the listener leaves."""
    try:
        yield first.encode()
        while (event := await events.get()) is not None:
            yield event.encode()
    finally:
        stop.set()


SECONDS: dict[Any, float] = {h11.IDLE: 5.0, h11.SEND_BODY: 120.0}
"""Seconds for the start of a request, and for an image, which may come through a tunnel."""


class TimeoutProtocol(H11Protocol):
    """A connection that is closed if a request is not whole in time. An answer may take as long as it takes."""

    _awaited: Any = None
    _deadline: TimerHandle | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        """Start to wait for a request."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._wait_for(self.conn.their_state)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._wait_for(self.conn.their_state)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._wait_for(None)
        super().connection_lost(exc)

    def _wait_for(self, state: Any) -> None:
        """Set the deadline of the client's next part, once."""
        if state is self._awaited:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        seconds, self._awaited = SECONDS.get(state), state
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)


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
