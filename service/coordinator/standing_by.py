"""Standing by: a coordinator that waits until the state directory has no owner, and then owns it.

Spark, its workers and the kernels are ready by then, so the next commit takes as long as opening the state and starting
a query. Nothing of the state is read before the lock is taken: what a standby knew would be old. Any number of
standbys may wait; the lock decides which of them goes on. On a file system the kernel frees the lock when its owner
ends; in an object store a standby takes it once its owner has been silent for long enough (storage/blob/leases.py).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext

from vernier.service.status import standby
from vernier.storage.errors import FileFailed, StateInUse
from vernier.storage.state.state import StateDirectory

LOCAL_SECONDS = 0.1
"""Seconds between tries to take a lock that the kernel frees."""
REMOTE_SECONDS = 0.25
"""Seconds between tries to take a lock whose owner may fall silent, at most: each is a request to the object store."""

_log = logging.getLogger("vernier.standby")


def acquire(
    directory: StateDirectory,
    meanwhile: Callable[[], AbstractContextManager[object]] = nullcontext,
    ready: Callable[[], bool] = lambda: True,
) -> float:
    """Acquire the directory, after waiting for as long as another process owns it. Returns the seconds of waiting; 0 if
    there was no owner. meanwhile: makes what is open while this process waits. ready: whether it could go on by now;
    from then on it shows that it stands by. It is asked again and again, and an error that it raises ends the waiting.
    Once it waits, a store that fails for a while is no reason to end. Raises NoIntactManifest and other StorageErrors.
    """
    began = time.monotonic()
    presence: standby.Presence | None = None
    waits, owner = False, ""
    with ExitStack() as waiting:
        while True:
            try:
                directory.acquire()
                break
            except StateInUse as error:
                if not waits:
                    waits = True
                    waiting.enter_context(meanwhile())
                able = ready()
                if presence is not None:
                    presence.renew()
                elif able:
                    presence = standby.Presence(directory.blob)
                    waiting.callback(presence.release)
                if error.holder != owner:
                    owner = error.holder
                    _log.info("standby: %s owns the state directory %s", owner, directory.path)
                left = error.left_ms
                time.sleep(LOCAL_SECONDS if left is None else min(REMOTE_SECONDS, (left + 1) / 1000))
            except FileFailed as error:
                if not waits:
                    raise
                _log.warning("standby: %s", error)
                time.sleep(4 * REMOTE_SECONDS)
    if not waits:
        return 0.0
    waited = time.monotonic() - began
    _log.warning("took over the state directory %s after standing by for %.1f s", directory.path, waited)
    return waited
