"""Take the screenshots of docs/images again: `python tools/screenshots.py [URL]` while `make run` runs.

Needs playwright and Pillow (test dependencies) and Chromium; VERNIER_TEST_CHROMIUM names one that is not on the
path. Give the demonstration five minutes first: then the charts are full, and there is history to look back at.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import chromium  # noqa: E402  (this file is no module of the project)

IMAGES = ROOT / "docs" / "images"
SETTLE_MS = 12_000
"""Until the lanes are full of changes."""


def slim(image: Path) -> None:
    """The picture with a palette of 128 colours: text stays as sharp, for a third of the bytes."""
    with Image.open(image) as full:
        small = full.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    small.save(image, optimize=True)


def settle(page: Page) -> None:
    """Wait until rows flow through the graph and the lines of the latency are drawn."""
    page.locator("#dataflow").scroll_into_view_if_needed()
    page.locator("#graph .pulse.moving").nth(5).wait_for(state="attached")
    page.locator("#series path.p99").wait_for(state="attached")


def take(
    browser: Browser, url: str, name: str, *, width: int = 1280, scheme: str = "light", whole: bool = True
) -> None:
    """One picture of the page, complete or as large as the window, once every panel shows data."""
    page: Page = browser.new_page(
        viewport={"width": width, "height": 1000 if width > 800 else 844},
        color_scheme="dark" if scheme == "dark" else "light",
        device_scale_factor=1 if width > 800 else 2,
    )
    page.set_default_timeout(120_000)
    page.goto(url)
    settle(page)
    page.locator("#graph .node", has_text="group by node").click()
    page.evaluate("window.scrollTo(0, 0)")
    page.wait_for_timeout(SETTLE_MS)
    page.screenshot(path=IMAGES / f"{name}.png", full_page=whole)
    page.close()


def main(url: str) -> None:
    """All pictures that the docs show."""
    with chromium.browser() as browser:
        take(browser, f"{url}/#view=reach", "console-light")
        take(browser, f"{url}/#view=distances", "console-dark", scheme="dark")
        take(browser, f"{url}/#view=histogram", "console-phone", width=390, scheme="dark", whole=False)
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.goto(f"{url}/#view=reach")
        settle(page)
        page.wait_for_timeout(SETTLE_MS)
        page.locator("#dataflow").screenshot(path=IMAGES / "console-dataflow.png")
    for image in sorted(IMAGES.glob("console-*.png")):
        slim(image)
        print(f"{image.relative_to(ROOT)}: {image.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/") if len(sys.argv) > 1 else "http://127.0.0.1:8642")
