"""State in an object store, as everything that reads it sees it: the reader, the sidecar, the command line."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import boto3
import httpx
import pytest
from botocore.exceptions import BotoCoreError

from tests.live.service import free_port, wait_for
from tests.sidecar.builder import StateBuilder, row_type
from tests.sidecar.process import running
from tests.storage.s3 import BUCKET, KEYS, s3_server
from vernier.service.cli.main import run
from vernier.service.views.snapshot_reader import Reader
from vernier.storage.blob.location import BlobLocation

VIEWS = {"reach": (row_type(node="Int64"), ["node"])}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[BlobLocation]:
    with s3_server():
        yield BlobLocation(f"s3://{BUCKET}/{uuid.uuid4().hex}", str(tmp_path / "cache"), 1 << 20)


def test_readers_follow_a_state_in_s3(place: BlobLocation, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = StateBuilder(tmp_path, VIEWS, place=place)
    builder.commit(10, {"reach": [((node,), node, 1) for node in range(5)]})
    reader = Reader(place)
    assert reader.poll()
    builder.commit(20, {"reach": [((2,), 12, -1), ((7,), 15, 1)]})
    assert reader.poll()
    assert reader.failure is None
    assert reader.snapshot is not None
    rows = reader.snapshot.views["reach"].rows_as_of(19).flat().rows
    assert sorted(rows[:, 0].tolist()) == [0, 1, 3, 4, 7]
    assert any(name.endswith(".seg") for _, _, names in os.walk(tmp_path / "cache") for name in names)

    other = str(tmp_path / "other")
    with running(place, "--cache", other, "--cache-mb", "1") as sidecar:
        found = httpx.get(f"{sidecar.url}/v1/views/reach", trust_env=False).json()
        assert [row["node"] for row in found["rows"]] == [0, 1, 3, 4, 7]
        held = builder.state.blob.present("leases")
        assert len(held) == 2
    reader.close()
    # The sidecar's own expires if it was not released.
    assert not any(f".{os.getpid()}." in name for name in builder.state.blob.present("leases"))

    assert run(["state", "list", place.uri]) == 0
    listed = capsys.readouterr().out
    assert listed.startswith(f"{place}: app test, epoch 2 of 1 workers")
    (columns,) = [line for line in listed.splitlines() if line.startswith("arrangement")]
    assert columns.split()[-7:] == ["updates", "bytes", "batches", "distinct", "times", "since", "upper"]
    assert run(["state", "verify", place.uri]) == 0
    assert capsys.readouterr().out.startswith("2 epochs, 2 segments")
    assert run(["state", "gc", place.uri]) == 1
    assert "is in use by pid" in capsys.readouterr().err
    builder.commit(30)
    builder.close()
    assert run(["state", "gc", place.uri, "--keep", "2"]) == 0
    assert capsys.readouterr().out.startswith("removed 1 epochs")
    assert run(["state", "list", f"s3://{BUCKET}/nothing"]) == 1
    assert "holds no epoch yet" in capsys.readouterr().err


def test_a_store_that_does_not_answer_keeps_nobody_waiting(tmp_path: Path) -> None:
    with s3_process() as server:
        place = BlobLocation(f"s3://{BUCKET}/{uuid.uuid4().hex}", str(tmp_path / "cache"), 1 << 20)
        builder = StateBuilder(tmp_path, VIEWS, place=place)
        builder.commit(10, {"reach": [((node,), node, 1) for node in range(5)]})
        with running(place, "--cache", str(tmp_path / "other")) as sidecar, httpx.Client(trust_env=False) as client:

            def asked(path: str) -> httpx.Response:
                return client.get(f"{sidecar.url}{path}", timeout=3)

            assert asked("/v1/views/reach").json()["rows"]
            assert asked("/v1/frontiers").status_code == 200
            server.send_signal(signal.SIGSTOP)
            try:
                for _ in range(3):
                    for path in ("/readyz", "/v1/views/reach", "/v1/frontiers", "/healthz", "/metrics", "/v1/dataflow"):
                        asked(path)
                ready = asked("/readyz")
                assert ready.status_code == 503
                assert any("has not answered for" in one["why"] for one in ready.json()["laggards"])
                assert asked("/v1/views/reach").json()["rows"]
            finally:
                server.send_signal(signal.SIGCONT)
            said = ""
            for _ in range(100):
                said = asked("/readyz").text
                if "has not answered" not in said:
                    break
                time.sleep(0.1)
            assert "has not answered" not in said
        builder.close()


@contextmanager
def s3_process() -> Iterator[subprocess.Popen[bytes]]:
    """An S3 server in a process of its own, and the environment of its clients."""
    port, before = free_port(), dict(os.environ)
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL
    )
    try:
        os.environ.update(KEYS | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"})
        wait_for("the S3 server", lambda: _made(), 60)
        yield server
    finally:
        server.kill()
        server.wait()
        os.environ.clear()
        os.environ.update(before)


def _made() -> bool:
    with suppress(BotoCoreError):
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        return True
    return False
