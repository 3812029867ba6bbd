"""What readers of committed messages see in an output topic, and a publisher whose producer fails at a chosen call."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaTimeoutError

from vernier.service.config.settings import Settings, load
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.reading import CommittedReader
from vernier.service.sinks.publisher import Publisher
from vernier.storage.state.state import StateDirectory


def committed(bootstrap: str, topic: str, level: str = "read_committed") -> list[Any]:
    """All records of a topic."""
    if level == "read_committed":
        with CommittedReader({"bootstrap_servers": bootstrap}) as reader:
            return [record for records in reader.read(topic) for record in records]
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, isolation_level=level)
    try:
        where = [TopicPartition(topic, one) for one in sorted(consumer.partitions_for_topic(topic) or ())]
        consumer.assign(where)
        consumer.seek_to_beginning(*where)
        ends, found = consumer.end_offsets(where), []
        while any(consumer.position(one) < ends[one] for one in where):
            for records in consumer.poll(timeout_ms=500).values():
                found += records
        return found
    finally:
        consumer.close()


def changes(records: list[Any]) -> Counter[tuple[tuple[Any, ...], int]]:
    """The diffs of native messages by (row, time), zeros left out."""
    total: Counter[tuple[tuple[Any, ...], int]] = Counter()
    for record in records:
        for row, at, diff in json.loads(record.value).get("u", ()):
            total[tuple(row), int(at)] += diff
    return Counter({entry: diff for entry, diff in total.items() if diff})


def header(record: Any, name: str) -> str:
    """A header of ours."""
    return str(dict(record.headers)[f"vernier-{name}"].decode())


def settings(broker: EmbeddedBroker, state: Path, **more: Any) -> Settings:
    """Settings of a publisher."""
    flags = {"kafka.bootstrap": broker.bootstrap, "state.path": str(state), "publish.commit_ms": 1, **more}
    return load(None, flags, {}).settings


class Breaking:
    """A producer that raises before or after its n-th call, and sends nothing more."""

    def __init__(self, at: int, after: bool) -> None:
        self.at, self.after, self.calls = at, after, 0
        self.made: list[KafkaProducer] = []

    def __call__(self, **about: Any) -> Any:
        self.made.append(KafkaProducer(**about))
        return self

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.made[-1], name)
        if name == "close":
            return lambda **_: None  # as one that has died

        def call(*given: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls == self.at and not self.after:
                raise KafkaTimeoutError(f"before {name}")
            result = real(*given, **named)
            if self.calls == self.at:
                if name == "send":
                    self.made[-1].flush(10)
                raise KafkaTimeoutError(f"after {name}")
            return result

        return call

    def bury(self) -> None:
        """Close what was left open."""
        for one in self.made:
            one.close(timeout=0)


def publish(given: Settings, make: Any = KafkaProducer) -> int:
    """One turn of a fresh publisher: how many messages it sent."""
    publisher = Publisher(given, StateDirectory(given.state.place), make)
    try:
        return publisher.turn()
    finally:
        publisher.close()
