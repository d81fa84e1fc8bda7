"""Access to the page: for those who were shown its address, from that page alone.

Any website that is open in the same browser can send requests to loopback. Five things keep it out: a random token in
the address, which no other page can read; the Host that a browser says it calls, which a foreign name that was pointed
at loopback betrays; the Origin, which a browser adds to what another page sends; no permission to read across origins;
and a policy that lets the page itself load and call nothing else.
"""

import secrets
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from privcirnet.errors import RuleError
from privcirnet.page.events import plain

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
