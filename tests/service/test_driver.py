"""The driver for real: Spark, a broker, worker processes; epochs that survive what dies, and letters sent once."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from service import trouble
from service.broker import EmbeddedBroker, create_topics
from service.leash import command
from service.programs import Program, Registry
from service.reader import Reader
from storage.blob import LocalBlob
from storage.place import Place
from storage.updates import MIN_TIME

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

PATIENCE = 240
PROGRAM = """
import vernier as vn

class Pair(vn.Schema):
    key: vn.Int64
    value: vn.Int64

app = vn.App("sums", retain="1h")
pairs = app.source("pairs", Pair)
app.view("sums", pairs.group_by("key").agg(total=vn.sum("value"), n=vn.count()), key=["key"])
"""
CHECKED = PROGRAM.replace(
    "app = ",
    """
@vn.udf(returns=vn.Int64)
def checked(values):
    if (values == 13).any():
        raise ValueError("unlucky")
    return values

app = """,
).replace("pairs.group_by", 'pairs.with_columns(value=checked(vn.col("value"))).group_by')
TOPS = PROGRAM.replace('"sums"', '"tops"').replace('total=vn.sum("value"), n=vn.count()', 'high=vn.max("value")')


class Service:
    """A driver process over a topic of two partitions, and what it should answer."""

    def __init__(self, folder: Path, broker: EmbeddedBroker, topic: str) -> None:
        self.folder, self.topic, self.broker = folder, topic, broker
        (folder / "program.py").write_text(PROGRAM, "utf-8")
        create_topics(broker.bootstrap, {topic: 2})
        self.producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", max_request_size=32 << 20)
        self.totals: Counter[int] = Counter()
        self.time = 1_000
        self.process: subprocess.Popen[bytes] | None = None
        self.reader = Reader(folder / "state")

    def start(self, **more: object) -> None:
        """Start the driver; `more` are settings, with __ for dots."""
        settings: dict[str, object] = {
            "program": self.folder / "program.py",
            "workers": 2,
            "state.path": self.folder / "state",
            "kafka.bootstrap": self.broker.bootstrap,
            "sources.pairs.topic": self.topic,
            "sources.pairs.clock": "event",
        }
        settings |= {key.replace("__", "."): value for key, value in more.items()}
        flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                command("service.driver", flags), stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def stop(self) -> int:
        """Ask the driver to stop; its status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        """End all."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.reader.close()
        self.producer.close(timeout=5)

    def send(self, *values: tuple[int, int], partition: int = 0) -> int:
        """Insert pairs, one a nanosecond, and promise both partitions' progress; the frontier that covers them."""
        updates = []
        for key, value in values:
            updates.append([[key, value], str(self.time), 1])
            self.totals[key] += value
            self.time += 1
        if updates:
            self.raw(json.dumps({"v": 1, "t": updates[0][1], "u": updates}).encode(), partition)
        for each in (0, 1):
            self.raw(json.dumps({"v": 1, "p": {"lower": ["0"], "upper": [str(self.time)]}}).encode(), each)
        return self.time

    def raw(self, value: bytes | None, partition: int = 0) -> None:
        """Send one message."""
        self.producer.send(self.topic, key=b"k", value=value, partition=partition).get(60)

    def wait(self, what: Callable[[], Any]) -> Any:
        """Wait until something holds; the driver must live meanwhile."""
        deadline = time.monotonic() + PATIENCE
        while not (answer := what()):
            alive = self.process is None or self.process.poll() is None
            log = (self.folder / "log").read_text("utf-8", "replace")[-3000:]
            assert alive, log
            assert time.monotonic() < deadline, log
            threading.Event().wait(0.05)
        return answer

    def final(self, frontier: int) -> None:
        """Wait until everything before `frontier` is answered, and compare."""
        self.wait(lambda: self.frontier() >= frontier)
        assert self.reader.snapshot is not None
        view = self.reader.snapshot.views["sums"]
        rows = view.rows_as_of(frontier - 1).flat().rows.tolist()
        assert {key: total for key, total, _ in rows} == dict(self.totals)

    def frontier(self) -> int:
        """How far the committed answers go."""
        self.reader.poll()
        return self.reader.snapshot.frontier if self.reader.snapshot else MIN_TIME

    def silence(self) -> float:
        """Seconds since the newest commit; the service's heartbeat makes two a second while it can."""
        self.reader.poll()
        assert self.reader.snapshot is not None
        return (time.time_ns() - self.reader.snapshot.manifest.committed_ns) / 1e9

    def workers(self) -> list[psutil.Process]:
        """Spark's Python workers, without the daemon that they are forked from."""
        assert self.process is not None
        found = []
        for one in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "service.daemon" in one.cmdline():
                    found.append(one)
        return [one for one in found if any(one.ppid() == other.pid for other in found)]


