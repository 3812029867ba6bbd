"""What is sent over HTTP becomes exactly the messages that ingestion reads, or is refused with its place."""

from __future__ import annotations

import io
import json
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.sidecar.builder import row_type
from vernier.service.ingest.formats import FORMATS
from vernier.service.sidecar.writes.parse import (
    BadBody,
    BadSubmission,
    Submission,
    Target,
    of_array,
    of_arrow,
    of_lines,
)
from vernier.storage.strings.string_heap import Heap

SCHEMA = row_type(
    n="Int64", at="TimestampNs | None", note="String", amount="Decimal(10, 2)", tags="List(Int64)", raw="Binary | None"
)
ROW = {"n": 7, "at": "1767225600000000001", "note": "a text that is longer than fifteen bytes", "amount": "1.50",
       "tags": [1, 2], "raw": None}  # fmt: skip


def target(**about: Any) -> Target:
    return Target(**({"name": "s", "schema": SCHEMA, "topic": "t", "format": "vernier", "clock": "event"} | about))


def read_back(given: Submission, partitions: int = 3, now_ns: int = 99) -> Counter[tuple[Any, ...]]:
    """(row, time, diff) of the messages, as ingestion decodes them; all of one row are in one partition."""
    heap, found, places = Heap(), Counter[tuple[Any, ...]](), {}
    for partition, value in given.messages(partitions, now_ns):
        parsed = FORMATS[given.target.format]({"s": given.target.schema, "other": row_type(x="Int64")}).decode(
            pa.array([value], pa.large_binary()), heap
        )
        assert not parsed.refused, parsed.refused
        for words, time, diff in zip(parsed.words["s"].tolist(), parsed.time.tolist(), parsed.diff.tolist()):
            assert places.setdefault(tuple(words), partition) == partition
            found[tuple(words), time] += diff
        for entry in parsed.progress:
            found["promise", partition, entry.upper] += 1
    return found


def expected(given: Submission, now_ns: int = 99) -> Counter[tuple[Any, ...]]:
    found = Counter[tuple[Any, ...]]()
    for words, time, diff in zip(given.words.tolist(), given.time.tolist(), given.diff.tolist()):
        found[tuple(words), now_ns if time == -(2**63) else time] += diff
    return found


@pytest.mark.parametrize("form", ["vernier", "json"])
def test_all_spellings_are_one_message(form: str) -> None:
    update = {"data": ROW, "time": 17, "diff": -2}
    lines = [
        update,
        {"input": "s", "data": list(ROW.values()), "time": "17", "diff": -2},
        {**ROW, "time": 17, "diff": -2},
    ]
    body = "\n".join(map(json.dumps, lines)) + "\n\n"
    given = of_lines(body.encode(), target(format=form))
    assert read_back(given) == expected(given) == {(tuple(given.words[0].tolist()), 17): -6}
    same = of_array(json.dumps(lines).encode(), target(format=form))
    assert np.array_equal(same.words, given.words)
    assert len(of_array(json.dumps(update).encode(), target(format=form))) == 1
    row = pa.table(
        {"n": [7], "at": [1767225600000000001], "note": [ROW["note"]], "amount": ["1.50"], "tags": [[1, 2]]},
    )
    sink = io.BytesIO()
    cast = row.set_column(3, "amount", row.column("amount").cast(pa.decimal128(10, 2)))
    whole = cast.append_column("_time", pa.array([17])).append_column("_diff", pa.array([-6]))
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole)
    streamed = of_arrow(sink.getvalue(), target(format=form))
    assert read_back(streamed) == read_back(given)
    assert (given.latest, of_lines(b"", target()).latest) == (17, None)


def test_many_updates_and_promises() -> None:
    wide = target(schema=row_type(n="Int64"))
    body = b"".join(b'{"data":[%d],"time":%d}\n' % (n % 700, n) for n in range(40_000)) + b'{"resolved":"50000"}\n'
    given = of_lines(body, wide)
    messages = list(given.messages(3, 0))
    assert len(messages) < 100
    found = read_back(given)
    assert {key: found.pop(key) for key in list(found) if key[0] == "promise"} == {
        ("promise", partition, 50_000): 1 for partition in range(3)
    }
    assert found == expected(given)
    assert given.numbers.tolist() == list(range(1, 40_001))


def test_an_arrival_clock_needs_no_times() -> None:
    given = of_lines(b'{"n":1}\n{"n":2}', target(schema=row_type(n="Int64"), clock="arrival"))
    assert given.latest is None
    assert read_back(given) == {((1,), 99): 1, ((2,), 99): 1}


@pytest.mark.parametrize(
    ("body", "number", "said"),
    [
        (b'{"data":[1],"time":5}\n\n{"data":[1,2],"time":5}', 3, "the row has 2 values"),
        (b'{"data":[1],"time":5}\n{"data":[1]', 2, "JSON"),
        (b'{"data":["x"],"time":5}', 1, "n of the row is 'x', which is not Int64"),
        (b'{"data":[1],"time":5,"diff":0}', 1, "diff is 0"),
        (b'{"input":"t","data":[1],"time":5}', 1, "no source 't' reads this topic"),
        (b'{"data":[1],"time":5}\n{"data":[2]}', 2, "there is no time, and source s has an event clock"),
        (b'{"data":[1],"time":5}\n{"data":[2],"time":4}', 2, "the time is before 5, the frontier of source s"),
        (b'{"data":[1],"time":5,"extra":1}', 1, "extra"),
        (b"\xff", 1, ""),
        (b"7", 1, "it should be an update or a row"),
    ],
)
def test_the_first_bad_line_is_named(body: bytes, number: int, said: str) -> None:
    with pytest.raises(BadSubmission) as error:
        of_lines(body, target(schema=row_type(n="Int64"), frontier=5))
    assert (error.value.unit, error.value.number) == ("line", number)
    assert said in str(error.value)
    assert str(error.value).endswith("nothing was sent")


def test_bodies_that_are_something_else() -> None:
    for read, body in ((of_array, b"[1"), (of_array, b'"x"'), (of_arrow, b"x"), (of_arrow, b"")):
        with pytest.raises(BadBody, match="nothing was sent"):
            read(body, target())
    sink = io.BytesIO()
    table = pa.table({"n": [1, None]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(BadSubmission, match="row 2: n"):
        of_arrow(sink.getvalue(), target(schema=row_type(n="Int64"), clock="arrival"))
    with pytest.raises(BadBody, match="column 'n' is not one of m, _time, _diff"):
        of_arrow(sink.getvalue(), target(schema=row_type(m="Int64")))
    long = of_lines(json.dumps({**ROW, "note": "x" * 3_000, "time": 1}).encode(), target(max_message_bytes=2_048))
    with pytest.raises(BadSubmission, match="line 1: the update has 3"):
        list(long.messages(1, 0))
