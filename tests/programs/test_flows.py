"""Flows that compact themselves, after "Managing memory with differential dataflow", against state machines in plain
Python, at every time of their inputs.

The state machines read the updates in order and keep what a programmer would keep by hand; they know neither
collections nor delays of a variable.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import pytest

import vernier as vn
from tests.programs.snapshots import Change, Held, Row, compare, load
from vernier.operators.failures import DelayedCycleDidNotSettle
from vernier.operators.language.collection.collection import Collection

SEEDS = (1, 2, 3)
RETAINED = 50
"""The delay of top_ten and last_three."""


class Input(vn.Schema):
    key: vn.Int64
    data: vn.Int64


def bursts(seed: int, width: int, kept: int) -> list[Change]:
    """Bursts of rows (key, at, …) and, when nothing has come for longer than the delay, deletions: of rows that are
    among the last `kept` of their key, and of older ones."""
    choose = random.Random(seed)
    found: list[Change] = []
    live: list[Row] = []
    time, number = 1_000, 0
    for _ in range(4):
        for _ in range(choose.randrange(8, 24)):
            time += choose.choice((0, 1, 1, 7))
            number += 1
            row = (choose.randrange(2), choose.randrange(50) * 1_000 + number, choose.randrange(9))[:width]
            live.append(row)
            found.append((row, time, 1))
        time += RETAINED + 1
        for _ in range(choose.randrange(kept)):
            row = live.pop(choose.randrange(len(live)))
            found.append((row, time, -1))
            time += choose.choice((0, 1))
        time += RETAINED + 1
    return found


def newest(changes: list[Change], until: int, kept: int) -> list[Row]:
    """The rows that a table of `kept` rows a key holds: the least leaves when there is one too many."""
    tables: dict[int, list[Row]] = defaultdict(list)
    for row, time, diff in changes:
        if time > until:
            break
        table = tables[row[0]]
        if diff > 0:
            table.append(row)
            table.sort(key=lambda one: -one[1])
            del table[kept:]
        elif row in table:
            table.remove(row)
    return [row for table in tables.values() for row in table]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "source", "view", "width", "kept"), [
    ("top_ten", "readings", "newest", 2, 10), ("last_three", "values", "last", 3, 3),
])  # fmt: skip
def test_the_newest_rows_stay(name: str, source: str, view: str, width: int, kept: int, seed: int) -> None:
    changes = bursts(seed, width, kept)
    times = [time for _, time, _ in changes]

    def answer(held: Held, time: int) -> Mapping[str, Iterable[Row]]:
        rows = newest(changes, time, kept)
        quiet = not any(time - RETAINED <= one <= time for one in times)
        return {view: rows, "live": rows} if quiet else {view: rows}

    quiet = [one + RETAINED + 1 for one in times]
    assert compare(load(name), {source: changes}, answer, also=quiet, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_auctions_close(seed: int) -> None:
    delay, kept = 20, 200
    choose = random.Random(seed)
    auctions: list[Change] = []
    bids: list[Change] = []
    closes: dict[int, int] = {}
    for auction in range(4):
        opens = 1_000 + auction * choose.randrange(60)
        closes[auction] = opens + 100
        auctions.append(((auction, closes[auction]), opens, 1))
        for bidder in range(choose.randrange(8)):
            at = opens + choose.randrange(140)
            bid = (auction, bidder, choose.randrange(5) * 100, at)
            bids.append((bid, at, 1))
            if at < closes[auction] - 1 and choose.random() < 0.3:
                bids.append((bid, choose.randrange(at + 1, closes[auction]), -1))

    def answer(held: Held, time: int) -> Mapping[str, Iterable[Row]]:
        best: list[Row] = []
        live: list[Row] = []
        for auction, close in closes.items():
            mine = [row for row in held["bids"] if row[0] == auction]
            counted = sorted((row for row in mine if row[3] < close), key=lambda row: (-row[2], row[3], row[1]))
            if time < close + kept + delay:
                best += counted[:1]
                live += counted[:1]
            if time < close + delay:
                live += counted[1:]
            live += [row for row in mine if row[3] >= close and time < row[3] + delay]
        return {"best": best, "winners": [row for row in best if closes[row[0]] <= time], "live": live}

    ends = [close + more for close in closes.values() for more in (0, delay - 1, delay, kept + delay - 1, kept + delay)]
    ends += [at + delay for _, at, _ in bids]
    inputs = {"auctions": auctions, "bids": bids}
    # A bid may come before its time in the list of changes, not in data time: `compare` mixes them.
    assert compare(load("closing_auctions"), inputs, answer, also=ends, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_pairs_leave(seed: int) -> None:
    delay = 30
    choose = random.Random(seed)
    sent: list[Change] = []
    received: list[Change] = []
    ends: dict[tuple[int, int], tuple[int | None, int | None]] = {}
    for number in range(25):
        link, at = choose.randrange(2), 1_000 + choose.randrange(200)
        comes = at + choose.randrange(-5, 60)
        first: int | None = at
        second: int | None = comes
        if choose.random() < 0.2:
            first = None
        else:
            sent.append(((link, number, at), at, 1))
        if choose.random() < 0.2:
            second = None
            if choose.random() < 0.5 and first is not None:  # taken back before anything answers it
                sent.append(((link, number, at), at + choose.randrange(40), -1))
        else:
            received.append(((link, number, comes), comes, 1))
        ends[link, number] = first, second

    def answer(held: Held, time: int) -> Mapping[str, Iterable[Row]]:
        by_link: dict[int, list[int]] = defaultdict(list)
        left: set[tuple[int, int]] = set()
        for (link, number), (first, second) in ends.items():
            if first is not None and second is not None and max(first, second) <= time:
                by_link[link].append(second - first)
                if max(first, second) + delay <= time:
                    left.add((link, number))
        return {
            "by_link": [(link, len(took), sum(took)) for link, took in by_link.items()],
            "waiting_sent": [row for row in held["sent"] if row[:2] not in left],
            "waiting_received": [row for row in held["received"] if row[:2] not in left],
        }

    later = [time + delay for _, time, _ in (*sent, *received)]
    inputs = {"sent": sent, "received": received}
    assert compare(load("send_receive"), inputs, answer, also=later, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_window_for_deletions(seed: int) -> None:
    tick, window = 10, 100
    choose = random.Random(seed)
    changes: list[Change] = []
    live: list[Row] = []
    time = 1_000
    for _ in range(60):
        time += choose.choice((0, 3, 10, 60))
        if live and choose.random() < 0.4:
            changes.append((live.pop(choose.randrange(len(live))), time, -1))
        else:
            row = (choose.randrange(2), choose.randrange(50) * 100 + len(changes))
            live.append(row)
            changes.append((row, time, 1))
    by_tick: dict[int, list[tuple[Row, int]]] = defaultdict(list)
    for row, at, diff in changes:
        by_tick[-(-at // tick)].append((row, diff))
    came: dict[Row, int] = {}
    best: dict[int, Row] = {}
    answers: dict[int, tuple[list[Row], list[Row]]] = {}
    for now in range(min(by_tick), max(by_tick) + 3 * window // tick):
        for row, diff in by_tick.get(now, ()):
            if diff > 0:
                came[row] = now
            else:
                came.pop(row, None)
        for row in [row for row in came if came[row] <= now - window // tick and best.get(row[0]) != row]:
            del came[row]
        best = {key: max(row for row in came if row[0] == key) for key in {row[0] for row in came}}
        answers[now] = list(best.values()), list(came)

    def answer(held: Held, time: int) -> Mapping[str, Iterable[Row]]:
        greatest, remembered = answers.get(time // tick, ([], []))
        return {"greatest": greatest, "live": remembered}

    ticks = [now * tick for now in answers]
    assert compare(load("delay_window"), {"values": changes}, answer, also=ticks, seed=seed)


def retracting(delay: int) -> vn.App:
    """The article's program: the greatest of each key, and what its variable is set to."""
    app = vn.App("retracting", retain="10us")
    rows = app.source("input", Input)
    retractions = vn.Variable("retractions", Input, delay=delay)
    live: Collection = rows.union(retractions.negate())
    results = live.group_by("key").agg(data=vn.max("data"))
    definition = rows.union(results.negate())
    retractions.set(definition)
    app.view("results", results)
    app.view("retractions", definition)
    app.view("live", live)
    return app


