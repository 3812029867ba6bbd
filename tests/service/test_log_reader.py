"""The log reader returns committed messages alone, and always knows where it is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka import KafkaProducer, TopicPartition

from vernier.service.config.settings import load
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.log_reader import LogReader, Record
from vernier.service.kafka.topics import create_topics

pytestmark = pytest.mark.broker
PATIENCE = 60.0


@pytest.fixture
def reader(broker: EmbeddedBroker) -> Iterator[LogReader]:
    """A reader of nothing yet."""
    made = LogReader({"bootstrap_servers": broker.bootstrap})
    yield made
    made.close()


def read(reader: LogReader, until: dict[TopicPartition, int], most: int = 1000) -> dict[TopicPartition, list[Record]]:
    """What is read until these positions."""
    found: dict[TopicPartition, list[Record]] = {part: [] for part in until}
    deadline = time.monotonic() + PATIENCE
    while any(reader.position(part) < at for part, at in until.items()):
        assert time.monotonic() < deadline
        polled = reader.poll(1, most)
        assert sum(map(len, polled.values())) <= most
        for part, records in polled.items():
            found[part] += records
    return found


def test_messages_come_as_they_were_sent(broker: EmbeddedBroker, reader: LogReader) -> None:
    create_topics(broker.bootstrap, {"log-plain": 2})
    zero, one = TopicPartition("log-plain", 0), TopicPartition("log-plain", 1)
    with KafkaProducer(bootstrap_servers=broker.bootstrap, compression_type="gzip") as producer:
        producer.send("log-plain", b"first", partition=0)
        producer.send("log-plain", None, key=b"k", partition=0, headers=[("h", b"x"), ("h", b"")])
        for at in range(50):
            producer.send("log-plain", b"%d" % at, partition=1)
        producer.flush()
    reader.read_from({zero: 0, one: 0})
    found = read(reader, {zero: 2, one: 50}, most=7)
    # These topics have the broker's times.
    times = [record.timestamp for records in found.values() for record in records]
    assert all(abs(at / 1000 - time.time()) < PATIENCE for at in times)
    found = {part: [record._replace(timestamp=0) for record in records] for part, records in found.items()}
    assert found[zero] == [
        Record(None, b"first", "log-plain", 0, 0, 0, []),
        Record(b"k", None, "log-plain", 0, 1, 0, [("h", b"x"), ("h", b"")]),
    ]
    assert [(record.offset, record.value) for record in found[one]] == [(at, b"%d" % at) for at in range(50)]
    assert (reader.end(zero), reader.end(one)) == (2, 50)
    # Elsewhere, and once more.
    reader.read_from({one: 45})
    assert [record.offset for record in read(reader, {one: 50})[one]] == [45, 46, 47, 48, 49]


def test_marks_of_transactions_are_passed(broker: EmbeddedBroker, reader: LogReader) -> None:
    create_topics(broker.bootstrap, {"log-transactions": 1})
    part = TopicPartition("log-transactions", 0)
    reader.read_from({part: 0})
    with KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="log") as producer:
        producer.init_transactions()
        end, kept = 0, list[bytes]()
        for at, keep in enumerate((True, False, False, True, False)):
            producer.begin_transaction()
            producer.send("log-transactions", b"%d" % at)
            producer.flush()
            (producer.commit_transaction if keep else producer.abort_transaction)()
            kept += [b"%d" % at] * keep
            end += 2  # the message and the mark
            if at != 1:
                assert [one.value for one in read(reader, {part: end})[part]] == ([b"%d" % at] if keep else [])
    assert reader.position(part) == 10


def test_a_wait_ends_with_the_first_message(broker: EmbeddedBroker, reader: LogReader) -> None:
    create_topics(broker.bootstrap, {"log-wait": 1})
    part = TopicPartition("log-wait", 0)
    reader.read_from({part: 0})
    began = time.monotonic()
    assert reader.poll(0.3, 10) == {}  # although its end was reached
    assert time.monotonic() - began > 0.25
    with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send("log-wait", b"a")
    assert [one.value for one in reader.poll(PATIENCE, 10)[part]] == [b"a"]


def test_an_offset_that_is_not_there_raises(broker: EmbeddedBroker, reader: LogReader) -> None:
    create_topics(broker.bootstrap, {"log-short": 1})
    reader.read_from({TopicPartition("log-short", 0): 100})
    with pytest.raises(KafkaException, match="out of range"):
        reader.poll(PATIENCE, 10)


class Said:
    """An error that librdkafka returns in place of a message."""

    def __init__(self, code: int) -> None:
        self._code = code

    def error(self) -> KafkaError:
        """The error."""
        return KafkaError(self._code)


def test_a_group_that_may_not_be_used_is_no_error() -> None:
    reader = LogReader({"bootstrap_servers": "localhost:1"})
    found: dict[TopicPartition, list[Record]] = {}
    reader._take(Said(KafkaError.GROUP_AUTHORIZATION_FAILED), found)
    assert found == {}
    with pytest.raises(KafkaException):
        reader._take(Said(KafkaError.TOPIC_AUTHORIZATION_FAILED), found)
    reader.close()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"kafka.security_protocol": "SSL"},
        {
            "kafka.security_protocol": "SASL_PLAINTEXT",
            "kafka.sasl_mechanism": "SCRAM-SHA-512",
            "kafka.sasl_username": "u",
        },
    ],
    ids=["plain", "ssl", "sasl"],
)
def test_all_settings_of_clients_are_known(given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERNIER_KAFKA__SASL_PASSWORD", "p")
    about = {"kafka.embedded": "false", "kafka.bootstrap": "localhost:1,localhost:2", **given}
    LogReader(load(None, about).settings.kafka_client()).close()