def test_programs_join_and_leave_a_running_service(service: Service) -> None:
    service.start()
    reached = service.send((1, 10), (2, 20), (1, 5))
    service.final(reached)
    registry = Registry(Place.of(service.folder / "state").open())

    def view(name: str, at: int) -> dict[int, list[int]]:
        snapshot = service.reader.snapshot
        assert snapshot is not None
        rows = snapshot.views[name].rows_as_of(at).flat().rows.tolist()
        return {row[0]: row[1:] for row in rows}

    def shown(name: str) -> bool:
        service.reader.poll()
        return service.reader.snapshot is not None and name in service.reader.snapshot.views

    before = service.reader.snapshot
    assert before is not None
    # What it needs is there already: it answers for what came before it, and reads nothing from the topic again.
    assert registry.add(Program("tops.py", TOPS)) == "tops"
    service.wait(lambda: shown("tops"))
    snapshot = service.reader.snapshot
    assert snapshot is not None
    assert view("tops", reached - 1) == {1: [10], 2: [20]}
    assert snapshot.manifest.traces.keys() > before.manifest.traces.keys()
    service.final(service.send((1, 100), (3, 7)))
    assert view("tops", service.time - 1) == {1: [100], 2: [20], 3: [7]}
    # One that asks for the past is set aside, and the others go on.
    registry.add(
        Program("late.py", TOPS.replace('"tops"', '"late"').replace("pairs.group_by", "pairs.delay(5).group_by"))
    )
    service.wait(lambda: "late" in registry.refused())
    assert "looks at when rows came" in registry.refused()["late"]
    assert [program.name for program in registry.joined()] == ["tops.py"]
    service.final(service.send((3, 1)))
    # A restart finds it again; when it leaves, its state goes.
    assert service.stop() == 0
    service.start()
    service.final(service.send((2, 50)))
    assert view("tops", service.time - 1) == {1: [100], 2: [50], 3: [7]}
    registry.remove("tops")
    service.wait(lambda: not shown("tops"))
    snapshot = service.reader.snapshot
    assert snapshot is not None
    assert snapshot.manifest.traces.keys() == before.manifest.traces.keys()
    service.final(service.send((4, 4)))
    assert service.stop() == 0


def test_a_program_that_fails_on_its_data_stops_nobody_from_reading(service: Service) -> None:
    (service.folder / "program.py").write_text(CHECKED, "utf-8")
    service.start()
    reached = service.send((1, 10))
    service.final(reached)
    state = service.folder / "state"
    assert trouble.read(LocalBlob(state)) is None
    # A function of the program raises: no epoch can be made of it, however often it is tried.
    service.send((2, 1), (3, 13))
    service.wait(lambda: (found := trouble.read(LocalBlob(state))) and found.tries >= 2)
    found = trouble.read(LocalBlob(state))
    assert found is not None
    assert found.program
    assert not found.stopped
    assert "the function checked failed" in found.reason
    assert "13" in found.reason
    assert "program.py:" in found.reason
    assert service.stop() == 0
    service.start(epoch__on_error="stop")
    assert service.process is not None
    assert service.process.wait(PATIENCE) == trouble.STOPPED
    found = trouble.read(LocalBlob(state))
    assert found is not None
    assert found.stopped
    assert "driver: epoch" in (service.folder / "log").read_text("utf-8")
    assert service.frontier() >= reached
    snapshot = service.reader.snapshot
    assert snapshot is not None
    rows = snapshot.views["sums"].rows_as_of(reached - 1).flat().rows.tolist()
    assert [row[:2] for row in rows] == [[1, 10]]


