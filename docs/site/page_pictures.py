"""The pictures of docs/page.md: a running page in a headless Chromium, on a wide light screen and on a dark phone.

python docs/site/page_pictures.py ADDRESS, as infer.py ui=true printed it.
"""

import argparse
import io
import os
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

DOCS = Path(__file__).parents[1]
SCREENS = {
    "page.webp": {"viewport": {"width": 1200, "height": 1160}, "color_scheme": "light"},
    "page_phone.webp": {"viewport": {"width": 400, "height": 1316}, "color_scheme": "dark", "device_scale_factor": 1.5},
}
"""File in docs/ -> the screen that it shows."""
_QUALITY = 80


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", help="of the page, as infer.py ui=true printed it")
    parser.add_argument("--test", type=int, default=3, help="number of the test image, from 1")
    given = parser.parse_args()
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=path, args=sandbox) as browser:
        for name in SCREENS:
            picture(browser, given.address, given.test, name)


def picture(browser: Browser, address: str, test: int, name: str) -> None:
    """Take one picture, of a second inference: a first one compiles and connects.

    Args:
        browser: to open the page in.
        address: of the page.
        test: number of the test image, from 1.
        name: in :data:`SCREENS`.
    """
    tab = browser.new_page(**SCREENS[name])
    tab.set_default_timeout(120_000)
    tab.goto(address)
    for _ in range(2):
        tab.get_by_role("button", name=f"Test image {test},").click()
        tab.wait_for_selector("#stop", state="visible")
        tab.wait_for_selector("#stop", state="hidden")
    tab.evaluate("document.activeElement.blur(), scrollTo(0, 0)")
    tab.wait_for_timeout(500)
    Image.open(io.BytesIO(tab.screenshot())).save(DOCS / name, quality=_QUALITY, method=6)


if __name__ == "__main__":
    main()
