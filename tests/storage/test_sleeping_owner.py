"""An owner of a state in an object store that is stopped (SIGSTOP), replaced, and continued commits nothing.

The owner is a process of its own; the store is a server. The successor's clock runs ahead, so the owner still believes
in its lock when it continues: that is the hardest case, and takes no waiting.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.storage.clock import Clock
from tests.storage.epochs import commit, numbers
from tests.storage.s3 import BUCKET, s3_server
from vernier.storage.blob.object_store import FsspecStore, ObjectBlob
from vernier.storage.state.state import StateDirectory

OWNER = """
import os, signal, sys
from tests.storage.epochs import commit, entry, manifest
from vernier.storage.errors import StorageError
from vernier.storage.state.state import StateDirectory
uri, where = sys.argv[1:]
state = StateDirectory(uri)
state.acquire()
refs = commit(state, 1)
fresh = state.write(2, "old", 0, [entry("t", 777)])

def sleep():
    print("sleeps", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)

create = state.blob.create
def late(name, data):
    sleep()
    create(name, data)

if where == "before":
    sleep()
else:
    state.blob.create = late
for call in (lambda: state.commit(manifest(2, [*refs, *fresh], attempt="old")), lambda: state.gc(2), state.sweep):
    try:
        call()
        print("done", flush=True)
    except StorageError as error:
        print(type(error).__name__, flush=True)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[None]:
    with s3_server():
        yield


@pytest.mark.slow
@pytest.mark.parametrize("where", ["before", "within"])
@pytest.mark.parametrize("epochs", [1, 3])
def test_an_owner_that_sleeps_through_its_replacement_commits_nothing(server: None, where: str, epochs: int) -> None:
    uri = f"s3://{BUCKET}/sleeping-{where}-{epochs}"
    command = [sys.executable, "-c", OWNER, uri, where]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    try:
        assert owner.stdout.readline() == "sleeps\n"
        os.waitpid(owner.pid, os.WUNTRACED)
        clock = Clock()
        successor = StateDirectory(uri, ObjectBlob(uri, FsspecStore(uri), clock, beating=False))
        newest = clock.acquired(successor)
        assert newest is not None
        refs = [ref for trace in newest.traces.values() for shard in trace.shards for ref in shard]
        for epoch in range(2, 2 + epochs):
            refs = commit(successor, epoch, refs)
        os.kill(owner.pid, signal.SIGCONT)
        said = [owner.stdout.readline().strip() for _ in range(3)]
        assert said[0] in ("EpochConflict", "OwnershipLost")
        # Whatever it believed when it collected garbage: nothing of the successor's is gone, and readers never see its
        # epoch.
        found = successor.latest()
        assert found is not None
        assert numbers(StateDirectory(uri), found) == list(range(1, 2 + epochs))
        commit(successor, 2 + epochs, refs)
        successor.release()
    finally:
        owner.kill()
        owner.communicate()
