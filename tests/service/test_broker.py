"""The embedded broker, for real: start, produce, kill -9, restart, and the ways in which it says no."""

import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from vernier.service.kafka import topics
from vernier.service.kafka.broker_errors import BrokerError, PortTaken
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.topics import CHOSEN, TIMESTAMPS, create_topics, replaced_timestamps

pytestmark = pytest.mark.broker


@pytest.fixture
def own(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker of this test's own, not yet started."""
    broker = EmbeddedBroker(tmp_path / "kafka")
    yield broker
    broker.kill()


def produce(broker: EmbeddedBroker, topic: str, *values: bytes) -> None:
    """Send to partition 0 and wait for every acknowledgement."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", max_request_size=broker.max_message_bytes)
    try:
        for sent in [producer.send(topic, value=value, partition=0) for value in values]:
            sent.get(60)
    finally:
        producer.close()


def consume(broker: EmbeddedBroker, topic: str, count: int) -> list[bytes]:
    """The first `count` values of partition 0."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        group_id=None,
        consumer_timeout_ms=60_000,
        max_partition_fetch_bytes=broker.max_message_bytes,
    )
    consumer.assign([TopicPartition(topic, 0)])
    try:
        return [record.value for _, record in zip(range(count), consumer, strict=False)]
    finally:
        consumer.close()


def test_what_was_acknowledged_survives_kill_and_restart(own: EmbeddedBroker) -> None:
    assert not own.running
    assert own.pid is None
    own.start()
    port, pid = own.port, own.pid
    assert own.start().pid == pid  # a second start does nothing
    own.create_topics({"edges": 2})
    values = [f"value {i}".encode() for i in range(100)]
    produce(own, "edges", *values)

    own.kill()
    assert not own.running
    assert pid is None or not psutil.pid_exists(pid)
    own.start()

    assert own.port == port
    assert own.create_topics({"edges": 2}) == {"edges": 2}
    assert consume(own, "edges", 100) == values
    produce(own, "edges", b"after")
    own.restart()
    assert consume(own, "edges", 101) == [*values, b"after"]
    own.stop()
    own.stop()  # nothing to do


def test_a_new_object_takes_over_the_data(own: EmbeddedBroker) -> None:
    with own:
        own.create_topics({"edges": 1})
        produce(own, "edges", b"kept")
    with EmbeddedBroker(own.data_dir) as other:
        assert consume(other, "edges", 1) == [b"kept"]


def test_a_message_of_ten_megabytes(broker: EmbeddedBroker) -> None:
    broker.create_topics({"large": 1})
    large = os.urandom(10_000_000)
    produce(broker, "large", large)
    assert consume(broker, "large", 1) == [large]


def test_times_are_the_brokers(broker: EmbeddedBroker) -> None:
    broker.create_topics({"stamped": 1})
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    sent = producer.send("stamped", value=b"x", partition=0, timestamp_ms=1).get(60)
    producer.close()
    assert sent.timestamp > 1_600_000_000_000


def test_topics_are_created_once_and_left_alone(broker: EmbeddedBroker) -> None:
    assert broker.create_topics({"once": 3, "twice": 1}) == {"once": 3, "twice": 1}
    assert broker.create_topics({"once": 5, "thrice": 2}) == {"once": 3, "thrice": 2}
    assert create_topics(broker.bootstrap, {}) == {}


def test_a_topic_grows_if_it_is_wanted(broker: EmbeddedBroker) -> None:
    assert create_topics(broker.bootstrap, {"beats": 1}) == {"beats": 1}
    assert create_topics(broker.bootstrap, {"beats": 3}, grow=True) == {"beats": 3}
    assert create_topics(broker.bootstrap, {"beats": 2}, grow=True) == {"beats": 3}
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap)
    assert consumer.partitions_for_topic("beats") == {0, 1, 2}
    consumer.close()


def test_it_knows_which_topics_replace_the_times_of_producers(broker: EmbeddedBroker) -> None:
    client = {"bootstrap_servers": broker.bootstrap}
    broker.create_topics({"replaced": 1})
    create_topics(broker.bootstrap, {"chosen": 1}, config={TIMESTAMPS: CHOSEN})
    assert replaced_timestamps(client, ["chosen", "replaced", "missing"]) == ["replaced"]
    assert replaced_timestamps(client, []) == []
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    try:
        assert producer.send("chosen", value=b"x", timestamp_ms=12_345).get(60).timestamp == 12_345
    finally:
        producer.close()


