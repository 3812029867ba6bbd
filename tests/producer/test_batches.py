"""Message times by policy, whatever comes in which order; a producer that ends at any point, and the next one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.producer.fake import Kafka, read
from tests.profiles import examples
from vernier.operators.errors import ProgramError
from vernier.service.kafka.producer.batches import MOST_UPDATES, Batches, Mark, Parcel, Promise
from vernier.service.kafka.producer.delivery import Idempotent
from vernier.service.kafka.producer.errors import LateRow
from vernier.service.kafka.producer.outbox import About, Entry, Outbox
from vernier.service.kafka.producer.policy import Every, as_policy
from vernier.service.kafka.producer.topic_end import TopicEnd, new_topic

POLICIES = st.one_of(st.integers(1, 50).map(Every), st.integers(1, 6).map(vn.records))
HOUR = 3_600 * 10**9


@dataclass
class Driven:
    """An outbox without its thread: a test decides when it sends, and what of that is acknowledged."""

    kafka: Kafka
    policy: Any
    clock: Any = "rows"
    end: TopicEnd | None = None
    resume: bool = False
    outbox: Outbox = field(init=False)

    def __post_init__(self) -> None:
        end = self.end if self.end is not None else new_topic(self.kafka.partitions)
        about = About("t", "nowhere", self.kafka.partitions, self.policy, self.clock, 0, HOUR, True, 1 << 20, True)
        self.outbox = Outbox(about, end, end.position if self.resume else end.following, drop=self.resume)
        self.outbox._delivery = Idempotent(self.kafka.make(), "t", end, self.outbox)

    def drive(self) -> None:
        """Do what the sender thread would do now."""
        while self.outbox._batches.has_out or self.outbox._delivery.ready():
            self.outbox._turn()

    def finish(self, upper: int) -> None:
        """Send everything, acknowledge it, and promise `upper`."""
        self.outbox.advance(upper)
        self.outbox._batches.leap()
        self.outbox._batches.push()
        while self.outbox._batches.has_out or self.outbox._delivery.ready() or self.kafka.waiting:
            self.drive()
            self.kafka.deliver()


def entry(number: int, time: int, diff: int = 1) -> Entry:
    """A row of which there is no second."""
    if number % 5 == 4:
        return Entry(b"[%d]" % number, time, diff, "roots")
    return Entry(b"[%d,%d]" % (number, number % 7), time, diff, "edges")


def expected(entries: list[Entry]) -> Counter[Any]:
    """What the service should read of them."""
    found: Counter[Any] = Counter()
    for one in entries:
        found[one.source, tuple(int(part) for part in one.text[1:-1].split(b",")), one.time, one.diff] += 1
    return found


STEP = st.tuples(
    st.sampled_from(["row", "row", "row", "row", "push", "leap", "send", "some", "all"]), st.integers(-5, 60)
)


@given(policy=POLICIES, steps=st.lists(STEP, max_size=80), partitions=st.integers(1, 3))
def test_each_row_once_at_its_own_time_and_no_promise_before_a_row(
    policy: Any, steps: list[tuple[str, int]], partitions: int
) -> None:
    kafka = Kafka(partitions, acknowledge=False)
    driven = Driven(kafka, policy)
    sent: list[Entry] = []
    time = 1_000
    for kind, amount in steps:
        if kind == "row":
            one = entry(len(sent), time + amount, -1 if amount % 2 else 1)
            at = driven.outbox._batches.at
            if at is not None and time + amount < at:
                with pytest.raises(LateRow):
                    driven.outbox.take([one])
                continue
            driven.outbox.take([one])
            sent.append(one)
            time = max(time, time + amount)
        elif kind == "push":
            driven.outbox.push()
        elif kind == "leap":
            driven.outbox._batches.leap()
        elif kind == "send":
            driven.drive()
        else:
            kafka.deliver(None if kind == "all" else abs(amount) // 10)
        assert_no_promise_is_early(kafka, sent)
    driven.finish(time + 1)
    assert kafka.updates() == expected(sent)
    for records in kafka.log.values():
        read(records)
    assert driven.outbox.promised == time + 1
    assert driven.outbox.position == len(sent)


def assert_no_promise_is_early(kafka: Kafka, sent: list[Entry]) -> None:
    """Every row before a promise is in the log, in any partition."""
    there = kafka.updates()
    for records in kafka.log.values():
        for upper in (promise for _, _, promise in read(records)[1] if promise is not None):
            assert expected([one for one in sent if one.time is not None and one.time < upper]) <= there


@examples(100)
@given(data=st.data(), policy=POLICIES, rows=st.integers(1, 40), partitions=st.integers(1, 3))
def test_the_next_producer_completes_what_the_last_one_began(
    data: st.DataObject, policy: Any, rows: int, partitions: int
) -> None:
    """A producer ends at any point. Acknowledged rows are there; of the rest, any part is. The next
    one is given the rows from `position` on."""
    kafka = Kafka(partitions, acknowledge=False)
    times = [1_000]
    for _ in range(rows - 1):
        times.append(times[-1] + data.draw(st.integers(0, 20)))
    entries = [entry(number, time) for number, time in enumerate(times)]
    begin, end, promised = 0, None, -1
    for _ in range(3):
        driven = Driven(kafka, policy, end=end, resume=end is not None)
        stop = data.draw(st.integers(begin, rows))
        for one in entries[begin:stop]:
            driven.outbox.take([one])
            match data.draw(st.sampled_from(["", "", "send", "push", "ack"])):
                case "send":
                    driven.drive()
                case "push":
                    driven.outbox.push()
                    driven.drive()
                case "ack":
                    driven.drive()
                    kafka.deliver(data.draw(st.integers(0, 4)))
        acknowledged = driven.outbox.position
        # The producer is gone. Some of what was under way still arrives; the client may have dropped any message of it.
        waiting, kafka.waiting = kafka.waiting, []
        for sent in waiting:
            if data.draw(st.booleans()):
                kafka.append(sent.partition, sent.key, sent.value)
        end = kafka.end()
        assert end.position <= acknowledged
        assert end.upper is None or end.upper >= promised
        promised = -1 if end.upper is None else end.upper
        begin = end.position
    last = Driven(kafka, policy, end=end, resume=True)
    for one in entries[begin:]:
        last.outbox.take([one])
        last.drive()
        kafka.deliver(1)
    last.finish(times[-1] + 1)
    assert kafka.updates(producers=4) == expected(entries)


def test_a_millisecond_is_one_message_time() -> None:
    batches = Batches(as_policy("1ms"))
    for number, time in enumerate([5_000_001, 5_999_999, 5_000_000, 6_000_000, 6_000_001]):
        batches.see(time)
        batches.add(b"[1]", time, 1, 0, None, number)
    batches.push()
    out = batches.take()
    assert [(one.upper, one.count) for one in out if isinstance(one, Promise)] == [(5_000_000, 0), (6_000_000, 3)]
    assert [one.value.decode() for one in out if isinstance(one, Parcel)] == [
        '{"v":1,"t":"5000000","u":[[[1],"5000001",1],[[1],"5999999",1],[[1],"5000000",1]]}',
        '{"v":1,"t":"6000000","u":[[[1],"6000000",1],[[1],"6000001",1]]}',
    ]


def test_after_so_many_records_the_message_time_leaps_to_the_common_time() -> None:
    batches = Batches(vn.records(3))
    for number in range(8):
        batches.see(100 + number)
        batches.add(b"[1]", 100 + number, 1, 0, None, number)
    batches.push()
    assert [(one.upper, one.count) for one in batches.take() if isinstance(one, Promise)] == [
        (100, 0),
        (103, 3),
        (106, 6),
    ]


def test_rows_of_one_number_stay_in_one_message() -> None:
    batches = Batches(as_policy("1s"), 0)
    for number in range(MOST_UPDATES - 1):
        batches.add(b"[1]", 5, 1, 0, None, number)
    for _ in range(3):
        batches.add(b"[2]", 5, 1, 0, None, MOST_UPDATES)
    batches.add(b"[3]", 5, 1, 0, None, MOST_UPDATES + 1)
    batches.push()
    assert [len(one.numbers) for one in batches.take() if isinstance(one, Parcel)] == [MOST_UPDATES + 2, 1]


def test_without_progress_a_message_has_its_least_time() -> None:
    batches = Batches(as_policy("1ms"), progress=False)
    assert not batches.see(10**9)
    for number, time in enumerate([9, 3, 7]):
        batches.add(b"[1]", time, 1, 0, "edges", number)
    batches.push()
    (parcel,) = batches.take()
    assert isinstance(parcel, Parcel)
    assert parcel.time is None
    assert parcel.value.startswith(b'{"v":1,"t":"3","input":"edges","u":[')


@pytest.mark.parametrize("mark", [Mark(0, 0), Mark(17, -5), Mark(17, 10**18, more=True), Mark(17, 10**18, True, 9)])
def test_marks_are_read_as_they_are_written(mark: Mark) -> None:
    assert Mark.decode(mark.encode()) == mark


@pytest.mark.parametrize("key", [None, b"", b"key", b"1@", b"@1", b"-1@5", b"1@5++", b"\xff@1", b"-3@5", b"1-@5"])
def test_keys_of_others_are_no_marks(key: bytes | None) -> None:
    assert Mark.decode(key) is None


@pytest.mark.parametrize("given", ["", "1", "0ms", "fast", 5, None])
def test_a_policy_that_is_none(given: Any) -> None:
    with pytest.raises(ProgramError, match="policy"):
        as_policy(given)


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "10"])
def test_records_needs_a_number(count: Any) -> None:
    with pytest.raises(ProgramError, match="number of rows from 1"):
        vn.records(count)
