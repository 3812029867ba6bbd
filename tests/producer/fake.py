"""A Kafka that lives in this process: partitions are lists, and a test decides what is acknowledged, and when."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

import vernier as vn
from vernier.service.ingest.formats.native import Native
from vernier.service.kafka.producer.topic_end import TopicEnd, read_end
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import CLOSED

Update = tuple[str, tuple[Any, ...], int, int]


class Edge(vn.Schema):
    """The rows of most tests."""

    src: vn.Int64
    dst: vn.Int64


class Root(vn.Schema):
    """The rows of a second source in the same topic."""

    node: vn.Int64


@dataclass(frozen=True)
class Record:
    """A record as a consumer sees it."""

    offset: int
    key: bytes | None
    value: bytes


class Future:
    """Of one `send`."""

    def __init__(self) -> None:
        self.is_done, self.exception, self.value = False, None, None
        self._good: list[Callable[[Any], Any]] = []
        self._bad: list[Callable[[BaseException], Any]] = []

    def add_callback(self, call: Callable[[Any], Any]) -> Future:
        self._good.append(call)
        if self.is_done and self.exception is None:
            call(self.value)
        return self

    def add_errback(self, call: Callable[[BaseException], Any]) -> Future:
        self._bad.append(call)
        if self.exception is not None:
            call(self.exception)
        return self

    def failed(self) -> bool:
        return self.exception is not None

    def settle(self, error: BaseException | None = None) -> None:
        """End it, as the client's own thread does."""
        self.is_done, self.exception = True, error  # type: ignore[assignment]
        for call in self._bad if error is not None else self._good:
            call(error)  # type: ignore[arg-type]


@dataclass
class Sent:
    """A record that a client was given. It is in the log when it is delivered."""

    partition: int
    key: bytes | None
    value: bytes
    future: Future


@dataclass
class Kafka:
    """One topic. acknowledge: whether records are delivered and acknowledged as they come; otherwise the test calls
    `deliver`."""

    partitions: int = 3
    acknowledge: bool = True
    log: dict[int, list[Record]] = field(default_factory=dict)
    waiting: list[Sent] = field(default_factory=list)
    made: list[Client] = field(default_factory=list)
    lost_answers: int = 0
    """The number of next commits that take place although the client sees them fail."""
    failing: int = 0
    """The number of next commits that fail and do not take place."""

    def __post_init__(self) -> None:
        self.log = {one: [] for one in range(self.partitions)}
        self.changed = threading.Condition(threading.RLock())

    def make(self, **options: Any) -> Client:
        """Stands in for kafka-python's producer."""
        self.made.append(Client(self, options))
        return self.made[-1]

    def end(self, _: Mapping[str, Any] | None = None, topic: str = "t") -> TopicEnd:
        """The end of the topic."""
        return read_end(self, topic, range(self.partitions))

    def bounds(self, part: TopicPartition) -> tuple[int, int]:
        return 0, len(self.log[part.partition])

    def between(self, part: TopicPartition, start: int, stop: int) -> list[Record]:
        return self.log[part.partition][start:stop]

    def append(self, partition: int, key: bytes | None, value: bytes) -> None:
        log = self.log[partition]
        log.append(Record(len(log), key, value))

    def deliver(self, count: int | None = None) -> None:
        """Deliver and acknowledge the oldest records."""
        with self.changed:
            some = self.waiting[:count]
            del self.waiting[: len(some)]
            for sent in some:
                self.append(sent.partition, sent.key, sent.value)
        for sent in some:
            sent.future.settle()

    def until(self, what: Callable[[], bool]) -> None:
        """Wait for a condition on this Kafka."""
        with self.changed:
            assert self.changed.wait_for(what, 30)

    def updates(self, producers: int = 1) -> Counter[Update]:
        """How often the service reads each update."""
        found: Counter[Update] = Counter()
        for partition in self.log:
            found += read(self.log[partition], producers)[0]
        return found


class Client:
    """What the producer uses of kafka-python's."""

    def __init__(self, kafka: Kafka, options: Mapping[str, Any]) -> None:
        self.kafka, self.options, self.closed = kafka, options, False
        self._transaction: list[Sent] = []

    def init_transactions(self) -> None:
        for other in self.kafka.made:
            if other is not self:
                other.closed = True

    def begin_transaction(self) -> None:
        self._transaction = []

    def send(self, topic: str, *, value: bytes, partition: int, key: bytes | None = None) -> Future:
        if self.closed:
            raise KafkaTimeoutError("closed")
        sent = Sent(partition, key, value, Future())
        if "transactional_id" in self.options:
            self._transaction.append(sent)
            sent.future.settle()
            return sent.future
        with self.kafka.changed:
            self.kafka.waiting.append(sent)
            self.kafka.changed.notify_all()
        if self.kafka.acknowledge:
            self.kafka.deliver()
        return sent.future

    def flush(self, timeout: float | None = None) -> None:
        pass

    def commit_transaction(self) -> None:
        kafka = self.kafka
        with kafka.changed:
            if kafka.failing:
                kafka.failing -= 1
                raise KafkaTimeoutError("not committed")
            for sent in self._transaction:
                kafka.append(sent.partition, sent.key, sent.value)
            kafka.changed.notify_all()
            if kafka.lost_answers:
                kafka.lost_answers -= 1
                raise KafkaTimeoutError("no answer")

    def close(self, timeout: float | None = None) -> None:
        self.closed = True


SOURCES = {"edges": Edge, "roots": Root}


def read(records: list[Record], producers: int = 1) -> tuple[Counter[Update], list[tuple[int, list[int], int | None]]]:
    """One partition's updates as the service decodes them, and (t, data times, promise) of each message, checked.

    Message times of one producer never fall, no data time is before its message time, none before what was promised.
    (The next producer begins at what was promised. The last one may have been further, with messages that promise
    nothing.)
    """
    reader = Native({name: schema.row_type for name, schema in SOURCES.items()})
    heap = Heap()
    parsed = reader.decode(pa.array([record.value for record in records], pa.large_binary()), heap)
    assert not parsed.refused, parsed.refused
    found: Counter[Update] = Counter()
    rows = {name: SOURCES[name].row_type.decode_rows(words, heap) for name, words in parsed.words.items()}
    at = dict.fromkeys(parsed.names, 0)
    for source, time, diff in zip(parsed.source.tolist(), parsed.time.tolist(), parsed.diff.tolist(), strict=True):
        name = parsed.names[source]
        found[name, rows[name][at[name]], time, diff] += 1
        at[name] += 1
    told: list[tuple[int, list[int], int | None]] = []
    latest, promised = -(2**63), -(2**63)
    for record in records:
        message = msgspec.json.decode(record.value)
        if "p" in message:
            upper = int(message["p"]["upper"][0]) if message["p"]["upper"] else CLOSED
            assert upper >= promised
            promised = upper
            told.append((upper, [], upper))
            continue
        times = [int(time) for _, time, _ in message["u"]]
        assert int(message["t"]) >= latest or producers > 1
        latest = int(message["t"])
        assert min(times) >= max(latest, promised)
        told.append((latest, times, None))
    return found, told
