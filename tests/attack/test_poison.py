"""Messages that kill or hang the process that decodes them become dead letters; the rest of their epoch goes on.

The decoder that fails is planted: a format of the test's own under the name of a real one.
"""

import os
from collections import Counter

import pyarrow as pa
import pytest

from tests.crash.faults import Crash, Fault
from tests.crash.machines import WHERE
from tests.crash.test_change import SENT, World, sums
from tests.ingest.log import Record, batch
from tests.service.conftest import service  # noqa: F401
from tests.service.driven import PROGRAM, Service
from tests.sinks.topic import committed
from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.schema import RowType
from vernier.service.cluster.shard import read_dead_letters
from vernier.service.ingest.config import IngestionConfig, SourceConfig
from vernier.service.ingest.formats import FORMATS
from vernier.service.ingest.formats.native import Native
from vernier.service.ingest.ingestion import Ingestion
from vernier.service.ingest.rejects import DeadLetter
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.storage.state.state import StateDirectory

POISON = b"poison"
KEPT = {key: list(values) for key, values in sums(20).items()}


class Planted(Native):
    """Ends a process that decodes poison: the simulated worker's, or the one that quarantine made."""

    worker = os.getpid()

    def decode(self, values: pa.LargeBinaryArray, heap: object = None) -> object:
        if POISON in values.to_pylist():
            if os.getpid() == self.worker:
                raise Crash
            os._exit(9)
        return super().decode(values, heap)


def letters(world: World) -> list[DeadLetter]:
    """Those of all epochs that are kept."""
    directory = StateDirectory(WHERE, world.machine.process().blob)
    found: list[DeadLetter] = []
    for epoch in directory.epochs():
        for ref in directory.manifest(epoch).dead:
            found += read_dead_letters(directory.open(ref.segment).entry(ref.label))
    return found


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> type[Planted]:
    """The format that kills."""
    monkeypatch.setitem(FORMATS, "vernier", Planted)
    monkeypatch.setattr(Planted, "worker", os.getpid())
    return Planted


def poisoned(world: World) -> None:
    """Good messages, and two that kill."""
    world.log.updates(0, SENT[:9])
    world.log.partitions[0].append(POISON)
    world.log.updates(0, SENT[9:19])
    world.log.partitions[1].append(POISON)
    for partition in (0, 1):
        world.log.progress(partition, 20)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_rest_of_an_epoch_goes_on(planted: type[Planted], workers: int) -> None:
    world = World()
    sim = world.start("s", workers)
    poisoned(world)
    world.read()
    assert sorted(sim.log.letters) == [(0, 1), (1, 0)]
    assert {row[0]: row[1:] for row in world.rows("sums", 19)} == KEPT
    numbers = sim.epochs.stats.numbers
    assert numbers["source_errors_total"] == {("pairs", "poison"): 2}
    for letter in letters(world):
        assert (letter.reason, letter.source, letter.value) == ("poison", "pairs", POISON)
        assert letter.detail == "decoding it failed more than once; its own process ended with status 9"
    # The next epochs are tried in the usual way.
    failed = numbers["epochs_total"]["failed",]
    world.log.progress(0, 30)
    world.log.progress(1, 30)
    world.read()
    assert sim.epochs.stats.numbers["epochs_total"]["failed",] == failed
    world.check()


