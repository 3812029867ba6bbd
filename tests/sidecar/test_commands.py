"""`vernier query`, `watch` and `status` against a sidecar; `vernier state` on its directory."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.command import PATIENCE, VERNIER, environment, start
from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import Served
from vernier.service.cli.display import instant
from vernier.service.cli.main import run
from vernier.storage.updates import CLOSED, MIN_TIME

DAY = date(2026, 2, 3)


@pytest.fixture
def url(builder: StateBuilder, serve: Callable[..., Served]) -> str:
    """Five nodes, one twice, and two pairs, at frontier 10."""
    pairs = [((None, 1, 2, True, 5, DAY), 3, 1), ((2.5, 3, 4, False, 6, DAY), 4, 1)]
    reach = [((node,), node, 1 + (node == 4)) for node in range(5)]
    builder.commit(10, {"reach": reach, "pairs": pairs})
    return serve(builder.path).url


def test_a_table_of_rows(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["query", "pairs", "--url", url]) == 0
    out, err = capsys.readouterr()
    assert out == (
        "weight  src  dst  ok     at  day\n"
        "  null    1    2  true   5   2026-02-03\n"
        "   2.5    3    4  false  6   2026-02-03\n"
    )
    assert err == "(2 rows of pairs as of 9)\n"


def test_multiplicities_are_a_column_when_they_matter(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["query", "reach", "--where", "node>=3", "--order", "-node", "--url", url]) == 0
    assert capsys.readouterr().out == "node  _diff\n   4      2\n   3      1\n"


@pytest.mark.parametrize(
    ("where", "nodes"),
    [
        (["node=2"], [2]),
        (["node!=2", "node<4"], [0, 1, 3]),
        (["node<=1"], [0, 1]),
        (["node>3"], [4]),
        (["node:in:1,3"], [1, 3]),
    ],
)
def test_conditions(url: str, capsys: pytest.CaptureFixture[str], where: list[str], nodes: list[int]) -> None:
    words = [word for text in where for word in ("--where", text)]
    assert run(["query", "reach", *words, "--format", "json", "--url", url]) == 0
    assert [row["node"] for row in json.loads(capsys.readouterr().out)["rows"]] == nodes


def test_rows_of_an_earlier_time_as_json(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["query", "reach", "--as-of", "1", "--format", "json", "--url", url]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body == {
        "view": "reach",
        "as_of": "1",
        "since": body["since"],
        "frontier": "10",
        "rows": [{"node": 0}, {"node": 1}],
    }


def test_csv(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--columns", "src,weight,ok", "--limit", "1", "--format", "csv"]
    assert run(["query", "pairs", *words, "--url", url]) == 0
    assert capsys.readouterr().out == "src,weight,ok\n1,,true\n"


def test_arrow_on_standard_output(url: str, tmp_path: Path) -> None:
    words = ["query", "pairs", "--format", "arrow", "--url", url]
    done = subprocess.run([*VERNIER, *words], cwd=tmp_path, env=environment(), capture_output=True, check=True)
    table = pa.ipc.open_stream(io.BytesIO(done.stdout)).read_all()
    assert table.column("src").to_pylist() == [1, 3]


def test_mistakes_are_one_line(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["query", "reech"], "reach"),
        (["query", "reach", "--where", "nod=1"], "node"),
        (["query", "reach", "--as-of", "10"], "10"),
        (["query", "reach", "--as-of", "noon"], "noon"),
        (["watch", "reech"], "reach"),
    ):
        assert run([*words, "--url", url]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("vernier: ")
        assert err.count("\n") == 1
        assert said in err


def test_watch_shows_rows_and_then_changes(url: str, builder: StateBuilder, tmp_path: Path) -> None:
    process = start("watch", "reach", "--url", url, cwd=tmp_path)
    try:
        assert process.stdout is not None
        rows = [json.loads(process.stdout.readline()) for _ in range(5)]
        assert rows == [{"view": "reach", "data": {"node": n}, "time": 9, "diff": 1 + (n == 4)} for n in range(5)]
        builder.commit(20, {"reach": [((0,), 12, -1), ((9,), 15, 1)]})
        changes = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert changes == [
            {"view": "reach", "data": {"node": 0}, "time": 12, "diff": -1},
            {"view": "reach", "data": {"node": 9}, "time": 15, "diff": 1},
        ]
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def test_watch_from_one_time_to_another(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["watch", "reach", "--since", "3", "--until", "5", "--url", url]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["data"]["node"], line["time"], line["diff"]) for line in lines] == [(3, 3, 1), (4, 4, 2)]


def test_status(builder: StateBuilder, serve: Callable[..., Served], capsys: pytest.CaptureFixture[str]) -> None:
    served = serve(builder.path)
    assert run(["status", "--url", served.url]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"vernier: the service at {served.url} is not ready: ")
    assert err.count("\n") == 1
    builder.commit(10, {"reach": [((1,), 2, 1)]})
    while run(["status", "--url", served.url]) == 1:
        assert "not ready" in capsys.readouterr().err
    capsys.readouterr()
    assert run(["status", "--url", served.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(f"at {served.url}: ready")
    assert lines[3].split() == [
        "view",
        "rows",
        "key",
        "final",
        "before",
        "p50",
        "ms",
        "p99",
        "ms",
        "p50",
        "ever",
        "p99",
        "ever",
    ]
    assert lines[4].split()[:2] == ["reach", "1"]
    assert run(["status", "--format", "json", "--url", served.url]) == 0
    assert json.loads(capsys.readouterr().out)["epoch"] == 1


def test_a_state_directory_is_listed_checked_and_tidied(
    builder: StateBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    for upper in range(10, 60, 10):
        builder.commit(upper, {"reach": [((upper,), upper - 1, 1)]}, keep=100)
    assert run(["state", "list", str(builder.path)]) == 0
    out = capsys.readouterr().out
    assert f"{builder.path}: app" in out
    assert "epoch 5 of 1 workers" in out
    assert "view-reach" in out or "reach" in out
    assert run(["state", "verify", str(builder.path)]) == 0
    assert capsys.readouterr().out.startswith("5 epochs, ")
    assert run(["state", "gc", str(builder.path)]) == 1
    assert "in use by" in capsys.readouterr().err
    builder.close()
    assert run(["state", "gc", str(builder.path), "--keep", "2"]) == 0
    assert capsys.readouterr().out.startswith("removed 3 epochs; ")
    assert run(["state", "verify", str(builder.path)]) == 0
    assert capsys.readouterr().out.startswith("2 epochs, ")


def test_damage_is_found(builder: StateBuilder, capsys: pytest.CaptureFixture[str]) -> None:
    builder.commit(10, {"reach": [((n,), 5, 1) for n in range(100)]})
    segment = next(path for path in builder.path.rglob("*") if path.is_file() and "000001-a1" in path.name)
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    assert run(["state", "verify", str(builder.path)]) == 1
    out, err = capsys.readouterr()
    assert out.count("\n") >= 2
    assert err.startswith(f"vernier: {builder.path} is damaged: ")
    assert err.count("\n") == 1


def test_a_head_whose_epochs_are_gone_is_no_empty_state(
    builder: StateBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    builder.commit(10, {"reach": [((1,), 5, 1)]})
    for file in (builder.path / "epochs").glob("*.json"):
        file.unlink()
    assert run(["state", "verify", str(builder.path)]) == 1
    assert "HEAD names epoch 1, but its manifest is missing (no manifest exists)" in capsys.readouterr().err


def test_a_time_is_shown_as_people_write_it() -> None:
    assert instant(17) == "17"
    assert instant(1_700_000_000_123_456_789) == "1700000000123456789 (2023-11-14T22:13:20.123456789Z)"
    assert (instant(CLOSED), instant(MIN_TIME)) == ("the end", "the beginning")
