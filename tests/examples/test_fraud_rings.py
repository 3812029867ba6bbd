"""The rings of fraud_rings against networkx, which shares no code with the program."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

import networkx as nx
import pytest

import vernier as vn
from tests.examples.data import MINUTE, START, at, program, updates
from tests.programs.snapshots import Change, Held, Inputs, Row, compare

DAY = 24 * 60 * MINUTE


def answer(held: Held, time: int) -> Mapping[str, Iterable[Row]]:
    """The strongly connected components of the large transfers of the last day."""
    recent = [row for row in held["transfers"].elements() if row[3] >= 100_000 and row[1] != row[2]]
    recent = [row for row in recent if time < row[4] + DAY]
    graph = nx.DiGraph((payer, payee) for _, payer, payee, _, _ in recent)
    members: list[Row] = []
    rings: list[Row] = []
    for ring in nx.strongly_connected_components(graph):
        if len(ring) > 1:
            inside = [cents for _, payer, payee, cents, _ in recent if payer in ring and payee in ring]
            members += [(account, min(ring)) for account in ring]
            rings.append((min(ring), len(ring), len(inside), sum(inside)))
    return {"members": members, "rings": rings}


def ends(inputs: Inputs) -> set[int]:
    """When transfers stop to count, and the nanoseconds before."""
    passed = {row[4] + DAY for row, _, _ in inputs["transfers"]}
    return passed | {time - 1 for time in passed}


def test_the_data() -> None:
    inputs = updates("fraud_rings")
    assert compare(program("fraud_rings"), inputs, answer, ends(inputs)) > 20


def test_a_ring_is_closed_at_a_nanosecond() -> None:
    with vn.testing.run(program("fraud_rings")) as run:
        for source, changes in updates("fraud_rings").items():
            run.update(source, changes)
        run.finish()
        ring = ("account-1", 3, 3, 2_620_000)
        assert run.changes("rings")[0] == (ring, at("11:00:00.000000007"), +1)
        assert run.rows("rings", at=at("17:59:59.999999999")) == [("account-1", 7, 9, 4_360_000)]
        assert run.rows("rings", at=at("18:00:00")) == [ring, ("account-7", 3, 3, 870_000)]
        assert run.rows("rings", at=at("08:00:00", "2026-03-03")) == [("account-7", 3, 3, 870_000)]


@pytest.mark.parametrize("seed", range(4))
def test_transfers_at_random_some_of_them_reversed(seed: int) -> None:
    choose = random.Random(seed)
    transfers: list[Change] = []
    for number in range(60):
        payer, payee = (f"account-{choose.randrange(8)}" for _ in range(2))
        time = START + choose.randrange(40 * 60) * MINUTE
        row = (number, payer, payee, choose.choice((99_999, 100_000, 250_000)), time)
        transfers.append((row, time, 1))
        if choose.random() < 0.2:
            transfers.append((row, time + choose.randrange(30 * 60) * MINUTE, -1))
    assert compare(program("fraud_rings"), {"transfers": transfers}, answer, ends({"transfers": transfers}), seed)