def test_a_worker_that_dies_of_something_else_refuses_no_message(
    planted: type[Planted], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    sim = world.start("s")
    world.log.updates(0, SENT[:19])
    decode, deaths = Ingestion.decode, iter(range(2))

    def killed(*given: object) -> object:
        if next(deaths, None) is not None:
            raise Crash
        return decode(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(Ingestion, "decode", killed)
    for partition in (0, 1):
        world.log.progress(partition, 20)
    world.read()
    assert sim.log.letters == []
    assert {row[0]: row[1:] for row in world.rows("sums", 19)} == KEPT
    world.check()


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST_REPLY, Fault.TORN_WRITE])
def test_letters_are_the_same_and_sent_once_whatever_fails(planted: type[Planted], fault: Fault) -> None:
    at, reached = 0, True
    while reached:
        at += 1
        world = World()
        sim = world.start("s", 1)
        poisoned(world)
        sim.driver.faults.fail_later(fault, at)
        try:
            world.read()
        except BaseException:
            sim.end()
            world.service = None
            sim = world.start("s", 1)
            world.read()
        else:
            reached = sim.driver.faults.reached
        assert sorted(sim.log.letters) == [(0, 1), (1, 0)], at
        assert {row[0]: row[1:] for row in world.rows("sums", 19)} == KEPT
    assert at > 5


def test_what_is_hidden_from_a_format_says_nothing() -> None:
    """A message too long to be read, or known to kill, deletes no key of a source of upserts."""
    items = RowType([("id", Int64(), False), ("n", Int64(), False)])
    config = SourceConfig("items", format="upsert", key=("id",))
    ingestion = Ingestion({"items": items}, IngestionConfig({"items": config}, max_message_bytes=1024))
    sent = [b'{"id":1,"n":5}', b"[" + b" " * 2000 + b"1,5]", b'{"id":2,"n":6}']
    rows = batch(Record("items", 0, at, 1_000, value, key=b'{"id":1}') for at, value in enumerate(sent))
    decoded = ingestion.decode([rows], {}, {}, {}, poisoned={("items", 0, 2): "died of SIGSEGV"})
    (one,) = decoded.batches
    assert one.parsed is not None
    assert one.parsed.message.tolist() == [0]
    assert [(refused.message, refused.reason) for refused in one.refused] == [(1, "decode"), (2, "poison")]


KILLER = (
    """
import ctypes
from vernier.service.ingest import formats
from vernier.service.ingest.formats.native import Native

class Planted(Native):
    def decode(self, values, heap=None):
        found = values.to_pylist()
        if b"kill" in found:
            ctypes.string_at(0)
        while b"loop" in found:
            pass
        return super().decode(values, heap)

formats.FORMATS["vernier"] = Planted
"""
    + PROGRAM
)


def sent_letters(broker: EmbeddedBroker, topic: str, source: str) -> list[tuple[str, bytes | None]]:
    """Reasons and values of the dead letters from one source topic that readers of committed messages see.

    Tests of one process share the broker, and with it the topic of the dead letters.
    """
    sent = [(dict(one.headers), one.value) for one in committed(broker.bootstrap, topic)]
    return [
        (headers["vernier-reason"].decode(), value)
        for headers, value in sent
        if headers["vernier-topic"] == source.encode()
    ]


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_live_service_survives_messages_that_kill_and_hang_its_workers(
    service: Service,  # noqa: F811
    broker: EmbeddedBroker,
) -> None:
    (service.folder / "program.py").write_text(KILLER, "utf-8")
    service.start(epoch__timeout_ms=120_000, epoch__quarantine_ms=500)
    service.final(service.send((1, 10)))
    for number in range(3):
        service.send((2, number), partition=0)
        service.raw(b"kill", partition=number % 2)
        service.send((3, number), partition=1)
    service.final(service.send((4, 4)))
    service.raw(b"loop")
    service.final(service.send((5, 5)))
    # A worker that is killed from outside, in any phase, costs no message.
    for _ in range(3):
        service.wait(service.workers)
        for worker in service.workers():
            worker.kill()
        service.final(service.send((6, 6), (7, 7)))
    assert service.reader.snapshot is not None
    numbers = service.reader.snapshot.stats.numbers["source_errors_total"]
    assert numbers == {("pairs", "poison"): 4}
    assert service.stop() == 0
    expected = Counter({("poison", b"kill"): 3, ("poison", b"loop"): 1})
    assert Counter(sent_letters(broker, "pairs.dlq", service.topic)) == expected
