"""The page in a headless Chromium, encrypted: dropped images, the keyboard, labels, small and dark screens, strangers."""

import base64
import re
import threading
from functools import cache
from types import SimpleNamespace

import pytest

from privcirnet.errors import RuleError
from tests.page import samples
from tests.page.conftest import REBOUND
from tests.page.test_inference import classified, shifted

pytestmark = pytest.mark.browser

DROP = """([name, content]) => {
  const octets = typeof content === "number" ? new Uint8Array(content)
    : Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([octets], name));
  document.body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
}"""
STRANGER = """async (address) => {
  const found = [];
  for (const [path, options] of [["", {}], ["classify/0", { method: "POST" }], ["classify/0", { method: "POST", mode: "no-cors" }]])
    found.push(await fetch(address + path, options).then(async (a) => `${a.type} ${await a.text()}`, () => "refused"));
  return found;
}"""
CONTRAST = """(name) => {
  const light = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map((value) => value / 255)
    .map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4))
    .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
  const element = document.querySelector(name);
  let behind = element;
  while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
  const [a, b] = [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor].map(light);
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}"""


def drop(tab, name: str, content: bytes | int) -> None:
    """Drop a file with this content, or with so many zeros."""
    tab.evaluate(DROP, [name, content if isinstance(content, int) else base64.b64encode(content).decode()])


@cache
def course() -> SimpleNamespace:
    """What an image takes without a browser: names of rounds, exchanges of both phases, the last request in words."""
    service = samples.Service(samples.program())
    classifier = samples.page(service).classifier
    told = classified(classifier)
    classifier.close()
    names = [each["name"] for event in told if event.name == "rounds" for each in event.data["rounds"]]
    last = f"Request {len(names)} of {len(names)}, for {names[-1]}"
    return SimpleNamespace(names=names, requests=service.opened[0].requests, rounds=told[-1].data["rounds"], last=last)


def wait_for(tab, holds) -> None:
    for _ in range(200):
        if holds():
            return
        tab.wait_for_timeout(50)
    raise AssertionError("it never came")


def done(tab) -> str:
    """Wait for the answer; returns what a screen reader was told of it."""
    tab.wait_for_selector("text=/^Done: /")
    return tab.inner_text("#status")


def test_a_dropped_image_is_classified_before_ones_eyes(shown):
    tab = shown.tab
    drop(tab, "blot.png", samples.picture())
    assert re.match(r"The answer is \d, with a logit of -?[\d.]+, after [\d.]+ m?s\.", done(tab))
    assert "PNG file of 20 × 30 pixels, turned grey, resized" in tab.inner_text("#image-words")
    assert f"{course().last}: masked values, " in tab.inner_text("#noise-words")
    cells = tab.locator("#layers tbody tr").evaluate_all("rows => rows.map(row => row.innerText)")
    assert [cell.split("\n")[0] for cell in cells] == course().names
    assert all(len(re.findall(r"[\d.]+ k?B", cell)) == 2 and re.search(r"[\d.]+ m?s", cell) for cell in cells)
    shades = "canvas => new Set(canvas.getContext('2d').getImageData(0, 0, 64, 64).data).size"
    assert tab.locator("#noise").evaluate(shades) > 150
    bars = tab.get_by_role("list", name="Logits, the largest first").get_by_role("listitem")
    assert bars.count() == 10
    assert tab.inner_text(".winner") == bars.first.locator("b").inner_text()
    rounds = len(course().names)
    assert tab.get_by_role("progressbar", name="Rounds done").evaluate("p => [p.value, p.max]") == [rounds, rounds]
    assert shown.said == [], "no error, and nothing that the policy forbids"


