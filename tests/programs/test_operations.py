"""Programs on records with times and quantities against plain Python."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise

import pytest

from tests.programs.snapshots import Held, Row, check, graph

SEEDS = (1, 2, 3)
SECOND, MINUTE = 1_000_000_000, 60_000_000_000


@pytest.mark.parametrize("seed", SEEDS)
def test_latency(seed: int) -> None:
    links = ("north", "a link whose name is rather long")

    def message(choose: random.Random) -> Row:
        return choose.choice(links), choose.randrange(4), choose.randrange(30) * SECOND // 4

    def setting(choose: random.Random) -> Row:
        return choose.choice(links), choose.randrange(30) * SECOND // 4, choose.choice(("cable", "radio"))

    def answer(held: Held) -> Mapping[str, Iterable[Row]]:
        took: list[Row] = []
        lost: list[Row] = []
        for link, number, sent in held["sent"]:
            came = [
                at for name, of, at in held["received"] if (name, of) == (link, number) and 0 <= at - sent <= SECOND
            ]
            took += [(link, number, sent, at - sent) for at in came]
            lost += [] if came else [(link, number, sent)]
        routes: dict[str | None, list[int]] = defaultdict(list)
        slowest: list[Row] = []
        for link, _, sent, duration in took:
            ways = [(at, way) for of, at, way in held["settings"] if of == link and at <= sent]
            routes[max(ways)[1] if ways else None].append(duration)
        for link in links:
            # Durations first, then the order of all columns of the matched rows, the receiver's clock among them.
            worst = sorted((-duration, number, sent) for of, number, sent, duration in took if of == link)
            slowest += [(link, number, -duration) for duration, number, _ in worst[:2]]
        by_route = [(way, len(all_), max(all_), min(all_)) for way, all_ in routes.items()]
        return {"took": took, "lost": lost, "by_route": by_route, "slowest": slowest}

    inputs = {
        "sent": graph(seed, 0, 40, edge=message),
        "received": graph(seed + 10, 0, 60, edge=message),
        "settings": graph(seed + 20, 0, 10, edge=setting),
    }
    assert check("latency", inputs, answer)


@pytest.mark.parametrize("seed", SEEDS)
def test_sessions(seed: int) -> None:
    def click(choose: random.Random) -> Row:
        return choose.choice(("ann", "bob")), choose.randrange(40) * 10 * MINUTE, choose.randrange(3)

    def answer(held: Held) -> Mapping[str, Iterable[Row]]:
        sessions: list[Row] = []
        pauses: list[Row] = []
        for user in ("ann", "bob"):
            mine: list[list[Row]] = []
            for one in sorted((row for row in held["clicks"] if row[0] == user), key=lambda row: row[1]):
                if not mine or one[1] - mine[-1][-1][1] > 30 * MINUTE:
                    mine.append([])
                mine[-1].append(one)
            sessions += [(user, s[0][1], len(s), len({page for _, _, page in s}), s[-1][1]) for s in mine]
            pauses += [(user, two[0][1], two[0][1] - one[-1][1]) for one, two in pairwise(mine)]
        starts = range(-60 * MINUTE, 500 * MINUTE, 20 * MINUTE)
        hours = Counter(s for _, at, _ in held["clicks"] for s in starts if s <= at < s + 60 * MINUTE)
        return {"sessions": sessions, "pauses": pauses, "hours": list(hours.items())}

    assert check("sessions", {"clicks": graph(seed, 0, 60, edge=click)}, answer)


@pytest.mark.parametrize("seed", SEEDS)
def test_bill_of_materials(seed: int) -> None:
    def use(choose: random.Random) -> Row:
        assembly = choose.randrange(6)
        return assembly, choose.randrange(assembly + 1, 8), choose.randrange(1, 4)

    def price(choose: random.Random) -> Row:
        return choose.randrange(8), choose.randrange(100)

    def answer(held: Held) -> Mapping[str, Iterable[Row]]:
        parts: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for assembly, part, quantity in held["uses"]:
            parts[assembly].append((part, quantity))

        def needs(assembly: int) -> Counter[int]:
            total: Counter[int] = Counter()
            for part, quantity in parts.get(assembly, ()):
                total[part] += quantity
                for inner, more in needs(part).items():
                    total[inner] += quantity * more
            return total

        all_needs = [(assembly, part, n) for assembly in list(parts) for part, n in needs(assembly).items()]
        bought = [row for row in all_needs if row[1] not in parts]
        costs: dict[int, list[tuple[int, int | None]]] = defaultdict(list)
        for assembly, part, n in bought:
            found = [cents for of, cents in held["prices"] if of == part]
            costs[assembly] += [(n, cents) for cents in found] or [(n, None)]
        totals: list[Row] = []
        for assembly, each in costs.items():
            known = [n * cents for n, cents in each if cents is not None]
            totals.append((assembly, sum(known) if known else None, len(each) - len(known)))
        return {"needs": all_needs, "bought": bought, "costs": totals}

    inputs = {"uses": graph(seed, 0, 40, edge=use), "prices": graph(seed + 10, 0, 20, edge=price)}
    assert check("bill_of_materials", inputs, answer)
