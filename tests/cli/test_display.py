"""How rows are shown to people."""

from __future__ import annotations

import pytest

from vernier.service.cli.display import instant, shown
from vernier.service.cli.sql_shell import _show
from vernier.service.client.client import Answer
from vernier.storage.updates import MIN_TIME


def test_timestamps_are_dates_and_counters_are_numbers() -> None:
    kinds = ["TimestampNs", "TimestampNs | None", "TIMESTAMP_NS", "TIMESTAMP_NS[]", "Int64", "TimestampNs"]
    moment = 1_795_863_600_000_000_000
    row = [str(moment), None, moment, [str(moment)], moment, "17"]
    date = "2026-11-28T11:00:00.000000000Z"
    assert shown(row, kinds) == [date, None, date, f'["{moment}"]', moment, "17"]


def test_the_time_before_everything_is_the_beginning() -> None:
    assert [instant(MIN_TIME), instant(MIN_TIME + 1), instant(5)] == ["the beginning", "the beginning", "5"]


def test_an_answer_in_sql_has_its_columns_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [{"name": "n", "type": "BIGINT"}, {"name": "at", "type": "TIMESTAMP_NS"}]
    rows = [{"at": "1795863600000000000", "n": 1}]
    about = {"as_of": "7", "since": "0", "frontier": "8", "stale_ms": 1}
    _show(Answer({"columns": columns, "rows": rows, **about}), "table")
    assert capsys.readouterr().out.splitlines() == ["n  at", "1  2026-11-28T11:00:00.000000000Z"]