def test_an_unknown_topic_is_not_made_by_asking(broker: EmbeddedBroker) -> None:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap)
    assert not consumer.partitions_for_topic("mistyped")
    assert "mistyped" not in consumer.topics()
    consumer.close()


def test_a_bad_topic_name_is_one_clear_error(broker: EmbeddedBroker) -> None:
    with pytest.raises(BrokerError, match="cannot create topics no spaces on 127"):
        broker.create_topics({"no spaces": 1})


def test_no_broker_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(BrokerError, match=f"no kafka broker answers on {address}"):
            create_topics(address, {"edges": 1}, timeout_seconds=1)


def test_a_taken_port_names_its_owner(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"port {port} is taken by pid {os.getpid()} \(") as refused:
            EmbeddedBroker(tmp_path / "kafka", port=port).start()
    assert "\n" not in str(refused.value)


def test_a_second_broker_on_the_same_data_is_refused(broker: EmbeddedBroker) -> None:
    with pytest.raises(BrokerError, match=f"in use by the broker with pid {broker.pid}"):
        EmbeddedBroker(broker.data_dir).start()
    assert broker.running


def test_a_format_that_died_is_done_again(own: EmbeddedBroker) -> None:
    (own.data_dir / "log").mkdir(parents=True)
    (own.data_dir / "log" / "bootstrap.checkpoint").write_bytes(b"half")
    with own:
        assert own.create_topics({"edges": 1}) == {"edges": 1}


def test_damaged_data_say_so_in_one_line(own: EmbeddedBroker) -> None:
    (own.data_dir / "log").mkdir(parents=True)
    (own.data_dir / "log" / "meta.properties").write_text("version=1\nnode.id=77\ncluster.id=x\n")
    with pytest.raises(BrokerError) as refused:
        own.start()
    assert "\n" not in str(refused.value)
    assert not own.running


PARENT = """
import os, signal, sys, threading
from vernier.service.kafka.embedded_broker import EmbeddedBroker
broker = EmbeddedBroker(sys.argv[1])
starter = threading.Thread(target=broker.start)  # a broker outlives the thread that started it
starter.start()
starter.join()
print(broker.pid, broker.running, flush=True)
sys.stdin.readline()
print(broker.running, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_it_dies_with_its_parent(tmp_path: Path, root: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "kafka")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        pid, running = parent.stdout.readline().split()
        assert running == "True"
        java = psutil.Process(int(pid))
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == "True\n"
        assert parent.wait(60) == -signal.SIGKILL
    gone, alive = psutil.wait_procs([java], timeout=60)
    assert gone
    assert not alive


class Behind:
    """Brokers of which one has not heard of the newest topics. Each question goes to the other one in turn."""

    def __init__(self, behind: Sequence[bool], **_about: object) -> None:
        self.behind = itertools.cycle(behind)
        self.made: dict[str, int] = {}

    def list_topics(self) -> list[str]:
        return list(self.made)

    def create_topics(self, topics: Mapping[str, Mapping[str, int]]) -> None:
        self.made |= {name: about["num_partitions"] for name, about in topics.items()}

    def describe_topics(self, topics: Sequence[str]) -> list[dict[str, Any]]:
        if next(self.behind):
            return [{"name": name, "error_code": 3, "partitions": []} for name in topics]
        return [{"name": name, "error_code": 0, "partitions": [{}] * self.made[name]} for name in topics]

    def wait_for_topics(self, topics: Sequence[str], timeout_ms: float) -> None:
        while any(one["error_code"] for one in self.describe_topics(topics)):
            assert timeout_ms > 0

    def close(self) -> None:
        """Nothing to close."""


def test_a_broker_that_has_not_heard_of_a_new_topic_does_not_say_how_many_partitions_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or a publisher would send the messages of a view to no partition at all."""
    monkeypatch.setattr(topics, "KafkaAdminClient", partial(Behind, [False, True, True, False, False]))
    assert create_topics("a:1,b:1", {"views": 3}) == {"views": 3}
    monkeypatch.setattr(topics, "KafkaAdminClient", partial(Behind, [False, True]))
    with pytest.raises(BrokerError, match=r"cannot create topics views on a:1,b:1: .*no broker that was asked has all"):
        create_topics("a:1,b:1", {"views": 3}, timeout_seconds=0.1)
