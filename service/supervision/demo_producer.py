"""The demonstration's producer: a random graph that changes continuously, sent in the native format.

    python -m vernier.service.supervision.demo_producer

Change i inserts edge i and removes edge i - `edges`, both at the nanosecond of the change, so the graph keeps its size.
Edge i is a hash of (seed, i), so the graph is a function of the seed and the number of changes. The sources `edges` and
`roots` share one topic. Change i goes to partition i mod N, and every batch ends with a progress message to every
partition. The producer keeps no file: the key of each message says how many changes it covers. After a restart the
producer reads the end of each partition to learn where to continue, and which partitions received more of the last
batch than others.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from vernier.service.config.settings import Settings, load
from vernier.service.kafka.embedded_broker import create_topics
from vernier.storage.errors import VernierError

BATCH_SECONDS = 0.02
ROOTS = (0, 1, 2)
_MIX = 0xFFFF_FFFF_FFFF_FFFF
_log = logging.getLogger("vernier.producer")


@dataclass(frozen=True)
class MovingGraph:
    """The graph: `edges` edges between `nodes` nodes."""

    nodes: int = 1_000
    edges: int = 2_000
    seed: int = 1

    def edge(self, index: int) -> tuple[int, int]:
        """The edge that change `index` inserts."""
        return self._hash(2 * index) % self.nodes, self._hash(2 * index + 1) % self.nodes

    def updates(self, index: int, time_ns: int) -> list[tuple[tuple[int, int], int, int]]:
        """The updates of change `index` as (row, time, diff)."""
        change = [(self.edge(index), time_ns, 1)]
        if index >= self.edges:
            change.append((self.edge(index - self.edges), time_ns, -1))
        return change

    def _hash(self, number: int) -> int:
        """splitmix64 of the number in the seed's sequence."""
        z = (self.seed * 0x9E37_79B9_7F4A_7C15 + number * 0xD1B5_4A32_D192_ED03 + 1) & _MIX
        z = ((z ^ (z >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MIX
        z = ((z ^ (z >> 27)) * 0x94D0_49BB_1331_11EB) & _MIX
        return z ^ (z >> 31)


@dataclass
class Position:
    """How far a topic has been filled. sent[p]: partition p holds all of its changes below this number. time_ns: all
    messages in the topic are before it.
    """

    sent: list[int]
    time_ns: int


def messages(graph: MovingGraph, at: Position, until: int, now_ns: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (partition, key, value) of the changes up to `until`, then progress; advances the position.

    The times of the changes are strictly ascending and spread evenly from the position's time to now_ns.
    """
    partitions, first = len(at.sent), min(at.sent)
    begun = at.time_ns
    step = max(1, (now_ns - begun) // max(1, until - first))
    rows: list[list[Any]] = [[] for _ in range(partitions)]
    for index in range(first, until):
        partition = index % partitions
        if index >= at.sent[partition]:
            moment = begun + (index - first) * step
            rows[partition] += [[list(row), str(time_ns), diff] for row, time_ns, diff in graph.updates(index, moment)]
    end = max(now_ns, begun + (until - first) * step)
    key = _key(until, end)
    for partition, changed in enumerate(rows):
        if first == 0 and partition == 0 and until:
            roots = [[[node], str(begun), 1] for node in ROOTS]
            yield partition, _key(0, begun), _native({"v": 1, "t": str(begun), "input": "roots", "u": roots})
        if changed:
            yield partition, key, _native({"v": 1, "t": changed[0][1], "input": "edges", "u": changed})
        progress = {"lower": [str(begun)], "upper": [str(end)]}
        yield partition, key, _native({"v": 1, "p": progress})
    at.sent, at.time_ns = [until] * partitions, end


def recover(settings: Settings, topic: str, partitions: int, now_ns: int) -> Position:
    """Recover the position of the topic from its last messages. Raises KafkaError."""
    sent, latest = [0] * partitions, 0
    consumer = KafkaConsumer(**settings.kafka_client(), group_id=None, enable_auto_commit=False)
    try:
        ends = consumer.end_offsets([TopicPartition(topic, p) for p in range(partitions)])
        filled = [where for where, end in ends.items() if end]
        consumer.assign(filled)
        waiting = set(filled)
        for where in filled:
            # The last message's key is enough. Messages of other producers have no such key, so look at the last 16.
            consumer.seek(where, max(0, ends[where] - 16))
        while waiting:
            for where, records in consumer.poll(timeout_ms=1_000).items():
                for record in records:
                    count, moment = _parse(record.key)
                    sent[where.partition] = max(sent[where.partition], count)
                    latest = max(latest, moment)
            waiting = {where for where in waiting if consumer.position(where) < ends[where]}
    finally:
        consumer.close()
    return Position(sent, max(latest + 1, now_ns))


def produce(settings: Settings, topic: str, graph: MovingGraph, rate: float, stop: threading.Event) -> int:
    """Send changes until `stop` is set; returns the number of changes in the topic. Raises KafkaError."""
    found = create_topics(
        settings.kafka.bootstrap,
        {topic: settings.workers},
        replication=settings.kafka.replication,
        timeout_seconds=settings.kafka.patience_seconds,
    )
    at = recover(settings, topic, found[topic], time.time_ns())
    producer = KafkaProducer(
        **settings.kafka_client(), acks="all", enable_idempotence=True, linger_ms=0, max_block_ms=10_000
    )
    lost: list[BaseException] = []
    began, base = time.monotonic(), min(at.sent)
    if base < graph.edges:
        base = graph.edges - 1
    print(f"producer: {rate:g} changes/s to topic {topic}, continuing after change {min(at.sent)}", flush=True)
    try:
        while not stop.wait(BATCH_SECONDS):
            if lost:
                raise lost[0]
            until = max(base + int((time.monotonic() - began) * rate), *at.sent)
            for partition, key, value in messages(graph, at, until, time.time_ns()):
                producer.send(topic, key=key, value=value, partition=partition).add_errback(lost.append)
        producer.flush(10)
    finally:
        producer.close(timeout=2)
    return min(at.sent)


def _key(count: int, time_ns: int) -> bytes:
    return f"{count}@{time_ns}".encode()


def _parse(key: bytes | None) -> tuple[int, int]:
    count, _, moment = (key or b"").partition(b"@")
    return (int(count), int(moment)) if count.isdigit() and moment.isdigit() else (0, 0)


def _native(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def main(arguments: Sequence[str] | None = None) -> int:
    """Produce until SIGTERM or SIGINT. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m vernier.service.supervision.demo_producer", description=__doc__)
    parser.add_argument("--config", metavar="FILE")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--topic", default="graph")
    parser.add_argument("--rate", type=float, default=1_000, help="changes a second")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--edges", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        settings = load(given.config, dict(pair.split("=", 1) for pair in given.set)).settings
        produce(settings, given.topic, MovingGraph(given.nodes, given.edges, given.seed), given.rate, stop)
    except (VernierError, KafkaError) as error:
        print(f"producer: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
