"""Aggregates that follow each change: every type, several columns, exact sums, and what cannot be said in 64 bits."""

from __future__ import annotations

import vernier as vn


class Triple(vn.Schema):
    a: vn.Int64
    b: vn.Int64
    c: vn.Int64


def test_least_and_greatest_of_several_columns() -> None:
    """Each column has its own order; rows are in the order of the first one."""
    app = vn.App("ends")
    rows = app.source("s", Triple)
    app.view("v", rows.group_by("a").agg(lo=vn.min("c"), hi=vn.max("b"), top=vn.max("c"), low=vn.min("b")))
    with vn.testing.run(app) as t:
        t.update("s", [((1, 5, 1), 1, 1), ((1, 3, 7), 1, 1), ((1, 3, 7), 2, -1), ((1, 9, 0), 3, 1)])
        t.finish()
        assert t.rows("v", at=1) == [(1, 1, 5, 7, 3)]
        assert t.rows("v", at=2) == [(1, 1, 5, 1, 5)]
        assert t.rows("v", at=3) == [(1, 0, 9, 1, 5)]
