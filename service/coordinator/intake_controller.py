"""The intake controller: how a driver follows the desired state that an operator has set.

It only keeps the books. The driver starts and stops queries accordingly.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping

import msgspec

from vernier.service.coordinator.consumer_lag import Offsets
from vernier.service.status import intake
from vernier.service.status.intake import Intake, Observed
from vernier.storage.blob.blob import Blob
from vernier.storage.errors import StorageError

Ends = Callable[[], Mapping[str, Mapping[int, int]]]
_log = logging.getLogger("vernier.control")


class IntakeController:
    """The intake controller of one driver. files: the state directory's. ends: asks the brokers for the end offsets of
    the sources' topics. now: wall clock, ns. The observed state that an earlier driver has left stays valid, so a drain
    continues up to the end it had set."""

    def __init__(self, files: Blob, ends: Ends, now: Callable[[], int] = time.time_ns) -> None:
        self._files, self._ends, self._now = files, ends, now
        self.observed = intake.observed(files)
        # Written in any case, because it shows that this driver is alive.
        self._driver = secrets.token_hex(6)
        began = self.observed.since_ns or now()
        self._publish(msgspec.structs.replace(self.observed, driver=self._driver, since_ns=began))

    @property
    def open(self) -> bool:
        """Whether epochs may be made."""
        return self._coming.open

    @property
    def draining(self) -> bool:
        """Whether a drain waits for what has been `passed`."""
        return self._coming.intake == "draining"

    def settle(self) -> None:
        """No query runs any more and nothing will be committed: publish the new observed state now."""
        if self._coming is not self.observed:
            self._publish(self._coming)

    def look(self) -> None:
        """Follow a new desired state, if there is one. Raises whatever `ends` raises; the next call then tries
        again."""
        desired = intake.DESIRED.read(self._files)
        if desired is None or desired.id == self._coming.desired:
            return
        match desired.wanted:
            case "running":
                self._become("running", desired.id)
            case "paused":
                self._become("paused", desired.id)
            case "drained":
                until = {topic: dict(own) for topic, own in self._ends().items()}
                self._become("draining", desired.id, until)

    def passed(self, read: Offsets, held: int) -> None:
        """An epoch was made. read: the next offset by partition; held: updates that only need further epochs, because
        their clock advances by itself. Ends a drain once everything it covers is committed."""
        if not self.draining:
            return
        left = sum(
            max(0, end - read.get(topic, {}).get(partition, 0))
            for topic, own in self.observed.until.items()
            for partition, end in own.items()
        )
        if left == 0 and held == 0:
            self._become("drained", self.observed.desired)
        elif (left, held) != (self.observed.left, self.observed.held):
            self._publish(msgspec.structs.replace(self.observed, left=left, held=held))

    # --- inside -------------------------------------------------------------------------------------------------------

    def _become(self, state: Intake, desired: str, until: dict[str, dict[int, int]] | None = None) -> None:
        _log.info("intake: %s", state)
        made = Observed(intake=state, desired=desired, driver=self._driver, since_ns=self._now(), until=until or {})
        if made.open:
            self._publish(made)
        self._coming = made

    def _publish(self, observed: Observed) -> None:
        self.observed = self._coming = observed
        try:
            intake.OBSERVED.write(self._files, observed)
        except StorageError as error:
            # The change takes effect anyway; a client that waits to see it can ask again.
            _log.warning("cannot write the status file of the intake: %s", error)
