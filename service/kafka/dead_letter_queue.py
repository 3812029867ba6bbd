"""Dead-letter queues in Kafka: lists dead letters and what was done about them, and sends them again to where they came
from.

A dead letter is identified by the place of its message: topic, partition, offset and, if the brokers report one, the
topic's id, so that messages of a topic that was deleted and created again are not confused with the earlier ones. A
message that is sent again gets a new place, so it carries the first one in a header, `vernier-replay-of`; if it is
refused again, its new dead letter replaces the old one. The compacted topic `<source>.dlq.log` records what was sent
and what was dropped. The transaction that sends also writes this record, so no dead letter is sent twice, whatever
process dies. Dead letters from before a rebuild no longer count, because the rebuild has read their messages again
(service/coordinator/dead_letter_sender.py leaves a mark).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from kafka import TopicPartition
from kafka.errors import KafkaError

from vernier.service.config.settings import Settings
from vernier.service.ingest.rejects import REPLAY_HEADER
from vernier.service.kafka.group_offsets import group_offsets
from vernier.service.kafka.reach import check
from vernier.service.kafka.reading import CommittedReader
from vernier.service.kafka.topics import create_topics
from vernier.service.kafka.transactions import Fenced, Sending, Transactions
from vernier.storage.errors import CallerError

SUFFIX = ".dlq"
_OURS = "vernier-"
_REPLAY_OF = REPLAY_HEADER.removeprefix(_OURS)
_NAMES = frozenset({"reason", "detail", "topic", "partition", "offset", "frontier", "app", "topic-id", _REPLAY_OF})
"""The names of the headers that we add to dead letters, without the prefix. Other headers with the prefix belong to the
message."""
_GROUP = "vernier-dlq-replay"
"""The consumer group with which releases without a log remembered up to where they had sent dead letters again."""
_MOST, _MOST_BYTES = 1_000, 16 << 20
"""The maximum number of dead letters, and of their bytes, that one transaction sends."""
_COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20)}

State = Literal["open", "sent", "dropped", "replaced"]
"""open: nothing was done yet, or the message was sent again and refused again. replaced: by a newer dead letter of the
same message, or by a rebuild."""


class DeadLettersUnreadable(CallerError):
    """Kafka does not answer, or has no such dead-letter topic."""

    message = "cannot read dead letters from {bootstrap}: {reason}"
    bootstrap: str
    reason: str


class NoSuchDeadLetter(CallerError):
    """A dead letter was named that does not exist."""

    message = "there is no open dead letter {letter}; `vernier dlq list` shows them"
    letter: str


@dataclass(frozen=True)
class Letter:
    """A dead letter as it is stored in its topic. headers: the original ones; about: ours, without the prefix."""

    topic: str
    partition: int
    offset: int
    written_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]
    about: dict[str, str]

    @property
    def place(self) -> str:
        """Where the dead letter is stored, as `dlq list` shows it."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def message(self) -> str:
        """The place of the message that was refused."""
        if "topic" not in self.about:
            return self.place
        place = [self.about.get(name, "") for name in ("topic", "partition", "offset")]
        return "/".join([*place, *([self.about["topic-id"]] if "topic-id" in self.about else [])])

    @property
    def name(self) -> str:
        """The place that its message had when it came for the first time."""
        return self.about.get(_REPLAY_OF) or self.message

    def to_json(self) -> dict[str, Any]:
        """The JSON form for `dlq list`."""
        value = None if self.value is None else self.value.decode("utf-8", "replace")
        where = {"dlq": self.topic, "dlq_partition": self.partition, "dlq_offset": self.offset}
        return where | self.about | {"value": value, "bytes": len(self.value or b"")}

    def again(self) -> Sending:
        """The message as it is sent again."""
        headers = [*self.headers, (REPLAY_HEADER, self.name.encode())]
        return {"topic": self.about["topic"], "key": self.key, "value": self.value, "headers": headers}


class Dealt(msgspec.Struct):
    """What was done about a message, identified by its first place. sent: its places (Letter.message) from which it was
    sent again."""

    sent: list[str] = []
    dropped: bool = False
    at_ms: int = 0


@dataclass
class Known:
    """The dead letters of a dead-letter topic by place, without keys and values, and the state of each."""

    states: dict[str, State] = field(default_factory=dict)
    dealt: dict[str, Dealt] = field(default_factory=dict)


