"""Delivery: brings the messages and promises of a producer into the topic, in one of two ways.

A promise must not be in a partition before the rows that it covers, whatever fails. So it is sent when all rows that
were taken before it are acknowledged (`Idempotent`), or in the transaction that has them (`Transactional`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from kafka import KafkaProducer
from kafka.errors import KafkaError

from vernier.service.codec.native import progress_message
from vernier.service.kafka.producer.batches import Mark, Parcel, Promise
from vernier.service.kafka.producer.topic_end import TopicEnd
from vernier.service.kafka.transactions import Fenced, Transactions

_RETRY_SECONDS = 0.1
_MOST_RECORDS = 4_096
"""Of one transaction."""


class Watcher(Protocol):
    """Learns what has become of messages. Called from any thread."""

    def acknowledged(self, parcel: Parcel) -> None:
        """The message is in the topic."""

    def promised_everywhere(self, promise: Promise) -> None:
        """The promise is in every partition, and so are earlier ones."""

    def failed(self, error: BaseException) -> None:
        """Nothing more will be delivered."""


class Delivery(Protocol):
    """Used by one thread, except `ready`."""

    def send(self, items: Sequence[Parcel | Promise]) -> None:
        """Send these after all earlier ones."""

    def ready(self) -> bool:
        """Whether a call of `send`, also without items, would send a promise that has waited."""

    def stop(self) -> None:
        """Give up soon. From any thread."""

    def close(self) -> None:
        """Drop what is not sent."""


@dataclass(eq=False)
class _Group:
    """The messages up to a promise. left: of them, how many are not acknowledged."""

    left: int = 0
    promise: Promise | None = None


class _Marks:
    """Makes the keys of messages. It knows the greatest count of each partition, also from earlier producers."""

    def __init__(self, end: TopicEnd) -> None:
        self._greatest = {one: found.greatest for one, found in end.partitions.items()}

    def of(self, parcel: Parcel) -> bytes | None:
        """The key of a message that is sent now."""
        if parcel.time is None:
            return None
        greatest = self._greatest[parcel.partition]
        self._greatest[parcel.partition] = max(greatest, parcel.count)
        return Mark(parcel.count, parcel.time, greatest > parcel.count, parcel.first).encode()

    def of_promise(self, partition: int, promise: Promise) -> bytes:
        """The key of a promise that is sent now."""
        return Mark(promise.count, promise.upper, more=self._greatest[partition] > promise.count).encode()


class Idempotent:
    """Sends without waiting. The client's sequence numbers keep the order and drop second copies."""

    def __init__(self, producer: KafkaProducer, topic: str, end: TopicEnd, watcher: Watcher) -> None:
        self._producer, self._topic, self._watcher = producer, topic, watcher
        self._partitions, self._marks = len(end.partitions), _Marks(end)
        self._lock = threading.Lock()
        self._groups = deque([_Group()])

    def send(self, items: Sequence[Parcel | Promise]) -> None:
        """Send messages now, and promises when they are covered."""
        for item in items:
            with self._lock:
                group = self._groups[-1]
                if isinstance(item, Promise):
                    group.promise = item
                    self._groups.append(_Group())
                    continue
                group.left += 1
            future = self._put(item.partition, self._marks.of(item), item.value)
            future.add_callback(partial(self._acknowledged, group, item))
            future.add_errback(self._watcher.failed)
        self._send_promise()

    def ready(self) -> bool:
        """Whether the first group is complete."""
        with self._lock:
            return self._groups[0].promise is not None and self._groups[0].left == 0

    def stop(self) -> None:
        """Nothing to do: `send` does not wait."""

    def close(self) -> None:
        """Drop what is not sent."""
        self._producer.close(timeout=0)

    def _acknowledged(self, group: _Group, parcel: Parcel, _: object) -> None:
        with self._lock:
            group.left -= 1
        self._watcher.acknowledged(parcel)

    def _send_promise(self) -> None:
        """Send the last promise that is covered; it says more than those before it."""
        promise: Promise | None = None
        with self._lock:
            while self._groups[0].promise is not None and self._groups[0].left == 0:
                promise = self._groups.popleft().promise
        if promise is None:
            return
        left = [self._partitions]
        for one in range(self._partitions):
            future = self._put(one, self._marks.of_promise(one, promise), progress_message(promise.upper))
            future.add_callback(partial(self._kept, promise, left))
            future.add_errback(self._watcher.failed)

    def _kept(self, promise: Promise, left: list[int], _: object) -> None:
        with self._lock:
            left[0] -= 1
            done = left[0] == 0
        if done:
            self._watcher.promised_everywhere(promise)

    def _put(self, partition: int, key: bytes | None, value: bytes) -> Any:
        return self._producer.send(self._topic, key=key, value=value, partition=partition)


class Transactional:
    """Commits what there is in one transaction, then the next. A transaction whose outcome is unknown is looked up in
    the topic and, if it is not there, sent again, until `patience` seconds have passed.

    end: of the topic when this begins. read: reads it again.
    """

    def __init__(
        self,
        transactions: Transactions,
        topic: str,
        end: TopicEnd,
        watcher: Watcher,
        read: Callable[[], TopicEnd],
        patience: float,
    ) -> None:
        self._transactions, self._topic, self._watcher = transactions, topic, watcher
        self._partitions, self._marks = len(end.partitions), _Marks(end)
        self._read, self._patience = read, patience
        self._stop = threading.Event()

    def send(self, items: Sequence[Parcel | Promise]) -> None:
        """Returns when everything is committed. Raises Fenced and KafkaErrors."""
        for start in range(0, len(items), _MOST_RECORDS):
            self._commit(items[start : start + _MOST_RECORDS])

    def ready(self) -> bool:
        """No promise waits."""
        return False

    def stop(self) -> None:
        """Do not repeat a transaction that fails."""
        self._stop.set()

    def close(self) -> None:
        """Abort what is under way."""
        self._transactions.close()

    def _commit(self, items: Sequence[Parcel | Promise]) -> None:
        parcels = [item for item in items if isinstance(item, Parcel)]
        promise = next((item for item in reversed(items) if isinstance(item, Promise)), None)
        deadline, unsure = time.monotonic() + self._patience, False
        while True:
            try:
                self._transactions.open()
                if unsure and self._is_there(parcels, promise):
                    break
                unsure = True
                self._transactions.commit(self._records(parcels, promise))
                break
            except Fenced:
                raise
            except KafkaError:
                # The next turn fences this transaction, and then its outcome is fixed.
                if time.monotonic() > deadline or self._stop.wait(_RETRY_SECONDS):
                    raise
        for parcel in parcels:
            self._watcher.acknowledged(parcel)
        if promise is not None:
            self._watcher.promised_everywhere(promise)

    def _is_there(self, parcels: Iterable[Parcel], promise: Promise | None) -> bool:
        """Whether the transaction was committed. Any one message of it shows that."""
        end = self._read()
        for one in parcels:
            return end.has(one.partition, one.source, one.numbers[-1])
        return promise is not None and end.upper is not None and end.upper >= promise.upper

    def _records(self, parcels: Iterable[Parcel], promise: Promise | None) -> Iterator[Mapping[str, Any]]:
        for one in parcels:
            key = self._marks.of(one)
            yield {"topic": self._topic, "key": key, "value": one.value, "partition": one.partition}
        if promise is None:
            return
        for number in range(self._partitions):
            key, value = self._marks.of_promise(number, promise), progress_message(promise.upper)
            yield {"topic": self._topic, "key": key, "value": value, "partition": number}
