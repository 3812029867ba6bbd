"""The page on SQL, with a sidecar over the views that its examples ask."""

from decimal import Decimal
from pathlib import Path

from tests.docs.session import Session, blocks
from tests.sidecar.builder import StateBuilder, row_type
from tests.sidecar.process import running

SECOND = 1_000_000_000
BEGIN = 1767225600 * SECOND
VIEWS = {
    "customers": (row_type(name="String", city="String"), ["name"]),
    "orders": (row_type(id="Int64", customer="String", total="Decimal(10, 2)", placed="TimestampNs"), ["id"]),
}


def test_the_page_holds(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path / "state", VIEWS)
    orders = [(1, "ada", "9.99"), (2, "ada", "20.50"), (3, "max", "5.00")]
    changes = [
        ((number, name, Decimal(total), BEGIN + number * SECOND), BEGIN + number * SECOND, 1)
        for number, name, total in orders
    ]
    people = [(("ada", "Basel"), BEGIN, 1), (("max", "Turin"), BEGIN, 1)]
    builder.commit(BEGIN + 4 * SECOND, {"orders": changes, "customers": people})
    with running(builder.path, "--log-level", "error") as sidecar:
        session = Session(tmp_path, url=sidecar.url)
        assert session.follow("ask.md") == len(blocks("ask.md")) > 0
    builder.close()
