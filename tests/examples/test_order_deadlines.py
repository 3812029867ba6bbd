"""The deadlines of order_deadlines against a plain list of orders, also at each deadline and the nanosecond before."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping

import pytest

import vernier as vn
from tests.examples.data import MINUTE, START, at, program, updates
from tests.programs.snapshots import Change, Held, Inputs, Row, compare


def answer(held: Held, time: int) -> Mapping[str, Iterable[Row]]:
    """Order by order: open, overdue, late, and what it costs."""
    open_: list[Row] = []
    overdue: list[Row] = []
    late: list[Row] = []
    counts: dict[str, int] = defaultdict(int)
    cents: dict[str, int] = defaultdict(int)
    for order, customer, placed, due in held["orders"]:
        scans = [when for of, when in held["scans"] if of == order]
        if scans and min(scans) <= due:
            continue
        if scans:
            late.append((order, customer, min(scans) - due))
        elif time < due:
            open_.append((order, customer, placed, due))
            continue
        else:
            overdue.append((order, customer, placed, due))
        terms = [(since, price) for of, since, price in held["terms"] if of == customer and since <= placed]
        counts[customer] += 1
        cents[customer] += max(terms)[1] if terms else 0
    penalties = [(customer, counts[customer], cents[customer]) for customer in counts]
    return {"open": open_, "overdue": overdue, "late": late, "penalties": penalties}


def deadlines(inputs: Inputs) -> set[int]:
    """When deadlines pass, and the nanoseconds before."""
    due = {row[3] for row, _, _ in inputs["orders"]}
    return due | {time - 1 for time in due}


def test_the_data() -> None:
    inputs = updates("order_deadlines")
    assert compare(program("order_deadlines"), inputs, answer, deadlines(inputs)) > 20


def test_a_late_scan_takes_a_penalty_back() -> None:
    with vn.testing.run(program("order_deadlines")) as run:
        for source, changes in updates("order_deadlines").items():
            run.update(source, changes)
        run.finish()
        of_two = [(time, diff) for row, time, diff in run.changes("overdue") if row[0] == 2]
        assert of_two == [(at("12:00:00.000000001"), 1), (at("13:30:00"), -1)]
        assert run.rows("late", at=at("16:00:05")) == [(3, "market", 1_200_000_000_000), (4, "station", 1)]
        assert run.rows("penalties") == [("market", 1, 600), ("station", 1, 0)]


@pytest.mark.parametrize("seed", range(4))
def test_orders_at_random_whose_scans_come_late(seed: int) -> None:
    choose = random.Random(seed)
    customers = ("harbour", "market", "station")
    orders: list[Change] = []
    scans: list[Change] = []
    terms: list[Change] = []
    for number in range(25):
        placed = START + choose.randrange(200) * MINUTE
        due = placed + choose.randrange(1, 100) * MINUTE
        orders.append(((number, choose.choice(customers), placed, due), placed, 1))
        if choose.random() < 0.1:
            orders.append((orders[-1][0], choose.choice((placed + 5 * MINUTE, due, due + 1)), -1))
        for _ in range(choose.randrange(3)):
            handed = choose.choice((due - MINUTE, due, due + 1, due + 7 * MINUTE))
            scans.append(((number, handed), handed + choose.randrange(60) * MINUTE, 1))
    for since in range(0, 200, 40):
        row = (choose.choice(customers), START + since * MINUTE, choose.randrange(1, 9))
        known = row[1] + choose.randrange(-30, 60) * MINUTE
        terms += [(row, known, 1)] + ([(row, known + 90 * MINUTE, -1)] if choose.random() < 0.5 else [])
    inputs = {"orders": orders, "scans": scans, "terms": terms}
    assert compare(program("order_deadlines"), inputs, answer, deadlines(inputs), seed) > 40