@pytest.mark.parametrize("delay", [10, 99, 100, 101, 1_000])
def test_the_articles_table_of_retractions(delay: int) -> None:
    """ "We'll pretend that delay is set so that it happens before time3, but the results should be correct in any
    case." """
    one, two, three = (0, 1), (0, 2), (0, 3)
    with vn.testing.run(retracting(delay)) as t:
        t.update("input", [(one, 100, 1), (two, 200, 1), (three, 300, 1)])
        t.finish()
        assert t.changes("results") == [
            (one, 100, +1), (one, 200, -1), (two, 200, +1), (two, 300, -1), (three, 300, +1),
        ]  # fmt: skip
        assert t.changes("retractions") == [(one, 200, +1), (two, 300, +1)]
        left = Counter({(one, 200 + delay): -1, (two, 300 + delay): -1})
        came = Counter({(one, 100): 1, (two, 200): 1, (three, 300): 1})
        assert {(row, time): diff for row, time, diff in t.changes("live")} == {**came, **left}


def test_a_deletion_while_its_retraction_is_on_its_way_swings() -> None:
    """The article's "crazy dynamics": a row that wins again after its retraction was sent goes and comes with the
    delay's period. The window made of ticks has the same deletion and does not swing."""
    with vn.testing.run(retracting(10)) as t:
        t.update("input", [((0, 1), 100, 1), ((0, 2), 103, 1), ((0, 2), 105, -1)])
        t.advance(128)
        seen = [(time, diff) for row, time, diff in t.changes("results") if row == (0, 1)]
        assert seen == [(100, 1), (103, -1), (105, 1), (113, -1), (115, 1), (123, -1), (125, 1)]
        with pytest.raises(DelayedCycleDidNotSettle, match="retractions"):
            t.finish()
    with vn.testing.run(load("delay_window")) as t:
        t.update("values", [((0, 1), 100, 1), ((0, 2), 110, 1), ((0, 2), 190, -1)])
        t.finish()
        assert t.changes("greatest") == [
            ((0, 1), 100, 1), ((0, 1), 110, -1), ((0, 2), 110, 1), ((0, 1), 190, 1), ((0, 2), 190, -1),
        ]  # fmt: skip
