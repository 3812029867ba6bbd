"""Real processes, killed with SIGKILL at every storage call, and readers that race collection."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.crash.machines import DiskMachine
from tests.crash.test_commit import check_and_finish, unbroken
from tests.crash.workload import Service, rows_in, rows_until
from vernier.storage.blob.local_blob import LocalBlob
from vernier.storage.state.state import StateDirectory


def test_killed_at_every_call(tmp_path: Path) -> None:
    expected, calls = unbroken(DiskMachine())
    command = [sys.executable, "-m", "tests.crash.killed", str(tmp_path), str(calls)]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    assert len(lines) == calls
    for line in lines:
        call, ended_by, acknowledged = map(int, line.split())
        assert ended_by == signal.SIGKILL
        # A kill just after a commit's link may come before its report.
        check_and_finish(LocalBlob(tmp_path / str(call)), acknowledged, expected)


READER = """
import sys
from vernier.storage.state.state import StateDirectory
from tests.crash.workload import rows_in, rows_until

state, last, seen, known = StateDirectory(sys.argv[1]), int(sys.argv[2]), 0, 0
print("ready", flush=True)
while known < last:
    if state.head() == known:
        continue
    with state.lease() as lease:
        assert lease.epoch > known, (lease.epoch, known)
        known = lease.epoch
        assert rows_in(state, lease.manifest) == rows_until(known)
        seen += 1
print(seen)
"""


def test_readers_that_race_collection_always_find_their_files(tmp_path: Path) -> None:
    """Two readers follow 150 epochs as fast as they can, while all but two manifests are collected at each."""
    last = 150
    service = Service(LocalBlob(tmp_path))
    service.step()
    command = [sys.executable, "-c", READER, str(tmp_path), str(last)]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
    service.run(last)
    for reader in readers:
        seen, _ = reader.communicate(timeout=60)
        assert reader.returncode == 0
        assert int(seen) > 1
    service.state.gc(2)
    assert service.newest is not None
    assert rows_in(service.state, service.newest) == rows_until(last)
    assert service.state.epochs() == [last - 1, last]
    assert StateDirectory(tmp_path).blob.list("leases") == []
