"""The producer of programs: `vernier.Producer`. It checks and encodes rows; an `Outbox` sends them."""

from __future__ import annotations

import time as clocks
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from kafka import KafkaProducer
from kafka.errors import KafkaError

from vernier.operators.errors import WrongArguments, WrongType, listed, meant
from vernier.operators.language.types.duration import nanoseconds
from vernier.service.codec.instants import parse_instant
from vernier.service.config.kafka_net import NetClient
from vernier.service.ingest.bounds import DIFF_RANGE
from vernier.service.kafka.clients import Producer as KafkaClient
from vernier.service.kafka.producer.delivery import Delivery, Idempotent, Transactional
from vernier.service.kafka.producer.errors import BadRow, CannotConnect, Complete, NoTopic
from vernier.service.kafka.producer.outbox import About, Clock, Entry, Outbox, said
from vernier.service.kafka.producer.policy import Records, as_policy
from vernier.service.kafka.producer.topic_end import TopicEnd, read_topic_end
from vernier.service.kafka.transactions import DELIVERY_MS, Transactions
from vernier.storage.updates import CLOSED, MIN_TIME

if TYPE_CHECKING:
    import pyarrow as pa

    from vernier.operators.language.collection.collection import Collection
    from vernier.operators.language.types.schema import Schema
    from vernier.service.codec.rowtexts import RowTexts

Row = Sequence[Any] | Mapping[str, Any]
Time = int | str

DELIVERY_SECONDS = 120.0
_REQUEST_MS = 15_000
_SIZES = {"linger_ms": 0, "batch_size": 1 << 17, "max_request_size": 64 << 20, "allow_auto_create_topics": False}
_OPTIONS = {**_SIZES, "acks": "all", "enable_idempotence": True}


