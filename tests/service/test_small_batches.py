"""Small batches: what the driver reads of a micro-batch is what Spark's tasks would have read, column by column."""

import json
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka import KafkaProducer, TopicPartition

from vernier.service.coordinator import small_batches
from vernier.service.coordinator.small_batches import SmallBatches
from vernier.service.ingest.records import SCHEMA
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.topics import create_topics

SCRIPT = textwrap.dedent("""
    import json, sys, threading
    from pathlib import Path
    import pyarrow as pa
    from vernier.service.config.settings import load
    from vernier.service.coordinator.session import Stage, start_session
    from vernier.service.coordinator.streaming_query import Query
    from vernier.service.ingest.config import IngestionConfig

    folder, bootstrap, topics = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    settings = load(None, {"workers": 2, "kafka.bootstrap": bootstrap}, {}).settings
    spark = start_session(settings, "small", folder)

    def keep(batches):
        from pyspark import TaskContext
        batches = list(batches)
        if batches:
            table = pa.Table.from_batches(batches).drop_columns("timestampType")  # no worker reads it
            place = folder / f"{TaskContext.get().partitionId()}.arrow"
            with pa.OSFile(str(place), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
                file.write_table(table)
        return iter(())

    stage, begun = Stage(spark, keep, 2), threading.Event()
    ours, theirs, told = {}, {}, {"types": set(), "apart": True, "twice": False}

    def epoch(frame, number):
        begun.wait()
        for place in folder.glob("*.arrow"):
            place.unlink()
        stage.run(frame, "a")
        read = [pa.ipc.open_file(pa.OSFile(str(one))).read_all() for one in folder.glob("*.arrow")]
        query.small.look()
        rows = query.small.read(2, {})
        got = [pa.ipc.open_stream(one).read_all() for one in rows or () if one]
        apart = [set(zip(own["topic"].to_pylist(), own["partition"].to_pylist())) for own in got]
        told["apart"] &= len(apart) < 2 or not apart[0] & apart[1]
        for seen, tables in ((theirs, read), (ours, got)):
            for table in tables:
                told["types"] |= {(one.name, str(one.type).replace("Etc/", "").replace("element", "item"))
                                  for one in table.schema}
                for row in table.to_pylist():
                    place = row["topic"], row["partition"], row["offset"]
                    told["twice"] |= place in seen
                    seen[place] = row
        print(json.dumps(sum(map(len, read))), flush=True)

    query = Query(spark, settings, IngestionConfig({}, partitions=topics), {}, None, epoch, folder)
    begun.set()
    sys.stdin.read()
    told |= {"types": len(told["types"]), "ours": len(ours), "theirs": len(theirs)}
    print(json.dumps(told | {"same": all(theirs[place] == row for place, row in ours.items())}), flush=True)
    query.close()
    spark.stop()
""")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_driver_reads_what_tasks_read(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topics = {"small-a": 2, "small-b": 1}
    create_topics(broker.bootstrap, topics)
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path), broker.bootstrap, json.dumps(topics)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as reader:
        plain = KafkaProducer(bootstrap_servers=broker.bootstrap)
        ours = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="small", compression_type="gzip")
        ours.init_transactions()
        assert reader.stdout is not None
        assert reader.stdin is not None

        def expect(messages: int) -> None:
            """Wait until Spark has read this many messages more."""
            plain.flush()
            while messages > 0:
                messages -= int(reader.stdout.readline())

        plain.send("small-a", b"first", partition=0)
        expect(1)
        for at in range(5):
            plain.send(
                "small-a", b"%d" % at, key=b"k", partition=at % 2, headers=[("h", b"x"), ("h", b""), ("i", b"\xff")]
            )
        plain.send("small-b", None, key="ä".encode(), timestamp_ms=1)
        plain.send("small-b", b"", key=None, timestamp_ms=1_999_999_999_999)
        expect(7)
        for keep in (True, False, True):
            ours.begin_transaction()
            ours.send("small-a", b"in a transaction", partition=1)
            ours.send("small-b", b"%d" % keep)
            ours.flush()
            (ours.commit_transaction if keep else ours.abort_transaction)()
            plain.send("small-a", b"beside it", partition=0)
            expect(3 if keep else 1)
        for at in range(300):
            plain.send("small-b", b"many %d" % at)
        expect(300)
        plain.send("small-a", b"large" * 200_000, partition=0)
        plain.send("small-a", b"small", partition=0)
        expect(2)
        reader.stdin.close()
        told = json.loads(reader.stdout.read().splitlines()[-1])
        plain.close()
        ours.close()
    assert told["same"], told
    assert told["types"] == len(SCHEMA.names)
    assert told["apart"]
    assert not told["twice"]
    # Spark reads the first micro-batch, and perhaps two more while the connection is made.
    assert told["ours"] > told["theirs"] - 20 > 290, told