class DeadLetterQueue:
    """The dead-letter topics of a broker. A context manager. Raises NoBroker, DeadLettersUnreadable."""

    def __init__(self, settings: Settings, sources: Sequence[str]) -> None:
        self._settings = settings
        check(settings)
        try:
            # Records of a service's uncommitted transactions do not count.
            self._reader = CommittedReader(settings.kafka_client(), group=_GROUP)
            self._topics = set(self._reader.consumer.topics())
        except KafkaError as error:
            raise self._no(error) from error
        present = sorted(name for name in self._topics if name.endswith(SUFFIX))
        wanted = [name if name.endswith(SUFFIX) else f"{name}{SUFFIX}" for name in sources] or present
        for name in wanted:
            if name not in present:
                known = ", ".join(present) or "none"
                raise DeadLettersUnreadable(
                    bootstrap=settings.kafka.bootstrap, reason=f"there is no topic {name} (there are {known})"
                )
        self._wanted = wanted

    def read(self, *, everything: bool = False) -> Iterator[tuple[Letter, State]]:
        """The open dead letters that exist now, topic by topic, oldest first. everything: those in other states,
        too."""
        try:
            for topic in self._wanted:
                known = self._known(topic)
                for letter in self._read(topic):
                    state = known.states.get(letter.place)
                    if state == "open" or (everything and state is not None):
                        yield letter, state
        except KafkaError as error:
            raise self._no(error) from error

    def replay(self, *, reason: str | None = None, letters: Sequence[str] = (), again: bool = False) -> tuple[int, int]:
        """Send the messages of open dead letters to their own topics again; returns (sent, skipped).

        reason, letters (places): only these; the others are skipped. again: also messages that were sent again before
        and were not refused since. Each message is sent once, whatever fails. Raises DeadLettersUnreadable,
        NoSuchDeadLetter.
        """
        states = {"open", "sent"} if again else {"open"}
        chosen = self._chooser(reason, letters)

        def wanted(letter: Letter, state: State) -> bool | None:
            if state not in states:
                return None
            return "topic" in letter.about and chosen(letter)

        def sending(letter: Letter) -> list[Sending]:
            return [letter.again()]

        def mark(letter: Letter, dealt: Dealt) -> None:
            if letter.message not in dealt.sent:
                dealt.sent.append(letter.message)

        return self._deal(wanted, sending, mark, letters)

    def drop(self, *, reason: str | None = None, letters: Sequence[str] = ()) -> tuple[int, int]:
        """Mark open dead letters as dropped: they are no longer listed or sent again, not even after a rebuild.

        Returns (dropped, skipped). Their dead-letter topic keeps them. Raises DeadLettersUnreadable, NoSuchDeadLetter.
        """
        chosen = self._chooser(reason, letters)

        def wanted(letter: Letter, state: State) -> bool | None:
            return chosen(letter) if state == "open" else None

        def mark(letter: Letter, dealt: Dealt) -> None:
            dealt.dropped = True

        return self._deal(wanted, lambda letter: [], mark, letters)

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()

    def __enter__(self) -> DeadLetterQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _no(self, error: BaseException) -> DeadLettersUnreadable:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        return DeadLettersUnreadable(bootstrap=self._settings.kafka.bootstrap, reason=reason)

    def _chooser(self, reason: str | None, letters: Sequence[str]) -> Callable[[Letter], bool]:
        named = set(letters)
        return lambda letter: reason in (None, letter.about.get("reason")) and (not named or letter.place in named)

    def _deal(
        self,
        wanted: Callable[[Letter, State], bool | None],
        sending: Callable[[Letter], list[Sending]],
        mark: Callable[[Letter, Dealt], None],
        named: Sequence[str],
    ) -> tuple[int, int]:
        """Handle dead letters in transactions that also record it in the log. wanted: None if the dead letter needs no
        handling."""
        done = passed = 0
        found: set[str] = set()
        # A single transactional name: a replay that runs at the same time elsewhere fails, and cannot send what this
        # one sends.
        transactions = Transactions(self._settings.kafka_client(), _GROUP, max_request_size=65 << 20)
        try:
            transactions.open()
            for topic in self._wanted:
                self._make_log(topic)
                # Read the states only now, when an earlier replay's open transaction has been committed or aborted.
                known = self._known(topic)
                chosen: list[Letter] = []
                for letter in self._read(topic):
                    choice = wanted(letter, known.states.get(letter.place, "replaced"))
                    passed += choice is False
                    if not choice:
                        continue
                    chosen.append(letter)
                    found.add(letter.place)
                    if len(chosen) >= _MOST or sum(len(one.value or b"") for one in chosen) >= _MOST_BYTES:
                        done += self._commit(transactions, topic, known, chosen, sending, mark)
                done += self._commit(transactions, topic, known, chosen, sending, mark)
        except Fenced as error:
            reason = f"another `vernier dlq replay` or `drop` is running; {done} dead letters are done"
            raise DeadLettersUnreadable(bootstrap=self._settings.kafka.bootstrap, reason=reason) from error
        except KafkaError as error:
            raise self._no(error) from error
        finally:
            transactions.close()
        for place in named:
            if place not in found:
                raise NoSuchDeadLetter(letter=place)
        return done, passed

    def _commit(
        self,
        transactions: Transactions,
        topic: str,
        known: Known,
        chosen: list[Letter],
        sending: Callable[[Letter], list[Sending]],
        mark: Callable[[Letter, Dealt], None],
    ) -> int:
        if not chosen:
            return 0
        records: list[Sending] = []
        for letter in chosen:
            records += sending(letter)
            dealt = known.dealt.setdefault(letter.name, Dealt())
            mark(letter, dealt)
            dealt.at_ms = time.time_ns() // 1_000_000
            value = msgspec.json.encode(dealt)
            records.append({"topic": f"{topic}.log", "key": letter.name.encode(), "value": value, "partition": 0})
        transactions.commit(records)
        count = len(chosen)
        chosen.clear()
        return count

    def _make_log(self, topic: str) -> None:
        log = f"{topic}.log"
        if log not in self._topics:
            kafka = self._settings.kafka
            create_topics(kafka.bootstrap, {log: 1}, config=_COMPACTED, replication=kafka.replication)
            self._topics.add(log)

    def _known(self, topic: str) -> Known:
        """The state of each dead letter of a topic."""
        known = Known()
        if f"{topic}.log" in self._topics:
            for record in self._records(f"{topic}.log"):
                known.dealt[record.key.decode()] = msgspec.json.decode(record.value, type=Dealt)
        listed = [_without_value(letter) for letter in self._read(topic)]
        parts = {TopicPartition(topic, letter.partition) for letter in listed}
        before = {part.partition: self._reader.consumer.committed(part) or 0 for part in parts}
        rebuilt = self._rebuilt({letter.about.get("app", "") for letter in listed} - {""}, parts)
        by_name: dict[str, list[Letter]] = {}
        for letter in listed:
            known.states[letter.place] = "replaced"
            if letter.offset >= rebuilt.get((letter.about.get("app", ""), letter.partition), 0):
                by_name.setdefault(letter.name, []).append(letter)
        for name, own in by_name.items():
            dealt = known.dealt.get(name, Dealt())
            own.sort(key=lambda one: (one.written_ms, one.offset))
            fresh = [one for one in own if one.message not in dealt.sent and one.offset >= before[one.partition]]
            state: State = "dropped" if dealt.dropped else "open" if fresh else "sent"
            known.states[(fresh or own)[-1].place] = state
        return known

    def _rebuilt(self, apps: Iterable[str], parts: Iterable[TopicPartition]) -> dict[tuple[str, int], int]:
        """By app and partition: the offset before which dead letters belong to a state that was rebuilt since."""
        groups = {rebuilt_group(app): app for app in apps}
        if not groups:
            return {}
        found = group_offsets(self._settings.kafka_client(), {group: list(parts) for group in groups})
        return {
            (groups[group], part.partition): int(mark.offset)
            for group, marks in found.items()
            for part, mark in marks.items()
            if mark is not None
        }

    def _read(self, topic: str) -> Iterator[Letter]:
        return map(_letter, self._records(topic))

    def _records(self, topic: str) -> Iterator[Any]:
        """The committed records that the topic contains now."""
        for records in self._reader.read(topic):
            yield from records


def rebuilt_group(app: str) -> str:
    """The consumer group whose offsets in dead-letter topics say where the dead letters of an app's present state
    begin."""
    return f"{app}.dead-letters-rebuilt"


def _letter(record: Any) -> Letter:
    about: dict[str, str] = {}
    headers = []
    for name, value in record.headers:
        ours = name.removeprefix(_OURS)
        if name != ours and ours in _NAMES:
            about[ours] = (value or b"").decode("utf-8", "replace")
        else:
            headers.append((name, value))
    where = (record.topic, record.partition, record.offset, record.timestamp)
    return Letter(*where, record.key, record.value, headers, about)


def _without_value(letter: Letter) -> Letter:
    return Letter(letter.topic, letter.partition, letter.offset, letter.written_ms, None, None, (), letter.about)
