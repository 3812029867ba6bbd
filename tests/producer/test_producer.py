"""`vernier.Producer` on a Kafka in this process: threads, buffer, errors, clocks, transactions, going on."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from kafka.errors import KafkaTimeoutError, ProducerFencedError

import vernier as vn
from tests.producer.fake import SOURCES, Client, Edge, Kafka, read
from vernier.operators.errors import BadValue, ProgramError
from vernier.service.kafka.producer.batches import Batches
from vernier.service.kafka.producer.errors import (
    BadRow,
    BufferFull,
    CannotConnect,
    Complete,
    DeliveryFailed,
    FlushTimeout,
    LateRow,
    NoTopic,
    ProducerClosed,
)
from vernier.storage.updates import CLOSED


def producer(kafka: Kafka, sources: Any = Edge, **more: Any) -> Any:
    """A producer of the topic, whose times are those of the rows unless the test says otherwise."""
    return vn.Producer("t", sources, _make=kafka.make, _end=kafka.end, **{"clock": "rows", **more})  # type: ignore[arg-type]


def rows(kafka: Kafka, producers: int = 1) -> Counter[tuple[tuple[Any, ...], int, int]]:
    """The updates of a topic with one source, as (row, time, diff)."""
    found: Counter[tuple[tuple[Any, ...], int, int]] = Counter()
    for log in kafka.log.values():
        for record in log:
            for row, time, diff in msgspec.json.decode(record.value).get("u", ()):
                found[tuple(row), int(time), diff] += 1
    return found


def promises(kafka: Kafka) -> list[list[int]]:
    """What is promised, by partition."""
    found = []
    for log in kafka.log.values():
        uppers = [msgspec.json.decode(record.value).get("p", {}).get("upper") for record in log]
        found.append([int(upper[0]) if upper else CLOSED for upper in uppers if upper is not None])
    return found


def test_rows_of_many_threads_are_all_there_once() -> None:
    kafka = Kafka()
    with producer(kafka, clock="wall", policy=vn.records(64)) as edges:

        def run(first: int) -> None:
            for number in range(first, first + 300):
                edges.send((number, 0))
            edges.send_many([(number, 1) for number in range(first, first + 300)])

        threads = [threading.Thread(target=run, args=(300 * one,)) for one in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        edges.flush()
        assert edges.position == 2_400
        assert edges.promised is not None
    found = rows(kafka)
    assert Counter(row for row, _, _ in found.elements()) == Counter((a, b) for a in range(1_200) for b in (0, 1))
    assert len({time for _, time, _ in found}) == 2_400, "each row has a nanosecond of its own"


def test_every_partition_is_promised_also_without_rows() -> None:
    kafka = Kafka(4)
    with producer(kafka) as edges:
        edges.send((1, 2), 5_000_001)
        edges.send((1, 2), 7_000_002, -1)
        edges.flush()
    told = promises(kafka)
    assert told == [told[0]] * 4
    assert told[0][-1] == 7_000_002
    assert {*told[0]} <= {5_000_000, 7_000_000, 7_000_002}, "one promise may say what several would"
    assert (
        sum(bool(read_rows) for read_rows in ([r for r in log if b'"u"' in r.value] for log in kafka.log.values())) == 1
    )


def test_a_silent_wall_clock_goes_on_promising() -> None:
    kafka = Kafka()
    with producer(kafka, clock="wall", policy="1ms", linger="1ms"):
        kafka.until(lambda: min(map(len, promises(kafka))) >= 5)
    for told in promises(kafka):
        assert told == sorted(set(told))


def test_a_row_waits_no_longer_than_linger_also_without_a_new_message_time() -> None:
    kafka = Kafka()
    with producer(kafka, clock="manual", linger="1ms") as edges:
        edges.send((1, 2), 5)
        kafka.until(lambda: bool(rows(kafka)))
        assert promises(kafka) == [[], [], []]
        edges.advance(9_000_000)
        edges.flush()
    assert promises(kafka) == [[9_000_000]] * 3


def test_a_full_buffer_makes_callers_wait_until_there_is_room() -> None:
    kafka = Kafka(1, acknowledge=False)
    with producer(kafka, buffer_bytes=100, clock="manual", linger="1h") as edges:
        taken: list[int] = []
        done = threading.Event()

        def run() -> None:
            for number in range(50):
                taken.append(edges.send((number, number), 7))  # noqa: PERF401
            with kafka.changed:
                done.set()
                kafka.changed.notify_all()

        thread = threading.Thread(target=run)
        thread.start()
        while not done.is_set():
            kafka.until(lambda: bool(kafka.waiting) or done.is_set())
            assert sum(len(one.value) for one in kafka.waiting) < 400
            kafka.deliver()
        thread.join()
        kafka.acknowledge = True
        kafka.deliver()
    assert taken == list(range(50))
    assert sum(rows(kafka).values()) == 50


def test_a_full_buffer_can_raise_instead() -> None:
    kafka = Kafka(1, acknowledge=False)
    edges = producer(kafka, buffer_bytes=100, clock="manual", linger="1h", on_full="raise")
    with pytest.raises(BufferFull, match="buffer_bytes is 100"):
        edges.send_many([(number, number) for number in range(50)], 7)
    kafka.until(lambda: bool(kafka.waiting))
    kafka.acknowledge = True
    kafka.deliver()
    taken = edges.position
    assert edges.send((99, 99), 7) == taken
    edges.close()
    assert sum(rows(kafka).values()) == taken + 1


def test_a_row_that_is_not_delivered_ends_the_producer_and_is_named() -> None:
    kafka = Kafka(1, acknowledge=False)
    edges = producer(kafka, SOURCES, clock="manual", linger="1h")
    edges.send((1, 2), 5, source="edges")
    edges.send([3], 6, -2, source="roots")
    edges._outbox.push()
    kafka.until(lambda: len(kafka.waiting) == 2)
    edges.send((8, 9), 7, source="edges")
    kafka.waiting[0].future.settle(KafkaTimeoutError("expired"))
    with pytest.raises(DeliveryFailed, match="expired") as caught:
        edges.flush()
    error = caught.value
    assert [(one.source, one.row, one.time, one.diff, one.number) for one in error.rows] == [
        ("edges", [1, 2], 5, 1, 0),
        ("roots", [3], 6, -2, 1),
        ("edges", [8, 9], 7, 1, 2),
    ]
    assert "edges [1, 2] at 5 (+1), roots [3] at 6 (-2), edges [8, 9] at 7 (+1)" in str(error)
    for call in (lambda: edges.send([4], 9, source="roots"), edges.flush, edges.close):
        with pytest.raises(DeliveryFailed):
            call()
    assert edges.position == 0
    assert kafka.made[0].closed
    assert promises(kafka) == [[]]


def test_no_promise_before_the_rows_are_acknowledged() -> None:
    kafka = Kafka(2, acknowledge=False)
    edges = producer(kafka, policy="1ns")
    edges.send((1, 2), 5, partition=0)
    kafka.until(lambda: len(kafka.waiting) == 2)  # the first promise, before any row
    kafka.deliver()
    edges.send((1, 3), 8, partition=0)
    edges.send((1, 4), 9, partition=0)
    kafka.until(lambda: len(kafka.waiting) == 2)
    assert [b'"u"' in one.value for one in kafka.waiting] == [True, True]
    assert edges.promised == 5
    with pytest.raises(FlushTimeout, match="not acknowledged"):
        edges.flush(timeout=0.01)
    kafka.acknowledge = True
    kafka.deliver()
    edges.close()
    assert edges.promised == 9
    assert promises(kafka) == [[5, 9], [5, 9]]


def test_what_is_late_is_refused_and_told_the_way_out() -> None:
    kafka = Kafka()
    with producer(kafka, policy="1ms") as edges:
        edges.send((1, 2), 5_000_100)
        assert edges.send((1, 2), 5_000_000) == 1, "the same millisecond"
        with pytest.raises(LateRow, match=r"row number 2 is at 4999999, before the message time 5000000.*lateness"):
            edges.send((1, 2), 4_999_999)
    with producer(kafka, policy="1ms", lateness="1ms") as edges:
        edges.send((1, 2), 8_500_000)
        edges.send((1, 2), 7_000_000)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"row": (1,)}, "1 values for the columns src, dst"),
        ({"row": (1, "two")}, "dst"),
        ({"row": (1, 2**63)}, "dst"),
        ({"row": {"src": 1, "dts": 2}}, "did you mean 'dst'"),
        ({"row": (1, 2), "diff": 0}, "not 0"),
        ({"row": (1, 2), "diff": 2**40}, "diff"),
        ({"row": (1, 2), "time": 2**63 - 1}, "no data time"),
        ({"row": (1, 2), "time": "2026-01-31T12:00:00"}, "append Z"),
        ({"row": (1, 2), "time": 5, "partition": 3}, "no partition 3"),
        ({"row": (1, 2), "time": 5, "source": "edges"}, "no source 'edges'"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(given: dict[str, Any], problem: str) -> None:
    kafka = Kafka()
    with producer(kafka) as edges:
        with pytest.raises((BadValue, BadRow, vn.VernierError), match=problem):
            edges.send(**given)
        assert edges.position == 0


def test_arguments_that_are_wrong_say_what_is_right() -> None:
    kafka = Kafka()
    for more, problem in (
        ({"clock": "sun"}, "clock must be 'wall' or 'rows' or 'manual', not 'sun'"),
        ({"on_full": "drop"}, "on_full"),
        ({"policy": "1 ms x"}, "policy"),
        ({"sources": int}, "vn.Schema"),
        ({"resume": -1}, "resume"),
    ):
        with pytest.raises(ProgramError, match=problem):
            producer(kafka, **more)
    with pytest.raises(NoTopic, match="no topic t"):
        producer(Kafka(0))

    def refuse(**_: Any) -> Client:
        raise KafkaTimeoutError("no broker answers")

    with pytest.raises(CannotConnect, match="no broker answers"):
        vn.Producer("t", Edge, _make=refuse, _end=kafka.end)


def test_a_source_of_a_program_is_named_in_messages() -> None:
    kafka = Kafka(1)
    app = vn.App("graph")
    source = app.source("edges", Edge)
    with producer(kafka, source) as edges:
        edges.send({"dst": 2, "src": 1}, 5)
    (found, _) = read(kafka.log[0])
    assert found == Counter({("edges", (1, 2), 5, 1): 1})


def test_a_table_is_sent_by_columns() -> None:
    class Note(vn.Schema):
        id: vn.Int64
        text: vn.String | None
        at: vn.TimestampNs
        cost: vn.Decimal(9, 2)  # type: ignore[valid-type]

    kafka = Kafka(1)
    table = pa.table({
        "text": ["a", None],
        "id": [1, 2],
        "cost": pa.array(["1.50", "0.05"]).cast(pa.decimal128(9, 2)),
        "at": pa.array([7, 8], pa.timestamp("ns")),
    })  # fmt: skip
    with producer(kafka, Note) as notes:
        assert notes.send_many(table, [3, 4], [1, -1]) == 1
        notes.send((3, 'q"' * 40, 9, Decimal("2.25")), 5)
    assert list(rows(kafka)) == [
        ((1, "a", 7, "1.50"), 3, 1),
        ((2, None, 8, "0.05"), 4, -1),
        ((3, 'q"' * 40, 9, "2.25"), 5, 1),
    ]


def test_a_closed_producer_takes_nothing() -> None:
    kafka = Kafka()
    edges = producer(kafka)
    edges.send((1, 2), 5)
    edges.close()
    edges.close()
    with pytest.raises(ProducerClosed, match="make a new one"):
        edges.send((1, 2), 6)
    assert kafka.made[0].closed


def test_a_topic_can_be_completed_once() -> None:
    kafka = Kafka()
    edges = producer(kafka)
    edges.send((1, 2), 5)
    edges.close(complete=True)
    assert [told[-1] for told in promises(kafka)] == [CLOSED] * 3
    with pytest.raises(Complete, match="nothing follows"):
        producer(kafka)


def test_a_block_that_fails_promises_nothing_more() -> None:
    kafka = Kafka()

    def fail() -> None:
        with producer(kafka) as edges:
            edges.send((1, 2), 5_000_001)
            edges.send((1, 3), 5_000_009)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert sum(rows(kafka).values()) == 2
    assert all({*told} <= {5_000_000} for told in promises(kafka))


def test_the_next_producer_goes_on_after_what_was_promised() -> None:
    kafka = Kafka()
    with producer(kafka) as edges:
        edges.send_many([(one, one) for one in range(10)], range(10))
        edges.flush()
    with producer(kafka) as edges:
        assert edges.promised == 9
        with pytest.raises(LateRow):
            edges.send((1, 1), 8)
        assert edges.send((1, 1), 9) == 10, "new rows have new numbers"
    with producer(kafka, resume=4) as edges:
        edges.send_many([(one, one) for one in range(4, 10)], range(4, 10))
        edges.send((1, 1), 9)
        assert edges.send((7, 7), 20) == 11
    assert sum(rows(kafka).values()) == 12
    assert max(rows(kafka).values()) == 1


def test_a_restarted_wall_clock_that_is_behind_stays_after_the_promise() -> None:
    kafka = Kafka()
    with producer(kafka, clock="wall", _now=lambda: 10**9) as edges:
        edges.send((1, 2))
    with producer(kafka, clock="wall", _now=lambda: 10**6) as edges:
        edges.send((3, 4))
        edges.flush()
    assert min(time for (row, time, _) in rows(kafka) if row == (3, 4)) >= 10**9
    for log in kafka.log.values():
        read([one for one in log if b'"p"' in one.value])


@pytest.mark.parametrize(("lost", "failing"), [(0, 0), (1, 0), (0, 2), (2, 1)])
def test_transactions_whose_end_is_unknown_are_looked_up(lost: int, failing: int) -> None:
    kafka = Kafka(2)
    with producer(kafka, transactional=True) as edges:
        for number in range(20):
            if number == 10:
                edges.flush()
                kafka.lost_answers, kafka.failing = lost, failing
            edges.send((number, number), number)
        edges.flush()
        assert edges.position == 20
    assert rows(kafka) == Counter({((number, number), number, 1): 1 for number in range(20)})
    assert len(kafka.made) == 1 + lost + failing - kafka.lost_answers - kafka.failing
    assert kafka.made[0].options["transactional_id"] == "vernier.t"


def test_a_second_transactional_producer_ends_the_first() -> None:
    kafka = Kafka()

    class Fencing(Client):
        def begin_transaction(self) -> None:
            if self is not kafka.made[-1]:
                raise ProducerFencedError

    kafka.make = lambda **options: kafka.made.append(Fencing(kafka, options)) or kafka.made[-1]  # type: ignore
    first = producer(kafka, transactional=True)
    second = producer(kafka, transactional=True)
    first.send((1, 2), 5)
    with pytest.raises(DeliveryFailed, match=r"another producer has taken over the name vernier\.t"):
        first.flush()
    second.send((1, 2), 5)
    second.close()
    assert rows(kafka) == Counter({((1, 2), 5, 1): 1})


def test_rows_that_are_equal_go_to_one_partition() -> None:
    kafka = Kafka(5)
    with producer(kafka) as edges:
        for time in range(40):
            edges.send((time % 4, 0), time)
            edges.send({"src": time % 4, "dst": 0}, time, -1)
    for row in {row for row, _, _ in rows(kafka)}:
        mark = b"[%d,%d]" % row
        assert sum(any(mark in one.value for one in log) for log in kafka.log.values()) == 1


def test_importing_vernier_loads_no_kafka_client(root: Path) -> None:
    program = (
        "import sys, vernier as vn\n"
        "class E(vn.Schema):\n    a: vn.Int64\n"
        "assert 'kafka' not in sys.modules and 'vernier.service' not in sys.modules\n"
        "assert {'Producer', 'records'} <= set(vn.__all__) <= set(dir(vn))\n"
        "vn.records(3)\n"
        "assert vn.Producer.__module__.startswith('vernier.service.kafka')\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=root, check=True, timeout=120)


def test_a_batch_keeps_what_it_holds_in_bytes() -> None:
    batches = Batches(vn.records(4), 0)
    for number in range(10):
        batches.see(number)
        batches.add(b"[1]", number, 1, number % 2, None, number)
    batches.push()
    assert batches.bytes > 0
    batches.take()
    assert batches.bytes == 0