def test_the_keyboard_does_it_all(shown):
    tab, arrived, go = shown.tab, threading.Event(), threading.Event()
    focused = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
    chosen = []
    tab.on("filechooser", lambda chooser: chosen.append(True))
    tab.keyboard.press("Tab")
    assert tab.evaluate(focused) == "Choose an image"
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.keyboard.press("Enter")
    wait_for(tab, lambda: chosen)
    tab.keyboard.press("Tab")
    tab.keyboard.press("Tab")
    assert tab.evaluate(focused) == "Test image 2, labelled 1"
    tab.keyboard.press("Space")
    assert "The answer is" in done(tab)
    assert tab.evaluate(focused) == "Test image 2, labelled 1", "the focus stays"
    shown.service.opened[-1].before = lambda number: (arrived.set(), go.wait(20))
    tab.keyboard.press("Space")
    assert arrived.wait(20)
    assert tab.get_by_role("button", name="Stop").is_visible()
    tab.keyboard.press("Escape")
    tab.wait_for_selector("text=Stopped. Ready for another image.")
    tab.keyboard.press("Space")
    tab.wait_for_selector("text=Preparing the image")
    go.set()
    assert "The answer is" in done(tab), "once the stopped one has ended"
    each = course().requests
    assert [connection.requests for connection in shown.service.opened] == [each + 1, each], "it ended at its round"


def test_everything_has_a_name(shown):
    tab = shown.tab
    tab.get_by_role("button", name="Test image 1, labelled 3").click()
    done(tab)
    assert tab.get_by_role("img", name=re.compile("Test image 1, labelled 3, as the network sees it")).count() == 1
    assert tab.get_by_role("img", name=re.compile(f"Random-looking noise. {course().last}")).count() == 1
    assert tab.get_by_role("group", name="Or a test image of digits").get_by_role("button").count() == 3
    assert tab.get_by_role("columnheader").count() == 5
    assert tab.get_by_role("rowheader").count() == len(course().names)
    assert tab.get_by_role("status").get_attribute("aria-live") in (None, "polite")
    assert tab.locator("html").get_attribute("lang") == "en"
    names = tab.get_by_role("button").evaluate_all("all => all.map(b => b.getAttribute('aria-label') || b.innerText)")
    assert all(names)
    assert tab.get_by_role("heading", level=1).count() == 1
    pressed = tab.locator("[aria-pressed=true]").evaluate_all("all => all.map(b => b.getAttribute('aria-label'))")
    assert pressed == ["Test image 1, labelled 3"]


def test_a_small_dark_screen(shown):
    """Nothing is wider than 400 px, everything can be read, and nothing moves if nothing is to move."""
    tab = shown.open(viewport={"width": 400, "height": 800}, color_scheme="dark", reduced_motion="reduce")
    width = "document.documentElement.scrollWidth"
    assert tab.evaluate(width) == 400
    drop(tab, f"{'x' * 300}.png", b"no image")
    assert tab.wait_for_selector("#error:not([hidden])").inner_text().endswith("that another program opens")
    assert tab.evaluate(width) == 400
    tab.locator("#tests button").first.click()
    done(tab)
    assert tab.evaluate(width) == 400
    for name in ("h1", "#step", "#image-words", "#pick", ".winner", ".logits data", "#layers tbody th", "#about"):
        assert tab.evaluate(CONTRAST, name) >= 4.5, name
        assert shown.tab.evaluate(CONTRAST, name if shown.tab.query_selector(name) else "h1") >= 4.5, f"{name}, light"
    backgrounds = [page.evaluate("getComputedStyle(document.body).backgroundColor") for page in (tab, shown.tab)]
    assert backgrounds == ["rgb(19, 23, 27)", "rgb(251, 251, 249)"]
    moving = "[...document.querySelectorAll('*')].filter(e => getComputedStyle(e).transitionDuration !== '0s').length"
    assert (tab.evaluate(moving), shown.tab.evaluate(moving) > 0) == (0, True)


