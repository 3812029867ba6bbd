"""Trouble: what the driver reports of a failure, and that reporting it causes no other failure."""

from pathlib import Path
from typing import Any

from vernier.service.status import trouble
from vernier.service.status.trouble import Troubles
from vernier.storage.blob.local_blob import LocalBlob
from vernier.storage.errors import StorageError

TOLD = trouble.Trouble(epoch=7, reason="division by zero", program=True, tries=2, since_ns=1)


class Full(LocalBlob):
    """A device without room."""

    def put(self, *args: Any, **kwargs: Any) -> Any:
        """Fails."""
        raise StorageError


class Stubborn(LocalBlob):
    """A device that deletes nothing for a while."""

    stubborn = True

    def delete(self, *args: Any, **kwargs: Any) -> Any:
        """Fails while it is stubborn."""
        if self.stubborn:
            raise StorageError
        return super().delete(*args, **kwargs)


def test_a_failure_is_told_where_readers_look(tmp_path: Path) -> None:
    Troubles(LocalBlob(tmp_path)).report(TOLD)
    assert trouble.read(LocalBlob(tmp_path)) == TOLD
    assert "failed 2 times in the program (division by zero)" in TOLD.describe()


def test_word_that_cannot_be_left_does_not_hide_the_failure(tmp_path: Path) -> None:
    Troubles(Full(tmp_path)).report(TOLD)
    assert trouble.read(LocalBlob(tmp_path)) is None


def test_a_commit_ends_trouble_whoever_told_it(tmp_path: Path) -> None:
    troubles = Troubles(LocalBlob(tmp_path))
    trouble.write(LocalBlob(tmp_path), TOLD)  # by an earlier process
    troubles.clear()
    assert trouble.read(LocalBlob(tmp_path)) is None
    # A query that Spark ended by itself fails in no epoch; the next epoch still takes it back.
    troubles.report(TOLD)
    troubles.clear()
    assert trouble.read(LocalBlob(tmp_path)) is None


def test_trouble_that_cannot_be_taken_back_is_taken_back_later(tmp_path: Path) -> None:
    blob = Stubborn(tmp_path)
    troubles = Troubles(blob)
    troubles.report(TOLD)
    troubles.clear()
    assert trouble.read(blob) == TOLD
    blob.stubborn = False
    troubles.clear()
    assert trouble.read(blob) is None
