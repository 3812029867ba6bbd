"""Files of a state in an object store, for the event loop: a store that does not answer makes no request wait for long.

Small files tell readers what the driver waits for, what it was asked to do, where it publishes. Requests read them on
the event loop. A read that takes longer than `WAIT_SECONDS` goes on in its thread; until it ends, requests for that
file get what it contained the last time, at once, and `silent_s` says for how long the store has not answered.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Any, cast

from vernier.storage.blob.blob import Blob
from vernier.storage.blob.object_store import ObjectBlob
from vernier.storage.errors import FileFailed
from vernier.storage.threads import Threads

WAIT_SECONDS = 0.5
"""How long a request waits for a file."""


class PromptFiles:
    """Reads files as `blob` does, but promptly; all else goes to the blob itself. One thread for each file that is
    being read: there are few."""

    def __init__(self, blob: Blob) -> None:
        self._blob = blob
        self._threads = Threads()
        self._lock = threading.Lock()
        self._reading: dict[str, tuple[float, Future[bytes]]] = {}
        self._known: dict[str, Future[bytes]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blob, name)

    @property
    def silent_s(self) -> float:
        """For how many seconds the store has not answered; 0 if it is not late."""
        with self._lock:
            late = [time.monotonic() - began for began, _ in self._reading.values()]
        return max((one for one in late if one > WAIT_SECONDS), default=0.0)

    def get(self, name: str) -> bytes:
        """A file's bytes; if the store does not answer, those of the last time. Raises FileMissing, and FileFailed if
        there are none."""
        with self._lock:
            if name not in self._reading:
                fresh: Future[bytes] = Future()
                self._reading[name] = time.monotonic(), fresh
                self._threads.start("prompt-files", lambda _stopping: self._read(name, fresh), again=False)
            began, reading = self._reading[name]
            known = self._known.get(name)
        try:
            return reading.result(max(0.0, began + WAIT_SECONDS - time.monotonic()))
        except NotYet:
            if known is not None:
                return known.result()
            reason = f"no answer for {time.monotonic() - began:.1f} s"
            raise FileFailed(operation="read", name=name, where=self._blob.where, reason=reason) from None

    def _read(self, name: str, reading: Future[bytes]) -> None:
        """Read a file in a thread, and let those go on who wait for it."""
        try:
            reading.set_result(self._blob.get(name))
        except BaseException as error:
            reading.set_exception(error)
        with self._lock:
            del self._reading[name]
            # A read that the store has not answered says nothing of the file; that it is missing is an answer.
            if not isinstance(reading.exception(), FileFailed):
                self._known[name] = reading


def promptly(blob: Blob) -> Blob:
    """The files of a state; those in an object store are read promptly."""
    return cast(Blob, PromptFiles(blob)) if isinstance(blob, ObjectBlob) else blob


def silent_s(files: Blob) -> float:
    """For how many seconds the store of these files has not answered; 0 if it is not late."""
    return files.silent_s if isinstance(files, PromptFiles) else 0.0