class Producer:
    """Sends rows into a topic, each at its own data time, and announces coarser message times.

        with vn.Producer("edges", Edge, bootstrap="localhost:9092", policy="1ms") as edges:
            edges.send((1, 2))              # now, to the nanosecond
            edges.send((1, 2), diff=-1)     # and away again

    sources: the schema of the topic's only source, a source of a program, or a mapping of names to schemas if several
    sources share the topic. The source needs format `vernier` and, to use the times of the rows, clock `event`.

    policy: when a new message time begins: "1ms" (at each millisecond), or `vn.records(1024)` (after 1,024 rows, or
    after `linger`). Then the rows are sent, and every partition of the topic receives the promise that nothing earlier
    follows. The data times stay exact. A finer policy makes rows visible sooner and costs more messages.

    clock: what message times follow. "wall": this machine's clock minus `lateness`. "rows": the greatest time of a row
    minus `lateness`. "manual": `advance`. A row before the message time is refused (`LateRow`). With "rows" and
    "manual", the rows at the last time become final only with `advance`, or `close(complete=True)`.

    linger: how long rows wait for others if the policy does not say, and how often the promises of a silent wall clock
    go out. progress=False sends no promises, so rows may have any time.

    Up to `buffer_bytes` of rows wait for Kafka's acknowledgement. Then `send` waits, or, with on_full="raise", raises
    BufferFull. All methods may be called from several threads.

    *What is promised.* Rows are sent in the order of their calls within each partition, and rows that are equal go to
    one partition. A promise goes out only after all rows that were taken before it are acknowledged. If Kafka does not
    acknowledge a row within `delivery_seconds`, the producer ends: that call or a later one raises DeliveryFailed,
    which names all rows that are not acknowledged, and no promise passes them. A broker that is away for a shorter time
    loses and doubles nothing. With transactional=True, message times are committed in transactions: readers of
    committed messages see the rows and the promise, or neither.

    *Going on.* Rows are numbered from 0 in the order of their calls, in all producers of a topic together. A new
    producer reads from the topic which numbers it has and what was promised, and never begins before that promise. With
    resume=True, the caller sends again from row `position` on; with resume=N, from row N on. Rows that the topic has
    already are then dropped, so nothing is doubled. That needs the same rows in the same order, and as many partitions
    as before. Without resume, all rows count as new.

    *What is not promised.* A topic has one producer at a time, because a promise holds for its whole partition. With
    transactional=True a second one ends the first (name: the id by which it is known, by default the topic's). Without,
    nothing prevents two, and the last request of a producer that was killed may still reach the broker while the next
    one reads the topic's end.

    client: more options of kafka-python's clients, such as security_protocol. Raises CannotConnect, NoTopic, Complete.
    """

    def __init__(
        self,
        topic: str,
        sources: type[Schema] | Collection | Mapping[str, type[Schema]],
        *,
        bootstrap: str = "127.0.0.1:19092",
        policy: str | Records = "1ms",
        clock: Clock = "wall",
        lateness: str | int = 0,
        linger: str | int = "20ms",
        progress: bool = True,
        transactional: bool = False,
        name: str | None = None,
        resume: bool | int = False,
        buffer_bytes: int = 32 << 20,
        on_full: Literal["block", "raise"] = "block",
        delivery_seconds: float = DELIVERY_SECONDS,
        client: Mapping[str, Any] | None = None,
        _make: Callable[..., KafkaProducer] = KafkaClient,
        _end: Callable[[Mapping[str, Any], str], TopicEnd] = read_topic_end,
        _now: Callable[[], int] = clocks.time_ns,
    ) -> None:
        _one_of("clock", clock, ("wall", "rows", "manual"))
        _one_of("on_full", on_full, ("block", "raise"))
        self._encoders = _encoders(sources)
        steps, late, waits = as_policy(policy), nanoseconds(lateness, "the lateness"), nanoseconds(linger, "linger")
        if isinstance(resume, int) and resume < 0:
            raise WrongArguments(problem=f"resume must be True, False or the number of a row, not {resume}")
        servers = {"kafka_client": NetClient, **(client or {}), "bootstrap_servers": bootstrap.split(",")}
        ms = int(delivery_seconds * 1000)
        options = {**servers, **_OPTIONS, "delivery_timeout_ms": ms, "max_block_ms": ms}
        options["request_timeout_ms"] = min(_REQUEST_MS, ms)
        transactions = producer = None
        try:
            if transactional:
                named = f"vernier.{topic}" if name is None else name
                transactions = Transactions(servers, named, _make, delivery_ms=min(ms, DELIVERY_MS), **_SIZES)
                # From now on no other producer of this name adds anything, so the end of the topic is fixed.
                transactions.open()
            end = _end(servers, topic)
            if not end.partitions:
                raise NoTopic(topic=topic, bootstrap=bootstrap)
            if end.upper == CLOSED and progress:
                raise Complete(topic=topic)
            if transactions is None:
                producer = _make(**options)
        except BaseException as error:
            if transactions is not None:
                transactions.close()
            if isinstance(error, KafkaError):
                raise CannotConnect(topic=topic, bootstrap=bootstrap, reason=said(error)) from error
            raise
        about = About(
            topic=topic,
            bootstrap=bootstrap,
            partitions=len(end.partitions),
            policy=steps,
            clock=clock,
            lateness=late,
            linger=waits,
            progress=progress,
            most_bytes=buffer_bytes,
            block=on_full == "block",
            now=_now,
        )
        following = end.following if resume is False else end.position if resume is True else resume
        self._outbox = Outbox(about, end, following, drop=resume is not False)
        delivery: Delivery
        if transactions is not None:
            delivery = Transactional(
                transactions, topic, end, self._outbox, lambda: _end(servers, topic), delivery_seconds
            )
        else:
            delivery = Idempotent(producer, topic, end, self._outbox)
        self._outbox.start(delivery)

    @property
    def partitions(self) -> int:
        """How many partitions the topic has."""
        return self._outbox.about.partitions

    @property
    def position(self) -> int:
        """The number of the first row that may not be in the topic; all rows before it are."""
        return self._outbox.position

    @property
    def promised(self) -> int | None:
        """All rows before this time are in the topic, and every partition says so; None before the first promise."""
        return self._outbox.promised

    def send(
        self,
        row: Row,
        time: Time | None = None,
        diff: int = 1,
        *,
        source: str | None = None,
        partition: int | None = None,
        number: int | None = None,
    ) -> int:
        """Take a row, a sequence in the order of the schema's columns or a mapping by name; returns its number.

        time: nanoseconds since 1970, or RFC 3339; by default now. diff: how many copies come, or go. source: its name,
        if several share the topic. partition: by default chosen by the row. number: by default the next one. Raises
        BadValue, BadRow, LateRow, BufferFull, DeliveryFailed, ProducerClosed.
        """
        named, encoder = self._of(source)
        at = None if time is None else _time(time)
        return self._outbox.take([Entry(encoder.one(row), at, _diff(diff), named, partition, number)])

    def send_many(
        self,
        rows: Sequence[Row] | pa.Table | pa.RecordBatch,
        times: Iterable[Time] | Time | None = None,
        diffs: Iterable[int] | int = 1,
        *,
        source: str | Sequence[str] | None = None,
        partitions: Iterable[int] | None = None,
        numbers: Iterable[int] | None = None,
    ) -> int:
        """Take rows, or an Arrow table with the schema's columns; returns the number of the last one.

        times, diffs, source: one for each row, or one for all. numbers: ascending; rows of one number are one change,
        and those of a source are sent together in each partition. Raises like `send`. A row that does not fit the
        schema refuses all; otherwise the rows before the one that is refused are taken.
        """
        if source is None or isinstance(source, str):
            name, encoder = self._of(source)
            texts = encoder.many(rows)
            names = [name] * len(texts)
        else:
            found = [self._of(one) for one in source]
            names = _for_each([name for name, _ in found], len(rows), "sources")
            texts = [encoder.one(row) for (_, encoder), row in zip(found, cast("Sequence[Row]", rows), strict=True)]
        n = len(texts)
        moments = [None] * n if times is None else [_time(one) for one in _for_each(times, n, "times")]
        signs = [_diff(one) for one in _for_each(diffs, n, "diffs")]
        places = [None] * n if partitions is None else _for_each(partitions, n, "partitions")
        numbered = [None] * n if numbers is None else _for_each(numbers, n, "numbers")
        return self._outbox.take(
            Entry(*one)  # text, time, diff, source, partition, number
            for one in zip(texts, moments, signs, names, places, numbered, strict=True)
        )

    def advance(self, time: Time) -> None:
        """Say that no row before `time` follows. The policy decides when this is announced; `flush` does it at once."""
        self._outbox.advance(_time(time))

    def flush(self, timeout: float | None = None) -> None:
        """Announce the present time, and wait until all rows and this promise are acknowledged.

        Raises DeliveryFailed, and FlushTimeout after `timeout` seconds.
        """
        self._outbox.flush(timeout)

    def close(self, timeout: float | None = None, *, complete: bool = False) -> None:
        """Flush, then end. complete: promise that nothing follows in the topic at all."""
        if self._outbox.is_closed:
            return
        try:
            self._outbox.flush(timeout, CLOSED if complete else None)
        finally:
            self._outbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close. If the block has failed, rows that wait are sent, but nothing more is promised."""
        if error is None:
            self.close()
        else:
            self._outbox.close()

    def _of(self, source: str | None) -> tuple[str | None, RowTexts]:
        """The name that messages have, and the encoder."""
        known = self._encoders
        if source is None and len(known) == 1:
            return next(iter(known.items()))
        if source is None or source not in known:
            names = listed(repr(one) for one in known if one is not None)
            if source is None:
                raise BadRow(problem=f"the topic has several sources; say which one, source= one of {names}")
            hint = meant(source, [one for one in known if one is not None])
            raise BadRow(problem=f"no source {source!r}{hint}" + (f" (there are {names})" if names else ""))
        return source, known[source]


def _encoders(sources: Any) -> dict[str | None, RowTexts]:
    """The encoders by the name that messages have; None where they need none."""
    from vernier.operators.language.plan.logical import SourceNode
    from vernier.operators.language.types.schema import Schema
    from vernier.service.codec.rowtexts import RowTexts

    if isinstance(sources, type) and issubclass(sources, Schema):
        return {None: RowTexts(sources.row_type)}
    if isinstance(sources, Mapping) and sources and all(issubclass(one, Schema) for one in sources.values()):
        return {name: RowTexts(schema.row_type) for name, schema in sources.items()}
    node = getattr(sources, "node", None)
    if isinstance(node, SourceNode):
        return {node.name: RowTexts(node.schema)}
    raise WrongType(
        problem=f"a producer needs a vn.Schema, a source of an app, or a mapping of names to schemas, not {sources!r}"
    )


def _one_of(what: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise WrongArguments(problem=f"{what} must be {' or '.join(map(repr, known))}, not {value!r}")


def _time(given: Time) -> int:
    time = parse_instant(given if isinstance(given, str) else int(given))
    if not MIN_TIME <= time < CLOSED:
        raise BadRow(problem=f"{given} is no data time: it must be in [{MIN_TIME}, {CLOSED})")
    return time


def _diff(given: int) -> int:
    diff = int(given)
    if diff == 0 or not -DIFF_RANGE <= diff <= DIFF_RANGE:
        raise BadRow(problem=f"the diff is {given}, but it must be a number from {-DIFF_RANGE} to {DIFF_RANGE}, not 0")
    return diff


def _for_each(given: Any, n: int, what: str) -> list[Any]:
    """One value for each of n rows."""
    if isinstance(given, (int, str)):
        return [given] * n
    values = given.tolist() if hasattr(given, "tolist") else list(given)
    if len(values) != n:
        raise BadRow(problem=f"there are {n} rows and {len(values)} {what}; give one for each row")
    return values
