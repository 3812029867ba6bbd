"""One sidecar process for the tests of a file, over views with every type and a history."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from decimal import Decimal

import pytest

from tests.sidecar.builder import StateBuilder, row_type
from tests.sidecar.process import SidecarProcess, running
from vernier.service.client.client import Client, connect

INSTANT = 1767225600123456789
DAY = date(2026, 1, 1)
VIEWS = {
    "reach": (row_type(node="Int64"), ["node"]),
    "Twice": (row_type(node="Int64"), ["node"]),
    "broken": (row_type(node="Int64"), ["node"]),
    "every": (
        row_type(
            f="Float64 | None",
            k="Int64",
            ok="Bool | None",
            t="TimestampNs",
            day="Date",
            s="String | None",
            b="Binary",
            l="List(Int64 | None)",
            st="Struct(a=Int64, t=TimestampNs | None)",
            d="Decimal(20, 2)",
        ),
        ["k"],
    ),
}
EVERY = [
    (
        float("nan"),
        1,
        True,
        INSTANT,
        date(2026, 1, 1),
        "ü" * 40,
        b"\xff",
        [1, None],
        {"a": 1, "t": INSTANT},
        Decimal("1.50"),
    ),
    (None, 2, None, -1, date(1, 1, 1), None, b"", [], {"a": 2, "t": None}, Decimal("-0.01")),
]
SETTINGS = ("http.query_ms=4000", "http.max_rows=1000", "sql.memory_mb=128", "http.max_response_bytes=200000")


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """Nodes 0 to 19, each since its own time; final before 20, kept from 5 on."""
    builder = StateBuilder(tmp_path_factory.mktemp("asked") / "state", VIEWS)
    builder.commit(
        20,
        {
            "reach": [((node,), node, 1) for node in range(20)],
            "Twice": [((1,), 6, 2), ((2,), 7, 3), ((2,), 8, -1)],
            "broken": [((1,), 6, 1), ((2,), 7, -1)],
            "every": [(row, 5, 1) for row in EVERY],
        },
        since=5,
    )
    given = [part for setting in SETTINGS for part in ("--set", setting)]
    with running(builder.path, "--log-level", "error", *given) as process:
        yield process
    builder.close()


@pytest.fixture
def client(sidecar: SidecarProcess) -> Iterator[Client]:
    """A client of it."""
    with connect(sidecar.url) as connected:
        yield connected
