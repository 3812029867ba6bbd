"""Batches: gathers rows into native messages under message times. Pure: no Kafka, no clock, no threads.

What comes out is a sequence of messages and promises, in the order in which they must become visible. A promise of the
time T comes after all rows that were taken before T, and no row before T is taken after it.

Every message carries a key that says how far it goes (`Mark`), so that the next producer can go on from the topic
alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from vernier.service.codec.native import update, updates_message
from vernier.service.kafka.producer.policy import Policy

MOST_UPDATES = 500
MOST_BYTES = 1 << 18
_MARK = re.compile(rb"(?:(\d{1,20})-)?(\d{1,20})@(-?\d{1,20})(\+?)")


@dataclass(frozen=True, slots=True)
class Mark:
    """The key of a producer's message: `first-count@time`, `count@time` if first is 0, and `+` behind it for `more`.

    A message of updates has all rows of its partition and source with numbers from `first` to before `count`; `time` is
    its message time. A promise says of its partition that all rows before `count` are there, and `time` is what it
    promises. more: messages of the partition before this one may have rows with later numbers.
    """

    count: int
    time: int
    more: bool = False
    first: int = 0

    def encode(self) -> bytes:
        """The key's text."""
        begin = b"%d-" % self.first if self.first else b""
        return b"%b%d@%d%b" % (begin, self.count, self.time, b"+" if self.more else b"")

    @staticmethod
    def decode(key: bytes | None) -> Mark | None:
        """A key's mark; None for a key of anyone else."""
        found = _MARK.fullmatch(key or b"")
        if found is None:
            return None
        return Mark(int(found[2]), int(found[3]), bool(found[4]), int(found[1] or 0))


@dataclass(slots=True, eq=False)
class Parcel:
    """A message of updates for one partition. time: its message time; None if its key is no mark. first: the partition
    and source have no rows from this number to `numbers`, those of its rows. A ready-made message has none."""

    partition: int
    time: int | None
    value: bytes
    numbers: Sequence[int] = ()
    source: str | None = None
    size: int = 0
    first: int = 0

    @property
    def count(self) -> int:
        """One more than the number of its last row."""
        return self.numbers[-1] + 1 if self.numbers else 0


@dataclass(slots=True, eq=False)
class Promise:
    """All rows before `upper` have been sent, and none follows. count: how many rows had been taken."""

    upper: int
    count: int


@dataclass(slots=True)
class _Open:
    """Updates that wait for others of their partition and source."""

    least: int
    texts: list[bytes] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    size: int = 0


class Batches:
    """Gathers rows. at: the message time, below which no row may be added; None before the first one.

    Without progress the message time is the least data time of each message, and nothing is promised.
    """

    def __init__(self, policy: Policy, at: int | None = None, *, progress: bool = True, following: int = 0) -> None:
        self.at, self.common = at, at
        self.bytes = 0
        """Of all rows that `take` has not yet returned."""
        self.following = following
        """The number of the next row."""
        self._begun = following
        self._counts: dict[tuple[int, str | None], int] = {}
        self._policy, self._progress = policy, progress
        self._rows = 0
        self._open: dict[tuple[int, str | None], _Open] = {}
        self._out: list[Parcel | Promise] = []

    @property
    def is_open(self) -> bool:
        """Whether rows wait for others."""
        return bool(self._open)

    @property
    def has_out(self) -> bool:
        """Whether there is something to send."""
        return bool(self._out)

    @property
    def first_open(self) -> int | None:
        """The least number of a row that `take` has not yet returned."""
        waiting = [one.numbers[0] for one in self._open.values()]
        waiting += [one.numbers[0] for one in self._out if isinstance(one, Parcel) and one.numbers]
        return min(waiting, default=None)

    def see(self, common: int) -> bool:
        """The common time has come to `common`. Returns whether a new message time begins, as the policy decides."""
        if not self._progress or (self.common is not None and common < self.common):
            return False
        self.common = common
        after = self._policy.following(self.at, common, self._rows)
        if self.at is not None and after <= self.at:
            return False
        self._begin(after)
        return True

    def leap(self) -> None:
        """Begin a message time at the common time, whatever the policy says."""
        if self._progress and self.common is not None and (self.at is None or self.common > self.at):
            self._begin(self.common)

    def finish(self, upper: int) -> None:
        """Begin a last message time at `upper`."""
        self.common = upper
        self.leap()

    def add(self, row: bytes, time: int, diff: int, partition: int, source: str | None, number: int) -> None:
        """Add a row. Rows of the same number stay together if nothing else is called between them."""
        place = (partition, source)
        batch = self._open.get(place)
        text = update(row, time, diff)
        if batch is not None and number != batch.numbers[-1]:
            if len(batch.texts) >= MOST_UPDATES or batch.size + len(text) > MOST_BYTES:
                self._close(place)
                batch = None
        if batch is None:
            batch = self._open[place] = _Open(time)
        batch.least = min(batch.least, time)
        batch.texts.append(text)
        batch.numbers.append(number)
        batch.size += len(text)
        self.bytes += len(text)
        self._rows += 1
        self.following = number + 1

    def put(self, partition: int, value: bytes) -> None:
        """A message that is sent as it is, after all rows that were added before it."""
        self.push()
        self.bytes += len(value)
        self._out.append(Parcel(partition, None, value, size=len(value)))

    def push(self) -> None:
        """Let all rows go out, under the present message time."""
        for place in list(self._open):
            self._close(place)

    def take(self) -> list[Parcel | Promise]:
        """What is to be sent now, each once."""
        out, self._out = self._out, []
        self.bytes -= sum(one.size for one in out if isinstance(one, Parcel))
        return out

    def _begin(self, time: int) -> None:
        self.push()
        self.at, self._rows = time, 0
        self._out.append(Promise(time, self.following))

    def _close(self, place: tuple[int, str | None]) -> None:
        batch = self._open.pop(place)
        partition, source = place
        time = batch.least if self.at is None else self.at
        value = updates_message(time, batch.texts, source)
        marked = time if self._progress else None
        first = self._counts.get(place, self._begun)
        parcel = Parcel(partition, marked, value, batch.numbers, source, batch.size, first)
        self._counts[place] = parcel.count
        self._out.append(parcel)
