"""Letters: dead letters on their way to Kafka, each exactly once.

An epoch's letters are in its segments before the epoch exists. After the commit they go out in one Kafka transaction,
which also moves a consumer group's offset to the epoch's number. The next start, and the next epoch after a failure,
reads that offset, and sends the newest epoch's letters if it is behind. Epochs wait for it, so there is never more than
one to send.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.serializer import Serializer
from kafka.structs import OffsetAndMetadata

from vernier.service.cluster.shard import read_letters
from vernier.service.config.settings import Settings, heartbeat_topic
from vernier.service.errors import LettersNotSent
from vernier.service.ingest.rejects import DeadLetter
from vernier.service.kafka.clients import Producer
from vernier.service.kafka.dead_letter_queue import SUFFIX, rebuilt_group
from vernier.service.kafka.transactions import Transactions
from vernier.storage.state.manifest import Manifest
from vernier.storage.state.state import StateDirectory

_log = logging.getLogger("vernier.letters")
_ROOM = 1 << 20
"""Bytes that headers may add to a message."""

_NULL = object()
"""Stands for a null value: the client refuses a message without key and value, but not one that becomes so."""


class _Nulls(Serializer):  # type: ignore[misc]
    """Bytes as they are, and a null value for _NULL."""

    def serialize(self, topic: str, headers: list[tuple[str, bytes]], data: object) -> object:
        """What goes into the message."""
        return None if data is _NULL else data


class Letters:
    """Sends the dead letters of committed epochs. app: names the transaction, so a second service fences the first."""

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
        """Whether the next epoch begins a state anew: it reads all messages again, so older letters count no more."""

    def recover(self, newest: Manifest | None) -> None:
        """Do what the service that died after its last commit did not: send that epoch's letters and, if it has begun
        the state anew, mark where they begin. Raises LettersNotSent."""
        # The manifest holds the decision, so that a death between commit and mark does not lose it.
        self.anew = newest is not None and newest.epoch == max((one.began for one in newest.views.values()), default=0)
        self._unsent = newest if newest is not None and (newest.dead or self.anew) else None
        self.settle()

    def settle(self) -> None:
        """Before the next epoch: send what the newest one's `send` did not. Raises LettersNotSent.

        Only the newest manifest is asked for its letters at a start, so none may follow before they are out.
        """
        newest = self._unsent
        if newest is None:
            return
        try:
            # First fence and abort whatever is under way under our name; only then the mark is final.
            self._transactions.open()
            if self._sent_until() < newest.epoch:
                self.send(newest)
        except KafkaError as error:
            raise LettersNotSent(epoch=newest.epoch, reason=_named(error)) from error
        self._unsent, self.anew = None, False

    def send(self, manifest: Manifest) -> int:
        """Send an epoch's letters; returns how many. Raises LettersNotSent; then `settle` finds out which are there."""
        if self.anew or manifest.dead:
            self._unsent = manifest
        if self.anew:
            self._begin_anew(manifest.epoch)
        if not manifest.dead:
            self._unsent = None
            return 0
        letters = []
        for ref in manifest.dead:
            letters += read_letters(self._directory.open(ref.segment).entry(ref.label))
        offsets = {self._mark: OffsetAndMetadata(manifest.epoch, "", -1)}
        try:
            self._transactions.open()
            self._transactions.commit(
                (_record(letter, self._app, manifest.topics.get(letter.topic, "")) for letter in letters),
                offsets,
                self._group,
            )
        except KafkaError as error:
            raise LettersNotSent(epoch=manifest.epoch, reason=_named(error)) from error
        self._unsent = None
        _log.info("epoch %d: %d dead letters sent", manifest.epoch, len(letters))
        return len(letters)

    def close(self) -> None:
        """Drop the producer; an unfinished transaction is aborted by its successor."""
        self._transactions.close()

    def _begin_anew(self, epoch: int) -> None:
        """Mark where the letters of this state begin in the dead-letter topics (dlq.py passes over those before), once
        for the epoch. Raises LettersNotSent: a mark that comes behind the first of them would hide it."""
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
            raise LettersNotSent(epoch=epoch, reason=_named(error)) from error
        self.anew = False

    def _sent_until(self) -> int:
        """The newest epoch whose letters are out, 0 for none."""
        return self._marked(self._group)

    def _marked(self, group: str) -> int:
        """The epoch that a group has marked, 0 for none."""
        admin = KafkaAdminClient(**self._client)
        try:
            found = admin.list_group_offsets({group: [self._mark]})
        finally:
            admin.close()
        mark = found.get(group, {}).get(self._mark)
        return 0 if mark is None else max(0, int(mark.offset))


def _record(letter: DeadLetter, app: str, topic_id: str) -> dict[str, Any]:
    # The client writes no null header, so that becomes an empty one; all else is as it came.
    headers = [(name, value or b"") for name, value in letter.kafka_headers()]
    headers.append(("vernier-app", app.encode()))
    if topic_id:
        # A topic that was created again has other messages at the same offsets.
        headers.append(("vernier-topic-id", topic_id.encode()))
    value = _NULL if letter.value is None else letter.value
    return {"topic": letter.dlq_topic, "key": letter.key, "value": value, "headers": headers}


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
