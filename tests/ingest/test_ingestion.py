"""Ingestion's three steps: what enters, waits, is late or refused, and how far the frontier moves."""

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from tests.ingest.log import EDGES, ROOTS, SCHEMA, Record, Service, Topics, batch, native, progress
from vernier.service.ingest.config import IngestionConfig, SourceConfig, SourceMisfit
from vernier.service.ingest.ingestion import Ingestion
from vernier.service.ingest.partition_report import PartitionTwice
from vernier.storage.updates import CLOSED, MIN_TIME

MS = 1_000_000
BEAT = "app.heartbeat"


def service(workers: int = 1, partitions: int = 1, slack_ms: int = 1, limit: int = 1 << 20, **edges: Any) -> Service:
    """A service with one source, edges."""
    config = IngestionConfig(
        {"edges": SourceConfig("edges", **edges)}, {"edges": partitions}, BEAT, slack_ms, max_message_bytes=limit
    )
    return Service(Ingestion({"edges": EDGES}, config), workers)


def event(**more: Any) -> Service:
    return service(clock="event", **more)


def test_nothing_known_nothing_moves() -> None:
    runs = event(workers=2)
    step, admitted = runs.epoch([])
    assert (step.lower, step.upper, step.state) == (MIN_TIME, MIN_TIME, {"frontier": MIN_TIME, "topics": {}})
    assert all(len(one.inputs["edges"]) == 0 for one in admitted)


def test_the_interval_decides_what_enters_and_what_waits() -> None:
    runs, log = event(), Topics()
    log.append("edges", 0, native([((1, 2), 5, 1), ((1, 3), 7, 2), ((1, 4), 9, -1)]))
    log.append("edges", 0, progress(7))
    step, _ = runs.epoch(log.records)
    assert (step.lower, step.upper) == (MIN_TIME, 7)
    assert runs.entered == {("edges", (1, 2), 5, 1): 1}
    assert runs.waiting == 2
    step, (admitted,) = runs.epoch([log.append("edges", 0, progress(9))])
    assert (step.lower, step.upper) == (7, 9)
    assert ("edges", (1, 3), 7, 2) in runs.entered
    assert admitted.held["edges"][0].ref == "stored", "a held batch is not rewritten to release a part of it"
    runs.epoch([log.append("edges", 0, progress(None))])
    assert runs.frontiers[-1] == CLOSED
    assert runs.waiting == 0
    assert sum(runs.entered.values()) == 3
    assert runs.letters == []


def test_records_that_were_consumed_are_skipped() -> None:
    runs, log = event(), Topics()
    first = log.append("edges", 0, native([((1, 2), 5, 1)]))
    runs.epoch([first])
    second = log.append("edges", 0, native([((1, 3), 5, 1)]))
    runs.epoch([first, second, log.append("edges", 0, progress(9)), second])
    assert sum(runs.entered.values()) == 2
    assert runs.offsets == {"edges": {"0": 3}}
    decoded = runs.ingestion.decode([batch([first])], {"edges": {0: 3}}, runs.state, {})
    assert decoded.repeated == 1
    assert decoded.facts.partitions == {}


def test_a_late_update_of_a_batch_is_refused_alone_with_its_message_once() -> None:
    runs, log = event(), Topics()
    runs.epoch([log.append("edges", 0, progress(10))])
    late = log.append(
        "edges", 0, native([((1, 2), 3, 1), ((1, 3), 10, 1), ((1, 4), 9, 1)]), key=b"k", headers=(("h", None),)
    )
    runs.epoch([late, log.append("edges", 0, progress(20))])
    assert runs.entered == {("edges", (1, 3), 10, 1): 1}
    (letter,) = runs.letters
    assert letter.reason == "late"
    assert letter.detail == "2 of 3 updates before the frontier 10: update 0 at 3, update 2 at 9"
    assert (letter.topic, letter.partition, letter.offset, letter.frontier) == ("edges", 0, 1, 10)
    assert (letter.key, letter.value, letter.headers) == (late.key, late.value, late.headers)
    assert letter.dlq_topic == "edges.dlq"
    assert dict(letter.kafka_headers()) == {
        "h": None, "vernier-reason": b"late", "vernier-detail": letter.detail.encode(), "vernier-topic": b"edges",
        "vernier-partition": b"0", "vernier-offset": b"1", "vernier-frontier": b"10",
    }  # fmt: skip
    assert runs.counters["late_rejected"] == 2
    assert runs.counters["refused late"] == 1
    assert runs.counters["inserted"] == len(runs.entered)


