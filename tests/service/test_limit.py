"""A running query takes another limit of messages, and tells how far it is, on the Spark that we are cut for."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from kafka import KafkaProducer

from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.topics import create_topics

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

SCRIPT = textwrap.dedent("""
    import json, os, sys, threading
    from pathlib import Path
    from vernier.service.config.settings import load
    from vernier.service.ingest.config import IngestionConfig
    from vernier.service.coordinator.streaming_query import Query
    from vernier.service.coordinator.session import start_session

    bootstrap, topic, folder = sys.argv[1:]
    settings = load(None, {"kafka.bootstrap": bootstrap, "workers": 2}, {}).settings
    spark = start_session(settings, "limits", Path(folder))
    door = IngestionConfig({}, partitions={topic: 2}, heartbeat_topic="", max_message_bytes=1000)
    taken, done = [], threading.Event()

    def epoch(frame, number):
        taken.append(frame.count())
        if number == 1:
            query.limit_to(700)
        if sum(taken) == 2_000:
            done.set()

    query = Query(spark, settings, door, {}, 100, epoch, Path(folder))
    done.wait(300)
    while sum(query.passed({"more": {0: 7}}).get(topic, {}).values()) < 2_000:
        assert not query.ended(1)
    passed = query.passed({"more": {0: 7}, topic: {0: 9_999}})
    query.close()
    spark.stop()
    print(json.dumps([taken, passed[topic], passed["more"], os.listdir(folder)]))
""")


def test_the_next_micro_batches_take_as_many_as_was_said(tmp_path: Path, broker: EmbeddedBroker) -> None:
    topic = f"limits-{tmp_path.name}"
    create_topics(broker.bootstrap, {topic: 2})
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(2_000):
        producer.send(topic, b"x", partition=number % 2)
    producer.close()
    words = [sys.executable, "-c", SCRIPT, broker.bootstrap, topic, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    taken, passed, more, left = json.loads(done.stdout.splitlines()[-1])
    assert taken == [100, 100, 700, 700, 400]
    assert passed == {"0": 9_999, "1": 1_000}
    assert more == {"0": 7}
    assert [name for name in left if name.startswith("checkpoint")] == []