class Source:
    """A topic of two partitions, and the ends of micro-batches that a test chooses."""

    def __init__(self, broker: EmbeddedBroker, topic: str, most: int = 100) -> None:
        self.limit: int | None = None
        create_topics(broker.bootstrap, {topic: 2})
        self.topic = topic
        self.committed: Mapping[str, Mapping[int, int]] = {}
        self.ends: Mapping[str, Mapping[int, int]] = {topic: {0: 0, 1: 0}}
        self.producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        client = {"bootstrap_servers": broker.bootstrap}
        self.small = SmallBatches(client, lambda: self.ends, most, lambda: self.limit)

    def send(self, *values: bytes, partition: int = 0) -> None:
        """Send messages and wait until they are there."""
        for value in values:
            self.producer.send(self.topic, value, partition=partition)
        self.producer.flush()

    def batch(self, first: int, second: int, workers: int = 2) -> list[list[bytes]] | None:
        """What is read of the micro-batch that ends at these offsets, by worker."""
        self.ends = {self.topic: {0: first, 1: second}}
        self.small.look()
        rows = self.small.read(workers, self.committed)
        return None if rows is None else [values(one) for one in rows]

    def more(self, seconds: float = 0.5) -> list[list[bytes]] | None:
        """What has come after that."""
        rows = self.small.more(2, seconds)
        return None if rows is None else [values(one) for one in rows]

    def arrived(self, first: int, second: int) -> None:
        """Wait until the reader has what comes before these offsets."""
        reader = self.small._reader
        assert reader is not None
        parts = [TopicPartition(self.topic, part) for part in (0, 1)]
        while [reader.end(part) for part in parts] != [first, second]:
            time.sleep(0.001)

    def close(self) -> None:
        """Close the connections."""
        self.producer.close()
        self.small.close()


def values(stream: bytes) -> list[bytes]:
    """The messages in a stream of Arrow's."""
    if not stream:
        return []
    table = pa.ipc.open_stream(stream).read_all()
    assert table.schema == SCHEMA
    return list(table["value"].to_pylist())


