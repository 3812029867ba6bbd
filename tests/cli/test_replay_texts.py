"""Replay of rows with long texts: from Parquet, through workers that are processes, to a change file."""

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vernier as vn
from tests.cli.command import vernier

PROGRAM = """
import vernier as vn

class Note(vn.Schema):
    name: vn.String
    tags: vn.List(vn.String | None)
    price: vn.Decimal(20, 2) | None
    place: vn.Struct(x=vn.Float64, at=vn.Date | None)
    body: vn.Binary

app = vn.App("notes")
notes = app.source("notes", Note)
app.view("all", notes.distinct())
app.view("tagged", notes.join(notes.select("tags", other="name"), on="tags").select("name", "other"))
"""
Row = dict[str, Any]


def note(number: int) -> Row:
    start = "names of this length are longer than what words hold: "
    return {
        "name": f'{start if number % 2 else ""}"{number % 13}"\n',
        "tags": [None, start, "b"][: number % 4],
        "price": None if number % 5 == 0 else decimal.Decimal(number).scaleb(-2),
        "place": {"x": number / 8, "at": None if number % 3 else datetime.date(2020, 1, 1 + number % 28)},
        "body": bytes([number % 256]) * (number % 40),
    }


def shown(value: Any) -> Any:
    match value:
        case dict():
            return {name: shown(one) for name, one in value.items()}
        case list() | tuple():
            return [shown(one) for one in value]
        case decimal.Decimal():
            return f"{value:f}"
        case datetime.date():
            return value.isoformat()
        case bytes():
            return pa.scalar(value).as_buffer().hex()
    return value


def without_bytes(row: list[Any], view: str) -> list[Any]:
    """Bytes have a test of their own (test_arrowjson.py)."""
    return row[:-1] if view == "all" else row


@pytest.mark.parametrize("workers", [1, 2])
def test_texts_go_through_a_replay(tmp_path: Path, workers: int) -> None:
    (tmp_path / "notes.py").write_text(PROGRAM)
    changes = [(note(number), 3 * number, 1) for number in range(60)]
    changes += [(note(number), 3 * number + 50, -1) for number in range(0, 60, 2)]
    kind = pa.struct(
        {
            "name": pa.string(),
            "tags": pa.list_(pa.string()),
            "price": pa.decimal128(10, 2),
            "place": pa.struct({"x": pa.float64(), "at": pa.date32()}),
            "body": pa.binary(),
        }
    )
    table = pa.table(
        {
            "data": pa.array([row for row, _, _ in changes], kind),
            "time": [time for _, time, _ in changes],
            "diff": [diff for _, _, diff in changes],
        }
    )
    pq.write_table(table, tmp_path / "notes.parquet", row_group_size=17)
    words = ["replay", "notes.py", "--updates", "notes.parquet", "--out", "out.jsonl", "--epoch-size", 9]
    done = vernier(*words, "--workers", workers, cwd=tmp_path)
    assert (done.status, done.err) == (0, "")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    found = [(line["view"], without_bytes(line["data"], line["view"]), line["time"], line["diff"]) for line in lines]
    app = vn.load_program(tmp_path / "notes.py")
    with vn.testing.run(app) as t:
        t.update("notes", changes)
        t.finish()
        expected = [
            (view, without_bytes(shown(row), view), time, diff)
            for view in ("all", "tagged")
            for row, time, diff in t.changes(view)
        ]
    # Stable, so it also holds the file to the order of rows within a view and time.
    assert found == sorted(expected, key=lambda change: (change[2], change[0]))
