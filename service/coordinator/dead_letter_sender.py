"""The dead-letter sender (class DeadLetterSender): sends dead letters to Kafka, each exactly once.

The dead letters of an epoch are written to its segments before the epoch exists. After the commit they are sent in one
Kafka transaction, which also sets a consumer group's offset to the epoch's number. At the next start, and before the
next epoch after a failure, the service reads that offset and sends the newest epoch's dead letters if the offset is
behind. Epochs wait for this, so there is never more than one epoch whose dead letters are unsent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.serializer import Serializer
from kafka.structs import OffsetAndMetadata

from vernier.service.cluster.shard import read_dead_letters
from vernier.service.config.settings import Settings, heartbeat_topic
from vernier.service.errors import DeadLettersNotSent
from vernier.service.ingest.ingestion_state import snapshots_in
from vernier.service.ingest.rejects import DeadLetter
from vernier.service.kafka.clients import Producer
from vernier.service.kafka.dead_letter_queue import SUFFIX, rebuilt_group
from vernier.service.kafka.group_offsets import group_offsets
from vernier.service.kafka.transactions import Transactions
from vernier.storage.state.manifest import Manifest
from vernier.storage.state.state import StateDirectory

_log = logging.getLogger("vernier.letters")
_ROOM = 1 << 20
"""The number of bytes that headers may add to a message."""

_NULL = object()
"""Stands for a null value. The client refuses a message that has neither key nor value, but accepts one whose value
becomes null when it is serialized."""


class _Nulls(Serializer):  # type: ignore[misc]
    """Passes bytes on unchanged and turns _NULL into a null value."""

    def serialize(self, topic: str, headers: list[tuple[str, bytes]], data: object) -> object:
        """The serialized value."""
        return None if data is _NULL else data


class DeadLetterSender:
    """Sends the dead letters of committed epochs. app: names the transactional id, so a second service fences the
    first."""

    def __init__(
        self,
        settings: Settings,
        app: str,
        directory: StateDirectory,
        make: Callable[..., KafkaProducer] = Producer,
    ) -> None:
        self._client = settings.kafka_client()
        self._directory = directory
        self._app, self._group = app, f"{app}.dead-letters"
        self._mark = TopicPartition(heartbeat_topic(app), 0)
        self._transactions = Transactions(
            self._client,
            f"{app}.dead-letters",
            make,
            max_request_size=(64 << 20) + _ROOM,
            value_serializer=_Nulls(),
        )
        self._unsent: Manifest | None = None
        self.anew = False
        """Whether the next epoch starts from an empty state. It reads all messages again, so earlier dead letters no
        longer count."""

    def recover(self, newest: Manifest | None, *, anew: bool = False) -> None:
        """Complete the work of a service that died after its last commit: send that epoch's dead letters and, if that
        epoch started from an empty state, mark where its dead letters begin. anew: the next epoch will start from
        an empty state. Raises DeadLettersNotSent."""
        # Whether the state was begun anew is derived from the manifest, so dying between commit and mark does not lose
        # it.
        self.anew = newest is not None and newest.epoch == _began(newest)
        self._unsent = newest if newest is not None and (newest.dead or self.anew) else None
        self.settle()
        self.anew = anew and newest is not None

    def settle(self) -> None:
        """Before the next epoch: send the dead letters that the newest epoch's `send` did not. Raises
        DeadLettersNotSent.

        A start looks only at the newest manifest, so no later manifest may exist before its dead letters are sent.
        """
        newest = self._unsent
        if newest is None:
            return
        try:
            # First fence and abort any open transaction with our transactional id. Only then is the mark final.
            self._transactions.open()
            if self._sent_until() < newest.epoch:
                self.send(newest)
        except KafkaError as error:
            raise DeadLettersNotSent(epoch=newest.epoch, reason=_named(error)) from error
        self._unsent, self.anew = None, False

    def send(self, manifest: Manifest) -> int:
        """Send an epoch's dead letters; returns their number. Raises DeadLettersNotSent; `settle` then finds out
        whether they arrived."""
        if self.anew or manifest.dead:
            self._unsent = manifest
        if self.anew:
            self._begin_anew(manifest.epoch)
        if not manifest.dead:
            self._unsent = None
            return 0
        letters = []
        for ref in manifest.dead:
            letters += read_dead_letters(self._directory.open(ref.segment).entry(ref.label))
        offsets = {self._mark: OffsetAndMetadata(manifest.epoch, "", -1)}
        try:
            self._transactions.open()
            self._transactions.commit(
                (_record(letter, self._app, manifest.topics.get(letter.topic, "")) for letter in letters),
                offsets,
                self._group,
            )
        except KafkaError as error:
            raise DeadLettersNotSent(epoch=manifest.epoch, reason=_named(error)) from error
        self._unsent = None
        _log.info("epoch %d: %d dead letters sent", manifest.epoch, len(letters))
        return len(letters)

    def close(self) -> None:
        """Close the producer. An unfinished transaction is aborted by the next producer with the same id."""
        self._transactions.close()

    def _begin_anew(self, epoch: int) -> None:
        """Mark, once per epoch, where this state's dead letters begin in the dead-letter topics (dead_letter_queue.py
        skips those before). Raises DeadLettersNotSent: a mark set after the first new dead letter would hide that
        letter.
        """
        group = rebuilt_group(self._app)
        try:
            if self._marked(group) < epoch:
                consumer = KafkaConsumer(**self._client, group_id=None)
                try:
                    topics = [topic for topic in consumer.topics() if topic.endswith(SUFFIX)]
                    parts = [TopicPartition(one, n) for one in topics for n in consumer.partitions_for_topic(one) or ()]
                    ends = consumer.end_offsets(parts) if parts else {}
                finally:
                    consumer.close()
                marks = {part: OffsetAndMetadata(end, "", -1) for part, end in ends.items()}
                admin = KafkaAdminClient(**self._client)
                try:
                    admin.alter_group_offsets(group, {**marks, self._mark: OffsetAndMetadata(epoch, "", -1)})
                finally:
                    admin.close()
        except KafkaError as error:
            raise DeadLettersNotSent(epoch=epoch, reason=_named(error)) from error
        self.anew = False

    def _sent_until(self) -> int:
        """The newest epoch whose dead letters have been sent; 0 if there is none."""
        return self._marked(self._group)

    def _marked(self, group: str) -> int:
        """The epoch that a consumer group has marked; 0 if there is none."""
        mark = group_offsets(self._client, {group: [self._mark]}).get(group, {}).get(self._mark)
        return 0 if mark is None else max(0, int(mark.offset))


def _record(letter: DeadLetter, app: str, topic_id: str) -> dict[str, Any]:
    # The client cannot write null headers, so they become empty headers; everything else stays as it came.
    headers = [(name, value or b"") for name, value in letter.kafka_headers()]
    headers.append(("vernier-app", app.encode()))
    if topic_id:
        # A topic that was deleted and created again has other messages at the same offsets.
        headers.append(("vernier-topic-id", topic_id.encode()))
    value = _NULL if letter.value is None else letter.value
    return {"topic": letter.dlq_topic, "key": letter.key, "value": value, "headers": headers}


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _began(newest: Manifest) -> int:
    """The epoch that has last begun from an empty state. Views that wait for a snapshot are not in the manifest."""
    views = [one.began for one in newest.views.values()]
    return max([0, *views, *(one.began for one in snapshots_in(newest.ingestion).values())])
