"""The page over a client with both parties in this process: answers, and one line for whatever goes wrong."""

import json
import threading

import numpy as np
import pytest
from starlette.testclient import TestClient

from privcirnet.errors import RuleError
from privcirnet.he.program.interpreter import interpret
from privcirnet.page import server
from tests.page import samples

HOST = "http://127.0.0.1:5055"
HEADERS = {"origin": HOST}


@pytest.fixture
def service():
    return samples.Service(samples.program())


@pytest.fixture
def client(service):
    page = samples.page(service).page
    with TestClient(page.app("token", 5055), base_url=HOST) as found:
        yield found
    page.close()


def events(answer) -> list[tuple[str, dict]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [block.split("\n") for block in answer.text.split("\n\n") if block]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in lines]


def upload(client, content: bytes):
    return client.post("/token/classify", content=content, headers=HEADERS)


def line(error: dict[str, str]) -> str:
    return f"{error['rule']}: got {error['got']}; {error['remedy']}"


def test_the_page_has_its_files_and_nothing_from_outside(client):
    for name, kind in (("", "html"), ("page.js", "javascript"), ("page.css", "css"), ("base.css", "css")):
        answer = client.get(f"/token/{name}")
        assert answer.status_code == 200
        assert kind in answer.headers["content-type"]
        assert "https://" not in answer.text
    for name in ("drawing.js", "icon.svg", "tests/2.png"):
        assert client.get(f"/token/{name}").status_code == 200
    for name in (
        "tests/3.png",
        "tests/-1.png",
        "tests/01.png",
        f"tests/{'9' * 5000}.png",
        "tests/٣.png",
        "..%2fpage.py",
        "app.py",
        "classify",
    ):
        assert client.get(f"/token/{name}").status_code in (404, 405)
    assert " style=" not in client.get("/token/").text, "the policy forbids it"


def test_the_page_says_at_its_start_what_there_is(client):
    facts = client.get("/token/facts").json()
    assert facts["tests"] == ["3", "1", "4"]
    assert [r["name"] for r in facts["rounds"]] == ["image", "square"]
    assert [r["what"] for r in facts["rounds"]] == ["less the client’s random share", "squares"]


def test_a_picture_is_classified_and_every_round_is_told(client, service):
    found = events(upload(client, samples.picture()))
    names = [name for name, _ in found]
    ahead = names.count("preparing")
    assert names == [
        "image",
        "connecting",
        "program",
        *["preparing"] * ahead,
        "rounds",
        *["request", "reply"] * 2,
        "answer",
    ]
    told = dict(found)
    steps = told["image"]["steps"]
    assert steps[0] == "PNG file of 20 × 30 pixels"
    assert steps[-1] == "rounded to 17 levels"
    replies, answer = [data for name, data in found if name == "reply"], told["answer"]
    assert [r["round"] for r in replies] == [0, 1]
    assert sum(r["bytes_up"] for r in replies) == answer["online"]["bytes_up"]
    assert sum(r["bytes_down"] for r in replies) == answer["online"]["bytes_down"]
    assert all(r["seconds"] > 0 for r in replies)
    requests = [data for name, data in found if name == "request"]
    assert [r["ciphertexts"] for r in requests] == [0, 0]
    assert requests[0]["picture"]["width"] > 0


def test_the_answer_is_the_integer_networks(client, service):
    """Of a test image as it is, up to truncations; the largest logit first."""
    answer = dict(events(client.post("/token/classify/1", headers=HEADERS)))["answer"]
    program = service.server.program
    exact = interpret(program, samples.TESTS.pixels[1].astype(np.int64))["head"].reshape(-1) * 2.0**-10
    shown = {row["name"]: row["value"] for row in answer["logits"]}
    assert np.abs(np.array([shown[name] for name in samples.DIGITS]) - exact).max() < 0.1 * np.abs(exact).max()
    assert list(shown.values()) == sorted(shown.values(), reverse=True)
    for number in ("3", "-1", "01", "9" * 5000, "x"):
        assert client.post(f"/token/classify/{number}", headers=HEADERS).status_code == 404


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        (b"", 422, "an image file must be whole: got not an image"),
        (b"GIF89a, or so", 422, "an image file must be whole: got not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 422, "got not an image"),
        (samples.picture()[:-40], 422, "an image file must be whole: got "),
    ],
)
def test_a_bad_upload_is_one_line_and_the_page_goes_on(client, service, content, status, words):
    answer = upload(client, content)
    assert answer.status_code == status
    assert words in line(answer.json())
    assert "\n" not in line(answer.json())
    assert service.opened[0].requests == 0
    assert events(upload(client, samples.picture()))[-1][0] == "answer"
    assert len(service.opened) == 1, "the connection was kept"


