"""The demonstration's producer: a function of its seed, times that only grow, a restart that goes on where it was."""

import json
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import KafkaProducer

from vernier.service.config.settings import load
from vernier.service.kafka.embedded_broker import EmbeddedBroker, create_topics
from vernier.service.supervision.demo_producer import ROOTS, MovingGraph, Position, messages, recover

GRAPH = MovingGraph(nodes=20, edges=30, seed=3)
Sent = list[tuple[int, bytes, bytes]]


def edges_at(sent: Iterable[tuple[int, bytes, bytes]]) -> Counter[tuple[int, ...]]:
    """The edges that the messages leave, each as often as it is there."""
    left: Counter[tuple[int, ...]] = Counter()
    for _, _, value in sent:
        message = json.loads(value)
        if message.get("input") == "edges":
            for row, _, diff in message["u"]:
                left[tuple(row)] += diff
    return +left


def last_edges(count: int) -> Counter[tuple[int, ...]]:
    """What the graph should be after so many changes."""
    return Counter(GRAPH.edge(i) for i in range(max(0, count - GRAPH.edges), count))


@given(
    steps=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10**9)), min_size=1, max_size=8),
    partitions=st.integers(1, 4),
)
def test_the_graph_moves_and_time_grows(steps: list[tuple[int, int]], partitions: int) -> None:
    at, now, sent = Position([0] * partitions, 1_000), 1_000, []
    for more, passed in steps:
        now += passed
        sent += list(messages(GRAPH, at, min(at.sent) + more, now))
    count = sum(more for more, _ in steps)
    assert edges_at(sent) == last_edges(count)
    promised = [0] * partitions
    changes: dict[int, int] = {}
    for partition, key, value in sent:
        message = json.loads(value)
        assert int(key.partition(b"@")[2]) <= at.time_ns
        if "p" in message:
            assert int(message["p"]["upper"][0]) >= promised[partition]
            promised[partition] = int(message["p"]["upper"][0])
            continue
        times = [int(time) for _, time, _ in message["u"]]
        assert times == sorted(times)
        assert min(times) >= max(promised[partition], int(message["t"]))
        if message["input"] == "edges":
            changes.update(dict.fromkeys(times, partition))
    assert len(changes) == count, "each change has a nanosecond of its own"
    assert promised == [at.time_ns] * partitions
    roots = [value for _, _, value in sent if b'"roots"' in value]
    assert len(roots) == (1 if count else 0)
    assert not roots or [row for row, _, _ in json.loads(roots[0])["u"]] == [[root] for root in ROOTS]


@given(cut=st.integers(0, 60), partitions=st.integers(1, 3))
def test_a_batch_that_was_sent_in_part_is_completed(cut: int, partitions: int) -> None:
    """Killed after any message: the next one sends what is missing, and nothing twice."""
    at = Position([0] * partitions, 1_000)
    whole = [one for until in (35, 50, 61) for one in messages(GRAPH, at, until, 1_000 + until * 1_000)]
    sent = whole[:cut]
    done, latest = [0] * partitions, 1_000
    for partition, key, _ in sent:
        count, _, moment = key.partition(b"@")
        done[partition], latest = max(done[partition], int(count)), max(latest, int(moment))
    again = Position(done, latest + 1)
    rest = list(messages(GRAPH, again, 80, 1_000_000))
    assert edges_at([*sent, *rest]) == last_edges(80)
    first = [int(time) for _, _, value in rest for _, time, _ in json.loads(value).get("u", ())]
    assert min(first) > latest


@pytest.mark.broker
def test_it_finds_where_it_was_from_the_topic(broker: EmbeddedBroker) -> None:
    topic = "producer-recovers"
    settings = load(None, {"kafka.bootstrap": broker.bootstrap}, {}).settings
    create_topics(broker.bootstrap, {topic: 3})
    assert recover(settings, topic, 3, 5).sent == [0, 0, 0]
    at = Position([0, 0, 0], 1_000)
    sent = [one for until in (10, 20) for one in messages(GRAPH, at, until, until * 1_000)]
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    try:
        # The last two messages, which were for partition 2, did not make it.
        for partition, key, value in sent[:-2]:
            producer.send(topic, key=key, value=value, partition=partition)
        producer.send(topic, value=b"somebody else's", partition=1)
        producer.flush()
    finally:
        producer.close()
    found = recover(settings, topic, 3, 7)
    assert found.sent == [20, 20, 10]
    assert found.time_ns == 20_001