def test_errors_are_one_line_and_the_page_goes_on(shown):
    tab = shown.tab
    tab.locator("#tests button").first.click()
    done(tab)
    drop(tab, "notes.txt", b"no image")
    alert = tab.wait_for_selector("#error:not([hidden])").inner_text()
    assert alert.startswith("notes.txt: an image file must be whole: got not an image")
    left = [tab.locator(name).is_visible() for name in (".winner", ".logits", "#costs", "#image", "#noise")]
    assert left == [False] * 5, "nothing of the image before"
    assert tab.inner_text("#answer") == "Only you can decrypt the answer."
    assert tab.inner_text("#image-words") + tab.inner_text("#noise-words") + tab.inner_text("#answer-words") == ""
    drop(tab, "large.png", (1 << 24) + 1)
    tab.wait_for_selector("text=large.png: an image file must have at most 16 MiB: got 16.8 MB")

    def leave(number):
        if number == 2 * course().requests - 1:  # the last of the second image
            raise RuleError("a peer must stay", got="a closed connection", remedy="connect again")

    shown.service.opened[-1].before = leave
    tab.locator("#tests button").first.click()
    tab.wait_for_selector("text=a peer must stay: got a closed connection")
    assert tab.locator("[aria-current]").count() == 0
    tab.locator("#tests button").first.click()
    assert "The answer is" in done(tab)
    assert tab.locator("#error").is_hidden()
    assert "made and accepted in" in tab.inner_text("#keys-note")


def test_a_refused_result_is_called_so_and_the_page_goes_on(shown, monkeypatch):
    tab = shown.tab
    tab.locator("#tests button").first.click()
    done(tab)
    with monkeypatch.context() as patch:
        shifted(patch)
        tab.locator("#tests button").first.click()
        tab.wait_for_selector(f"text=/^Refused, after {course().rounds} rounds and /")
    assert tab.inner_text("#answer").startswith("Refused\n\nThe result is wrong and is not shown.")
    assert tab.locator(".logits").count() == 0
    assert "must have at most" in tab.inner_text("#answer-words")
    assert "it is labelled" not in tab.inner_text("#answer-words")
    assert "refused" in tab.inner_text("#status")
    assert tab.evaluate(CONTRAST, ".winner") >= 4.5
    tab.locator("#tests button").first.click()
    assert "The answer is" in done(tab)
    three = 3 * course().requests
    assert [connection.requests for connection in shown.service.opened] == [three], "the server has not noticed"
    assert shown.said == []


def test_a_stranger_in_the_same_browser_is_kept_out(shown, browser):
    """Even one who knows the token; and one whose name was pointed at loopback."""
    context = browser.new_context()
    context.route("http://stranger.example/**", lambda route: route.fulfill(body="<h1>A stranger</h1>"))
    tab = context.new_page()
    tab.goto("http://stranger.example/")
    found = tab.evaluate(STRANGER, shown.address)
    assert found == ["refused"] * 3
    assert [connection.requests for connection in shown.service.opened] == [0]
    answer = tab.goto(shown.address.replace("127.0.0.1", REBOUND))
    assert (answer.status, "called by its own name" in tab.content()) == (403, True)
    tab.goto("http://stranger.example/")
    tab.evaluate(
        "address => document.body.append(Object.assign(document.createElement('iframe'), {src: address}))",
        shown.address,
    )
    tab.wait_for_timeout(200)
    assert not [frame for frame in tab.frames if frame.query_selector("#pick")]
    context.close()


def test_a_rehearsal_promises_nothing(browser):
    page = samples.page(samples.Service(samples.program()), encrypted=False).page
    with samples.served(page) as address, browser.new_context() as context:
        tab = context.new_page()
        tab.goto(address)
        tab.wait_for_selector("text=⚠ A rehearsal (engine=cleartext): NOTHING IS ENCRYPTED.")
        assert (tab.inner_text("h1"), tab.title()) == ("A rehearsal: the server sees your image.", "Rehearsal in clear")
        tab.locator("#tests button").first.click()
        done(tab)
        assert "NOT ENCRYPTED" in tab.inner_text("#noise-words")
        for promise in ("does not leave", "without seeing", "decrypted", "encrypted inference"):
            assert promise not in tab.inner_text("body").lower()
        assert "Random-looking noise" not in tab.content()
