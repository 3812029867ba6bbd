"""Programs that some tests need and that Debian's packages have: found, or installed where that is possible.

A machine without one gets the package when the tests run as root there; anywhere else the tests fail and say what to
install, because what was not tried is not tested.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

INSTALL_SECONDS = 900
"""For the time limit of tests that may have to install something first."""


def program(find: Callable[[], str | None], package: str, name: str, otherwise: str = "put it on the path") -> str:
    """Where a program is, after installing Debian's `package` if need be; fails the test where that cannot be."""
    found = find()
    if found is not None:
        return found
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.fail(f"this test needs {name}: install the package `{package}`, or {otherwise}")
    commands = (
        ("apt-get", "update", "-qq"),
        ("apt-get", "install", "-y", "-qq", "--no-install-recommends", *package.split()),
    )
    with (Path(tempfile.gettempdir()) / "vernier-packages.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in () if find() else commands:
            ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
            if ended.returncode != 0:
                last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
                pytest.fail(f"this test needs {name}, and `{' '.join(command)}` failed: {last}")
    found = find()
    if found is None:
        pytest.fail(f"the package `{package}` was installed, but there is no {name} on the path")
    return found
