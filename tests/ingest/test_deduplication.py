"""Counted progress: copies are dropped and missing updates waited for, in any order, over any cuts and workers."""

import itertools
import json
import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ingest.log import EDGES, ROOTS, Entry, Service, Topics, native, progress
from vernier.service.ingest.config import IngestionConfig, SourceConfig
from vernier.service.ingest.ingestion import Ingestion
from vernier.storage.updates import MIN_TIME

BEAT = "app.heartbeat"


def counted(workers: int = 1, partitions: int = 1, **more: object) -> Service:
    config = IngestionConfig(
        {name: SourceConfig("graph", clock="event", **more) for name in ("edges", "roots")},  # type: ignore[arg-type]
        {"graph": partitions},
        BEAT,
    )
    return Service(Ingestion({"edges": EDGES, "roots": ROOTS}, config), workers)


def edge(dst: int, time: int, diff: int = 1) -> str:
    return native([((1, dst), time, diff)], input="edges")


def test_copies_are_dropped_and_what_is_missing_is_waited_for() -> None:
    runs, log = counted(), Topics()
    runs.epoch([log.append("graph", 0, edge(2, 5)), log.append("graph", 0, edge(2, 5))])
    runs.epoch([log.append("graph", 0, progress(10, 0, {5: 1, 7: 2}))])
    runs.epoch(
        [log.append("graph", 0, edge(3, 7)), log.append("graph", 0, edge(3, 7)), log.append("graph", 0, edge(2, 5))]
    )
    assert runs.frontiers[-1] == 7, "everything before 7 is here, one update at 7 is missing"
    assert runs.entered == {("edges", (1, 2), 5, 1): 1}
    runs.epoch([log.append("graph", 0, edge(3, 7)), log.append("graph", 0, edge(2, 5))])
    assert runs.frontiers[-1] == 7
    runs.epoch([log.append("graph", 0, edge(4, 7))])
    assert runs.frontiers[-1] == 10
    runs.epoch([log.append("graph", 0, edge(4, 7)), log.append("graph", 0, progress(10, 0, {5: 1, 7: 2}))])
    assert runs.entered == {("edges", (1, k), t, 1): 1 for k, t in [(2, 5), (3, 7), (4, 7)]}
    assert runs.letters == []
    assert runs.counters["copies"] == 6, "one of them was held before the first counts came"


def test_statements_must_follow_one_another_from_the_start() -> None:
    runs, log = counted(), Topics()
    for statement in (progress(20, 10, {}), progress(30, 20, {25: 1})):
        runs.epoch([log.append("graph", 0, statement)])
    runs.epoch([log.append(BEAT, 0, None)])
    assert runs.frontiers[-1] == MIN_TIME, "no count covers the times before 10"
    runs.epoch([log.append("graph", 0, progress(10, 0, {}))])
    assert runs.frontiers[-1] == 25
    runs.epoch([log.append("graph", 0, edge(2, 25))])
    assert runs.frontiers[-1] == 30


def test_a_partition_that_waits_for_an_update_is_never_idle() -> None:
    runs, log = counted(idle_timeout_ms=10), Topics()
    runs.epoch([log.append("graph", 0, progress(10, 0, {5: 1}))])
    for _ in range(3):
        step, _ = runs.epoch([log.append(BEAT, 0, None, later_ms=1_000)])
        assert step.frontiers == {"graph": {"0": 5}}
    runs.epoch([log.append("graph", 0, edge(2, 5))])
    step, _ = runs.epoch([log.append(BEAT, 0, None, later_ms=1_000)])
    assert step.frontiers == {"graph": {"0": None}}
    assert runs.entered == {("edges", (1, 2), 5, 1): 1}


