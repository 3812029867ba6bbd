"""A service goes on with other numbers of workers: while it runs, and from S3 after its driver was killed."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.service.driven import PATIENCE, Service
from tests.storage.s3 import BUCKET, s3_server
from vernier.service.status import workers as status
from vernier.service.views.snapshot_reader import Reader
from vernier.storage.blob.location import BlobLocation
from vernier.storage.state.audit import audit
from vernier.storage.state.state import StateDirectory

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[BlobLocation]:
    with s3_server():
        yield BlobLocation(f"s3://{BUCKET}/{uuid.uuid4().hex}/state", str(tmp_path / "cache"), 64 << 20)


def test_a_running_service_gets_other_numbers_of_workers(service: Service) -> None:
    """Also over restarts, until the setting is changed; processes that have no shard any more end."""
    service.start(workers=1)
    service.final(service.send(*[(key, key) for key in range(100)]))
    files = BlobLocation.of(service.folder / "state").open()
    held = [[[7, 1], str(service.time + 1_000), 1], [[8, 1], str(service.time + 1_010), 1]]
    service.raw(f'{{"v":1,"t":"{service.time}","u":{held}}}'.replace("'", '"').encode(), partition=1)

    def has(workers: int) -> bool:
        service.final(service.send((workers, 1), partition=workers % 2))
        snapshot = service.reader.snapshot
        return snapshot is not None and snapshot.manifest.workers == workers

    for workers in (3, 2):
        status.request(files, workers)
        service.wait(lambda workers=workers: has(workers))
        assert len(service.workers()) == workers
    # What is left of an epoch's processes has its shards in memory, also after one of them was killed.
    service.workers()[0].kill()
    service.final(service.send((1, 1)))
    assert len(service.workers()) == 2
    status.request(files, 99)
    service.wait(lambda: (found := status.OBSERVED.read(files)) and found.refused)
    service.final(service.send((4, 4)))
    assert service.stop() == 0
    service.start(workers=1)
    service.wait(lambda: has(2))
    assert service.stop() == 0
    service.totals.update({7: 1, 8: 1})
    service.time += 2_000
    service.start(workers=3)
    service.wait(lambda: has(3))
    assert service.stop() == 0
    found = audit(StateDirectory(service.folder / "state"))
    assert found.problems == []


def test_other_numbers_of_workers_give_the_same_answers(service: Service, place: BlobLocation) -> None:
    settings = {"state__path": place.uri, "state__cache": place.cache}
    service.reader.close()
    service.reader = Reader(place)
    service.start(**settings, workers=2)
    service.final(service.send(*[(key, key) for key in range(100)]))
    # Some that wait for their time have an owner, too.
    held = [[[7, 1], str(service.time + 1_000), 1], [[8, 1], str(service.time + 1_010), 1]]
    service.raw(f'{{"v":1,"t":"{service.time}","u":{held}}}'.replace("'", '"').encode(), partition=1)
    service.final(service.send((1, 1)))

    # Another service on the same state is refused.
    first = service.process
    service.start(**settings, workers=1)
    assert service.process is not None
    assert service.process.wait(PATIENCE) == 1
    said = (service.folder / "log").read_text("utf-8")
    assert f"driver: state directory {place.uri} is in use by pid " in said
    service.process = first
    assert service.process is not None

    # The killed driver's claim has to run out first.
    family = psutil.Process(service.process.pid).children(recursive=True)
    service.process.kill()
    service.process.wait()
    psutil.wait_procs(family, PATIENCE)
    frontier = service.send(*[(key, 1) for key in range(50)], partition=1)
    service.start(**settings, workers=3)
    service.final(frontier)
    assert service.reader.snapshot is not None
    assert service.reader.snapshot.manifest.workers == 3
    assert service.stop() == 0

    service.start(**settings, workers=1)
    service.totals.update({7: 1, 8: 1})
    service.time += 2_000
    service.final(service.send((3, 3)))
    assert service.stop() == 0
    state = StateDirectory(place)
    found = audit(state)
    assert found.problems == []
    newest = state.latest()
    assert newest is not None
    assert (newest.workers, newest.cut_at is not None) == (1, True)
