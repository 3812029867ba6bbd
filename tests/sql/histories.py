"""Random tables that change over time, by a seed: the tables that random queries read."""

from __future__ import annotations

import datetime
import decimal
import random

from tests.oracle.model import Change, Collection

TABLES = """
CREATE TABLE a (i BIGINT, j BIGINT NOT NULL, d DECIMAL(10, 2), s STRING, day DATE, f DOUBLE, b BOOLEAN, ts TIMESTAMP);
CREATE TABLE c (i BIGINT, j BIGINT NOT NULL, d DECIMAL(6, 3), s STRING NOT NULL, day DATE);
CREATE TABLE e (i INT, s STRING, b BOOLEAN NOT NULL);
"""
Columns = tuple[tuple[str, str], ...]
COLUMNS: dict[str, Columns] = {
    "a": (
        ("i", "int"),
        ("j", "int"),
        ("d", "decimal"),
        ("s", "text"),
        ("day", "date"),
        ("f", "double"),
        ("b", "bool"),
        ("ts", "instant"),
    ),
    "c": (("i", "int"), ("j", "int"), ("d", "decimal"), ("s", "text"), ("day", "date")),
    "e": (("i", "int"), ("s", "text"), ("b", "bool")),
}
LAST = 40
TEXTS = ("", "a", "b", "ab", "Cab", "b_%", "é")


def history(seed: object) -> dict[str, list[Change]]:
    """Rows of the tables at times 1 to LAST that come, come again and go, never below none."""
    choose = random.Random(f"history {seed}")

    def value(kind: str, table: str) -> object:
        match kind:
            case "int":
                return choose.randint(0, 4)
            case "decimal" if table == "c":
                return decimal.Decimal(choose.randint(-3000, 3000)) / 1000
            case "decimal":
                return decimal.Decimal(choose.randint(-300, 600)) / 100
            case "text":
                return choose.choice(TEXTS)
            case "date":
                return datetime.date(2024, choose.randint(1, 3), choose.choice((1, 15, 28)))
            case "double":
                return choose.randint(-8, 8) / 4
            case "bool":
                return choose.random() < 0.5
        return 1_704_067_200_000_000_000 + choose.randint(0, 90_000_000) * 1000

    found: dict[str, list[Change]] = {}
    for table, columns in COLUMNS.items():
        required = {"a": {"j"}, "c": {"j", "s"}, "e": {"b"}}[table]
        held: Collection = {}
        changes: list[Change] = []
        for time in range(1, LAST):
            there = [one for one, count in held.items() if count]
            if there and (choose.random() < 0.4 or sum(held.values()) > 8):
                row, diff = choose.choice(there), -1
            elif there and choose.random() < 0.2:
                row, diff = choose.choice(there), 1
            else:
                row = tuple(
                    None if name not in required and choose.random() < 0.2 else value(kind, table)
                    for name, kind in columns
                )
                diff = 1
            held[row] = held.get(row, 0) + diff
            changes.append((row, time, diff))
        found[table] = changes
    return found
