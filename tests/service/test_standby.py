"""A standby waits for the lock of the state directory, shows itself meanwhile, and goes on as the owner."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import cast

import pytest

from tests.crash.simstore import SimStore
from tests.storage.clock import Clock, blob_of
from vernier.service.config.model import BadSettings
from vernier.service.config.sections import Epoch
from vernier.service.config.settings import load
from vernier.service.coordinator import standing_by
from vernier.service.coordinator.failures import Failures
from vernier.service.errors import SparkFailed, StateDamaged
from vernier.service.status import standby
from vernier.service.status.trouble import Troubles
from vernier.storage.blob.leases import TTL_MS
from vernier.storage.blob.object_store import ObjectBlob
from vernier.storage.errors import FileFailed, NoIntactManifest, OwnershipLost, StateInUse, StorageError
from vernier.storage.state.manifest import Manifest, manifest_file
from vernier.storage.state.state import StateDirectory

OWNER = """
import sys
from vernier.storage.state.state import StateDirectory
StateDirectory(sys.argv[1]).acquire()
print("owns it", flush=True)
sys.stdin.read()
"""
WAITER = """
import sys
from vernier.service.coordinator import standing_by
from vernier.storage.state.state import StateDirectory
directory = StateDirectory(sys.argv[1])
standing_by.acquire(directory)
print("took over", flush=True)
sys.stdin.read()
"""


def process(code: str, state: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(state)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def said(one: subprocess.Popen[str]) -> str:
    assert one.stdout is not None
    return one.stdout.readline().strip()


def end(one: subprocess.Popen[str]) -> None:
    one.kill()
    one.communicate()


def test_a_free_state_is_taken_at_once(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    assert standing_by.acquire(directory) == 0
    assert directory.acquire() is None, "the owner may ask again"
    assert standby.living(directory.blob) == []
    directory.release()


def test_of_two_standbys_one_takes_over_when_the_owner_is_killed_and_the_other_one_after_it(tmp_path: Path) -> None:
    owner = process(OWNER, tmp_path)
    waiting: list[subprocess.Popen[str]] = []
    try:
        assert said(owner) == "owns it"
        waiting += process(WAITER, tmp_path), process(WAITER, tmp_path)
        blob, pause = StateDirectory(tmp_path).blob, threading.Event()
        while not all(standby.waits(blob, one.pid) for one in waiting):
            pause.wait(0.05)
        assert len(standby.living(blob)) == 2
        end(owner)
        while len(standby.living(blob)) == 2:
            pause.wait(0.05)
        first = next(one for one in waiting if not standby.waits(blob, one.pid))
        assert said(first) == "took over"
        (second,) = (one for one in waiting if one is not first)
        assert standby.waits(blob, second.pid)
        end(first)
        assert said(second) == "took over"
        assert standby.living(blob) == []
    finally:
        for one in (owner, *waiting):
            end(one)


def test_a_standby_shows_itself_once_it_could_go_on(tmp_path: Path) -> None:
    owner = process(OWNER, tmp_path)
    try:
        assert said(owner) == "owns it"
        directory, looks = StateDirectory(tmp_path), list[list[str]]()

        def ready() -> bool:
            looks.append(standby.living(directory.blob))
            if len(looks) == 3:
                threading.Timer(0.5, end, [owner]).start()
            return len(looks) >= 3

        assert standing_by.acquire(directory, ready=ready) > 0
        assert looks[:3] == [[], [], []], "it does not show itself before"
        assert all(looks[3:])
        directory.release()
    finally:
        end(owner)


def test_a_standby_that_could_never_go_on_does_not_wait(tmp_path: Path) -> None:
    owner = process(OWNER, tmp_path)

    def ready() -> bool:
        raise SparkFailed(problem="it does not start")

    try:
        assert said(owner) == "owns it"
        with pytest.raises(SparkFailed):
            standing_by.acquire(StateDirectory(tmp_path), ready=ready)
        assert standby.living(StateDirectory(tmp_path).blob) == []
    finally:
        end(owner)


def test_a_standby_that_is_killed_is_none(tmp_path: Path) -> None:
    owner = process(OWNER, tmp_path)
    assert said(owner) == "owns it"
    waiting = process(WAITER, tmp_path)
    try:
        blob, pause = StateDirectory(tmp_path).blob, threading.Event()
        while not standby.waits(blob, waiting.pid):
            pause.wait(0.05)
        end(waiting)
        assert standby.living(blob) == []
    finally:
        end(owner)
        end(waiting)


def test_a_driver_that_slept_through_its_replacement_ends_at_its_next_failure() -> None:
    class Silent:
        def report(self, trouble: object) -> None:
            """Nothing."""

    store, clock, silent = SimStore(), Clock(), cast(Troubles, Silent())
    slept, other = (StateDirectory("sim://state", blob_of(store, clock)) for _ in range(2))
    slept.acquire()
    failures = Failures(Epoch(), silent, 0, slept.check_owned)
    # The epochs that it knew are gone: as if files were missing, for which it would wait.
    damage = StateDamaged(path="sim://state", problem="epoch 7 is no longer there", file="epochs/7.json")
    assert failures.after(damage, 0) > 0
    clock.acquired(other)
    with pytest.raises(OwnershipLost):
        failures.after(damage, 0)


def test_an_error_of_the_state_is_no_reason_to_wait(tmp_path: Path) -> None:
    with StateDirectory(tmp_path):
        (tmp_path / manifest_file(1)).write_bytes(b"torn")
    with pytest.raises(NoIntactManifest):
        standing_by.acquire(StateDirectory(tmp_path))
    assert standby.living(StateDirectory(tmp_path).blob) == []


def test_a_standby_waits_on_while_the_store_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = FileFailed(operation="list", name="LOCK", where="s3://states/a", reason="slow down")
    used = StateInUse(path=str(tmp_path), pid=1, host="another", left_ms=1)
    problems: list[StorageError] = []
    acquire = StateDirectory.acquire

    def fails(directory: StateDirectory) -> Manifest | None:
        if problems:
            raise problems.pop(0)
        return acquire(directory)

    monkeypatch.setattr(StateDirectory, "acquire", fails)
    monkeypatch.setattr(standing_by, "REMOTE_SECONDS", 0.01)
    problems += used, busy, busy, used
    directory = StateDirectory(tmp_path)
    assert standing_by.acquire(directory) > 0
    assert not problems
    directory.release()
    problems.append(busy)
    with pytest.raises(FileFailed):
        standing_by.acquire(StateDirectory(tmp_path))


def test_a_standby_that_was_cut_off_from_the_store_shows_itself_again() -> None:
    class Cut(SimStore):
        cut_off = False

        def put(self, name: str, data: bytes) -> None:
            if self.cut_off:
                raise OSError("no route to host")
            super().put(name, data)

    store, clock = Cut(), Clock()
    blob = ObjectBlob("sim://state", store, clock, beating=False)
    presence = standby.Presence(blob)
    store.cut_off = True
    clock.ms += TTL_MS
    blob.claims.beat()
    assert standby.living(blob) == [], "another process deletes the name of what seems to be dead"
    presence.renew()
    assert standby.living(blob) == []
    store.cut_off = False
    presence.renew()
    assert len(standby.living(blob)) == 1
    presence.renew()
    assert len(standby.living(blob)) == 1
    presence.release()
    assert standby.living(blob) == []


def test_an_embedded_broker_is_refused_beside_a_standby(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"state\.standby and kafka\.embedded are both set"):
        load(None, {"state.standby": True, "kafka.embedded": True, "state.path": str(tmp_path)})
