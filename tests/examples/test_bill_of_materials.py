"""The quantities of bill_of_materials against a recursive function."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping

import pytest

import vernier as vn
from tests.examples.data import at, program, updates
from tests.programs.snapshots import Held, Row, compare, graph


def inside(assembly: str, uses: Counter[Row]) -> Counter[str]:
    """All parts of an assembly with their quantities."""
    found: Counter[str] = Counter()
    for (of, part, quantity), copies in uses.items():
        if of == assembly:
            found[part] += quantity * copies
            for deeper, more in inside(part, uses).items():
                found[deeper] += quantity * copies * more
    return found


def answer(held: Held, time: int) -> Mapping[str, Iterable[Row]]:
    """Contents, costs and shortages by recursion over every assembly."""
    assemblies = {assembly for assembly, _, _ in held["uses"]}
    everything = {assembly: inside(assembly, held["uses"]) for assembly in assemblies}
    bought = {
        assembly: {part: count for part, count in parts.items() if part not in assemblies}
        for assembly, parts in everything.items()
    }
    prices: dict[str, int] = dict(held["prices"].elements())
    costs = []
    for assembly, parts in bought.items():
        cents = sum(count * prices.get(part, 0) for part, count in parts.items())
        costs.append((assembly, cents, sum(part not in prices for part in parts)))
    missing: Counter[str] = Counter()
    for (item, pieces), copies in held["orders"].items():
        for part, count in bought.get(item, {}).items():
            missing[part] += count * pieces * copies
    for (item, pieces), copies in held["stock"].items():
        missing[item] -= pieces * copies
    return {
        "contents": [(assembly, *one) for assembly, parts in everything.items() for one in parts.items()],
        "costs": costs,
        "to_buy": [(part, count) for part, count in missing.items() if count > 0],
    }


def test_the_data() -> None:
    assert compare(program("bill_of_materials"), updates("bill_of_materials"), answer) == 6


def test_what_must_be_bought() -> None:
    with vn.testing.run(program("bill_of_materials")) as run:
        for source, changes in updates("bill_of_materials").items():
            run.update(source, changes)
        run.finish()
        assert ("bicycle", "spoke", 64) in run.rows("contents", at=at("10:00:00"))
        assert run.rows("to_buy", at=at("10:00:00")) == [("bearing", 12), ("frame", 2), ("spoke", 24)]
        assert run.rows("to_buy") == [("valve", 24)]
        assert ("bicycle", 14_000, 0) in run.rows("costs")


@pytest.mark.parametrize("seed", range(4))
def test_trees_at_random(seed: int) -> None:
    names = tuple("abcdef")

    def use(choose: random.Random) -> Row:
        high, low = sorted(choose.sample(range(len(names)), 2))
        return names[high], names[low], choose.randrange(1, 4)

    def amount(choose: random.Random) -> Row:
        return choose.choice(names), choose.randrange(1, 30)

    inputs = {
        "uses": graph(seed, 0, 40, edge=use),
        "prices": [((name, 7 * number), 1_700_000_000_000_000_000, 1) for number, name in enumerate(names[2:])],
        "orders": graph(seed + 10, 0, 20, edge=amount),
        "stock": graph(seed + 20, 0, 20, edge=amount),
    }
    assert compare(program("bill_of_materials"), inputs, answer, seed=seed) > 20