@pytest.fixture
def service(tmp_path: Path, broker: EmbeddedBroker) -> Iterator[Service]:
    """A service that was not started yet."""
    made = Service(tmp_path, broker, f"pairs-{os.getpid()}-{tmp_path.name}")
    yield made
    made.close()


def letters(broker: EmbeddedBroker, topic: str) -> list[Any]:
    """The dead letters that readers of committed messages see."""
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None, isolation_level="read_committed")
    try:
        where = TopicPartition(topic, 0)
        consumer.assign([where])
        consumer.seek_to_beginning(where)
        end, found = consumer.end_offsets([where])[where], []
        while consumer.position(where) < end:
            for records in consumer.poll(timeout_ms=1_000, max_records=10).values():
                found += records
        return found
    finally:
        consumer.close()


def test_nothing_is_lost_and_nothing_counted_twice(service: Service, broker: EmbeddedBroker) -> None:
    service.start()
    service.final(service.send((1, 10), (2, 20)))
    snapshot = service.reader.snapshot
    assert snapshot is not None
    assert {partition for source, partition in snapshot.stats.numbers["source_lag_messages"]} == {"0", "1"}
    assert snapshot.stats.numbers["source_event_delay_seconds"]["pairs",] > 1e9  # these times are of 1970
    # All in the other partition, then nothing but progress: Spark has fewer rows than workers.
    service.final(service.send((1, 1), partition=1))
    service.final(service.send())

    # A worker hangs, so that its epoch does, and is killed: the epoch is tried again.
    for number in range(2):
        service.wait(lambda: len(service.workers()) == 2)
        victim = service.workers()[number]
        victim.suspend()
        frontier = service.send(*[(key, number) for key in range(50)], partition=number)
        service.wait(lambda: service.silence() > 3)
        victim.kill()
        service.final(frontier)

    # What cannot be read goes to the dead letters, whatever its size, and the query goes on.
    bad: list[bytes | None] = [
        b"{",
        b'{"v":1,"t":"1","u":[[["x",1],"1",1]]}',
        b'{"v":1,"t":"1","u":[[[1,1],"1",1]]}',
        json.dumps({"v": 1, "t": str(service.time), "u": [[[1, 1], str(service.time), 0]]}).encode(),
        b" " * (10 << 20),
    ]
    for value in bad:
        service.raw(value)
    service.final(service.send((3, 3)))
    topic = "pairs.dlq"
    service.wait(lambda: len(letters(broker, topic)) >= len(bad))

    # The driver is killed, and with it all of Spark; what comes next is answered as if nothing had happened.
    assert service.process is not None
    family = psutil.Process(service.process.pid).children(recursive=True)
    service.process.kill()
    service.process.wait()
    frontier = service.send((1, 100), (4, 4))
    psutil.wait_procs(family, PATIENCE)
    service.start()
    service.final(frontier)

    # So is the JVM alone, which the driver does not survive for long.
    family = psutil.Process(service.process.pid).children(recursive=True)
    next(one for one in family if "java" in one.name()).kill()
    assert service.process.wait(PATIENCE) == 1
    service.start()
    service.final(service.send((5, 5)))
    assert service.stop() == 0

    found = [one for one in letters(broker, topic) if dict(one.headers)["vernier-topic"] == service.topic.encode()]
    assert [one.value for one in found] == bad
    reasons = [dict(one.headers)["vernier-reason"].decode() for one in found]
    assert reasons == ["decode", "schema", "late", "schema", "decode"]
    snapshot = service.reader.snapshot
    assert snapshot is not None
    assert sum(snapshot.stats.numbers["source_errors_total"].values()) == len(bad)
    log = (service.folder / "log").read_text("utf-8")
    assert "failed: " in log