def test_what_comes_after_a_partition_gave_way_is_late_rather_than_a_copy() -> None:
    runs, log = counted(partitions=2, idle_timeout_ms=1_000), Topics()
    runs.epoch([log.append("graph", 0, progress(10, 0, {})), log.append("graph", 1, progress(10))])
    runs.epoch([log.append(BEAT, 0, None)])
    assert runs.frontiers[-1] == 10
    runs.epoch([log.append("graph", 1, progress(50), later_ms=2_000)])
    assert runs.frontiers[-1] == 50, "partition 0 gave way"
    runs.epoch([log.append("graph", 0, progress(60, 10, {20: 1, 55: 1})), log.append("graph", 0, edge(5, 55))])
    runs.epoch([log.append("graph", 0, edge(2, 20)), log.append("graph", 1, progress(90))])
    assert [(letter.reason, letter.offset) for letter in runs.letters] == [("late", 3)]
    assert runs.frontiers[-1] == 60
    assert runs.entered == {("edges", (1, 5), 55, 1): 1}


def test_equal_updates_of_two_partitions_or_sources_are_no_copies() -> None:
    runs, log = counted(partitions=2), Topics()
    for partition in (0, 1):
        log.append("graph", partition, progress(10, 0, {5: 2}))
        log.append("graph", partition, native([((1, 2), 5, 1)], input="edges"))
        log.append("graph", partition, native([((1,), 5, 1)], input="roots"))
    runs.epoch(log.records)
    runs.epoch([log.append(BEAT, 0, None)])
    assert runs.entered == {("edges", (1, 2), 5, 1): 2, ("roots", (1,), 5, 1): 2}
    assert runs.frontiers[-1] == 10


def test_a_state_with_counts_that_are_met_stays_small() -> None:
    runs, log = counted(), Topics()
    for k in range(50):
        runs.epoch(
            [
                log.append("graph", 0, edge(k, 10 * k)),
                log.append("graph", 0, progress(10 * k + 10, 10 * k, {10 * k: 1})),
            ]
        )
        assert len(json.dumps(runs.state)) < 400
    assert sum(runs.entered.values()) == 50


@settings(max_examples=max(50, settings().max_examples // 2))
@given(st.integers(0, 2**32), st.integers(0, 25), st.integers(1, 3), st.integers(1, 2))
def test_any_order_any_copies_any_cuts(seed: int, size: int, workers: int, partitions: int) -> None:
    """Every message at least once, shuffled: every update enters once, at its time, and never before all are here."""
    rng = random.Random(seed)
    log, expected = Topics(), Counter[Entry]()
    end, messages = 60, []
    for partition in range(partitions):
        updates = {
            ("edges", (rng.randrange(3), rng.randrange(3)), rng.randrange(end), rng.choice([1, -1]))
            for _ in range(size)
        } | {("roots", (rng.randrange(3),), rng.randrange(end), 1) for _ in range(size // 3)}
        expected.update(updates)
        for name, row, time, diff in sorted(updates):
            messages.append((partition, native([(row, time, diff)], input=name)))
        bounds = [0, *sorted(rng.sample(range(1, end), rng.randrange(4))), end]
        here = Counter(time for _, _, time, _ in updates)
        for lower, upper in itertools.pairwise(bounds):
            counts = {time: number for time, number in here.items() if lower <= time < upper}
            messages.append((partition, progress(upper, lower, counts)))
    messages += rng.choices(messages, k=rng.randrange(len(messages) + 1))
    rng.shuffle(messages)
    runs = counted(workers, partitions)
    for partition, message in messages:
        log.append("graph", partition, message)
        if rng.random() < 0.3:
            consumed = sum(sum(own.values()) for own in runs.offsets.values())
            runs.epoch(log.records[consumed:], rng)
            assert all(
                runs.entered[entry] == number for entry, number in expected.items() if entry[2] < runs.frontiers[-1]
            )
    consumed = sum(sum(own.values()) for own in runs.offsets.values())
    runs.epoch(log.records[consumed:], rng)
    for _ in range(2):
        runs.epoch([log.append(BEAT, 0, None)], rng)
    assert runs.entered == expected
    assert runs.letters == []
    assert runs.frontiers == sorted(runs.frontiers)
    assert runs.frontiers[-1] == end
    assert runs.waiting == 0
