"""A connector's snapshot in messages: its rows enter together, whatever the cuts into epochs, or not at all."""

import json
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ingest.log import EDGES, Entry, Record, Service, Topics, values
from vernier.service.ingest.config import IngestionConfig, SourceConfig
from vernier.service.ingest.formats.debezium import Debezium
from vernier.service.ingest.ingestion import Ingestion

MS = 1_000_000
BEAT = "app.heartbeat"
EVERY = ("true", "first", "first_in_data_collection", "last_in_data_collection", "last", "false", "incremental")


def change(row: tuple[int, int], at: int, snapshot: object = None, op: str = "c", *, wrapped: bool = False) -> str:
    """A message of Debezium; at: its time in ms."""
    source: dict[str, object] = {"ts_ms": at} | ({} if snapshot is None else {"snapshot": snapshot})
    said = {"before": None, "after": dict(zip(("src", "dst"), row)), "op": op, "source": source}
    return json.dumps({"schema": None, "payload": said} if wrapped else said)


def test_the_marks_of_messages() -> None:
    given = [change((1, 1), 1, one, wrapped=bool(number % 2)) for number, one in enumerate((*EVERY, True, False, None))]
    marks = Debezium({"edges": EDGES}).decode(values(*given, "{", None, '{"snapshot":"last"}')).marks
    assert marks is not None
    assert marks.tolist() == [1, 2, 2, 3, 3, 0, 0, 1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("key", [(), ("src",)])
@pytest.mark.parametrize("clock", ["event", "arrival"])
@given(st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_a_snapshots_rows_enter_together(clock: str, key: tuple[str, ...], seed: int) -> None:
    rng = random.Random(seed)
    config = SourceConfig("edges", "debezium", clock, key=key, lateness_ns=0, idle_timeout_ms=1)  # type: ignore[arg-type]
    log, expected = Topics(), Counter[Entry]()
    rows = [(number, rng.randrange(3)) for number in range(rng.randrange(2, 8))]
    begun: int | None = None
    for number, row in enumerate(rows):
        said = "last" if number == len(rows) - 1 else rng.choice(["first", "true"]) if number == 0 else "true"
        later = rng.choice([0, 3])
        record = log.append("edges", 0, change(row, log.ms + later, said, "r"), later)
        begun = record.ms * MS if begun is None else begun
        expected["edges", row, begun, record.offset + 1 if key else 1] += 1
        if rng.random() < 0.3:
            log.append(BEAT, 0, b"", 50)
    ended = record
    stamp = begun if clock == "event" else begun + len(rows) - 1  # type: ignore[operator]
    for number in range(rng.randrange(4)):
        row = (number, 9)
        record = log.append("edges", 0, change(row, log.ms + 5, "false"), 5)
        stamp = record.ms * MS if clock == "event" else max(record.ms * MS, stamp + 1)  # type: ignore[operator]
        expected["edges", row, stamp, record.offset + 1 if key else 1] += 1
    log.append("edges", 0, change((99, 99), log.ms + 100, "false"), 100)  # lets the clock pass what is before it
    service = Service(Ingestion({"edges": EDGES}, IngestionConfig({"edges": config}, {"edges": 1}, BEAT)))
    waiting = list(log.records)
    while waiting:
        cut = rng.randrange(1, len(waiting) + 1)
        step: list[Record] = waiting[:cut]
        waiting = waiting[cut:]
        service.epoch(step, rng)
        if begun is not None and ended in waiting:
            assert service.frontiers[-1] <= begun
            assert not service.entered
    service.epoch([log.append(BEAT, 0, b"", 50)], rng)
    assert not service.letters
    found = Counter({entry: n for entry, n in service.entered.items() if entry[1] != (99, 99)})
    assert found == expected


def test_the_end_in_one_partition_is_that_of_all_and_a_change_ends_one_without_a_mark() -> None:
    config = SourceConfig("edges", "debezium", "event", lateness_ns=0, idle_timeout_ms=None)
    service = Service(Ingestion({"edges": EDGES}, IngestionConfig({"edges": config}, {"edges": 2}, BEAT)))
    log = Topics()
    service.epoch(
        [log.append("edges", 0, change((1, 1), 10, "first")), log.append("edges", 1, change((2, 2), 12, True))]
    )
    service.epoch([log.append("edges", 1, change((3, 3), 40, "true")), log.append(BEAT, 0, b"", 10_000)])
    assert service.frontiers[-1] == 10 * MS
    service.epoch([log.append("edges", 0, change((4, 4), 50, "last"))])
    assert service.frontiers[-1] == 40 * MS
    assert service.entered == Counter(
        {("edges", (1, 1), 10 * MS, 1): 1, ("edges", (4, 4), 10 * MS, 1): 1}
        | {("edges", row, 12 * MS, 1): 1 for row in ((2, 2), (3, 3))}
    )
    # A row that says it is of a snapshot after its end is one like others; a first row begins another one.
    service.epoch([log.append("edges", 0, change((5, 5), 60, "true")), log.append("edges", 1, change((6, 6), 60))])
    assert service.frontiers[-1] == 60 * MS
    service.epoch([log.append("edges", 0, change((7, 7), 70, "first")), log.append("edges", 1, change((8, 8), 80))])
    service.epoch([log.append("edges", 0, change((7, 8), 75, "true")), log.append("edges", 1, change((8, 8), 90))])
    assert service.frontiers[-1] == 70 * MS
    service.epoch([log.append("edges", 0, change((7, 9), 99))])
    assert service.frontiers[-1] == 90 * MS
    assert service.entered["edges", (7, 8), 70 * MS, 1] == 1


@pytest.mark.parametrize("key", [(), ("src",)])
@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_a_table_in_several_partitions_enters_at_one_time(key: tuple[str, ...], seed: int) -> None:
    """Debezium gives all rows of a table one timestamp. Whatever is read of each partition in each epoch, and wherever
    the last row is: no time is final at which a part of the rows is there."""
    rng = random.Random(seed)
    config = SourceConfig("edges", "debezium", "event", key=key, lateness_ns=0, idle_timeout_ms=None)
    partitions, taken = rng.randrange(2, 4), 5_000
    service = Service(Ingestion({"edges": EDGES}, IngestionConfig({"edges": config}, {"edges": partitions}, BEAT)))
    log = Topics()
    count = rng.randrange(partitions, 12)
    for number in range(count):
        said = "last" if number == count - 1 else rng.choice(["first", "true"]) if number == 0 else "true"
        log.append("edges", rng.randrange(partitions), change((number, 0), taken, said, "r"), rng.choice([0, 3]))
    for number in range(rng.randrange(6)):
        log.append("edges", rng.randrange(partitions), change((100 + number, 1), taken + 1 + number, "false"), 5)
    for number in range(partitions):
        log.append("edges", number, change((200 + number, 2), taken + 100, "false"), 5)
    waiting = [[one for one in log.records if one.partition == number] for number in range(partitions)]
    while any(waiting):
        step = list[Record]()
        for own in waiting:
            cut = rng.randrange(len(own) + 1)
            step += own[:cut]
            del own[:cut]
        service.epoch([*step, log.append(BEAT, 0, b"", 50)], rng)
        snapped = sorted(row[0] for _, row, at, _ in service.entered if at == taken * MS)
        assert snapped == (list(range(count)) if service.frontiers[-1] > taken * MS else [])
    assert not service.letters
    assert service.frontiers[-1] == (taken + 100) * MS