def test_a_large_upload_is_refused_whatever_length_it_announces(client, monkeypatch):
    monkeypatch.setattr(server, "MOST_BYTES", 1 << 20)
    for content in (bytes(1 << 21), iter([bytes(1 << 18)] * 8)):
        answer = upload(client, content)
        assert answer.status_code == 413
        assert line(answer.json()) == "an image file must have at most 1 MiB: got more; make the picture smaller"
    assert events(upload(client, samples.picture()))[-1][0] == "answer"


def test_a_second_image_while_one_runs_is_refused(service):
    arrived, go = threading.Event(), threading.Event()

    def wait(number):
        arrived.set()
        assert go.wait(30)

    service.before = wait
    page = samples.page(service).page
    with TestClient(page.app("token", 5055), base_url=HOST) as client:
        first = []
        thread = threading.Thread(target=lambda: first.append(upload(client, samples.picture())))
        thread.start()
        assert arrived.wait(30)
        second = upload(client, samples.picture())
        go.set()
        thread.join(30)
    assert second.status_code == 409
    assert line(second.json()).startswith("images must be classified one at a time: got a second one")
    assert events(first[0])[-1][0] == "answer"


@pytest.mark.parametrize("stopped", [True, False])
def test_an_image_waits_for_one_that_is_about_to_end(service, stopped):
    """The end and the stop, which is the end of another connection, may come after the next image has come."""
    arrived, go = threading.Event(), threading.Event()

    def wait(number):
        if not arrived.is_set():
            arrived.set()
            assert go.wait(30)

    service.before = wait
    page = samples.page(service).page
    with TestClient(page.app("token", 5055), base_url=HOST) as client:
        first, second = [], []
        one, two = (
            threading.Thread(target=lambda found=found: found.append(upload(client, samples.picture())))
            for found in (first, second)
        )
        one.start()
        assert arrived.wait(30)
        two.start()
        two.join(0.2)
        assert two.is_alive(), "it waits"
        if stopped:
            page._stop.set()
        go.set()
        one.join(30)
        two.join(30)
    assert events(first[0])[-1][0] == ("error" if stopped else "answer")
    assert events(second[0])[-1][0] == "answer"


def test_a_server_that_goes_in_between_is_one_line_and_comes_again(client, service):
    gone = RuleError("a peer must stay until both are done", got="a closed connection", remedy="connect again")

    def leave(number):
        if number == 6:
            raise gone

    service.opened[0].before = leave
    name, data = events(upload(client, samples.picture()))[-1]
    assert name == "error"
    assert line(data) == str(gone)
    assert service.open == 0
    found = events(upload(client, samples.picture()))
    assert found[-1][0] == "answer"
    assert dict(found)["program"]["seconds"] > 0, "keys were made again"


def test_a_server_that_does_not_come_again_is_one_line_each(client, service, monkeypatch):
    absent = RuleError("a server must listen at its address", got="nobody", remedy="start one with serve.py")

    def refuse():
        raise absent

    service.opened[0].before = lambda number: refuse()
    monkeypatch.setattr(service, "server", None)
    monkeypatch.setattr(samples, "InProcess", lambda *_: refuse())
    for _ in range(2):
        name, data = events(upload(client, samples.picture()))[-1]
        assert (name, line(data)) == ("error", str(absent))


def test_a_failure_of_the_page_itself_says_nothing_of_it(client, service, capsys):
    def fail(number):
        raise ZeroDivisionError("a secret")

    service.opened[0].before = fail
    name, data = events(upload(client, samples.picture()))[-1]
    assert (name, line(data)) == ("error", "the page must not fail: got it did; see the terminal")
    assert "a secret" in capsys.readouterr().err
