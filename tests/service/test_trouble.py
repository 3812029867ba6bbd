"""Word of a failure: what is told, and that telling it is no failure of its own."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from service import trouble
from service.driver import Driver
from storage.blob import LocalBlob
from storage.errors import StorageError

TOLD = trouble.Trouble(epoch=7, reason="division by zero", program=True, tries=2, since_ns=1)


class Full(LocalBlob):
    """A device without room."""

    def put(self, *args: Any, **kwargs: Any) -> Any:
        """Fails."""
        raise StorageError


def driver(blob: LocalBlob) -> Any:
    """As much of a driver as telling needs."""
    return SimpleNamespace(epochs=SimpleNamespace(directory=SimpleNamespace(blob=blob)))


def test_a_failure_is_told_where_readers_look(tmp_path: Path) -> None:
    Driver._tell(driver(LocalBlob(tmp_path)), TOLD)
    assert trouble.read(LocalBlob(tmp_path)) == TOLD
    assert "it failed 2 times (division by zero)" in TOLD.describe()


def test_word_that_cannot_be_left_does_not_hide_the_failure(tmp_path: Path) -> None:
    Driver._tell(driver(Full(tmp_path)), TOLD)
    assert trouble.read(LocalBlob(tmp_path)) is None
