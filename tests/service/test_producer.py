"""The demonstration's producer: a function of its seed, times that only grow, a restart that goes on where it was."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.producer.fake import Kafka, Record, read
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.producer.topic_end import read_topic_end
from vernier.service.supervision.demo_producer import ROOTS, SOURCES, MovingGraph, begin

GRAPH = MovingGraph(nodes=20, edges=30, seed=3)


def producer(kafka: Kafka) -> Any:
    """As the demonstration makes it."""
    return vn.Producer("t", SOURCES, policy="1ns", clock="manual", resume=True, _make=kafka.make, _end=kafka.end)


def edges_at(records: Iterable[Record]) -> Counter[tuple[int, ...]]:
    """The edges that the messages leave, each as often as it is there."""
    left: Counter[tuple[int, ...]] = Counter()
    for record in records:
        message = json.loads(record.value)
        if message.get("input") == "edges":
            for row, _, diff in message["u"]:
                left[tuple(row)] += diff
    assert min(left.values(), default=0) >= 0
    return +left


def everything(kafka: Kafka) -> list[Record]:
    return [record for log in kafka.log.values() for record in log]


def last_edges(count: int) -> Counter[tuple[int, ...]]:
    """What the graph should be after a number of changes."""
    return Counter(GRAPH.edge(i) for i in range(max(0, count - GRAPH.edges), count))


@given(
    steps=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10**9)), min_size=1, max_size=8),
    partitions=st.integers(1, 4),
)
def test_the_graph_moves_and_time_grows(steps: list[tuple[int, int]], partitions: int) -> None:
    kafka, now = Kafka(partitions), 1_000
    with producer(kafka) as sender:
        motion = begin(GRAPH, sender, now)
        for more, passed in steps:
            now += passed
            motion.move(motion.count + more, now)
        sender.flush()
    count = sum(more for more, _ in steps)
    assert motion.count == count
    assert edges_at(everything(kafka)) == last_edges(count)
    changes: set[int] = set()
    for records in kafka.log.values():
        for _, times, promise in read(records)[1]:
            assert times == sorted(times)
            assert promise is None or promise <= motion.time_ns
        own = [json.loads(one.value) for one in records if b'"edges"' in one.value]
        changes |= {int(time) for message in own for _, time, _ in message["u"]}
    assert len(changes) == count, "each change has a nanosecond of its own"
    assert kafka.end().upper == motion.time_ns
    roots = [json.loads(one.value)["u"] for one in everything(kafka) if b'"roots"' in one.value]
    assert [[row for row, _, _ in one] for one in roots] == ([[[root] for root in ROOTS]] if count else [])


@given(partitions=st.integers(1, 3), data=st.data())
def test_a_batch_that_was_sent_in_part_is_completed(partitions: int, data: st.DataObject) -> None:
    """Killed after any message: the next one sends what is missing, and nothing twice."""
    whole = Kafka(partitions)
    with producer(whole) as sender:
        motion = begin(GRAPH, sender, 1_000)
        for until in (35, 50, 61):
            motion.move(until, 1_000 + until * 1_000)
            sender.flush()
    kafka = Kafka(partitions)
    # All of some batches, and of the next one the beginning in each partition, without its promise.
    told = [[i for i, one in enumerate(log) if b'"p"' in one.value] for log in whole.log.values()]
    batches = data.draw(st.integers(0, len(told[0]) - 1))
    for partition, log in whole.log.items():
        first = 0 if batches == 0 else told[partition][batches - 1] + 1
        more = data.draw(st.integers(0, told[partition][batches] - first))
        kafka.log[partition] = log[: first + more]
    with producer(kafka) as sender:
        motion = begin(GRAPH, sender, 1_000_000)
        motion.move(80, 2_000_000)
        sender.flush()
    assert edges_at(everything(kafka)) == last_edges(80)
    assert sum(one.value.count(b"roots") for one in everything(kafka)) == 1
    for records in kafka.log.values():
        read(records)


def test_topics_of_earlier_releases_are_continued() -> None:
    """Each of their partitions promises for itself, with the number of its changes; the last batch may lack some."""
    kafka = Kafka(2)
    for partition, count in ((0, 20), (1, 10)):
        for until in range(10, count + 1, 10):
            rows = [[list(GRAPH.edge(i)), str(100 * i), 1] for i in range(until - 10, until) if i % 2 == partition]
            key = b"%d@%d" % (until, 100 * until)
            message = {"v": 1, "t": str(100 * (until - 10)), "input": "edges", "u": rows}
            kafka.append(partition, key, json.dumps(message).encode())
            progress = {"lower": [str(100 * (until - 10))], "upper": [str(100 * until)]}
            kafka.append(partition, key, json.dumps({"v": 1, "p": progress}).encode())
    with producer(kafka) as sender:
        motion = begin(GRAPH, sender, 0)
        assert (motion.count, motion.time_ns) == (10, 2_000)
        motion.move(30, 10_000)
        sender.flush()
    assert edges_at(everything(kafka)) == last_edges(30)


@pytest.mark.broker
def test_it_finds_where_it_was_from_the_topic(broker: EmbeddedBroker) -> None:
    topic = "producer-recovers"
    broker.create_topics({topic: 3})
    client = {"bootstrap_servers": broker.bootstrap}
    assert read_topic_end(client, topic).position == 0
    for until in (10, 20):
        with vn.Producer(
            topic, SOURCES, bootstrap=broker.bootstrap, policy="1ns", clock="manual", resume=True
        ) as sender:
            motion = begin(GRAPH, sender, until * 1_000)
            assert motion.count == until - 10
            motion.move(until, until * 1_000 + 500)
    end = read_topic_end(client, topic)
    assert (end.position, end.following, end.upper) == (20, 20, 20_500)
