"""The scanner kernels beside typed msgspec decoders, on the same JSON messages: CPU time of a row, from bytes to words.

    python -m bench.scanner --rows 50000 --rounds 9

`ours` is ingestion's own format (service/ingest/formats). `decoded` is only the library's part: each message becomes a
struct whose type is made from the source's schema. `words` adds what ingestion needs, rows of words, through Arrow.
`checked` adds what ingestion must know before it uses them: that no member comes twice (the sieve), and that decimals
and times are spelled as ingestion allows. The structs take only the spelling that is measured. `door` is a whole epoch
at ingestion with our format: decode, advance the frontier, admit; `door_ratio` is what it would be with `checked` in
place of `ours`. All answers are compared; all take turns. One JSON line: medians in nanoseconds of CPU of all threads.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter
from statistics import median
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.record import tell
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Int64, TimestampNs, Type
from vernier.operators.language.types.schema import RowType
from vernier.operators.language.types.texts import String
from vernier.service.ingest.config import IngestionConfig, SourceConfig
from vernier.service.ingest.formats import make_format
from vernier.service.ingest.formats.columns import DIFF, TIME, rows_of
from vernier.service.ingest.formats.messages import Parsed
from vernier.service.ingest.formats.sieve import doubtful
from vernier.service.ingest.ingestion import Admitted, Ingestion
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import Ints

BEGIN = 1_700_000_000_123_456_789
SCHEMAS = {
    "ints": RowType([("src", Int64(), False), ("dst", Int64(), False)]),
    "mixed": RowType(
        [
            ("id", Int64(), False),
            ("customer", String(), False),
            ("price", Decimal(12, 2), False),
            ("paid", TimestampNs(), False),
        ]
    ),
}
INTEGER = r"^-?(0|[1-9][0-9]*)$"
DECIMAL = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$"
MOMENT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})$"
Rows = tuple[Ints, Ints, Ints]
"""Words int64[n, width], times and diffs int64[n]."""


def rows(schema: str, count: int) -> list[list[object]]:
    """Values as JSON has them: integers beyond the doubles' exact ones, texts, decimals and RFC 3339 as strings."""
    rng = np.random.default_rng(1)
    ids = rng.integers(-(2**63), 2**63 - 1, (count, 2)).tolist()
    if schema == "ints":
        return ids
    cents, moments = rng.integers(-(10**9), 10**9, count).tolist(), rng.integers(0, 10**9, count).tolist()
    return [
        [one, f"customer {other % 10**6}", f"{cent // 100}.{cent % 100:02d}", f"2026-11-22T08:30:00.{ns:09d}Z"]
        for (one, other), cent, ns in zip(ids, cents, moments, strict=True)
    ]


