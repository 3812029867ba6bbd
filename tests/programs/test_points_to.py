"""Points-to analysis against its rules, applied until nothing is new."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from tests.programs.snapshots import Held, Row, check, graph


def analysed(held: Held) -> Mapping[str, Iterable[Row]]:
    holds = set(held["news"])
    fields: set[Row] = set()
    size = -1
    while size != len(holds) + len(fields):
        size = len(holds) + len(fields)
        holds |= {(v, o) for v, w in held["assigns"] for u, o in set(holds) if u == w}
        owners = {(v, p, f) for v, b, f in held["loads"] for u, p in holds if u == b}
        holds |= {(v, o) for v, p, f in owners for q, g, o in fields if (q, g) == (p, f)}
        fields |= {(p, f, o) for b, f, w in held["stores"] for u, p in holds if u == b for x, o in holds if x == w}
    return {"holds": holds, "fields": fields}


@pytest.mark.parametrize("seed", range(3))
def test_points_to(seed: int) -> None:
    inputs = {
        "news": graph(seed, 6, 10),
        "assigns": graph(seed + 10, 6, 12),
        "stores": graph(seed + 20, 6, 12, edge=lambda one: (one.randrange(6), one.randrange(2), one.randrange(6))),
        "loads": graph(seed + 30, 6, 12, edge=lambda one: (one.randrange(6), one.randrange(6), one.randrange(2))),
    }
    assert check("points_to", inputs, analysed)
