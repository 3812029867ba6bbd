"""Operating a service for real: it is paused, drained and resumed, and goes on from a backup."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kafka import KafkaProducer

from tests.service.driven import Service
from vernier.service.status import intake
from vernier.service.status.intake import Observed, Wanted
from vernier.service.views.snapshot_reader import Reader
from vernier.storage.blob.local_blob import LocalBlob

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(1500)]
ROOT = Path(__file__).resolve().parents[2]


def test_paused_drained_and_resumed_over_restarts(service: Service) -> None:
    service.start()
    files = LocalBlob(service.folder / "state")

    def follow(wanted: Wanted) -> Observed:
        desired = intake.request(files, wanted)
        service.wait(lambda: (now := intake.observed(files)).desired == desired.id and now.intake == wanted)
        return intake.observed(files)

    service.final(service.send((1, 10), (2, 20)))
    follow("paused")
    reached, epoch = service.frontier(), service.epoch()
    ahead = service.send((1, 5))
    assert service.stop() == 0
    # Another driver finds it paused, and says so.
    before = intake.observed(files).driver
    service.start()
    service.wait(lambda: intake.observed(files).driver != before)
    assert intake.observed(files).intake == "paused"
    # To drain is to take what is there and to close; the marks of a transaction, which no reader gets, are passed, too.
    with_marks = KafkaProducer(bootstrap_servers=service.broker.bootstrap, transactional_id=service.topic)
    with_marks.init_transactions()
    with_marks.begin_transaction()
    with_marks.send(service.topic, b'{"v":1,"u":[],"t":"0"}', partition=1).get(60)
    with_marks.commit_transaction()
    with_marks.close(timeout=5)
    assert (service.frontier(), service.epoch()) == (reached, epoch)
    drained = follow("drained")
    assert drained.left == 0
    assert service.frontier() == ahead
    service.final(ahead)
    epoch = service.epoch()
    later = service.send((7, 7))
    assert service.stop() == 0
    service.start()
    service.wait(lambda: intake.observed(files).driver != drained.driver)
    assert service.epoch() == epoch
    follow("running")
    service.final(later)
    assert service.stop() == 0


def test_a_backup_is_made_and_restored_as_the_docs_say(service: Service) -> None:
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    (steps,) = re.findall(r"```sh\n(.*?)```", text[text.index("**Backup.**") : text.index("**Restore.**")], re.DOTALL)
    service.start()
    service.final(service.send((1, 10), (2, 20)))
    copy = service.folder / "copy"
    # The service goes on while the copy is made.
    service.send((1, 1))
    where = {**os.environ, "STATE": str(service.folder / "state"), "COPY": str(copy)}
    where["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), where["PATH"]])
    done = subprocess.run(["bash", "-e", "-c", steps], env=where, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "bytes copied to" in done.stdout
    assert "0 segments unused" in done.stdout
    ahead = service.send((2, 2), (3, 3))
    service.final(ahead)
    assert service.stop() == 0
    service.reader.close()
    service.reader = Reader(copy)
    assert service.frontier() < ahead
    service.start(state__path=copy)
    service.final(service.send((4, 4)))
    assert service.stop() == 0
