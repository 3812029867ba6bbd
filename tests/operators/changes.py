"""Thirty changes of a program, one after the other: views come, go, get columns, other keys, joins and loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import vernier as vn
from vernier import col


class Use(vn.Schema):
    """A use of an account."""

    account: vn.Int64
    kind: vn.Int64
    spent: vn.Int64


class Link(vn.Schema):
    """An account that pays for another one."""

    payer: vn.Int64
    account: vn.Int64


def _counts(uses: vn.Collection, links: vn.Collection) -> vn.Collection:
    return uses.group_by("account").agg(n=vn.count())


def _sums(uses: vn.Collection, links: vn.Collection) -> vn.Collection:
    return uses.group_by("account").agg(n=vn.count(), total=vn.sum("spent"))


def _by_kind(uses: vn.Collection, links: vn.Collection) -> vn.Collection:
    return uses.group_by("account", "kind").agg(n=vn.count())


def _most(uses: vn.Collection, links: vn.Collection) -> vn.Collection:
    return uses.group_by("kind").agg(most=vn.max("spent"), least=vn.min("spent"))


def _paid(uses: vn.Collection, links: vn.Collection) -> vn.Collection:
    return _sums(uses, links).join(links, on="account").select("payer", "account", "total")


def _paid_in_all(uses: vn.Collection, links: vn.Collection) -> vn.Collection:
    return _paid(uses, links).group_by("payer").agg(total=vn.sum("total"))


def reach(uses: vn.Collection, links: vn.Collection) -> vn.Collection:
    @vn.fixpoint
    def spread(seen: vn.Collection) -> vn.Collection:
        further = seen.join(links, left_on="end", right_on="payer").select("start", end=col("account"))
        return vn.union(links.select(start=col("payer"), end=col("account")), further).distinct()

    return spread(links.select(start=col("payer"), end=col("account")))


def _reached(uses: vn.Collection, links: vn.Collection) -> vn.Collection:
    return reach(uses, links).group_by("start").agg(n=vn.count())


def _large(uses: vn.Collection, links: vn.Collection) -> vn.Collection:
    return uses.filter(col("spent") > 50).select("account", "spent")


def _kinds(uses: vn.Collection, links: vn.Collection) -> vn.Collection:
    return uses.select("account", "kind").distinct()


def _late(uses: vn.Collection, links: vn.Collection) -> vn.Collection:
    return _sums(uses, links).filter(col("n") > 2).delay(5)


VIEWS: Mapping[str, Callable[[vn.Collection, vn.Collection], vn.Collection]] = {
    "counts": _counts,
    "sums": _sums,
    "by_kind": _by_kind,
    "most": _most,
    "paid": _paid,
    "paid_in_all": _paid_in_all,
    "reach": reach,
    "reached": _reached,
    "large": _large,
    "kinds": _kinds,
    "late": _late,
}

CHANGES: list[dict[str, str]] = [
    {"all": "counts"},  # what the service starts with: one view
    {"all": "counts", "most": "most"},  # a view is added
    {"all": "sums", "most": "most"},  # it gets a column
    {"all": "sums", "most": "most", "parts": "by_kind"},  # regrouped by two columns
    {"all": "sums", "parts": "by_kind"},  # a view is dropped
    {"everything": "sums", "parts": "by_kind"},  # a view is renamed
    {"everything": "sums", "parts": "by_kind", "paid": "paid"},  # a view joins what a view has
    {"everything": "sums", "paid": "paid", "paid_in_all": "paid_in_all"},  # it is grouped
    {"everything": "sums", "paid_in_all": "paid_in_all"},
    {"everything": "sums", "paid_in_all": "paid_in_all", "reach": "reach"},  # a loop
    {"everything": "sums", "reach": "reach", "reached": "reached"},  # a view of the loop
    {"everything": "sums", "reached": "reached"},
    {"reached": "reached"},
    {"reached": "reached", "kinds": "kinds"},
    {"reached": "reached", "kinds": "kinds", "large": "large"},
    {"reached": "counts", "kinds": "kinds", "large": "large"},  # a name means something else
    {"kinds": "large", "large": "kinds"},  # two names are exchanged
    {"kinds": "large", "large": "kinds", "sums": "sums"},
    {"kinds": "large", "sums": "sums", "late": "late"},  # a delay of what a view has
    {"kinds": "large", "sums": "sums", "late": "late", "reach": "reach"},
    {"sums": "sums", "late": "late", "reach": "reach", "most": "most"},
    {"sums": "sums", "reach": "reach", "most": "most", "again": "most"},  # a view twice
    {"sums": "sums", "again": "most"},
    {"sums": "sums", "again": "most", "parts": "by_kind", "counts": "counts"},
    {"sums": "by_kind", "counts": "counts"},
    {"sums": "by_kind", "counts": "counts", "paid": "paid", "reach": "reach"},
    {"paid": "paid", "reached": "reached"},
    {"paid": "paid", "reached": "reached", "kinds": "kinds", "most": "most", "large": "large"},
    {name: name for name in VIEWS if name != "late"},  # all at once
    {"all": "counts", "most": "most"},
    {"all": "counts"},  # back to the first program
]


def program(views: Mapping[str, str]) -> vn.App:
    """A program with these views: name, and which one of VIEWS."""
    app = vn.App("bank", retain=40)
    uses, links = app.source("uses", Use), app.source("links", Link)
    for name, view in views.items():
        app.view(name, VIEWS[view](uses, links))
    return app
