"""A browser for the tests that look at a page: the system's Chromium, installed where that is possible.

`chromium_path()` is the one place that knows where it is. A machine without it gets Debian's package `chromium` when
the tests run as root there; anywhere else the tests fail and say what to install, because a page that nobody looked at
is not tested.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

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
INSTALL = (("apt-get", "update", "-qq"), ("apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"))
INSTALL_SECONDS = 900
"""For the time limit of tests that may have to install it first."""


def find() -> str | None:
    """Where the browser is: VERNIER_TEST_CHROMIUM, or the first known name on the path."""
    named = os.environ.get("VERNIER_TEST_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


def chromium_path() -> str:
    """Where the browser is, after installing it if need be; fails the test where that cannot be."""
    found = find()
    if found is not None:
        return found
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.fail(
            "this test needs Chromium: install the package `chromium`, or name a browser in VERNIER_TEST_CHROMIUM"
        )
    lock = Path(tempfile.gettempdir()) / "vernier-chromium.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in () if find() else INSTALL:
            ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
            if ended.returncode != 0:
                last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
                pytest.fail(f"this test needs Chromium, and `{' '.join(command)}` failed: {last}")
    found = find()
    if found is None:
        pytest.fail("the package `chromium` was installed, but there is no chromium on the path")
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless browser."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium_path(), args=list(ARGUMENTS))
        try:
            yield launched
        finally:
            launched.close()
