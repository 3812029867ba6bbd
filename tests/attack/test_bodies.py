"""Bodies and values that come over HTTP: refused with a status, whatever they hold, by a process that lives."""

from __future__ import annotations

import codecs
import contextlib
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.attack.hostile import Hostile, hostile_messages
from tests.attack.hostile_binary import bomb, stream
from vernier.operators.errors import BadValue
from vernier.service.codec.instants import BadInstant, InstantOutOfRange, parse_day
from vernier.service.sidecar.writes.parse import BadBody, BadSubmission, BodyTooLarge, Target, read_body
from vernier.service.views.json_rows import encode_value
from vernier.storage.errors import CallerError
from vernier.storage.strings.string_heap import Heap

LINES, ARRAY, ARROW = "application/x-ndjson", "application/json", "application/vnd.apache.arrow.stream"
DEEP = "[" * 3_000 + "]" * 3_000


def target(**about: Any) -> Target:
    return Target(
        **({"name": "s", "schema": Hostile.row_type, "topic": "t", "format": "vernier", "clock": "arrival"} | about)
    )


@pytest.mark.parametrize("kind", [LINES, ARRAY, ARROW])
def test_every_hostile_body_is_refused(kind: str) -> None:
    """In a process of its own: one of them may end it."""
    code = f"from tests.attack.test_bodies import check_all; check_all({kind!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]


def check_all(kind: str) -> None:
    """Raises AssertionError with the first body that is taken."""
    for _, value in hostile_messages("arrow" if kind == ARROW else "json"):
        if not (value or b"").strip() or value[:1] == b"[" or (kind == ARROW and value[:1] == b"{"):
            continue
        if kind == LINES and value.startswith(codecs.BOM_UTF8):
            continue  # passed over, as in a file of updates
        body = value if kind != ARRAY or value[:1] == b"{" else b"[%b]" % value
        try:
            read_body(kind, body, target())
            said = None
        except (BadBody, BadSubmission, BodyTooLarge) as error:
            said = str(error)
        assert said is not None, body[:500]
        assert len(said) < 3_000
        assert " RecursionError" not in said


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_small_body_of_much_is_too_large(codec: str) -> None:
    body = bomb(codec)
    assert len(body) < 500_000
    with pytest.raises(BodyTooLarge, match="more than max_decoded_bytes, 67108864"):
        read_body(ARROW, body, target())
    few = stream({"id": pa.array(np.zeros(10_000, np.int64))}, codec)
    assert len(read_body(ARROW, few, target())) == 10_000
    with pytest.raises(BodyTooLarge):
        read_body(ARROW, few, target(max_decoded_bytes=80_000))


def test_a_diff_beyond_its_range_is_named() -> None:
    body = b'{"data":{"id":1}}\n{"data":{"id":1},"diff":2147483649}'
    with pytest.raises(
        BadSubmission, match="line 2: the diff is 2147483649, outside the diff_range of -2147483648"
    ) as found:
        read_body(LINES, body, target())
    assert found.value.number == 2
    assert len(read_body(LINES, body, target(diff_range=2**31 + 1))) == 2
    with pytest.raises(BadSubmission, match="row 1: the diff is -9223372036854775808"):
        read_body(ARROW, stream({"id": pa.array([1]), "_diff": pa.array([-(2**63)])}), target())


def test_what_is_not_foreseen_is_a_bad_body(monkeypatch: pytest.MonkeyPatch) -> None:
    from vernier.service.sidecar.writes import parse

    def fail(*_: object) -> None:
        raise ZeroDivisionError("of all things")

    monkeypatch.setattr(parse, "split_lines", fail)
    with pytest.raises(BadBody, match="ZeroDivisionError of all things"):
        read_body(LINES, b"[1]", target())


VALUES: dict[str, tuple[str, ...]] = {
    "id": ("+5", " 5", "5 ", "1_0", "1e3", "1.0", "\u0665", "0x5", "9" * 5_000, "", "9223372036854775808", "\ud800"),
    "m": (
        "1e-999999999", "1e-1000", "1e-95", "+5", " 5", "1_0", "\u0665", "NaN", "inf", "", "1e999999999", "9" * 5_000,
        "0.001", ".5",
        "5.", "1e99999999999999999999", "\ud800",
    ),
    "at": ("+5", " 5", "1_0", "2026-W01-1", "2026-W01-1T00:00:00Z", "2026-01-01", "9" * 5_000, "\ud800"),
    "day": ("2026-W01-1", "20260101", "2026-1-1", " 2026-01-01", "\u0662\u0660\u0662\u0666-01-01", "2026-02-30", ""),
    "x": ("+5", " 5", "1_0", "inf", "nan", "infinity", "-inf", "1e999", ".5", "5.", "0x1p3", "", "9" * 5_000, "\u0665"),
    "tags": (DEEP, "[" * 900 + "]" * 900, "[NaN]", "[1e999]", "[1", "{}", "[1.0]", '["1"]', "[" * 9_000, "\ud800"),
    "raw": ("\u00e9", "!", "A", "\ud800"),
    "note": ("\ud800",),
}  # fmt: skip


@pytest.mark.parametrize(("column", "text"), [(column, text) for column, texts in VALUES.items() for text in texts])
def test_values_of_questions_are_spelled_as_the_documents_say(column: str, text: str) -> None:
    with pytest.raises(CallerError) as found:
        encode_value(Hostile.row_type.field(column), text, Heap())
    assert len(str(found.value)) < 6_000


@pytest.mark.parametrize(
    "given", [10**30, 1e300, float("inf"), float("nan"), True, {"a": 1}, [[1]], [DEEP], "x" * 10**6, -(10**4_000)]
)
@pytest.mark.parametrize("column", list(VALUES))
def test_keys_of_a_body_are_values_or_refused(column: str, given: object) -> None:
    """What a JSON body may hold in place of a value."""
    with contextlib.suppress(BadValue, BadInstant, InstantOutOfRange):
        encode_value(Hostile.row_type.field(column), given, Heap())


@pytest.mark.parametrize(
    "text", ["2026-W01-1", "20260101", "2026-001", " 2026-01-1", "2026-01-01T", "+026-01-01", "2026-1-01"]
)
def test_a_day_has_one_spelling(text: str) -> None:
    with pytest.raises(ValueError, match="YYYY-MM-DD"):
        parse_day(text)
