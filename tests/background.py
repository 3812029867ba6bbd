"""Work that a test does in a thread of its own while it looks at the rest."""

from __future__ import annotations

import threading
from typing import Self

PATIENCE = 120.0


class Background:
    """A context in which `_run` runs in a thread. It ends soon after `_stop` is set."""

    def begin_in(self, name: str) -> None:
        """Prepare the thread; entering the context starts it."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
