"""Change files: their lines, their order, and that they are whole or absent."""

import gzip
import json
import math
import os
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vernier.operators.language.types.scalars import Bool, Date, Float64, Int64, TimestampNs
from vernier.operators.language.types.schema import RowType
from vernier.service.files.changefiles import CannotWrite, ChangeFile
from vernier.storage.updates import Updates

NUMBER = RowType([("n", Int64(), False)])
EVERY = RowType(
    [
        ("whole", Int64(), False),
        ("maybe", Int64(), True),
        ("real", Float64(), True),
        ("good", Bool(), True),
        ("day", Date(), True),
        ("at", TimestampNs(), True),
    ]
)


def numbers(*changes: tuple[int, int, int]) -> Updates:
    """Changes (n, time, diff) of a view of one number."""
    data = np.array(changes, np.int64).reshape(-1, 3)
    return Updates(data, 1, 0)


def written(path: Path, epochs: list[dict[str, Updates]], views: dict[str, RowType]) -> str:
    with ChangeFile(path, views) as out:
        for changes in epochs:
            out.add(changes)
    return path.read_text()


def test_lines_are_as_the_contract_has_them(tmp_path: Path) -> None:
    text = written(tmp_path / "out.jsonl", [{"reach": numbers((1, 17, 1))}], {"reach": NUMBER})
    assert text == '{"view":"reach","data":[1],"time":17,"diff":1}\n'


def test_every_type_is_json(tmp_path: Path) -> None:
    rows: list[tuple[Any, ...]] = [
        (1, None, None, None, None, None),
        (2, -(2**63), math.nan, True, "0001-01-01", 2**63 - 1),
        (3, 0, -0.0, False, "2024-02-29", -1),
        (4, 7, 0.1, True, "9999-12-31", 0),
        (5, 7, -math.inf, True, "9999-12-31", 0),
        (6, 7, 1e22, True, "9999-12-31", 0),
    ]
    columns = list(zip(*rows))
    days = np.array([day or "NaT" for day in columns[4]], "datetime64[D]")
    given_ = dict(zip(EVERY.names, map(pa.array, columns)))
    given_["day"] = pa.array(days)
    given_["real"] = pa.array(columns[2], pa.float64(), from_pandas=False)
    words = EVERY.encode(given_)
    text = written(tmp_path / "out.jsonl", [{"v": Updates.of(words, 5, 1)}], {"v": EVERY})
    found = [json.loads(line)["data"] for line in text.splitlines()]
    shown = [list(row) for row in rows]
    shown[1][2], shown[2][2], shown[4][2] = "NaN", 0.0, "-Infinity"
    assert found == shown
    assert '"data":[6,7,1e+22,true,"9999-12-31",0]' in text


def test_an_empty_file_is_written(tmp_path: Path) -> None:
    assert written(tmp_path / "out.jsonl", [{"reach": numbers()}], {"reach": NUMBER}) == ""
    assert list(tmp_path.iterdir()) == [tmp_path / "out.jsonl"]


Change = tuple[str, int, int, int]
CHANGES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(-2, 2), st.integers(0, 9), st.sampled_from([-2, -1, 1, 2]))
)


@given(made=CHANGES, cuts=st.sets(st.integers(1, 9)), wait=st.sampled_from([1, 3, 1 << 18]))
def test_any_epochs_write_the_same_consolidated_sorted_lines(
    tmp_path_factory: pytest.TempPathFactory, made: list[Change], cuts: set[int], wait: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vernier.service.files.changefiles._WAITING", wait)
        edges = [0, *sorted(cuts), 10]
        epochs = [
            {
                view: numbers(*((n, t, d) for name, n, t, d in made if name == view and lower <= t < upper))
                for view in "abc"
            }
            for lower, upper in pairwise(edges)
        ]
        folder = tmp_path_factory.mktemp("changes")
        text = written(folder / "out.jsonl", epochs, dict.fromkeys("ab", NUMBER))
    totals: dict[tuple[int, str, int], int] = {}
    for view, n, time, diff in made:
        if view != "c":
            totals[time, view, n] = totals.get((time, view, n), 0) + diff
    lines = [
        json.dumps({"view": view, "data": [n], "time": time, "diff": diff}, separators=(",", ":")) + "\n"
        for (time, view, n), diff in sorted(totals.items())
        if diff
    ]
    assert text == "".join(lines)


def test_compressed_files_are_the_same_bytes_too(tmp_path: Path) -> None:
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        with ChangeFile(tmp_path / name, {"reach": NUMBER}) as out:
            out.add({"reach": numbers((1, 17, 1))})
    one, other = ((tmp_path / name).read_bytes() for name in ("a.jsonl.gz", "b.jsonl.gz"))
    assert one == other
    assert gzip.decompress(one) == b'{"view":"reach","data":[1],"time":17,"diff":1}\n'


def test_after_an_error_the_old_file_stays_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("before\n")

    def fail() -> None:
        with ChangeFile(path, {"reach": NUMBER}) as out:
            out.add({"reach": numbers((1, 17, 1))})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_text() == "before\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path, reason in (
        (tmp_path / "nowhere" / "out.jsonl", "no such file or directory"),
        (tmp_path / "folder", "is a directory"),
    ):
        with pytest.raises(CannotWrite) as raised:
            ChangeFile(path, {"reach": NUMBER})
        assert str(raised.value) == f"cannot write {path}: {reason}"


def test_a_pipe_is_written_as_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with ChangeFile(pipe, {"reach": NUMBER}) as out:
        out.add({"reach": numbers((1, 17, 1))})
    reader.join(30)
    assert read == ['{"view":"reach","data":[1],"time":17,"diff":1}\n']
    assert pipe.is_fifo()
