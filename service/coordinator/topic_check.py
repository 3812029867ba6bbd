"""The check before a rebuild: state is rebuilt from topics, which must still hold everything that was ever sent to
them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from vernier.service.kafka.broker_errors import BrokerError
from vernier.storage.errors import CallerError


class TopicsTrimmed(CallerError):
    """A state was to be rebuilt from a topic that no longer holds everything that was in it."""

    message = (
        "cannot rebuild the state from topic {topic}: what was before offset {offset} of its partition {partition} is "
        "gone; take the change back, start from a backup, or give the service a new state.path, to begin with what is "
        "left"
    )
    topic: str
    partition: int
    offset: int


def check_whole(client: Mapping[str, Any], topics: Collection[str], partitions: Mapping[str, int]) -> None:
    """Check that topics still have their first messages. client: Kafka client settings; partitions: how many each topic
    has.

    Raises TopicsTrimmed, and BrokerError if the brokers do not answer.
    """
    where = [TopicPartition(topic, one) for topic in sorted(topics) for one in range(partitions[topic])]
    try:
        consumer = KafkaConsumer(**client, group_id=None)
        try:
            first = consumer.beginning_offsets(where)
        finally:
            consumer.close()
    except KafkaError as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BrokerError(problem=f"cannot read the first offsets of topics {', '.join(topics)}: {reason}") from error
    for one in where:
        if first[one] > 0:
            raise TopicsTrimmed(topic=one.topic, partition=one.partition, offset=first[one])
