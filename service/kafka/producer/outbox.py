"""The outbox: what many threads put in, one thread of it brings to Kafka.

Callers add rows to `Batches` under one lock. The sender thread takes what is ready and gives it to the delivery. It
also keeps the clock: it begins message times when no row comes to do so. Rows count against the buffer until they are
acknowledged.
"""

from __future__ import annotations

import threading
import time as clocks
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec
from kafka.errors import KafkaError

from vernier.service.kafka.producer.batches import Batches, Parcel, Promise
from vernier.service.kafka.producer.delivery import Delivery
from vernier.service.kafka.producer.errors import (
    BadRow,
    BufferFull,
    DeliveryFailed,
    FlushTimeout,
    LateRow,
    ProducerClosed,
    Unsent,
)
from vernier.service.kafka.producer.policy import Every, Policy
from vernier.service.kafka.producer.topic_end import TopicEnd
from vernier.storage.updates import MIN_TIME

Clock = Literal["wall", "rows", "manual"]
_CLOSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A row as it is put in. time: None for now; partition: None for the row's own; number: None for the next one."""

    text: bytes
    time: int | None
    diff: int
    source: str | None = None
    partition: int | None = None
    number: int | None = None


@dataclass(frozen=True, slots=True)
class About:
    """How rows are taken; see `vernier.Producer`. now: the wall clock in ns."""

    topic: str
    bootstrap: str
    partitions: int
    policy: Policy
    clock: Clock
    lateness: int
    linger: int
    progress: bool
    most_bytes: int
    block: bool
    now: Callable[[], int] = clocks.time_ns


