"""A plugin of pytest: the fixture `vernier` runs programs inside a test.

    def test_a_rumour_spreads(vernier):
        t = vernier("friends.py")
        t.given("knows", '''
            person  friend  time
            1       2       5
            2       3       10
        ''')
        t.insert("starts", (1,), at=0)
        t.finish()
        t.expect("heard", '''
            person  time  diff
            1       0     +1
            2       5     +1
            3       10    +1
        ''')

pytest finds it by itself where the package is installed (entry point `pytest11`); `-p no:vernier` switches it off. The
engine is loaded by the first test that uses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from vernier.operators.language.collection.app import App
    from vernier.operators.testing import Run


class Start:
    """Starts programs, and stops them at the end of the test. Call it."""

    def __init__(self, folders: Sequence[Path], started: ExitStack) -> None:
        self._folders = folders
        self._started = started

    def __call__(self, program: App | str | Path, *, epochs: Sequence[int] = (), workers: int = 1) -> Run:
        """Start a program on empty inputs, as `vn.testing.run` does.

        program: an App, or the path of a program, beside the test or from the root of the tests. epochs: data times at
        which an epoch must end. workers: how many share the data.
        """
        # By its public names, as programs load it: that settles where an installed package keeps compiled kernels.
        vn: Any = import_module("vernier")
        app = vn.load_program(self._find(Path(program))) if isinstance(program, (str, Path)) else program
        run: Run = self._started.enter_context(vn.testing.run(app, epochs=epochs, workers=workers))
        return run

    def _find(self, path: Path) -> Path:
        found = (folder / path for folder in self._folders)
        return next((file for file in found if file.exists()), path)


@pytest.fixture
def vernier(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Start programs with `vernier(app)` or `vernier("program.py")`: each is a run of `vn.testing`, with `insert`,
    `given`, `advance`, `changes`, `rows` and `expect`."""
    with ExitStack() as started:
        yield Start((request.path.parent, request.config.rootpath), started)
