"""Whether topics still hold all that was sent."""

import os

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from vernier.service.coordinator.topic_check import TopicsTrimmed, check_whole
from vernier.service.kafka.broker_errors import BrokerError
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.topics import create_topics

pytestmark = pytest.mark.broker


def test_a_topic_that_lost_its_first_messages_is_named(broker: EmbeddedBroker) -> None:
    topic = f"trimmed-{os.getpid()}"
    partitions = create_topics(broker.bootstrap, {topic: 2})
    client = {"bootstrap_servers": broker.bootstrap}
    producer = KafkaProducer(**client, acks="all")
    for _ in range(5):
        producer.send(topic, b"x", partition=1).get(60)
    producer.close(timeout=5)
    check_whole(client, [topic], partitions)
    admin = KafkaAdminClient(**client)
    admin.delete_records({TopicPartition(topic, 1): 3})
    admin.close()
    with pytest.raises(
        TopicsTrimmed, match=f"topic {topic}: what was before offset 3 of its partition 1 is gone; take"
    ):
        check_whole(client, [topic], partitions)


def test_without_brokers_nobody_can_tell() -> None:
    with pytest.raises(BrokerError, match="cannot read the first offsets of topics t: "):
        check_whole({"bootstrap_servers": "127.0.0.1:1", "bootstrap_timeout_ms": 500}, ["t"], {"t": 1})
