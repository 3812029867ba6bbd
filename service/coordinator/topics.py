"""Topics: what the brokers say about the sources' topics, and what the service does if they are not the ones it has
read.

A topic that was deleted and created again has its old name and a new id. Offsets in the old topic mean nothing in the
new one. A manifest therefore names the ids of the topics that the epoch was read from, and no epoch is committed with
rows of a topic whose id has changed since. When a query starts, the service also detects messages that retention has
removed before an epoch read them.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from vernier.service.coordinator.consumer_lag import LagUnknown, Offsets
from vernier.storage.errors import CallerError, StorageError

ANSWER_MS = 10_000
"""How long the brokers may take to describe the topics."""

_NO_ID = "00000000-0000-0000-0000-000000000000"
"""The id that brokers before 2.8 report."""


class TopicReplaced(CallerError):
    """A source's topic is not the one that the state was built from."""

    message = (
        "topic {topic} was deleted and created again: its id was {known} and is {found}, so the offsets in the state "
        "mean nothing in it; nothing of it is read. Read all topics from their beginning with `vernier up --rebuild`, "
        "or keep the state and read the new topic from its beginning with sources.{source}.on_new_topic: restart"
    )
    topic: str
    source: str
    known: str
    found: str


class MessagesLost(CallerError):
    """A topic has removed messages that no epoch has read."""

    message = (
        "topic {topic} has removed {count} messages of partition {partition} that no epoch has read, those before "
        "offset {first} (retention, or a deletion). Bring them back if you can, or go on with offset "
        "{first} with sources.{source}.on_lost: skip, which counts what was skipped"
    )
    topic: str
    source: str
    partition: int
    count: int
    first: int


class TopicChanges(StorageError):
    """A topic was deleted or replaced by a new one while an epoch read it."""

    message = "topic {topic} was deleted while an epoch was made of its messages; the epoch is not committed"
    topic: str


LASTING = (TopicReplaced, MessagesLost)
"""Problems that last until an operator decides; trying again changes nothing."""


@dataclass(frozen=True, slots=True)
class Found:
    """A topic as the brokers have it. id: "" if they do not report one."""

    id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Choice:
    """What the settings say about one source's topic."""

    source: str
    topic: str
    restart: bool
    skip: bool


class Topics:
    """The sources' topics. client: Kafka client settings. Thread-safe."""

    def __init__(self, client: Mapping[str, Any], choices: Iterable[Choice]) -> None:
        self._client = dict(client)
        self._choices: dict[str, list[Choice]] = {}
        for choice in choices:
            self._choices.setdefault(choice.topic, []).append(choice)
        self._lock = threading.Lock()
        self._admin: KafkaAdminClient | None = None

    @property
    def names(self) -> list[str]:
        """The topics, in order."""
        return sorted(self._choices)

    def sources(self, topic: str) -> list[str]:
        """The sources that read a topic."""
        return [choice.source for choice in self._choices.get(topic, ())]

    def look(self, topics: Collection[str] | None = None) -> dict[str, Found]:
        """The existing topics among these, or among all sources' topics. One request. Raises LagUnknown while no broker
        answers."""
        wanted = self.names if topics is None else sorted(topics)
        try:
            with self._lock:
                if self._admin is None:
                    times = {"request_timeout_ms": ANSWER_MS, "bootstrap_timeout_ms": ANSWER_MS}
                    self._admin = KafkaAdminClient(**self._client, **times)
                try:
                    described = self._admin.describe_topics(wanted)
                except BaseException:
                    admin, self._admin = self._admin, None
                    admin.close()
                    raise
        except KafkaError as error:
            raise LagUnknown(reason=f"{type(error).__name__}: {error}".splitlines()[0]) from error
        found = {}
        for one in described:
            if not one["error_code"]:
                known = str(one.get("topic_id") or "")
                found[one["name"]] = Found("" if known == _NO_ID else known, len(one["partitions"]))
        return found

    def replaced(self, known: Mapping[str, str], found: Mapping[str, Found]) -> set[str]:
        """The topics whose id differs from the known one and whose sources may all start again. Raises TopicReplaced
        for the first topic with a source that may not."""
        begun = set()
        for topic, now in sorted(found.items()):
            before = known.get(topic, "")
            if not before or not now.id or before == now.id:
                continue
            stays = next((choice for choice in self._choices.get(topic, ()) if not choice.restart), None)
            if stays is not None:
                raise TopicReplaced(topic=topic, source=stays.source, known=before, found=now.id)
            begun.add(topic)
        return begun

    def check(self, known: Mapping[str, str], topics: Collection[str]) -> None:
        """Check, before an epoch is committed with rows of these topics, that they are still those that the query
        reads.

        Raises TopicReplaced; TopicChanges if a new query can handle the change; LagUnknown.
        """
        found = self.look(topics)
        changing = {topic for topic in topics if known.get(topic) and topic not in found}
        for topic in sorted(changing | self.replaced(known, found)):
            raise TopicChanges(topic=topic)

    def lost(self, read: Offsets, found: Mapping[str, Found]) -> dict[tuple[str, int], tuple[int, int]]:
        """Find partitions whose unread messages are gone. Returns, by topic and partition, the first offset that is
        left and the number of lost messages.

        Raises LagUnknown, and MessagesLost if the settings do not allow continuing without these messages.
        """
        where = [
            TopicPartition(topic, partition)
            for topic, about in sorted(found.items())
            for partition in range(about.partitions)
            if partition in read.get(topic, {})
        ]
        if not where:
            return {}
        gone = {}
        for one, first in beginnings(self._client, where).items():
            count = first - read[one.topic][one.partition]
            if count <= 0:
                continue
            stays = next((choice for choice in self._choices.get(one.topic, ()) if not choice.skip), None)
            if stays is not None:
                raise MessagesLost(
                    topic=one.topic, source=stays.source, partition=one.partition, count=count, first=first
                )
            gone[one.topic, one.partition] = (first, count)
        return gone

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            admin, self._admin = self._admin, None
            if admin is not None:
                admin.close()


def beginnings(client: Mapping[str, Any], where: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The first offset that is left in each partition. Raises LagUnknown while no broker answers."""
    try:
        consumer = KafkaConsumer(**client, group_id=None)
        try:
            return dict(consumer.beginning_offsets(where))
        finally:
            consumer.close()
    except KafkaError as error:
        raise LagUnknown(reason=f"{type(error).__name__}: {error}".splitlines()[0]) from error
