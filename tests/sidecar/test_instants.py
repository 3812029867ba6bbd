"""Times as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vernier.operators.language.types.scalars import TimestampNs
from vernier.operators.language.types.schema import RowType
from vernier.operators.language.types.texts import List
from vernier.service.codec.instants import BadInstant, InstantOutOfRange, NoZone, format_instant, parse_instant
from vernier.service.config.settings import BadSettings, load
from vernier.service.ingest.formats.judge import judge_row, judge_time
from vernier.service.ingest.rejects import Refusal
from vernier.storage.updates import CLOSED, MIN_TIME


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [
        ("17", 17),
        ("-5", -5),
        (str(CLOSED), CLOSED),
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00.000000001z", 1),
        ("1969-12-31T23:59:59.999999999Z", -1),
        ("2026-01-31 12:00:00.5+01:00", 1_769_857_200_500_000_000),
        ("2024-02-29T23:59:59.123456789-05:30", 1_709_270_999_123_456_789),
    ],
)
def test_exact(given_text: str, expected: int) -> None:
    assert parse_instant(given_text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "1.5",
        "2026-13-01T00:00:00Z",
        "2026-01-01",
        "2026-01-01T00:00:00",
        "٣",
        "1e9",
        " 5",
        "5 ",
        "\n5",
        "+5",
        "1_0",
        "--5",
        "2026-W01-1",
        "2026-W01-1T00:00:00Z",
        "20260101T000000Z",
        "2026-01-01T00:00:00+24:00",
        "2026-01-01T00:00:00+01:60",
        " 2026-01-01T00:00:00Z",
        "2026-01-01T00:00:60Z",
        "2026-01-01T00:00:00,5Z",
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(BadInstant):
        parse_instant(text)


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00", "2026-01-31 12:00:00.5"])
def test_a_time_without_a_zone_says_what_to_append(text: str) -> None:
    with pytest.raises(
        NoZone, match=f"'{text}' is a time without a zone; append Z for UTC \\({text}Z\\), or an offset"
    ) as told:
        parse_instant(text)
    assert told.value.code == "bad_instant"
    assert parse_instant(f"{text}Z")


def test_updates_and_settings_say_it_too(tmp_path: Path) -> None:
    text = "2026-01-31T12:00:00"
    said = r"'2026-01-31T12:00:00' is a time without a zone; append Z for UTC \(2026-01-31T12:00:00Z\)"
    row = RowType([("at", TimestampNs(), False), ("steps", List(TimestampNs()), False)])
    with pytest.raises(Refusal, match=f"time: {said}"):
        judge_time(text, "time")
    with pytest.raises(Refusal, match=f"at of data: {said}"):
        judge_row([text, []], row, "data")
    with pytest.raises(Refusal, match=said):
        judge_row([0, [text]], row, "data")
    with pytest.raises(BadSettings, match=said):
        load(None, {"state.discard_after": text}, {})
    file = tmp_path / "settings.yaml"
    file.write_text(f"state: {{discard_after: {text}}}")  # YAML takes it for a moment without a zone
    with pytest.raises(BadSettings, match=said):
        load(file, {}, {})


@pytest.mark.parametrize("given_time", [CLOSED + 1, MIN_TIME - 1, str(2**80), "9999-01-01T00:00:00Z"])
def test_out_of_range(given_time: str | int) -> None:
    with pytest.raises(InstantOutOfRange):
        parse_instant(given_time)


@given(st.integers(MIN_TIME, CLOSED))
def test_round_trip(instant: int) -> None:
    assert parse_instant(format_instant(instant)) == instant
