"""Letters: dead letters on their way to Kafka, each exactly once.

An epoch's letters are in its segments before the epoch exists. After the commit they go out in one Kafka transaction,
which also moves a consumer group's offset to the epoch's number: the next start asks the group how far it came, and
sends what the newest epoch has and the group has not seen. Epochs wait for it, so there is never more than one to send.
"""

from __future__ import annotations

import logging

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.serializer import Serializer
from kafka.structs import OffsetAndMetadata

from service.errors import LettersNotSent
from service.settings import Settings, heartbeat_topic
from service.shard import read_letters
from storage.manifest import Manifest
from storage.state import StateDirectory

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

    def __init__(self, settings: Settings, app: str, directory: StateDirectory) -> None:
        self._client = settings.kafka_client()
        self._app, self._directory = app, directory
        self._group = f"{app}.dead-letters"
        self._mark = TopicPartition(heartbeat_topic(app), 0)
        self._producer: KafkaProducer | None = None

    def recover(self, newest: Manifest | None) -> None:
        """Send what the service that died after its last commit did not. Raises LettersNotSent."""
        if newest is None or not newest.dead:
            return
        try:
            # First fence and abort whatever a predecessor has under way; only then its mark is final.
            self._connected()
            if self._sent_until() < newest.epoch:
                self.send(newest)
        except KafkaError as error:
            raise LettersNotSent(epoch=newest.epoch, reason=_named(error)) from error

    def send(self, manifest: Manifest) -> int:
        """Send an epoch's letters; returns how many. Raises LettersNotSent; then none of them is visible."""
        if not manifest.dead:
            return 0
        letters = []
        for ref in manifest.dead:
            letters += read_letters(self._directory.open(ref.segment).entry(ref.label))
        producer = None
        try:
            producer = self._connected()
            producer.begin_transaction()
            for letter in letters:
                # The client writes no null header, so that becomes an empty one; all else is as it came.
                headers = [(name, value or b"") for name, value in letter.kafka_headers()]
                value = _NULL if letter.value is None else letter.value
                producer.send(letter.dlq_topic, key=letter.key, value=value, headers=headers)
            producer.send_offsets_to_transaction({self._mark: OffsetAndMetadata(manifest.epoch, "", -1)}, self._group)
            producer.commit_transaction()
        except KafkaError as error:
            self.close()
            raise LettersNotSent(epoch=manifest.epoch, reason=_named(error)) from error
        _log.info("epoch %d: %d dead letters sent", manifest.epoch, len(letters))
        return len(letters)

    def close(self) -> None:
        """Let go of the producer; an unfinished transaction is aborted by its successor."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout=1)

    def _connected(self) -> KafkaProducer:
        if self._producer is None:
            producer = KafkaProducer(
                **self._client,
                transactional_id=f"{self._app}.dead-letters",
                acks="all",
                max_request_size=(64 << 20) + _ROOM,
                max_block_ms=30_000,
                value_serializer=_Nulls(),
            )
            try:
                producer.init_transactions()
            except BaseException:
                producer.close(timeout=1)
                raise
            self._producer = producer
        return self._producer

    def _sent_until(self) -> int:
        """The newest epoch whose letters are out, 0 for none."""
        admin = KafkaAdminClient(**self._client)
        try:
            found = admin.list_group_offsets({self._group: [self._mark]})
        finally:
            admin.close()
        mark = found.get(self._group, {}).get(self._mark)
        return 0 if mark is None else max(0, int(mark.offset))


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
