"""Update files of every kind, and what is said of bad ones."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vernier.operators.language.types.scalars import Bool, Date, Float64, Int64, TimestampNs
from vernier.operators.language.types.schema import RowType
from vernier.service.files.updatefiles import read_updates
from vernier.service.files.updatefiles.problems import BadUpdate, BadUpdateFile

GRAPH = {
    "edges": RowType([("src", Int64(), False), ("dst", Int64(), False)]),
    "roots": RowType([("node", Int64(), False)]),
}
MIXED = {
    "facts": RowType(
        [
            ("id", Int64(), False),
            ("note", Int64(), True),
            ("share", Float64(), False),
            ("good", Bool(), False),
            ("day", Date(), False),
            ("at", TimestampNs(), True),
        ]
    )
}
LINES = [
    {"input": "edges", "data": [1, 2], "time": 17, "diff": 1},
    {"input": "edges", "data": {"dst": 3, "src": 2}, "time": "5"},
    {"input": "roots", "data": [1], "time": 17, "diff": -2},
    {"input": "edges", "data": [-(2**63), 2**63 - 1], "time": -4, "diff": 2**63 - 1},
    {"input": "roots", "data": [7], "time": "1970-01-01T00:00:00.000000009Z", "diff": -(2**63)},
]
READ = {
    "edges": [((-(2**63), 2**63 - 1), -4, 2**63 - 1), ((2, 3), 5, 1), ((1, 2), 17, 1)],
    "roots": [((7,), 9, -(2**63)), ((1,), 17, -2)],
}


def read(*files: Path, sources: dict[str, RowType] | None = None) -> dict[str, list[tuple[tuple[Any, ...], int, int]]]:
    """What files hold, as Python values."""
    sources = sources or GRAPH
    return {
        name: list(zip(sources[name].decode_rows(one.rows), one.time.tolist(), one.diff.tolist(), strict=True))
        for name, one in read_updates(files, sources).items()
    }


def text(lines: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.mark.parametrize("end", ["\n", "", "\n\n  \n"])
def test_lines(tmp_path: Path, end: str) -> None:
    file = tmp_path / "u.jsonl"
    file.write_text(text(LINES).rstrip("\n") + end)
    assert read(file) == READ


def test_compressed_lines(tmp_path: Path) -> None:
    file = tmp_path / "u.jsonl.gz"
    file.write_bytes(gzip.compress(text(LINES).encode()))
    assert read(file) == READ


def test_carriage_returns_and_spaces(tmp_path: Path) -> None:
    file = tmp_path / "u.jsonl"
    file.write_bytes(b' { "input" : "roots" , "data" : [ 4 ] , "time" : 1 }\r\n\r\n')
    assert read(file) == {"edges": [], "roots": [((4,), 1, 1)]}


def test_a_file_longer_than_a_piece_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vernier.service.files.updatefiles.lines._BLOCK", 37)
    file = tmp_path / "u.jsonl"
    file.write_text(text(LINES * 3))
    expected = {name: [update for update in rows for _ in range(3)] for name, rows in READ.items()}
    assert read(file) == expected
    file.write_text(text(LINES * 3) + "x\n")
    with pytest.raises(BadUpdate, match="line 16: not JSON: Expecting value at column 1"):
        read(file)


def test_several_files_are_read_together_and_progress_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(text(LINES[:2]))
    (tmp_path / "b.jsonl").write_text(text(LINES[2:]))
    assert read(tmp_path / "b.jsonl", tmp_path / "a.jsonl") == READ
    told: list[tuple[int, int]] = []
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    read_updates(files, GRAPH, lambda done, size: told.append((done, size)))
    size = sum(file.stat().st_size for file in files)
    assert told[-1] == (size, size)


def arrow_table(data: pa.Array, more: dict[str, Any] | None = None) -> pa.Table:
    columns = {
        "input": pa.array(["edges", "roots", "edges"]),
        "data": data,
        "time": pa.array([9, 5, 7]),
        "diff": pa.array([1, None, -3]),
    }
    return pa.table(columns | (more or {}))


LISTS = pa.array([[1, 2], [4], [3, 1]])
STRUCTS = pa.array([{"src": 1, "dst": 2}, {"node": 4}, {"src": 3, "dst": 1}])
ARROWS = {"edges": [((3, 1), 7, -3), ((1, 2), 9, 1)], "roots": [((4,), 5, 1)]}


@pytest.mark.parametrize(
    "data", [LISTS, LISTS.cast(pa.large_list(pa.int32())), STRUCTS], ids=["list", "large", "struct"]
)
@pytest.mark.parametrize("kind", ["parquet", "file", "stream"])
def test_columns(tmp_path: Path, data: pa.Array, kind: str) -> None:
    table = arrow_table(data)
    file = tmp_path / ("u.parquet" if kind == "parquet" else "u.arrow")
    if kind == "parquet":
        pq.write_table(table, file, row_group_size=2)
    else:
        make: Callable[..., Any] = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        with make(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    assert read(file) == ARROWS


def test_columns_may_be_dictionaries_and_timestamps(tmp_path: Path) -> None:
    table = arrow_table(
        LISTS,
        {
            "input": pa.array(["edges", "roots", "edges"]).dictionary_encode(),
            "time": pa.array([9, 5, 7], pa.timestamp("ns")),
        },
    )
    pq.write_table(table, tmp_path / "u.parquet")
    assert read(tmp_path / "u.parquet") == ARROWS


def test_one_source_needs_no_input(tmp_path: Path) -> None:
    only = {"roots": GRAPH["roots"]}
    (tmp_path / "u.jsonl").write_text('{"data":[4],"time":1}\n')
    assert read(tmp_path / "u.jsonl", sources=only) == {"roots": [((4,), 1, 1)]}
    pq.write_table(pa.table({"data": [[4]], "time": [1]}), tmp_path / "u.parquet")
    assert read(tmp_path / "u.parquet", sources=only) == {"roots": [((4,), 1, 1)]}


def test_every_type_reads_the_same_from_lines_and_columns(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "note": None, "share": 0.1, "good": True, "day": "2024-02-29", "at": 2**62},
        {"id": 2, "note": 5, "share": -0.0, "good": False, "day": "0001-01-01", "at": None},
        {"id": 3, "note": -5, "share": 1e300, "good": False, "day": "9999-12-31", "at": 0},
    ]
    (tmp_path / "u.jsonl").write_text(text([{"input": "facts", "data": row, "time": 3} for row in rows]))
    struct = pa.array(rows)
    day = pa.array([row["day"] for row in rows]).cast(pa.date32())
    columns = [pa.array([row["at"] for row in rows], pa.timestamp("ns")) if f.name == "at" else day if f.name == "day"
               else struct.field(f.name) for f in struct.type]  # fmt: skip
    data = pa.StructArray.from_arrays(columns, names=[field.name for field in struct.type])
    pq.write_table(pa.table({"data": data, "time": [3, 3, 3]}), tmp_path / "u.parquet")
    lines, table = (read(tmp_path / name, sources=MIXED) for name in ("u.jsonl", "u.parquet"))
    assert lines == table
    assert [row[0] for row, _, _ in lines["facts"]] == [1, 2, 3]


BAD_LINES = {
    '{"input":"edge","data":[1,2],"time":1}': "unknown input 'edge'; did you mean 'edges'? (the program's inputs are",
    '{"data":[1,2],"time":1}': "the update names no input (the program's inputs are edges, roots)",
    '{"input":5,"data":[1,2],"time":1}': "input is 5, but it should be the name of a source",
    '{"input":"edges","data":[1],"time":1}': "data has 1 values, but the source has 2 columns (src, dst)",
    '{"input":"edges","data":[1,2,3],"time":1}': "data has 3 values, but the source has 2 columns (src, dst)",
    '{"input":"edges","data":{"src":1},"time":1}': "data has no field 'dst'",
    '{"input":"edges","data":{"src":1,"dst":2,"w":3},"time":1}': "data has the field 'w', which the source does not",
    '{"input":"edges","data":"ab","time":1}': "data is 'ab', but it should be an array or an object",
    '{"input":"edges","data":[1,"x"],"time":1}': "dst of data is 'x', which is not Int64",
    '{"input":"edges","data":[1,2.0],"time":1}': "dst of data is 2.0, which is not Int64",
    '{"input":"edges","data":[1,true],"time":1}': "dst of data is True, which is not Int64",
    '{"input":"edges","data":[1,null],"time":1}': "dst of data is null, but its type is Int64",
    '{"input":"edges","data":[1,9223372036854775808],"time":1}': "dst of data is 9223372036854775808, which does not",
    '{"input":"edges","data":[1,2]}': "the line has no time",
    '{"input":"edges","data":[1,2],"time":null}': "the line has no time",
    '{"input":"edges","time":1}': "the line has no data",
    '{"input":"edges","data":[1,2],"time":1.5}': "time is 1.5, but it should be nanoseconds since 1970 or RFC 3339",
    '{"input":"edges","data":[1,2],"time":"noon"}': "time is 'noon', which is neither an integer nor RFC 3339",
    '{"input":"edges","data":[1,2],"time":9223372036854775807}': "time is 9223372036854775807, outside",
    '{"input":"edges","data":[1,2],"time":-9223372036854775807}': "time is -9223372036854775807, outside",
    '{"input":"edges","data":[1,2],"time":99999999999999999999999}': "time is 99999999999999999999999, which does not",
    '{"input":"edges","data":[1,2],"time":1,"diff":0}': "diff is 0, which changes nothing",
    '{"input":"edges","data":[1,2],"time":1,"diff":9223372036854775808}': "diff is 9223372036854775808, which does",
    '{"input":"edges","data":[1,2],"time":1,"diff":1.0}': "diff is 1.0, but it should be an integer",
    '{"input":"edges","data":[1,2],"time":1,"dif":1}': "the line has the unknown member 'dif'",
    '{"input":"edges","data":[1,2],"time":1': "not JSON: Expecting ',' delimiter at column",
    '{"input":"edges","data":[1,2],"time":1} x': "not JSON: Extra data at column",
    "[1,2]": "the line is [1, 2], but an update is an object with input, data, time, diff",
    '{"resolved":5}': "the line has the unknown member 'resolved'",
    "\xff": "not UTF-8",
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "u.jsonl"
    good = '{"input":"roots","data":[1],"time":1}\n'
    file.write_bytes(f"{good}\n{line}\n{good}{line}\n".encode("latin-1"))
    with pytest.raises(BadUpdate) as raised:
        read(file)
    assert str(raised.value).startswith(f"{file}, line 3: {BAD_LINES[line]}")


def test_an_array_is_no_update_even_if_there_is_one_source(tmp_path: Path) -> None:
    (tmp_path / "u.jsonl").write_text("[4]\n")
    with pytest.raises(BadUpdate, match=r"line 1: the line is \[4\], but an update is an object"):
        read(tmp_path / "u.jsonl", sources={"roots": GRAPH["roots"]})


BAD_COLUMNS: dict[str, tuple[dict[str, Any], str]] = {
    "input": ({"input": ["edges", "root", "edges"]}, "row 2: unknown input 'root'; did you mean 'roots'?"),
    "no input": ({"input": pa.array([None, "roots", "edges"])}, "row 1: the update names no input"),
    "input kind": ({"input": [1, 2, 3]}, "column input is int64, expected the names of sources"),
    "arity": ({"data": [[1, 2], [4], [3, 1, 5]]}, "row 3: data has 3 values, but edges has 2 columns (src, dst)"),
    "type": ({"data": [[1.0, 2.0], [4.0], [3.0, 1.5]]}, "is not Int64"),
    "null row": ({"data": pa.array([[1, 2], None, [3, 1]])}, "row 2: there is no data"),
    "null": ({"data": pa.array([[1, 2], [4], [3, None]])}, "row 3: dst of data is None, which is not Int64"),
    "data kind": ({"data": [1, 2, 3]}, "column data is int64, but rows are lists in schema order or structs"),
    "field": (
        {"data": pa.array([{"src": 1, "dst": 2}, {"node": 4, "src": 4}, {"src": 3, "dst": 1}])},
        "row 2: data has the field 'src', which roots does not",
    ),
    "no field": ({"data": pa.array([{"src": 1}, {"node": 4}, {"src": 3}])}, "row 1: data has no field 'dst'"),
    "time": ({"time": pa.array([9, None, 7])}, "row 2: time is null"),
    "time range": ({"time": pa.array([9, 2**63 - 1, 7])}, "row 2: time is 9223372036854775807, outside"),
    "time kind": ({"time": pa.array([9.0, 5.0, 7.0])}, "column time is double, but it should be int64"),
    "huge": (
        {"time": pa.array([9, 5, 2**64 - 1], pa.uint64())},
        "row 3: time is 18446744073709551615, which does not fit 64 bits",
    ),
    "diff": ({"diff": pa.array([1, 0, 1])}, "row 2: diff is 0, which changes nothing"),
    "diff kind": ({"diff": pa.array(["a", "b", "c"])}, "column diff is string, but it should be int64"),
    "more": ({"dif": pa.array([1, 1, 1])}, "unknown column 'dif'; did you mean 'diff'?"),
}


@pytest.mark.parametrize("name", BAD_COLUMNS)
def test_a_bad_row_is_named(tmp_path: Path, name: str) -> None:
    more, problem = BAD_COLUMNS[name]
    file = tmp_path / "u.parquet"
    pq.write_table(arrow_table(LISTS, more), file, row_group_size=2)
    with pytest.raises((BadUpdate, BadUpdateFile)) as raised:
        read(file)
    assert str(raised.value).startswith(str(file))
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("u.csv", b"1,2\n", "the name of an update file ends in .jsonl, .jsonl.gz, .parquet, .arrow"),
        ("u.jsonl.gz", b"no gzip", "not a complete gzip file"),
        ("u.jsonl.gz", gzip.compress(text(LINES * 100).encode())[:-9], "not a complete gzip file"),
        ("u.parquet", b"no parquet at all", "cannot be read: "),
        ("u.arrow", b"no arrow at all, neither file nor stream", "cannot be read: "),
        ("missing.jsonl", None, "no such file or directory"),
    ],
)
def test_a_file_that_is_no_update_file(tmp_path: Path, name: str, content: bytes | None, problem: str) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadUpdateFile) as raised:
        read(file)
    assert str(raised.value).startswith(f"{file}: {problem}")
    assert "\n" not in str(raised.value)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    pq.write_table(arrow_table(LISTS).drop_columns(["time"]), tmp_path / "u.parquet")
    with pytest.raises(BadUpdateFile, match="no column 'time'"):
        read(tmp_path / "u.parquet")


@given(
    st.lists(
        st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-50, 50), st.integers(-3, 3).filter(bool)), max_size=40
    )
)
def test_updates_are_sorted_by_time_and_stay_as_they_stood_within_one(
    tmp_path_factory: pytest.TempPathFactory, made: list[tuple[int, int, int]]
) -> None:
    file = tmp_path_factory.mktemp("sorted") / "u.jsonl"
    file.write_text(text([{"input": "roots", "data": [n], "time": t, "diff": d} for n, t, d in made]))
    expected = [((n,), t, d) for n, t, d in sorted(made, key=lambda update: update[1])]
    assert read(file)["roots"] == expected
    assert read_updates([file], GRAPH)["roots"].data.dtype == np.int64