def test_many_late_updates_are_counted_rather_than_all_named() -> None:
    runs, log = event(), Topics()
    runs.epoch([log.append("edges", 0, progress(100))])
    runs.epoch([log.append("edges", 0, native([((1, k), k, 1) for k in range(50)]))])
    assert "50 of 50 updates" in runs.letters[0].detail
    assert runs.letters[0].detail.endswith("update 4 at 4 and 45 more")


def test_late_updates_can_be_advanced_to_the_frontier() -> None:
    runs, log = event(on_late="advance"), Topics()
    runs.epoch([log.append("edges", 0, progress(10))])
    runs.epoch([log.append("edges", 0, native([((1, 2), 3, 1)])), log.append("edges", 0, progress(20))])
    assert runs.entered == {("edges", (1, 2), 10, 1): 1}
    assert runs.letters == []
    assert runs.counters["late_advanced"] == 1


def test_a_message_with_a_bad_update_is_refused_whole() -> None:
    runs, log = event(), Topics()
    bad = log.append("edges", 0, native([((1, 2), 5, 1), ((1,), 6, 1)]))
    runs.epoch([bad, log.append("edges", 0, progress(10))])
    assert not runs.entered
    assert [(one.reason, one.value, one.frontier) for one in runs.letters] == [("schema", bad.value, MIN_TIME)]


def test_unknown_topics_and_long_messages_are_refused() -> None:
    runs, log = event(limit=10_000_000 - 1), Topics()
    log.append("nodes", 3, b"x")
    long = log.append("edges", 0, b"[" * 10_000_000)
    log.append("edges", 0, native([((1, 2), 5, 1)]))
    log.append("edges", 0, progress(10))
    runs.epoch(log.records)
    assert [(one.reason, one.topic, one.source, one.dlq_topic) for one in runs.letters] == [
        ("decode", "edges", "edges", "edges.dlq"),
        ("unknown_source", "nodes", None, "nodes.dlq"),
    ]
    assert runs.letters[0].detail == "the message has 10000000 bytes, more than max_message_bytes, 9999999"
    assert runs.letters[0].value == long.value
    assert sum(runs.entered.values()) == 1
    assert runs.offsets["nodes"] == {"3": 1}


def test_an_event_clock_needs_times() -> None:
    runs, log = event(format="json"), Topics()
    log.append("edges", 0, '{"data":[1,2]}')
    log.append("edges", 0, '{"data":[1,3],"time":4}')
    log.append("edges", 0, '{"resolved":"10"}')
    runs.epoch(log.records)
    assert runs.entered == {("edges", (1, 3), 4, 1): 1}
    assert [(one.offset, one.reason) for one in runs.letters] == [(0, "decode")]
    assert runs.letters[0].detail == "the message has no time, and source edges has an event clock"


def test_arrival_stamps_depend_on_the_log_alone() -> None:
    runs, log = service(format="json"), Topics()
    for k in range(3):
        log.append("edges", 0, f"[1,{k}]")
    log.append("edges", 0, "[1]", later_ms=5)
    log.append("edges", 0, "[1,3]")
    runs.epoch(log.records)
    assert [(time, words[1]) for _, words, time, _ in sorted(runs.entered, key=lambda entry: entry[2])] == [
        (1_000 * MS, 0), (1_000 * MS + 1, 1), (1_000 * MS + 2, 2), (1_005 * MS, 3)
    ]  # fmt: skip
    assert runs.frontiers == [1_005 * MS + 1]
    log.ms = 3
    runs.epoch([log.append("edges", 0, "[1,4]")])
    assert runs.frontiers[-1] == 1_005 * MS + 2, "the broker's clock jumped back, stamps did not"
    assert runs.counters["skewed"] == 0


def test_an_arrival_partition_without_records_follows_the_broker() -> None:
    runs, log = service(format="json", partitions=2), Topics()
    log.append("edges", 0, "[1,2]")
    runs.epoch(log.records)
    assert runs.frontiers == [999 * MS]
    assert runs.waiting == 1
    runs.epoch([log.append(BEAT, 0, None, later_ms=50)])
    assert runs.frontiers[-1] == 1_049 * MS
    assert runs.entered == {("edges", (1, 2), 1_000 * MS, 1): 1}
    log.ms = 900
    runs.epoch([log.append(BEAT, 0, None)])
    assert runs.frontiers[-1] == 1_049 * MS
    runs.epoch([log.append("edges", 1, "[7,7]"), log.append(BEAT, 0, None, later_ms=1_000)])
    runs.epoch([log.append(BEAT, 0, None, later_ms=1_000)])
    assert runs.counters["skewed"] == 1
    assert ("edges", (7, 7), 1_049 * MS, 1) in runs.entered, "a skewed arrival is advanced, never refused"
    assert runs.letters == []