class Outbox:
    """Takes rows, and has a thread that sends them. following: the number of the first row; end: the end of the topic;
    drop: whether rows that the topic has are dropped."""

    def __init__(self, about: About, end: TopicEnd, following: int, *, drop: bool) -> None:
        self.about = about
        lock = threading.RLock()
        self._work, self._room = threading.Condition(lock), threading.Condition(lock)
        self._batches = Batches(about.policy, end.upper, progress=about.progress, following=following)
        self._end = end if drop else None
        self._pending: set[Parcel] = set()
        self._pending_bytes = self._waiting = 0
        self._promise = self._wanted = end.upper
        self._error: DeliveryFailed | None = None
        self._closed = False
        self._stamp = MIN_TIME
        self._fresh = False
        """Whether rows have begun to wait since the sender looked."""
        self._since = clocks.monotonic_ns()
        """When rows began to wait; without rows, when the last message time began."""

    def start(self, delivery: Delivery) -> None:
        """Start the sender thread. It closes the delivery when it ends."""
        self._delivery = delivery
        self._thread = threading.Thread(target=self._run, name=f"producer of {self.about.topic}", daemon=True)
        self._thread.start()

    # --- for callers --------------------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The number of the first row that may not be in the topic."""
        with self._work:
            waiting = [parcel.numbers[0] for parcel in self._pending if parcel.numbers]
            opened = self._batches.first_open
            return min([*waiting, self._batches.following if opened is None else opened])

    @property
    def promised(self) -> int | None:
        """What every partition promises."""
        return self._promise

    def take(self, entries: Iterable[Entry]) -> int:
        """Take rows; returns the number of the last one. Raises what `Producer.send` raises."""
        previous: int | None = None
        with self._work:
            try:
                for entry in entries:
                    joined = entry.number is not None and entry.number == previous
                    if not joined:
                        self._wait_for_room(len(entry.text))
                    previous = self._add(entry, joined=joined)
            finally:
                self._wake()
            return self._batches.following - 1

    def put(self, partition: int, value: bytes) -> None:
        """Take a message as it is."""
        with self._work:
            self._wait_for_room(len(value))
            self._batches.put(partition, value)
            self._wake()

    def push(self) -> None:
        """Hand all rows to Kafka."""
        with self._work:
            self._check()
            self._batches.push()
            self._wake()

    def advance(self, time: int) -> None:
        """The common time has come to `time`."""
        with self._work:
            self._check()
            self._batches.see(time)
            self._wake()

    def flush(self, timeout: float | None, upper: int | None = None) -> None:
        """Begin a message time, at `upper` if that is given, and wait until everything is acknowledged."""
        with self._work:
            self._check()
            self._catch_up()
            if upper is not None:
                self._batches.finish(upper)
            self._batches.leap()
            self._batches.push()
            if self.about.progress:
                self._wanted = self._batches.at
            self._work.notify()
            done = self._room.wait_for(lambda: self._error is not None or not self._busy(), timeout)
            if self._error is not None:
                raise self._error
            if not done:
                raise FlushTimeout(seconds=timeout or 0, count=len(self._pending), topic=self.about.topic)

    def close(self) -> None:
        """Take nothing more. Rows that were handed over may still be sent for some seconds; others are dropped."""
        with self._work:
            if not self._closed and self._error is None:
                self._batches.push()
                self._work.notify()
                self._room.wait_for(lambda: self._error is not None or not self._pending_or_out(), _CLOSE_SECONDS)
            self._closed = True
            self._delivery.stop()
            self._work.notify_all()
            self._room.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(_CLOSE_SECONDS)

    @property
    def is_closed(self) -> bool:
        """Whether it takes nothing more."""
        return self._closed

    # --- for the delivery ---------------------------------------------------------------------------------------------

    def acknowledged(self, parcel: Parcel) -> None:
        """A message is in the topic."""
        with self._work:
            self._pending.discard(parcel)
            self._pending_bytes -= parcel.size
            if self._delivery.ready():
                self._work.notify()
            self._room.notify_all()

    def promised_everywhere(self, promise: Promise) -> None:
        """A promise is in every partition."""
        with self._work:
            self._promise = promise.upper if self._promise is None else max(self._promise, promise.upper)
            self._room.notify_all()

    def failed(self, error: BaseException) -> None:
        """Nothing more will be delivered."""
        with self._work:
            if self._error is None:
                rows = [row for parcel in self._unacknowledged() for row in unsent(parcel)]
                self._error = DeliveryFailed(
                    topic=self.about.topic,
                    bootstrap=self.about.bootstrap,
                    reason=said(error),
                    rows=tuple(sorted(rows, key=lambda row: row.number)),
                )
            self._work.notify_all()
            self._room.notify_all()

    # --- inside, with the lock ----------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closed:
            raise ProducerClosed(topic=self.about.topic)

    def _used(self) -> int:
        return self._pending_bytes + self._batches.bytes

    def _wait_for_room(self, size: int) -> None:
        """Wait until `size` bytes fit. A row that is larger than the whole buffer waits until it is empty."""
        self._check()

        def fits() -> bool:
            used = self._used()
            return used == 0 or used + size <= self.about.most_bytes

        if fits():
            return
        if not self.about.block:
            self._batches.push()
            self._work.notify()
            raise BufferFull(waiting=self._used(), most=self.about.most_bytes, topic=self.about.topic)
        self._waiting += 1
        try:
            self._work.notify()
            self._room.wait_for(lambda: fits() or self._error is not None or self._closed)
        finally:
            self._waiting -= 1
        self._check()

    def _add(self, entry: Entry, *, joined: bool) -> int:
        """Add a row. joined: it belongs to the row before it. Returns its number."""
        batches, about = self._batches, self.about
        number = batches.following if entry.number is None else entry.number
        if number < batches.following - joined:
            raise BadRow(problem=f"row number {number} comes after {batches.following - 1}; numbers must ascend")
        partition = zlib.crc32(entry.text) % about.partitions if entry.partition is None else entry.partition
        if not 0 <= partition < about.partitions:
            raise BadRow(problem=f"topic {about.topic} has no partition {partition}; it has {about.partitions}")
        time = entry.time
        if not joined and about.progress:
            if about.clock == "wall":
                batches.see(about.now() - about.lateness)
            elif about.clock == "rows":
                batches.see((about.now() if time is None else time) - about.lateness)
        if self._end is not None:
            if self._end.has(partition, entry.source, number):
                batches.following = number + 1
                return number
            if number >= self._end.following:
                self._end = None
        if time is None:
            time = self._stamp = max(about.now(), self._stamp + 1, MIN_TIME if batches.at is None else batches.at)
        elif batches.at is not None and time < batches.at:
            raise LateRow(number=number, time=time, promised=batches.at)
        if not batches.is_open:
            self._since, self._fresh = clocks.monotonic_ns(), True
        batches.add(entry.text, time, entry.diff, partition, entry.source, number)
        return number

    def _wake(self) -> None:
        """Wake the sender if there is something to send, or rows that it does not know of."""
        if self._batches.has_out or self._fresh:
            self._fresh = False
            self._work.notify()

    def _catch_up(self) -> None:
        if self.about.clock == "wall":
            self._batches.see(self.about.now() - self.about.lateness)

    def _pending_or_out(self) -> bool:
        return bool(self._pending) or self._batches.has_out or self._batches.is_open

    def _busy(self) -> bool:
        late = self._wanted is not None and (self._promise is None or self._promise < self._wanted)
        return self._pending_or_out() or (self.about.progress and late)

    def _unacknowledged(self) -> list[Parcel]:
        self._batches.push()
        return [*self._pending, *(one for one in self._batches.take() if isinstance(one, Parcel))]

    # --- the sender thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:
            self.failed(error)
        finally:
            self._delivery.close()

    def _turn(self) -> bool:
        with self._work:
            while True:
                if self._closed or self._error is not None:
                    return False
                pause = self._keep_time()
                if self._batches.has_out or self._delivery.ready():
                    break
                self._work.wait(pause)
            items = self._batches.take()
            for item in items:
                if isinstance(item, Parcel):
                    self._pending.add(item)
                    self._pending_bytes += item.size
        self._delivery.send(items)
        return True

    def _keep_time(self) -> float | None:
        """Begin a message time, or let rows go, if it is time to; returns the seconds until it may be."""
        about, batches = self.about, self._batches
        if self._waiting:
            batches.push()
        now = clocks.monotonic_ns()
        waited = now - self._since
        wall = about.clock == "wall" and about.progress
        if wall and isinstance(about.policy, Every):
            common = about.now() - about.lateness
            if (batches.is_open or waited >= about.linger) and batches.see(common):
                self._since = now
            boundary = about.policy.width - common % about.policy.width
            return (boundary if batches.is_open else max(boundary, self._since + about.linger - now)) / 1e9
        if not wall and not batches.is_open:
            return None
        if waited >= about.linger:
            self._since = now
            self._catch_up()
            if not isinstance(about.policy, Every):
                batches.leap()
            batches.push()
        return (self._since + about.linger - now) / 1e9


def unsent(parcel: Parcel) -> list[Unsent]:
    """The rows of a message that was not acknowledged."""
    if not parcel.numbers:
        return []
    updates = msgspec.json.decode(parcel.value)["u"]
    return [
        Unsent(parcel.source, row, int(time), diff, number)
        for (row, time, diff), number in zip(updates, parcel.numbers, strict=True)
    ]


def said(error: BaseException) -> str:
    """An error of Kafka in one line."""
    if not isinstance(error, KafkaError) and not str(error):
        return type(error).__name__
    return f"{type(error).__name__}: {error}".splitlines()[0]
