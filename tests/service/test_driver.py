"""The driver for real: Spark, a broker, worker processes; epochs that survive what dies, and letters sent once."""

import json

import psutil
import pytest

from tests.service.driven import PATIENCE, PROGRAM, Service
from tests.sidecar.test_damage import flip
from tests.sinks.topic import committed
from vernier.service.config.programs import Program, Registry
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.status import trouble
from vernier.service.status.change import FILE
from vernier.storage.blob.local_blob import LocalBlob
from vernier.storage.blob.location import BlobLocation
from vernier.storage.blob.segment import segment_file
from vernier.storage.state.state import StateDirectory

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

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


def test_programs_join_and_leave_a_running_service(service: Service) -> None:
    service.start(state__keep_sources=True)  # sums keep no rows
    reached = service.send((1, 10), (2, 20), (1, 5))
    service.final(reached)
    registry = Registry(BlobLocation.of(service.folder / "state").open())

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
    assert snapshot.manifest.traces.keys() - before.manifest.traces.keys()
    service.final(service.send((1, 100), (3, 7)))
    assert view("tops", service.time - 1) == {1: [100], 2: [20], 3: [7]}
    # One that asks for the past is set aside, and the others go on.
    registry.add(
        Program("late.py", TOPS.replace('"tops"', '"late"').replace("pairs.group_by", "pairs.delay(5).group_by"))
    )
    service.wait(lambda: "late" in registry.refused())
    assert "depends on when rows came in the last 5e-09 s" in registry.refused()["late"]
    assert [program.name for program in registry.joined()] == ["tops.py"]
    service.final(service.send((3, 1)))
    # A restart finds it again; when it leaves, its state goes.
    assert service.stop() == 0
    service.start(state__keep_sources=True)
    service.final(service.send((2, 50)))
    assert view("tops", service.time - 1) == {1: [100], 2: [50], 3: [7]}
    registry.remove("tops")
    service.wait(lambda: not shown("tops"))
    snapshot = service.reader.snapshot
    assert snapshot is not None
    assert snapshot.manifest.traces.keys() == before.manifest.traces.keys()
    service.final(service.send((4, 4)))
    assert service.stop() == 0


def test_a_program_that_joins_after_a_restart_has_the_history_of_the_sources(service: Service) -> None:
    text = PROGRAM.replace('app.source("pairs", Pair)', 'app.source("pairs", Pair, retain="1h")')
    (service.folder / "program.py").write_text(text, "utf-8")
    service.start()
    first = service.send((1, 10), (2, 20), (1, 15))
    service.final(first)
    service.final(service.send((2, 30), partition=1))
    assert service.stop() == 0
    service.start()
    service.final(service.send((3, 5)))
    registry = Registry(BlobLocation.of(service.folder / "state").open())
    registry.add(Program("tops.py", TOPS))
    registry.add(Program("late.py", TOPS.replace('"tops"', '"late"').replace("pairs.gr", "pairs.delay(2).gr")))

    def shown(name: str) -> bool:
        service.reader.poll()
        return service.reader.snapshot is not None and name in service.reader.snapshot.views

    service.wait(lambda: shown("tops") and shown("late"))
    service.final(service.send((1, 99)))
    high: dict[int, int] = {}
    for at, (key, value) in enumerate([(1, 10), (2, 20), (1, 15), (2, 30), (3, 5), (1, 99)], first - 3):
        high[key] = max(value, high.get(key, 0))
        snapshot = service.reader.snapshot
        assert snapshot is not None
        for name, later in (("tops", 0), ("late", 2)):
            if at + later < snapshot.frontier:
                assert dict(snapshot.views[name].rows_as_of(at + later).flat().rows.tolist()) == high, (name, at)
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
    service.wait(lambda: len(committed(broker.bootstrap, topic)) >= len(bad))

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

    found = [
        one
        for one in committed(broker.bootstrap, topic)
        if dict(one.headers)["vernier-topic"] == service.topic.encode()
    ]
    assert [one.value for one in found] == bad
    reasons = [dict(one.headers)["vernier-reason"].decode() for one in found]
    assert reasons == ["decode", "schema", "late", "schema", "decode"]
    snapshot = service.reader.snapshot
    assert snapshot is not None
    assert sum(snapshot.stats.numbers["source_errors_total"].values()) == len(bad)
    log = (service.folder / "log").read_text("utf-8")
    assert "failed: " in log


def test_a_damaged_state_makes_no_epoch_and_goes_on_when_the_file_is_back(service: Service) -> None:
    service.start()
    service.final(service.send((1, 10), (2, 20)))
    assert service.stop() == 0
    state = service.folder / "state"
    newest = StateDirectory(state).latest()
    assert newest is not None
    ref = next(ref for trace in newest.traces.values() for shard in trace.shards for ref in shard)
    whole = (state / segment_file(ref.segment)).read_bytes()
    file = flip(state, ref)
    service.start()
    reached = service.send((3, 30))
    found = service.wait(lambda: (found := trouble.read(LocalBlob(state))) and found)
    assert not found.program
    assert f"{segment_file(ref.segment)} is restored" in found.reason
    assert service.epoch() == newest.epoch
    file.write_bytes(whole)
    service.final(reached)
    assert service.stop() == 0


def test_a_change_is_filled_beside_the_epochs(service: Service) -> None:
    """A program joins a large state while epochs go on and a worker is killed; then the own program changes."""
    service.start(state__keep_sources=True)  # sums keep no rows
    high: dict[int, int] = {}
    for first in range(0, 100_000, 10_000):
        pairs = [(n % 50_000, n % 977) for n in range(first, first + 10_000)]
        for key, value in pairs:
            high[key] = max(value, high.get(key, value))
        reached = service.send(*pairs, partition=first // 10_000 % 2)
    service.final(reached)
    files = LocalBlob(service.folder / "state")
    registry = Registry(BlobLocation.of(service.folder / "state").open())

    def rows(name: str) -> dict[int, int] | None:
        service.reader.poll()
        snapshot = service.reader.snapshot
        if snapshot is None or name not in snapshot.views:
            return None
        return {row[0]: row[1] for row in snapshot.views[name].rows_as_of(snapshot.frontier - 1).flat().rows.tolist()}

    registry.add(Program("tops.py", TOPS))
    service.wait(lambda: FILE.read(files) is not None)
    before = service.epoch()
    service.workers()[0].kill()
    service.final(service.send((1, 5)))
    service.wait(lambda: rows("tops") is not None)
    assert service.epoch() > before
    assert rows("tops") == high
    service.wait(lambda: FILE.read(files) is None)  # the driver deletes it between this epoch and the next one
    service.final(service.send((2, 1_000)))
    high[2] = 1_000
    assert rows("tops") == high
    assert service.stop() == 0

    # The service's own program changes: the earlier one goes on meanwhile, and then there is the new one alone.
    program = service.folder / "program.py"
    program.write_text(PROGRAM.replace('view("sums"', 'view("totals"').replace(", n=vn.count()", ""), "utf-8")
    service.start(state__keep_sources=True)
    service.wait(lambda: rows("totals") is not None)
    assert rows("totals") == dict(service.totals)
    assert rows("sums") is None
    assert rows("tops") == high
    log = (service.folder / "log").read_text("utf-8")
    assert "filling totals: " in log
