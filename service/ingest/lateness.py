"""Lateness: which updates of one source enter an epoch, which are held, and which are late.

Relative to the interval [lower, upper) of an epoch, an update enters, is held (its time is not before upper) or is late
(its time is before lower). Late updates of an event clock are refused or moved up to lower, as the source's on_late
says. With an arrival clock, updates can be late only because of a skewed broker clock; they are moved up to lower.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vernier.service.ingest.config import SourceConfig
from vernier.service.ingest.counts import SourceCounts
from vernier.service.ingest.formats.messages import Parsed, Refused
from vernier.service.ingest.records import Messages
from vernier.service.ingest.stash import HeldUpdates, retain
from vernier.service.ingest.watermarks import cut_at, round_up, share_times
from vernier.storage.updates import MIN_TIME, Updates, distinct

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_NAMED = 5
"""How many late updates of a message are named in its dead letter."""


class Lateness:
    """Takes a source's decoded updates, then its held ones, and returns the epoch's input. counts: what it adds to.
    settled: updates up to this time are rows of a snapshot, whose times `records` leaves as they are."""

    def __init__(
        self,
        name: str,
        width: int,
        config: SourceConfig,
        lower: int,
        upper: int,
        counts: SourceCounts,
        settled: int = MIN_TIME,
    ) -> None:
        self.received: list[Ints] = []
        self._name, self._width, self._config, self._counts = name, width, config, counts
        self._frontier, self._until, self._settled = lower, upper, settled
        # Times are compared before they are rounded, so held updates keep their original times.
        self._lower, self._upper = (cut_at(frontier, config.rounding) for frontier in (lower, upper))
        self._entering: list[Updates] = []
        self._waiting: list[HeldUpdates] = []

    def pass_updates(self, messages: Messages, parsed: Parsed, time: Ints, copies: Bools) -> list[Refused]:
        """Sort this source's updates of a topic's batch into entering, held and late; returns refusals for the messages
        with late ones.

        time: int64[n], of all n updates of the batch; copies: bool[n], which updates are second copies, to be dropped.
        """
        rows, diff, message = parsed.words[self._name], parsed.diff, parsed.message
        if not len(rows):
            return []
        if len(rows) < len(diff) or copies.any():
            own = parsed.source == parsed.names.index(self._name)
            self._counts.copies += int(np.count_nonzero(own & copies))
            mine = np.flatnonzero(own & ~copies)
            rows, time, diff, message = rows[~copies[own]], time[mine], diff[mine], message[mine]
        late: Bools = time < self._lower
        refused: list[Refused] = []
        if late.any():
            count = int(np.count_nonzero(late))
            if self._config.clock == "event" and self._config.on_late == "reject":
                self._counts.late_rejected += count
                refused = self._refuse(time, message, late)
                time, diff, message, rows = time[~late], diff[~late], message[~late], rows[~late]
            else:
                if self._config.clock == "arrival":
                    self._counts.skewed += count
                else:
                    self._counts.late_advanced += count
                time = np.where(late, self._frontier, time)
        inserted = int(np.count_nonzero(diff > 0))
        self._counts.inserted += inserted
        self._counts.deleted += len(diff) - inserted
        updates, received = Updates.of(rows, time, diff), messages.ms[message]
        if len(time) and self._config.clock == "event":
            newest = int(np.argmax(time))
            self._counts.delay_ms = int(received[newest]) - int(time[newest]) // 1_000_000
        waits = time >= self._upper
        if waits.any():
            self._counts.held += int(np.count_nonzero(waits))
            origin = np.column_stack((messages.partition[message[waits]], messages.offset[message[waits]]))
            self._waiting.append(HeldUpdates.sort(updates.take(waits), received[waits], origin))
            updates, received = updates.take(~waits), received[~waits]
        self._entering.append(updates)
        self.received.append(received)
        return refused

    def pass_rows(self, updates: Updates, ms: int) -> None:
        """Let the rows of a snapshot enter, or hold them until their time. ms: when they were read."""
        self._counts.inserted += len(updates)
        if not len(updates):
            return
        time = np.maximum(updates.time, self._frontier)
        updates = Updates.of(updates.rows, time, updates.diff)
        if time[0] < self._upper:
            self._entering.append(updates)
        else:
            self._counts.held += len(updates)
            origin = np.zeros((len(updates), 2), np.int64)
            self._waiting.append(HeldUpdates.sort(updates, np.full(len(updates), ms, np.int64), origin))

    def _refuse(self, time: Ints, message: Ints, late: Bools) -> list[Refused]:
        """A refusal for each message with late updates, which names the first few of them."""
        refused = []
        for number in distinct(message[late]).tolist():
            first, stop = np.searchsorted(message, [number, number + 1]).tolist()
            updates = np.flatnonzero(late[first:stop])
            named = ", ".join(f"update {k} at {time[first + k]}" for k in updates[:_NAMED].tolist())
            more = f" and {len(updates) - _NAMED} more" if len(updates) > _NAMED else ""
            detail = f"{len(updates)} of {stop - first} updates before the frontier {self._frontier}: {named}{more}"
            refused.append(Refused(number, "late", detail, self._name))
        return refused

    def close(self, held: Sequence[HeldUpdates], updates: int = 0) -> tuple[Updates, list[HeldUpdates]]:
        """The epoch's input, including the updates of `held` that are due, and the batches that are held further.
        updates: the number of updates that came to the topic in this epoch, on all workers."""
        for batch in held:
            due = batch.between(self._lower, self._upper)
            self._counts.released += due.stop - due.start
            self._entering.append(batch.updates.take(due))
            self.received.append(np.asarray(batch.received_ms[due]))
        entering = Updates.concat(self._entering, self._width)
        if self._config.rounding != "exact":
            entering = Updates.of(entering.rows, round_up(entering.time, self._config.rounding), entering.diff)
        if self._config.records is not None:
            time = share_times(entering.time, self._frontier, self._until, updates, self._config.records)
            time = np.where(entering.time <= self._settled, entering.time, time)
            entering = Updates.of(entering.rows, time, entering.diff)
        return entering, retain(held, self._fresh(), self._upper)

    def _fresh(self) -> HeldUpdates | None:
        """All updates that are newly held in this epoch, as one batch."""
        if len(self._waiting) < 2:
            return self._waiting[0] if self._waiting else None
        updates = Updates.concat([batch.updates for batch in self._waiting], self._width)
        received = np.concatenate([batch.received_ms for batch in self._waiting])
        return HeldUpdates.sort(updates, received, np.concatenate([batch.origin for batch in self._waiting]))
