"""The demonstration's producer: a random graph that changes continuously, sent in the native format.

    python -m vernier.service.supervision.demo_producer

Change i inserts edge i and removes edge i - `edges`, both at the nanosecond of the change, so the graph keeps its size.
Edge i is a hash of (seed, i), so the graph is a function of the seed and the number of changes. The sources `edges` and
`roots` share one topic. Change i goes to partition i mod N; every batch has one message time, which is announced to
every partition. It is sent by `vernier.Producer`, whose rows have the numbers of their changes, so that a restart reads
from the topic where to continue.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from kafka.errors import KafkaError

from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.schema import Schema
from vernier.service.config.settings import Settings, load
from vernier.service.kafka.producer.producer import Producer
from vernier.service.kafka.topics import create_topics
from vernier.storage.errors import VernierError

BATCH_SECONDS = 0.02
ROOTS = (0, 1, 2)
_CLOSE_SECONDS = 10.0
_MIX = 0xFFFF_FFFF_FFFF_FFFF


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


class Edge(Schema):
    """The source `edges`."""

    src: Int64
    dst: Int64


class Root(Schema):
    """The source `roots`."""

    node: Int64


SOURCES = {"edges": Edge, "roots": Root}


@dataclass
class Motion:
    """Sends the changes of a graph. count: the number of the next one; time_ns: that one is not before."""

    graph: MovingGraph
    producer: Producer
    count: int
    time_ns: int

    def move(self, until: int, now_ns: int) -> None:
        """Send the changes up to `until`, and promise that the next ones come later.

        Their times are strictly ascending and spread evenly from the last promise to now_ns.
        """
        first, begun, partitions = self.count, self.time_ns, self.producer.partitions
        step = max(1, (now_ns - begun) // max(1, until - first))
        rows: list[tuple[int, ...]] = [(node,) for node in ROOTS] if first == 0 < until else []
        n = len(rows)
        times, diffs, places, numbers, sources = [begun] * n, [1] * n, [0] * n, [0] * n, ["roots"] * n
        for index in range(first, until):
            for row, time_ns, diff in self.graph.updates(index, begun + (index - first) * step):
                rows.append(row)
                times.append(time_ns)
                diffs.append(diff)
                places.append(index % partitions)
                numbers.append(index)
                sources.append("edges")
        self.producer.send_many(rows, times, diffs, source=sources, partitions=places, numbers=numbers)
        self.count, self.time_ns = until, max(now_ns, begun + (until - first) * step)
        self.producer.advance(self.time_ns)


def begin(graph: MovingGraph, producer: Producer, now_ns: int) -> Motion:
    """Continue where the topic ends."""
    return Motion(graph, producer, producer.position, max(producer.promised or 0, now_ns))


def produce(settings: Settings, topic: str, graph: MovingGraph, rate: float, stop: threading.Event) -> int:
    """Send changes until `stop` is set; returns the number of changes in the topic. Raises KafkaError, and what
    `Producer` raises."""
    create_topics(
        settings.kafka.bootstrap,
        {topic: settings.workers},
        replication=settings.kafka.replication,
        timeout_seconds=settings.kafka.patience_seconds,
    )
    bootstrap, client = settings.kafka.bootstrap, settings.kafka_client()
    producer = Producer(topic, SOURCES, bootstrap=bootstrap, client=client, policy="1ns", clock="manual", resume=True)
    try:
        motion = begin(graph, producer, time.time_ns())
        began, base = time.monotonic(), motion.count
        print(f"producer: {rate:g} changes/s to topic {topic}, going on after change {base}", flush=True)
        if base < graph.edges:
            base = graph.edges - 1
        while not stop.wait(BATCH_SECONDS):
            motion.move(max(base + int((time.monotonic() - began) * rate), motion.count), time.time_ns())
        producer.flush(_CLOSE_SECONDS)
        return motion.count
    finally:
        producer.close(_CLOSE_SECONDS)


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
