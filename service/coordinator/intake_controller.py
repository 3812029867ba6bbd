"""The intake controller (class Steering): how a driver follows the desired state that an operator has set.

It only keeps the books. The driver starts and stops queries accordingly.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping

import msgspec

from vernier.service.coordinator.consumer_lag import Offsets
from vernier.service.status import intake as control
from vernier.service.status.intake import Standing
from vernier.storage.blob.blob import Blob
from vernier.storage.errors import StorageError

Ends = Callable[[], Mapping[str, Mapping[int, int]]]
_log = logging.getLogger("vernier.control")


class Steering:
    """The intake controller of one driver. files: the state directory's. ends: asks the brokers for the end offsets of
    the sources' topics. now: wall clock, ns. The observed state that an earlier driver has left stays valid, so a drain
    continues up to the end it had set."""

    def __init__(self, files: Blob, ends: Ends, now: Callable[[], int] = time.time_ns) -> None:
        self._files, self._ends, self._now = files, ends, now
        self.standing = control.standing(files)
        # Written in any case, because it shows that this driver is alive.
        self._driver = secrets.token_hex(6)
        since = self.standing.since_ns or now()
        self._tell(msgspec.structs.replace(self.standing, driver=self._driver, since_ns=since))

    @property
    def open(self) -> bool:
        """Whether epochs may be made."""
        return self._coming.open

    def settle(self) -> None:
        """No query runs any more and nothing will be committed: publish the new observed state now."""
        if self._coming is not self.standing:
            self._tell(self._coming)

    def look(self) -> None:
        """Follow a new desired state, if there is one. Raises whatever `ends` raises; the next call then tries
        again."""
        wish = control.wish(self._files)
        if wish is None or wish.id == self._coming.wish:
            return
        match wish.wanted:
            case "running":
                self._become("running", wish.id)
            case "paused":
                self._become("paused", wish.id)
            case "drained":
                until = {topic: dict(own) for topic, own in self._ends().items()}
                self._become("draining", wish.id, until)

    def passed(self, read: Offsets, held: int) -> None:
        """An epoch was made. read: the next offset by partition; held: updates that only need further epochs, because
        their clock advances by itself. Ends a drain once everything it covers is committed."""
        if self._coming.intake != "draining":
            return
        left = sum(
            max(0, end - read.get(topic, {}).get(partition, 0))
            for topic, own in self.standing.until.items()
            for partition, end in own.items()
        )
        if left == 0 and held == 0:
            self._become("drained", self.standing.wish)
        elif (left, held) != (self.standing.left, self.standing.held):
            self._tell(msgspec.structs.replace(self.standing, left=left, held=held))

    # --- inside -------------------------------------------------------------------------------------------------------

    def _become(self, intake: control.Intake, wish: str, until: dict[str, dict[int, int]] | None = None) -> None:
        _log.info("intake: %s", intake)
        made = Standing(intake=intake, wish=wish, driver=self._driver, since_ns=self._now(), until=until or {})
        if made.open:
            self._tell(made)
        self._coming = made

    def _tell(self, told: Standing) -> None:
        self.standing = self._coming = told
        try:
            control.tell(self._files, told)
        except StorageError as error:
            # The change takes effect anyway; a client that waits to see it can ask again.
            _log.warning("cannot write the status file of the intake: %s", error)