def test_updates_share_times_on_all_workers_alike() -> None:
    runs, log = event(records=10, workers=2, partitions=2), Topics()
    runs.epoch([log.append("edges", p, progress(100)) for p in range(2)])
    sent = [(k % 2, 100 + k) for k in range(40)]
    runs.epoch([
        *(log.append("edges", p, native([((at, 0), at, 1)])) for p, at in sent),
        *(log.append("edges", p, progress(140)) for p in range(2)),
    ])  # fmt: skip
    assert {row[0]: time for _, row, time, _ in runs.entered} == {at: 109 + (at - 100) // 10 * 10 for _, at in sent}


def test_rounding_to_milliseconds_rounds_up() -> None:
    runs, log = event(rounding="millisecond"), Topics()
    log.append("edges", 0, native([((1, 2), 1, 1), ((1, 3), MS, 1), ((1, 4), MS + 1, 1)]))
    log.append("edges", 0, progress(MS + 5))
    runs.epoch(log.records)
    assert runs.entered == {("edges", (1, 2), MS, 1): 1, ("edges", (1, 3), MS, 1): 1}
    runs.epoch([log.append("edges", 0, progress(3 * MS))])
    assert ("edges", (1, 4), 2 * MS, 1) in runs.entered


def test_partitions_that_never_spoke_hold_the_frontier_until_they_are_idle() -> None:
    runs, log = event(partitions=2, idle_timeout_ms=1_000), Topics()
    runs.epoch([log.append("edges", 0, native([((1, 2), 5, 1)])), log.append("edges", 0, progress(10))])
    assert runs.frontiers == [MIN_TIME]
    runs.epoch([log.append("edges", 0, progress(20), later_ms=1_000)])
    assert runs.frontiers[-1] == MIN_TIME
    step, _ = runs.epoch([log.append("edges", 0, progress(30), later_ms=1)])
    assert runs.frontiers[-1] == 30
    assert step.frontiers == {"edges": {"0": 30, "1": None}}
    assert runs.entered == {("edges", (1, 2), 5, 1): 1}
    runs.epoch([log.append("edges", 1, native([((3, 4), 7, 1), ((3, 4), 40, 1)]))])
    assert [one.reason for one in runs.letters] == ["late"]
    assert runs.frontiers[-1] == 30, "it holds the frontier again, which never goes back"
    runs.epoch([log.append("edges", 0, progress(50)), log.append("edges", 1, progress(45))])
    assert runs.frontiers[-1] == 45
    assert ("edges", (3, 4), 40, 1) in runs.entered


def test_when_all_are_idle_the_frontier_stays() -> None:
    runs, log = event(idle_timeout_ms=10), Topics()
    runs.epoch([log.append("edges", 0, progress(10))])
    runs.epoch([log.append(BEAT, 0, b"any", later_ms=1_000)])
    assert runs.frontiers == [10, 10]


def test_the_frontier_is_the_meet_over_sources() -> None:
    config = IngestionConfig(
        {"edges": SourceConfig("edges", clock="event"), "roots": SourceConfig("roots", "json", "arrival")},
        heartbeat_topic=BEAT,
    )
    runs, log = Service(Ingestion({"edges": EDGES, "roots": ROOTS}, config), 2), Topics()
    log.append("roots", 0, "[7]")
    log.append("edges", 0, progress(1_000 * MS))
    runs.epoch(log.records)
    assert runs.frontiers == [1_000 * MS]
    runs.epoch([log.append("edges", 0, progress(2_000 * MS), later_ms=100)])
    assert runs.frontiers[-1] == 1_099 * MS
    assert runs.entered == {("roots", (7,), 1_000 * MS, 1): 1}


def test_sources_may_share_a_topic() -> None:
    shared = {"edges": SourceConfig("graph", "json", "event"), "roots": SourceConfig("graph", "json", "event")}
    runs, log = Service(Ingestion({"edges": EDGES, "roots": ROOTS}, IngestionConfig(shared))), Topics()
    log.append("graph", 0, '{"input":"roots","data":[7],"time":3}')
    log.append("graph", 0, '{"input":"edges","data":[1,2],"time":4,"diff":-1}')
    log.append("graph", 0, '{"input":"nodes","data":[1,2],"time":4}')
    log.append("graph", 0, '{"input":"roots","data":[8],"time":2}')
    log.append("graph", 0, "{}")
    log.append("graph", 0, '{"resolved":"10"}')
    runs.epoch(log.records)
    assert runs.entered == {("roots", (7,), 3, 1): 1, ("edges", (1, 2), 4, -1): 1, ("roots", (8,), 2, 1): 1}
    assert [(one.reason, one.offset, one.dlq_topic) for one in runs.letters] == [
        ("unknown_source", 2, "graph.dlq"), ("decode", 4, "graph.dlq")
    ]  # fmt: skip
    assert runs.counters["bytes"] > 0
    assert (runs.counters["inserted"], runs.counters["deleted"]) == (2, 1)


@pytest.mark.parametrize(
    ("edges", "roots", "problem"),
    [
        (SourceConfig("g", "json"), SourceConfig("g", "vernier"), "share topic g"),
        (SourceConfig("g", clock="event"), SourceConfig("g", clock="arrival"), "share topic g"),
        (SourceConfig("g", lateness_ns=1), SourceConfig("g", lateness_ns=2), "must be the same"),
        (SourceConfig("g", "thrift"), SourceConfig("h"), "unknown format 'thrift'"),
        (SourceConfig("g"), SourceConfig(BEAT), "the topic of heartbeats"),
    ],
)
def test_settings_that_cannot_be(edges: SourceConfig, roots: SourceConfig, problem: str) -> None:
    with pytest.raises(SourceMisfit, match=problem):
        Ingestion(
            {"edges": EDGES, "roots": ROOTS}, IngestionConfig({"edges": edges, "roots": roots}, heartbeat_topic=BEAT)
        )


def test_a_source_without_settings_is_refused() -> None:
    with pytest.raises(SourceMisfit, match="source edges has no settings"):
        Ingestion({"edges": EDGES}, IngestionConfig({}))


def test_one_partition_on_two_workers_is_an_error() -> None:
    runs, log = event(), Topics()
    facts = [runs.ingestion.decode([batch([log.append("edges", 0, progress(10))])], {}, {}, {}).facts for _ in range(2)]
    with pytest.raises(PartitionTwice, match="partition 0 of topic edges"):
        runs.ingestion.advance({}, facts)


def test_rows_as_spark_has_them() -> None:
    """Timestamps instead of integers, no headers column, large types, dictionaries, batches of no rows."""
    ingestion = service(format="json").ingestion
    rows = batch([Record("edges", 0, 0, 1_700_000_000_123, b"[1,2]")])
    columns: dict[str, pa.Array] = dict(zip(rows.schema.names, rows.columns))
    del columns["headers"]
    columns["timestamp"] = pa.array([1_700_000_000_123_000], pa.timestamp("us", tz="UTC"))
    columns["value"] = columns["value"].cast(pa.large_binary())
    columns["topic"] = columns["topic"].dictionary_encode()
    empty = pa.RecordBatch.from_pylist([], schema=pa.record_batch(columns).schema)
    decoded = ingestion.decode([empty, pa.record_batch(columns), empty], {}, {}, {})
    admitted = ingestion.admit(decoded, {}, ingestion.advance({}, [decoded.facts]))
    assert admitted.inputs["edges"].time.tolist() == [1_700_000_000_123 * MS]
    assert admitted.received[0].tolist() == [1_700_000_000_123]
    assert ingestion.decode([pa.RecordBatch.from_pylist([], schema=SCHEMA)], {}, {}, {}).facts.partitions == {}


def test_the_state_stays_small_and_held_batches_few() -> None:
    """Constant for each partition; held batches grow with the logarithm of what waits."""
    runs, log = event(partitions=4), Topics()
    rng = random.Random(7)
    for k in range(200):
        fresh = [log.append("edges", p, native([((k, p), 1_000 + rng.randrange(9_000), 1)]), 1) for p in range(4)]
        runs.epoch(fresh)
        assert len(json.dumps(runs.state)) < 500
    assert sum(len(batches) for shard in runs.shards for batches in shard.values()) <= 10
    for upper in range(1_000, 10_001, 500):
        runs.epoch([log.append("edges", p, progress(upper)) for p in range(4)])
    assert sum(runs.entered.values()) == 800
    assert runs.waiting == 0
    assert not any(shard["edges"] for shard in runs.shards)
    assert runs.frontiers == sorted(runs.frontiers)
