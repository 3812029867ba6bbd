"""The live service against recompute-from-scratch: while it runs, and while its processes are killed again and
again."""

import json
import random
import threading
from pathlib import Path

import httpx
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.live.service import PATIENCE, Service, wait_for
from tests.live.truth import Truth
from tests.live.watched import Watched
from tests.profiles import NIGHTLY, shorter
from vernier.service.client.client import ServerError, connect

KILLS = 10 if NIGHTLY else shorter(3, 1)
"""Of each of the four kinds of process."""


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_every_sampled_answer_is_the_recomputed_one(tmp_path: Path, workers: int) -> None:
    truth = Truth()
    with Service(tmp_path, workers) as service:
        watched = Watched(service, truth, partitions=workers, rate=400, seed=workers)
        sampler = watched.sampler
        wait_for("a hundred samples", lambda: len(sampler.samples) >= 100 or sampler.failure)
        end = watched.finish(100)
        with connect(service.url) as client:
            token = client.send("roots", [{"data": [10_001], "time": end + 1}], resolved=end + 2)
            assert client.wait(token, timeout=PATIENCE) == end + 1
            assert client.key("reach", 10_001, as_of=end + 1) == [{"node": 10_001}]
            with pytest.raises(ServerError, match="too late"):
                client.send("roots", [{"data": [10_002], "time": end + 1}])
        _refuse(service, end)
        assert service.read(end - 1) == (end - 1, sampler.samples[end - 1])


def _refuse(service: Service, frontier: int) -> None:
    """Send what cannot be taken in; each message must come back whole as a dead letter, and epochs must go on."""
    now = str(frontier + 1)
    edge = {"v": 1, "t": now, "input": "edges"}
    bad = [
        ("decode", b'{"v":1,"t":'),
        ("schema", json.dumps({**edge, "u": [[["one", 2], now, 1]]}).encode()),
        ("schema", json.dumps({**edge, "u": [[{"src": 1}, now, 1]]}).encode()),
        ("unknown_source", json.dumps({**edge, "input": "edgs", "u": [[[1, 2], now, 1]]}).encode()),
        ("late", json.dumps({**edge, "t": "1", "u": [[[1, 2], "1", 1]]}).encode()),
        ("schema", json.dumps({**edge, "u": [[[1, 2], now, 0]]}).encode()),
        ("overflow", json.dumps({**edge, "u": [[[1, 2], now, 2**63]]}).encode()),
        ("decode", b" " * (10 << 20)),
    ]
    producer = KafkaProducer(bootstrap_servers=service.bootstrap, acks="all", max_request_size=16 << 20)
    places = []
    for _, value in bad:
        sent = producer.send("graph", value, key=b"bad", partition=0).get(timeout=60)
        places.append((b"graph", b"0", str(sent.offset).encode()))
    progress = {"v": 1, "p": {"lower": [str(frontier)], "upper": [str(frontier + 10)]}}
    for partition in range(service.workers):
        producer.send("graph", json.dumps(progress).encode(), partition=partition)
    producer.close()
    wait_for("epochs go on behind what was refused", lambda: service.frontier() >= frontier + 10)

    def arrived() -> list[object]:
        consumer = KafkaConsumer(bootstrap_servers=service.bootstrap, isolation_level="read_committed")
        try:
            topics = [TopicPartition(f"{name}.dlq", 0) for name in ("graph", "edges", "roots")]
            consumer.assign(topics)
            consumer.seek_to_beginning(*topics)
            ends, found = consumer.end_offsets(topics), []
            while any(consumer.position(topic) < ends[topic] for topic in topics):
                for records in consumer.poll(timeout_ms=1_000).values():
                    found += records
            return found if len(found) >= len(bad) else []
        finally:
            consumer.close()

    letters = wait_for("all dead letters", arrived)
    headers = [dict(letter.headers) for letter in letters]
    told = {(h["vernier-topic"], h["vernier-partition"], h["vernier-offset"]): h["vernier-reason"] for h in headers}
    assert told == {place: reason.encode() for place, (reason, _) in zip(places, bad)}
    assert sorted(letter.value for letter in letters) == sorted(value for _, value in bad)
    assert {letter.key for letter in letters} == {b"bad"}
    metrics = httpx.get(f"{service.url}/metrics").text
    counted = [line for line in metrics.splitlines() if line.startswith("vernier_source_errors_total{")]
    late = [line for line in metrics.splitlines() if line.startswith("vernier_source_late_updates_total{")]
    assert sum(float(line.rsplit(" ", 1)[1]) for line in counted) + sum("reject" in line for line in late) >= len(bad)


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.timeout(1500)
def test_kills_lose_nothing_and_count_nothing_twice(tmp_path: Path) -> None:
    truth = Truth()
    chance = random.Random(7)
    with Service(tmp_path, 2) as service:
        watched = Watched(service, truth, partitions=2, rate=200, seed=7)
        kills = ["worker", "driver", "sidecar", "broker"] * KILLS
        chance.shuffle(kills)
        for role in kills:
            threading.Event().wait(chance.random())  # any moment will do: no result depends on it
            service.kill(role, chance)
            watched.goes_on(f"after the kill of a {role}")
        watched.finish(len(kills))
        metrics = httpx.get(f"{service.url}/metrics").text
        assert "vernier_source_errors_total{" not in metrics, "a kill made dead letters"
