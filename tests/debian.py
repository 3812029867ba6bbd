"""Programs that some tests need and that no Python package brings: found, or named in the failure.

`make test-programs`, which `make test` runs first, installs them where it can. No test installs anything, and none is
skipped: what was not tried is not tested.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest


def program(find: Callable[[], str | None], package: str, name: str, otherwise: str = "put it on the path") -> str:
    """Where a program is; fails the test where it is not, with the package that has it."""
    found = find()
    if found is None:
        pytest.fail(f"this test needs {name}: run `make test-programs` as root, install `{package}`, or {otherwise}")
    return found
