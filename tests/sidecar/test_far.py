"""State in an object store, as everything that reads it sees it: the reader, the sidecar, the command line."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.sidecar.builder import StateBuilder, row_type
from tests.sidecar.process import running
from tests.storage.s3 import BUCKET, s3_server
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
