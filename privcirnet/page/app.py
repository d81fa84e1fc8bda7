"""The page's few addresses: its files, its initial facts, test images, and the image to classify."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from importlib.resources import files

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from privcirnet.data.decoder import MOST_BYTES
from privcirnet.data.picture import Prepared
from privcirnet.errors import RuleError
from privcirnet.page.access import Guard, refused
from privcirnet.page.content import Content
from privcirnet.page.events import Event
from privcirnet.page.inference import Classifier
from privcirnet.page.pictures import for_canvas, png
from privcirnet.runs.pictures import preparation_for

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
        self._preparation = preparation_for(self._subject, content.data)
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
        return Response(png(self._tests[number], self._preparation.levels), media_type="image/png")

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
        picture = for_canvas(prepared.pixels, self._preparation.levels)
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