class Native:
    """A thousand rows a message, as arrays."""

    name, each = "vernier", 1000

    @staticmethod
    def messages(given: Sequence[list[object]], names: Sequence[str]) -> list[bytes]:
        """The messages of rows at times that count up."""
        updates = [[row, str(BEGIN + at), 1] for at, row in enumerate(given)]
        parts = [updates[start : start + Native.each] for start in range(0, len(updates), Native.each)]
        return [msgspec.json.encode({"v": 1, "t": part[0][1], "u": part}) for part in parts]

    @staticmethod
    def struct(row_type: RowType) -> Any:
        """The type of a message."""
        update = struct("Update", [("row", row_struct(row_type, array=True)), *LAST], array=True)
        return struct("Message", [("v", Literal[1]), ("t", str), ("u", list[update])])

    @staticmethod
    def updates(found: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """What has the rows' columns, and what has times and diffs."""
        updates = list(chain.from_iterable(map(attrgetter("u"), found)))
        return column(updates, "row"), updates


class Lines:
    """One row a message, as an object, with time and diff beside it."""

    name = "json"

    @staticmethod
    def messages(given: Sequence[list[object]], names: Sequence[str]) -> list[bytes]:
        """The messages of rows at times that count up."""
        return [
            msgspec.json.encode({"data": dict(zip(names, row, strict=True)), "time": str(BEGIN + at), "diff": 1})
            for at, row in enumerate(given)
        ]

    @staticmethod
    def struct(row_type: RowType) -> Any:
        """The type of a message."""
        return struct("Message", [("data", row_struct(row_type, array=False)), *LAST])

    @staticmethod
    def updates(found: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """What has the rows' columns, and what has times and diffs."""
        return column(found, "data"), list(found)


def integer() -> Any:
    """The type of an integer of 64 bits."""
    return Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


def json_type(kind: Type) -> Any:
    """The type that msgspec reads a value as. msgspec's own datetime has microseconds, and Arrow casts decimals from
    texts faster than from Python's."""
    return integer() if isinstance(kind, Int64) else str


LAST = [("time", str), ("diff", integer())]


def struct(name: str, members: Sequence[tuple[str, Any]], *, array: bool = False) -> Any:
    """A struct type that refuses unknown members, and that the garbage collector does not follow."""
    return msgspec.defstruct(name, members, array_like=array, forbid_unknown_fields=True, gc=False)


def row_struct(row_type: RowType, *, array: bool) -> Any:
    """The type of a row."""
    return struct("Row", [(field.name, json_type(field.type)) for field in row_type.fields], array=array)


def column(given: Sequence[Any], name: str) -> list[object]:
    """One member of each."""
    return list(map(attrgetter(name), given))


def array_of(values: Sequence[object], kind: Type, *, strict: bool) -> pa.Array:
    """A column as Arrow. strict: check how its values are spelled."""
    if isinstance(kind, Int64):
        return pa.array(values, pa.int64())
    texts = pa.array(values, pa.large_string())
    if isinstance(kind, String):
        return texts
    if isinstance(kind, TimestampNs):
        return spelled(texts, MOMENT, strict=strict).cast(pa.timestamp("ns", "UTC"))
    return spelled(texts, DECIMAL, strict=strict).cast(kind.arrow)


def spelled(texts: pa.Array, pattern: str, *, strict: bool) -> pa.Array:
    """The texts, if all of them match."""
    if strict and not pc.all(pc.match_substring_regex(texts, pattern)).as_py():
        raise SystemExit("a value is spelled in another way")
    return texts


class Typed:
    """Ingestion with msgspec, for one source and one form of messages."""

    def __init__(self, form: type[Native | Lines], row_type: RowType) -> None:
        self._form, self._row_type = form, row_type
        self._decode = msgspec.json.Decoder(form.struct(row_type)).decode

    def decoded(self, values: pa.LargeBinaryArray) -> list[Any]:
        """A struct a message."""
        return list(map(self._decode, values.to_pylist()))

    def words(self, values: pa.LargeBinaryArray, *, strict: bool = False) -> Rows:
        """Rows of words."""
        given, updates = self._form.updates(self.decoded(values))
        fields = self._row_type.fields
        arrays = {field.name: array_of(column(given, field.name), field.type, strict=strict) for field in fields}
        times = pa.array(column(updates, "time"), pa.large_string())
        arrays[TIME] = spelled(times, INTEGER, strict=strict).cast(pa.int64())
        arrays[DIFF] = pa.array(column(updates, "diff"), pa.int64())
        return rows_of(arrays, len(updates), self._row_type, Heap())

    def checked(self, values: pa.LargeBinaryArray) -> Rows:
        """Rows of words of messages that are legal."""
        if doubtful(values).any():
            raise SystemExit("a message is doubtful")
        return self.words(values, strict=True)


def door_of(form: type[Native | Lines], row_type: RowType, values: pa.LargeBinaryArray) -> Callable[[], Admitted]:
    """A whole epoch at ingestion: decode the messages as Spark hands them over, advance the frontier, admit."""
    source = SourceConfig("topic", format=form.name, clock="event", lateness_ns=0)
    config = IngestionConfig({"source": source}, {"topic": 1}, "heartbeat", 1, max_message_bytes=1 << 20)
    ingestion, count = Ingestion({"source": row_type}, config), len(values)
    columns = {
        "key": pa.nulls(count, pa.binary()),
        "value": values.cast(pa.binary()),
        "topic": pa.array(["topic"] * count),
        "partition": pa.array(np.zeros(count, np.int32)),
        "offset": pa.array(np.arange(count)),
        "timestamp": pa.array(np.full(count, BEGIN // 1_000_000)),
    }
    batch = pa.RecordBatch.from_pydict(columns)

    def run() -> Admitted:
        decoded = ingestion.decode([batch], {}, {}, {}, Heap())
        return ingestion.admit(decoded, {}, ingestion.advance({}, [decoded.facts]))

    return run


def same(parsed: Parsed, other: Rows) -> bool:
    """Whether both read the same updates."""
    ours = (*parsed.words.values(), parsed.time, parsed.diff)
    return not parsed.refused and all(np.array_equal(*pair) for pair in zip(ours, other, strict=True))


def measure(schema: str, form: type[Native | Lines], count: int, rounds: int) -> dict[str, object]:
    """Median nanoseconds a row of each."""
    row_type = SCHEMAS[schema]
    values = pa.array(form.messages(rows(schema, count), row_type.names), pa.large_binary())
    ours, typed = make_format(form.name, {"source": row_type}), Typed(form, row_type)
    parsed = ours.decode(values, Heap())
    if not same(parsed, typed.checked(values)) or len(parsed.time) != count:
        raise SystemExit("the answers differ")
    through = door_of(form, row_type, values)
    entered = through()
    if entered.dead or len(entered.inputs["source"]) + sum(map(len, entered.held["source"])) != count:
        raise SystemExit("ingestion has refused messages")
    runs: dict[str, Callable[[], object]] = {
        "door": through,
        "ours": lambda: ours.decode(values, Heap()),
        "decoded": lambda: typed.decoded(values),
        "words": lambda: typed.words(values),
        "checked": lambda: typed.checked(values),
    }
    took: dict[str, list[int]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            began = time.process_time_ns()
            run()
            took[name].append(time.process_time_ns() - began)
    ns = {name: median(each) / count for name, each in took.items()}
    return {
        "format": form.name,
        "columns": schema,
        "bytes": round(values.nbytes / count, 1),
        **{f"{name}_ns": round(each, 1) for name, each in ns.items()},
        **{f"{name}_ratio": round(ns[name] / ns["ours"], 2) for name in ("decoded", "words", "checked")},
        "door_ratio": round(1 + (ns["checked"] - ns["ours"]) / ns["door"], 2),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    # As workers do (service/cluster/daemon.py): what is loaded is not collected again.
    gc.collect()
    gc.freeze()
    cases = [measure(schema, form, given.rows, given.rounds) for form in (Native, Lines) for schema in SCHEMAS]
    result = {"rows": given.rows, "rounds": given.rounds, "cases": cases, "load": round(os.getloadavg()[0], 1)}
    tell(result)


if __name__ == "__main__":
    main()
