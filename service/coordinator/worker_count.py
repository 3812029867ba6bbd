"""The worker count: with how many workers a driver makes epochs, and how it follows an operator who wants others.

It only keeps the books: the setting `workers` counts until `vernier rescale` asks for another number, and that number
counts, also after restarts, until the setting is changed. The driver makes the next epochs accordingly.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from vernier.service.status import workers as status
from vernier.service.status.workers import Observed
from vernier.storage.blob.blob import Blob
from vernier.storage.errors import StorageError

_log = logging.getLogger("vernier.control")


class WorkerCount:
    """The worker count of one driver. files: the state directory's. configured: the setting `workers`. slots: returns
    how many tasks Spark can run at once, None if that is not known yet. A request that was made while no driver ran is
    followed at once. Writes nothing before `publish`."""

    def __init__(self, files: Blob, configured: int, slots: Callable[[], int | None]) -> None:
        self._files, self._slots = files, slots
        found = self._published = status.OBSERVED.read(files)
        self._observed = Observed(workers=configured, configured=configured)
        if found is not None and found.configured == configured:
            self._observed = msgspec.structs.replace(found, waits="")
        elif found is not None:
            self._observed = msgspec.structs.replace(self._observed, desired=found.desired)
        self.look()

    @property
    def workers(self) -> int:
        """The number of workers of the next epochs."""
        return self._observed.workers

    def look(self, busy: str = "") -> bool:
        """Follow or refuse a new request, if there is one; returns whether the number is another one now. busy: what
        must end first."""
        mine, desired = self._observed, status.DESIRED.read(self._files)
        if desired is None or desired.id == mine.desired:
            return False
        if desired.workers == mine.workers:
            self._observed = msgspec.structs.replace(mine, desired=desired.id, refused="", waits="")
            return False
        if busy:
            self._observed = msgspec.structs.replace(mine, waits=busy)
            return False
        slots = self._slots()
        if slots is not None and desired.workers > slots:
            refused = (
                f"Spark can run {slots} tasks at once, fewer than {desired.workers}; on a cluster add an executor and "
                f"ask again, on one host set `workers: {desired.workers}` and start the service again"
            )
            _log.warning("%d workers are refused: %s", desired.workers, refused)
            self._observed = msgspec.structs.replace(mine, desired=desired.id, refused=refused, waits="")
            return False
        _log.info("workers: %d, instead of %d", desired.workers, mine.workers)
        self._observed = Observed(workers=desired.workers, configured=mine.configured, desired=desired.id)
        return True

    def publish(self) -> None:
        """Write the observed state if it has changed, and nothing if no other number was ever requested. Call it only
        while this driver owns the state directory."""
        mine = self._observed
        if mine == self._published or (self._published is None and not mine.desired and not mine.waits):
            return
        try:
            status.OBSERVED.write(self._files, mine)
            self._published = mine
        except StorageError as error:
            # The number counts anyway, and the next call tries again.
            _log.warning("cannot write the status file of the workers: %s", error)
