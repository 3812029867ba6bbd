"""Topics: all records of a topic, as a reader of committed messages gets them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka import KafkaConsumer, TopicPartition

from bench.chaos.sources import Record


def names(bootstrap: str) -> set[str]:
    """All topics there are."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        return set(consumer.topics())
    finally:
        consumer.close()


def read(bootstrap: str, topics: Iterable[str]) -> Mapping[str, list[Record]]:
    """By topic all records up to the newest committed one, each partition in the order of its offsets."""
    found: dict[str, list[Record]] = {topic: [] for topic in topics}
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        enable_auto_commit=False,
        max_partition_fetch_bytes=16 << 20,
        max_poll_records=5_000,
    )
    try:
        places = [
            TopicPartition(topic, p) for topic in found for p in sorted(consumer.partitions_for_topic(topic) or ())
        ]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < ends[place] for place in places):
            for records in consumer.poll(timeout_ms=1_000).values():
                for one in records:
                    headers = tuple((name, bytes(value or b"")) for name, value in one.headers)
                    record = Record(one.topic, one.partition, one.offset, one.timestamp, one.key, one.value, headers)
                    found[one.topic].append(record)
    finally:
        consumer.close()
    for records in found.values():
        records.sort(key=lambda record: (record.partition, record.offset))
    return found
