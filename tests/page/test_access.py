"""Another website in the same browser, or another user of the machine, can't drive the page."""

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from privcirnet.page.server import SECURITY_HEADERS, Guard, new_token

HOST, TOKEN = "127.0.0.1:5055", "right-token"
HERE = f"http://{HOST}"


@pytest.fixture
def client():
    reached = []

    async def endpoint(request):
        reached.append(request.url.path)
        return PlainTextResponse("in")

    async def socket(websocket):
        await websocket.accept()

    routes = [Route("/{path:path}", endpoint, methods=["GET", "POST"]), WebSocketRoute("/{path:path}", socket)]
    found = TestClient(Guard(Starlette(routes=routes), TOKEN, 5055), base_url=HERE)
    found.reached = reached
    return found


@pytest.mark.parametrize("host", [HOST, "localhost:5055"])
def test_the_page_itself_is_let_in(client, host):
    headers = {"host": host, "origin": f"http://{host}"}
    assert client.get(f"/{TOKEN}/", headers={"host": host}).text == "in"
    assert client.post(f"/{TOKEN}/classify", headers=headers).text == "in"


@pytest.mark.parametrize(
    ("method", "path", "headers", "rule"),
    [
        ("GET", f"/{TOKEN}/", {"host": "evil.example:5055"}, "called by its own name: got Host 'evil.example:5055'"),
        ("GET", f"/{TOKEN}/", {"host": "127.0.0.1:80"}, "called by its own name"),
        ("GET", f"/{TOKEN}/", {"host": "127.0.0.1"}, "called by its own name"),
        ("GET", f"/{TOKEN}/", {"origin": "https://evil.example"}, "come from the page itself"),
        ("GET", f"/{TOKEN}/", {"origin": "null"}, "come from the page itself"),
        ("POST", f"/{TOKEN}/", {}, "come from the page itself: got Origin 'none'"),
        ("POST", f"/{TOKEN}/", {"origin": "http://localhost:5055"}, "come from the page itself"),
        ("POST", f"/{TOKEN}/", {"origin": "http://127.0.0.1:5056"}, "come from the page itself"),
        ("OPTIONS", f"/{TOKEN}/", {"origin": "https://evil.example"}, "come from the page itself"),
        ("GET", "/", {}, "must have this run's token"),
        ("GET", "/wrong-token/", {}, "must have this run's token"),
        ("GET", f"/{TOKEN}x/", {}, "must have this run's token"),
        ("GET", f"//{TOKEN}/", {}, "must have this run's token"),
        ("GET", "/%C3%A9/", {}, "must have this run's token"),
        ("POST", "/wrong-token/classify", {"origin": HERE}, "must have this run's token"),
    ],
)
def test_others_are_refused_before_anything_is_read(client, method, path, headers, rule):
    answer = client.request(method, HERE + path, headers=headers)
    assert answer.status_code == 403
    error = answer.json()
    assert rule in f"{error['rule']}: got {error['got']}"
    assert error["remedy"] == "open the address that infer.py printed"
    assert client.reached == []
    assert TOKEN not in answer.text
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_two_origins_are_not_one(client):
    headers = [("origin", HERE), ("origin", "https://evil.example")]
    assert client.post(f"/{TOKEN}/", headers=headers).status_code == 403


def test_there_are_no_web_sockets(client):
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(f"/{TOKEN}/"):
        pass
    assert client.reached == []


def test_every_answer_has_the_headers(client):
    for path in (f"/{TOKEN}/", "/wrong/"):
        headers = client.get(path).headers
        assert {name: headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS
    policy = SECURITY_HEADERS["content-security-policy"]
    assert "unsafe" not in policy
    assert "*" not in policy
    assert policy.startswith("default-src 'none'")


def test_tokens_are_long_and_new():
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 43
