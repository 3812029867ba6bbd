"""The newest dead letters in memory."""

from __future__ import annotations

from vernier.service.views.recent_dead_letters import MOST, RecentDeadLetters


def test_newest_first_and_bounded_by_number_and_bytes() -> None:
    letters = RecentDeadLetters()
    letters.add(1, [{"offset": n, "value": None, "key": None} for n in range(MOST + 5)])
    newest = letters.newest(3)
    assert [(letter["epoch"], letter["offset"]) for letter in newest] == [(1, MOST + 4), (1, MOST + 3), (1, MOST + 2)]
    assert len(letters.newest(10**6)) == MOST
    letters.add(2, [{"offset": n, "value": "x" * (1 << 20)} for n in range(40)])
    assert [letter["offset"] for letter in letters.newest(100)] == list(range(39, 24, -1))
    letters.clear()
    assert letters.newest(1) == []
