"""A headless Chromium."""

import os
import shutil
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tests.page import samples

REBOUND = "rebound.example"
"""A name that an attacker has pointed at loopback."""


@pytest.fixture(scope="module")
def browser() -> Iterator:
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("there is no Chromium: install Debian's chromium, or set CHROMIUM to its path")
    from playwright.sync_api import sync_playwright

    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        arguments = [f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1", *sandbox]
        found = playwright.chromium.launch(executable_path=path, args=arguments)
        yield found
        found.close()


@pytest.fixture(scope="module")
def service() -> samples.Service:
    return samples.Service(samples.program(), "tenseal")


@pytest.fixture
def shown(browser, service) -> Iterator[SimpleNamespace]:
    """The page, opened: (tab, its address, the service), and a function that opens it otherwise."""
    service.opened.clear()
    service.before = lambda number: None
    said, contexts = [], []

    with samples.served(samples.page(service).page) as address:

        def open_tab(**options):
            contexts.append(browser.new_context(**options))
            tab = contexts[-1].new_page()
            tab.set_default_timeout(20_000)
            tab.on("console", lambda message: said.append(message.text))
            tab.on("pageerror", lambda error: said.append(str(error)))
            tab.goto(address)
            tab.wait_for_selector("#tests button")
            return tab

        yield SimpleNamespace(tab=open_tab(), open=open_tab, address=address, service=service, said=said)
        for context in contexts:
            context.close()
