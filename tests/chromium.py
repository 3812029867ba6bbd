"""A browser for the tests that look at a page: the system's Chromium.

`chromium_path()` is the one place that knows where it is. Without a browser these tests fail and say what to install.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests import debian

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find() -> str | None:
    """Where the browser is: VERNIER_TEST_CHROMIUM, or the first known name on the path."""
    named = os.environ.get("VERNIER_TEST_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


def chromium_path() -> str:
    """Where the browser is; fails the test where there is none."""
    return debian.program(find, "chromium", "Chromium", "name a browser in VERNIER_TEST_CHROMIUM")


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless browser."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium_path(), args=list(ARGUMENTS))
        try:
            yield launched
        finally:
            launched.close()
