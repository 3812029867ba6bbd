"""The oracle of the chaos test against the local engine: the same random updates, every view at every time."""

import random
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

import vernier as vn
from bench.chaos.program import app
from bench.chaos.truth import SOURCES, VIEWS, Truth, Update, changes

TEXTS = (None, "", "short", "a text that is longer than fifteen bytes", "a text that is longer than fifteen bytes too")


def some_row(source: str, chance: random.Random) -> tuple[Any, ...]:
    """A row of few different values, so that rows meet."""
    text, small = chance.choice(TEXTS), chance.randrange(6)
    return {
        "links": (small, chance.randrange(6)),
        "people": (small, text, chance.choice(TEXTS)),
        "orders": (small, chance.choice((None, 0, 1, 2)), text, chance.choice((None, "1.50", "-2.00", "10.25"))),
        "payments": (small, chance.randrange(6), text),
        "clicks": (small % 3, text, chance.randrange(40) * 1_000_000_000),
        "notes": (small, text, chance.randrange(3)),
    }[source]


def some_updates(seed: int) -> list[Update]:
    """Inserts, and deletes of what is there; at most one row of people has an id."""
    chance = random.Random(seed)
    live: dict[str, list[tuple[Any, ...]]] = {name: [] for name in SOURCES}
    found = []
    for time in range(1, 120):
        source = chance.choice(sorted(live))
        row = some_row(source, chance)
        if source == "people":
            for old in [one for one in live[source] if one[0] == row[0]]:
                live[source].remove(old)
                found.append(Update(source, old, time, -1))
        elif live[source] and chance.random() < 0.4:
            found.append(Update(source, live[source].pop(chance.randrange(len(live[source]))), time, -1))
        live[source].append(row)
        found.append(Update(source, row, time, 1))
    return found


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(str(value) if isinstance(value, Decimal) else value for value in row)


@pytest.mark.parametrize("seed", range(4))
def test_the_oracle_and_the_engine_agree(seed: int) -> None:
    updates = some_updates(seed)
    with vn.testing.run(app) as t:
        for update in updates:
            row = tuple(
                Decimal(v) if update.source == "orders" and i == 3 and v is not None else v
                for i, v in enumerate(update.row)
            )
            (t.insert if update.diff > 0 else t.delete)(update.source, row, at=update.time)
        t.finish()
        found = {view: Counter({(plain(row), time): diff for row, time, diff in t.changes(view)}) for view in VIEWS}
    wanted: dict[str, Counter[Any]] = {view: Counter() for view in VIEWS}
    for time, before, after in Truth(updates).steps():
        for view in after:
            for row, diff in changes(before[view], after[view]):
                wanted[view][row, time] += diff
    for view in VIEWS:
        assert found[view] == wanted[view], view
