"""Dead letters in Kafka: what is there, and sending it again to where it came from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from service.settings import Settings
from storage.errors import CallerError

SUFFIX = ".dlq"
_OURS = "vernier-"
_POLL_MS = 1_000
_SILENT_POLLS = 10
_GROUP = "vernier-dlq-replay"
"""The consumer group that remembers what has been sent again."""


class NoLetters(CallerError):
    """Kafka does not answer, or has no such dead-letter topic."""

    message = "no dead letters from {bootstrap}: {reason}"
    bootstrap: str
    reason: str


@dataclass(frozen=True)
class Letter:
    """A dead letter as it lies in its topic. headers: the original ones; about: ours, without the prefix."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]
    about: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """For `dlq list`."""
        value = None if self.value is None else self.value.decode("utf-8", "replace")
        where = {"dlq": self.topic, "dlq_partition": self.partition, "dlq_offset": self.offset}
        return where | self.about | {"value": value, "bytes": len(self.value or b"")}


class DeadLetters:
    """The dead-letter topics of a broker. A context manager. Raises NoLetters."""

    def __init__(self, settings: Settings, sources: Sequence[str]) -> None:
        self._settings = settings
        try:
            # What a service's transaction has not committed is not there.
            self._consumer = KafkaConsumer(
                **settings.kafka_client(),
                group_id=_GROUP,
                enable_auto_commit=False,
                isolation_level="read_committed",
                max_partition_fetch_bytes=64 << 20,
            )
            present = sorted(name for name in self._consumer.topics() if name.endswith(SUFFIX))
        except KafkaError as error:
            raise self._no(error) from error
        wanted = [name if name.endswith(SUFFIX) else f"{name}{SUFFIX}" for name in sources] or present
        for name in wanted:
            if name not in present:
                known = ", ".join(present) or "none at all"
                raise NoLetters(
                    bootstrap=settings.kafka.bootstrap, reason=f"there is no topic {name} (there are {known})"
                )
        self._topics = wanted

    def read(self, *, fresh: bool = False) -> Iterator[Letter]:
        """All letters that are there now, topic by topic, oldest first. fresh: only those not sent again yet."""
        try:
            for topic in self._topics:
                yield from self._read(topic, fresh)
        except KafkaError as error:
            raise self._no(error) from error

    def replay(self, *, reason: str | None = None, everything: bool = False) -> tuple[int, int]:
        """Send letters to their own topics again, without our headers; returns (sent, passed over).

        Those sent (or passed over) before are not sent again unless `everything`. A broker that fails in the middle
        can make some of them come twice.
        """
        sent, passed = 0, 0
        failed: list[BaseException] = []
        marks: dict[TopicPartition, int] = {}
        try:
            producer = KafkaProducer(
                **self._settings.kafka_client(), acks="all", enable_idempotence=True, max_request_size=64 << 20
            )
            try:
                for letter in self.read(fresh=not everything):
                    marks[TopicPartition(letter.topic, letter.partition)] = letter.offset + 1
                    if "topic" not in letter.about or reason not in (None, letter.about.get("reason")):
                        passed += 1
                        continue
                    producer.send(
                        letter.about["topic"], key=letter.key, value=letter.value, headers=list(letter.headers)
                    ).add_errback(failed.append)
                    sent += 1
                producer.flush()
            finally:
                producer.close(timeout=5)
            if failed:
                raise self._no(failed[0])
            self._consumer.commit({where: OffsetAndMetadata(offset, "", -1) for where, offset in marks.items()})
        except KafkaError as error:
            raise self._no(error) from error
        return sent, passed

    def close(self) -> None:
        """Let go of the broker."""
        self._consumer.close(autocommit=False)

    def __enter__(self) -> DeadLetters:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _no(self, error: BaseException) -> NoLetters:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        return NoLetters(bootstrap=self._settings.kafka.bootstrap, reason=reason)

    def _read(self, topic: str, fresh: bool) -> Iterator[Letter]:
        consumer = self._consumer
        parts = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
        consumer.assign(parts)
        ends = consumer.end_offsets(parts)
        begins = consumer.beginning_offsets(parts)
        for part in parts:
            known = consumer.committed(part) if fresh else None
            consumer.seek(part, max(begins[part], known or 0))
        silent = 0
        # The end counts markers of transactions, which no poll returns: positions tell, and silence in the end.
        while silent < _SILENT_POLLS and any(consumer.position(part) < ends[part] for part in parts):
            got = consumer.poll(timeout_ms=_POLL_MS)
            silent = 0 if got else silent + 1
            for records in got.values():
                yield from (
                    _letter(record)
                    for record in records
                    if record.offset < ends[TopicPartition(topic, record.partition)]
                )


def _letter(record: Any) -> Letter:
    about = {
        name.removeprefix(_OURS): (value or b"").decode("utf-8", "replace")
        for name, value in record.headers
        if name.startswith(_OURS)
    }
    headers = [(name, value) for name, value in record.headers if not name.startswith(_OURS)]
    return Letter(record.topic, record.partition, record.offset, record.key, record.value, headers, about)