@pytest.fixture
def source(broker: EmbeddedBroker, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    """A source whose connection may take its time."""
    monkeypatch.setattr(small_batches, "READ_SECONDS", 20)
    made = Source(broker, f"small-{request.node.name}".replace("[", "-").replace("]", ""))
    yield made
    made.close()


def test_messages_beyond_a_micro_batch_come_with_it(source: Source) -> None:
    assert source.batch(0, 0) is None  # where it begins is not known
    assert source.more() is None
    assert source.batch(0, 0) == []  # now there is a connection
    source.send(b"a", b"b", b"c")
    source.send(b"x", partition=1)
    source.arrived(3, 1)
    assert source.batch(1, 0) == [[b"a", b"b", b"c"], [b"x"]]
    assert source.more(0.01) == []
    source.send(b"d")
    source.send(b"y", partition=1)
    got: list[list[bytes]] = [[], []]
    while got != [[b"d"], [b"y"]]:
        for own, more in zip(got, source.more() or [[], []]):
            own += more
    # Spark comes to what is processed already.
    assert source.batch(3, 1) == []
    source.send(b"e")
    assert source.batch(5, 2, workers=1) == [[b"e"]]


def test_no_more_than_the_maximum_is_read_at_once(source: Source) -> None:
    source.batch(0, 0)
    source.send(*(b"%d" % at for at in range(150)))
    source.send(*(b"%d" % at for at in range(30)), partition=1)
    got: list[list[bytes]] = []
    for at in (70, 140, 150):
        rows = source.batch(at, 20)
        assert rows is not None
        got.append([value for own in rows for value in own])
    while (rows := source.more()) and any(rows):
        got.append([value for own in rows for value in own])
    assert max(map(len, got)) <= 100
    assert sum(map(len, got)) == 180
    first = [value for own in got for value in own]
    assert sorted(set(first), key=int) == [b"%d" % at for at in range(150)]


def test_what_an_epoch_did_not_commit_is_read_again(source: Source) -> None:
    source.batch(0, 0)
    source.send(b"a", b"b", b"c")
    assert source.batch(2, 0) == [[b"a", b"b", b"c"], []]
    source.small.rewind()
    assert source.more() is None  # Spark's turn
    source.committed = {source.topic: {0: 2}}
    assert source.batch(3, 0) == [[b"c"], []]


def test_micro_batches_that_spark_read_are_skipped(source: Source) -> None:
    source.batch(0, 0)
    source.send(b"0")
    assert source.batch(1, 0) == [[b"0"], []]
    source.send(*(b"%d" % at for at in range(1, 202)))
    assert source.batch(202, 0) is None  # too many
    assert source.more() is None
    source.send(b"202", b"203")
    assert source.batch(204, 0) == [[b"202", b"203"], []]
    assert source.batch(204, 0) == []


def test_what_comes_in_numbers_is_left_to_spark(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    source.batch(0, 0)
    source.send(b"0")
    assert source.batch(1, 0) == [[b"0"], []]
    source.send(*(b"%d" % at for at in range(1, 202)))
    while (rows := source.more()) is not None:
        assert sum(map(len, rows)) < 100  # the others had not come yet
    source.committed = {source.topic: {0: 202}}
    source.batch(202, 0)
    source.send(*(b"%d" % at for at in range(6)))
    monkeypatch.setattr(small_batches, "AHEAD", 5)
    assert source.batch(203, 0) == [[b"%d" % at for at in range(6)], []]
    assert source.more() == []  # five beyond Spark
    source.send(b"6")
    while (rows := source.more()) == []:
        pass
    assert rows == [[b"6"], []]
    assert source.more() is None  # six


@pytest.mark.parametrize("prefetches", [False, True])
def test_full_epochs_follow_one_another_if_the_rate_limit_allows_no_larger_ones(
    source: Source, monkeypatch: pytest.MonkeyPatch, prefetches: bool
) -> None:
    monkeypatch.setattr(small_batches, "DECODING_SECONDS", 0.001)
    source.limit = 30
    source.batch(0, 0)
    source.send(*(b"%d" % at for at in range(100)))
    source.send(*(b"%d" % at for at in range(200)), partition=1)
    rows = source.batch(10, 20)
    got: list[list[bytes]] = [[], []]
    while rows and any(rows):
        assert sum(map(len, rows)) <= 30
        assert len(rows[1]) == 2 * len(rows[0])  # each partition advances by as large a part
        for own, more in zip(got, rows):
            own += more
        assert source.small.ahead == max(0, sum(map(len, got)) - 30)
        if prefetches:
            source.small.prefetch(2, threading.Event())
        rows = source.more()
    assert got == [[b"%d" % at for at in range(100)], [b"%d" % at for at in range(200)]]
    source.committed = {source.topic: {0: 100, 1: 200}}
    assert source.batch(50, 100) == []
    assert source.small.ahead == 150
    source.small.rewind()
    assert source.small.ahead == 150  # the manifest has them
    assert source.batch(100, 200) == []
    assert source.small.ahead == 0


def test_streams_are_made_while_workers_make_the_epoch_before(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_batches, "DECODING_SECONDS", 0.001)
    made: list[int] = []

    def counted(records: list[Any]) -> bytes:
        made.append(len(records))
        return small_batches_to_arrow(records)

    small_batches_to_arrow = small_batches.to_arrow
    monkeypatch.setattr(small_batches, "to_arrow", counted)
    source.limit = 10
    source.batch(0, 0)
    source.send(*(b"%d" % at for at in range(60)))
    assert source.batch(10, 0) == [[b"%d" % at for at in range(10)], []]

    def prefetched() -> int:
        made.clear()
        source.small.prefetch(2, threading.Event())
        before = len(made)
        made.clear()
        return before

    assert prefetched() == 1
    source.send(*(b"%d" % at for at in range(60, 70)))  # what comes meanwhile changes nothing
    assert source.more() == [[b"%d" % at for at in range(10, 20)], []]
    assert made == []
    # Another limit, an epoch that failed, or a micro-batch of Spark's: what was made is not used.
    assert prefetched() == 1
    source.limit = 5
    assert source.more() == [[b"%d" % at for at in range(20, 25)], []]
    assert made == [5]
    assert prefetched() == 1
    source.committed = {source.topic: {0: 20}}
    source.small.rewind()
    assert source.batch(25, 0) == [[b"%d" % at for at in range(20, 25)], []]
    assert prefetched() == 1
    source.committed = {source.topic: {0: 25}}
    assert source.batch(30, 0, workers=1) == [[b"%d" % at for at in range(25, 30)]]
    assert made == [5]
    ended = threading.Event()
    ended.set()
    made.clear()
    source.small.prefetch(2, ended)
    assert made == []


def test_large_messages_are_left_to_spark(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_batches, "LARGEST_BYTES", 50)
    source.batch(0, 0)
    source.send(b"a", *([b"b" * 20] * 3))
    assert source.batch(1, 0) == [[b"a"], []]  # without what comes after it
    while (rows := source.more()) is not None:
        assert rows == []
    monkeypatch.setattr(small_batches, "AHEAD_BYTES", 10)
    source.committed = {source.topic: {0: 4}}
    source.send(b"c" * 11)
    assert source.batch(5, 0) == [[b"c" * 11], []]
    assert source.more() is None  # eleven bytes since Spark's micro-batch


def test_an_idle_wait_ends_with_the_first_message(source: Source) -> None:
    source.batch(0, 0)
    source.send(b"0")
    assert source.batch(1, 0) == [[b"0"], []]
    later = threading.Timer(0.3, source.send, [b"1"])
    later.start()
    began = time.monotonic()
    assert source.more(60) == [[b"1"], []]
    assert time.monotonic() - began < 30
    later.join()


def test_another_partition_has_no_known_beginning(source: Source, broker: EmbeddedBroker) -> None:
    source.batch(0, 0)
    source.send(b"a", b"b")
    source.ends = {source.topic: {0: 1}}
    source.small.look()
    assert source.small.read(2, {}) is None
    assert source.batch(2, 0) is None
    source.send(b"c")
    assert source.batch(3, 0) == [[b"c"], []]


def test_after_a_failure_spark_reads_for_a_while(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    source.batch(0, 0)
    source.send(b"a", b"b", b"c" * 10, b"d", b"e")
    monkeypatch.setattr(small_batches, "LARGEST_BYTES", 5)
    assert source.batch(4, 0) is None  # too large
    monkeypatch.undo()
    monkeypatch.setattr(small_batches, "READ_SECONDS", 20)
    assert source.batch(4, 0) is None
    time.sleep(2 * small_batches.REST_SECONDS[0])
    assert source.batch(5, 0) == [[b"e"], []]


def test_messages_that_are_gone_are_left_to_spark(source: Source, broker: EmbeddedBroker) -> None:
    from kafka.admin import KafkaAdminClient

    source.batch(0, 0)
    source.send(b"a", b"b", b"c")
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.delete_records({TopicPartition(source.topic, 0): 2})
    admin.close()
    assert source.batch(3, 0) is None


def test_none_are_read_if_the_setting_says_so(broker: EmbeddedBroker) -> None:
    source = Source(broker, "small-none", most=0)
    source.send(b"a")
    assert source.batch(0, 0) is None
    assert source.batch(1, 0) is None
    source.close()
