"""`vernier state export`: a view's history as Parquet is the view's history."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.sidecar.builder import Change, StateBuilder, ViewModel, row_type
from vernier.service.cli.main import run
from vernier.service.views import export as exporting

TYPES = row_type(node="Int64", name="String | None", at="TimestampNs")
LONG = "a text that is too long to be whole in its words"


@pytest.fixture
def state(tmp_path: Path) -> tuple[Path, ViewModel]:
    """Twenty epochs, of which the first ten are compacted."""
    builder, model = StateBuilder(tmp_path / "state", {"reach": (TYPES, ["node"])}, shards=2), ViewModel()
    for epoch in range(20):
        own: list[Change] = [((epoch + n, None if n else LONG, 10**18 + n), epoch * 10 + n, 1) for n in range(5)]
        own += [((epoch + n, None if n else LONG, 10**18 + n), epoch * 10 + 9, -1) for n in range(2)]
        model.changes += own
        builder.commit(epoch * 10 + 10, {"reach": own}, since=99 if epoch == 15 else None, merge=epoch == 15)
    builder.close()
    return builder.path, model


def contents(out: Path) -> list[tuple[object, ...]]:
    """The rows of a file, or of all files of a folder."""
    files = [out] if out.is_file() else sorted(out.glob("*.parquet"))
    return [tuple(row.values()) for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def test_changes_and_rows(
    state: tuple[Path, ViewModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, model = state
    monkeypatch.setattr(exporting, "PART_UPDATES", 20)
    assert run(["state", "export", str(path), "--view", "reach", "--out", str(tmp_path / "all")]) == 0
    out = capsys.readouterr().out
    wanted = [(*row, at, diff) for row, at, diff in model.changes if at > 99]
    assert out.startswith(f"view reach: {len(wanted)} changes with 100 <= time < 200, ")
    assert Counter(contents(tmp_path / "all")) == Counter(wanted)
    assert len(list((tmp_path / "all").iterdir())) > 2
    interval = ["--since", "105", "--until", "1970-01-01T00:00:00.000000163Z", "--out", str(tmp_path / "some.parquet")]
    assert run(["state", "export", str(path), "--view", "reach", *interval]) == 0
    some = contents(tmp_path / "some.parquet")
    assert Counter(some) == Counter(one for one in wanted if 105 <= one[-2] < 163)
    assert run(["state", "export", str(path), "--view", "reach", "--as-of", "120", "--out", str(tmp_path / "at")]) == 0
    assert {row[:-1]: row[-1] for row in contents(tmp_path / "at")} == model.rows(120)


def test_mistakes_leave_nothing(
    state: tuple[Path, ViewModel], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = state
    out = tmp_path / "out"
    for given, said in (
        (["--view", "reech"], "there is no view 'reech'; did you mean 'reach'?"),
        (["--view", "reach", "--since", "99"], "view reach keeps its history from 100 on; 99 is earlier"),
        (["--view", "reach", "--as-of", "98"], "view reach keeps its history from 99 on"),
        (["--view", "reach", "--until", "201"], "view reach is final before 200; 200 is not final yet"),
    ):
        assert run(["state", "export", str(path), *given, "--out", str(out)]) == 1
        assert said in capsys.readouterr().err
    assert run(["state", "export", str(path), "--view", "reach", "--as-of", "9", "--until", "9", "--out", "x"]) == 2
    out.mkdir()
    assert run(["state", "export", str(path), "--view", "reach", "--out", str(out)]) == 1
    assert "it exists already" in capsys.readouterr().err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out", "state"]
