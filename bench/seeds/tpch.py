"""Queries 1 and 13 of TPC-H in both forms of a count, by the size of a batch: "Specializing differential dataflow".

The rows come from DuckDB's `tpch` extension (`duckdb-extension-tpch`), whose own answers the engine's are compared
with. Numbers are whole: quantities, prices, discounts and taxes in hundredths; flags are code points. DuckDB decides
whether an order's comment is a complaint. *total* is the form that the engine takes by itself, *general* the one that
it takes inside loops, where times are partially ordered (one round here, as in bench/programs.py). As in the article,
rows come in batches and the rows of a batch share a time; *own times* gives each row a time of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import vernier as vn
from bench.seeds.experiment import Found, shown
from vernier import Collection, col
from vernier.operators.engine.local import LocalEngine
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import MIN_TIME, Ints, Updates

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BATCHES = (1_000, 10_000, 100_000)
ARTICLE = {
    ("Q1", "general"): ("4.04", "4.24", "5.10"), ("Q1", "total"): ("1.48", "1.42", "1.61"),
    ("Q13", "general"): ("6.18", "4.47", "3.83"), ("Q13", "total"): ("2.24", "1.66", "1.52"),
}  # fmt: skip
"""Seconds at scale factor 1, `count` and `count_total`."""
LONG = 60.0
"""Seconds of CPU; what takes longer is not tried with smaller batches."""
FORMS = {"general": (True, False), "total": (False, False), "total, own times": (False, True)}
"""Inside a loop; a time for each row."""


class LineItem(vn.Schema):
    """The columns that query 1 reads."""

    flag: vn.Int64
    status: vn.Int64
    quantity: vn.Int64
    price: vn.Int64
    discount: vn.Int64
    tax: vn.Int64
    shipped: vn.Int64


class Customer(vn.Schema):
    """Of query 13."""

    customer: vn.Int64


class Order(vn.Schema):
    """Of query 13."""

    customer: vn.Int64
    complaint: vn.Int64


@dataclass(frozen=True)
class Query:
    """A query: its sources, the program, and both as SQL of DuckDB."""

    sources: dict[str, tuple[type[vn.Schema], str]]
    program: Callable[..., Collection]
    answer: str


def totals(lines: Collection) -> Collection:
    """What query 1 adds up; its averages are quotients of these."""
    paid = col("price") * (100 - col("discount"))
    return lines.group_by("flag", "status").agg(
        quantity=vn.sum("quantity"), price=vn.sum("price"), paid=vn.sum(paid),
        charged=vn.sum(paid * (100 + col("tax"))), discount=vn.sum("discount"), lines=vn.count(),
    )  # fmt: skip


def pricing(general: bool, *, lineitem: Collection) -> Collection:
    """Query 1."""
    shipped = lineitem.filter(col("shipped") <= DELIVERED)
    if not general:
        return totals(shipped)

    @vn.fixpoint
    def looped(looped: Collection, *, lines: Collection) -> Collection:
        none = looped.filter(col("lines") < 0).select(
            "flag", "status", "quantity", "price", "discount", tax="lines", shipped="lines"
        )
        return totals(vn.union(lines, none))

    return looped(totals(shipped.filter(col("shipped") < 0)), lines=shipped)


def histogram(each: Collection) -> Collection:
    """How many customers have how many orders; each customer is in it once more."""
    return each.group_by("customer").agg(orders=vn.count()).select(orders=col("orders") - 1)


def orders(general: bool, *, customer: Collection, orders: Collection) -> Collection:
    """Query 13."""
    each = vn.union(customer, orders.filter(col("complaint") == 0).select("customer"))

    def whole(each: Collection) -> Collection:
        return histogram(each).group_by("orders").agg(customers=vn.count())

    if not general:
        return whole(each)

    @vn.fixpoint
    def looped(looped: Collection, *, each: Collection) -> Collection:
        return whole(vn.union(each, looped.filter(col("customers") < 0).select(customer="orders")))

    return looped(whole(each.filter(col("customer") < 0)), each=each)


DELIVERED = (np.datetime64("1998-09-02") - np.datetime64("1970-01-01")).astype(int).item()
LINES = """select ascii(l_returnflag)::bigint, ascii(l_linestatus)::bigint, (l_quantity * 100)::bigint,
 (l_extendedprice * 100)::bigint, (l_discount * 100)::bigint, (l_tax * 100)::bigint,
 (l_shipdate - date '1970-01-01')::bigint from lineitem"""
QUERIES = {
    "Q1": Query(
        {"lineitem": (LineItem, LINES)},
        pricing,
        f"""select flag, status, sum(quantity)::bigint, sum(price)::bigint, sum(price * (100 - discount))::bigint,
        sum(price * (100 - discount) * (100 + tax))::bigint, sum(discount)::bigint, count(*) from
        ({LINES}) as l (flag, status, quantity, price, discount, tax, shipped)
        where shipped <= {DELIVERED} group by all order by all""",
    ),
    "Q13": Query(
        {
            "customer": (Customer, "select c_custkey from customer"),
            "orders": (Order, "select o_custkey, (o_comment like '%special%requests%')::bigint from orders"),
        },
        orders,
        """select n, count(*) from (select c_custkey, count(o_orderkey) as n from customer left join orders on
        c_custkey = o_custkey and o_comment not like '%special%requests%' group by c_custkey) group by n order by n""",
    ),
}


def generated(scale: float) -> tuple[dict[str, dict[str, Ints]], dict[str, list[tuple[int, ...]]]]:
    """Rows of each query's sources, and DuckDB's answers."""
    import duckdb
    import duckdb_extension_tpch

    (extension,) = Path(str(duckdb_extension_tpch.__file__)).parent.glob("extensions/*/tpch.duckdb_extension")
    with duckdb.connect(config={"threads": 1}) as database:
        database.execute(f"load '{extension}'")
        database.execute(f"call dbgen(sf = {scale})")
        rows, answers = {}, {}
        for name, query in QUERIES.items():
            rows[name] = {}
            for source, (_, sql) in query.sources.items():
                columns = database.execute(sql).fetchnumpy().values()
                rows[name][source] = np.stack([np.asarray(column, np.int64) for column in columns], 1)
            answers[name] = sorted(tuple(map(int, row)) for row in database.execute(query.answer).fetchall())
    return rows, answers


def app_of(query: Query, general: bool) -> vn.App:
    """The query as a program."""
    app = vn.App("tpch", retain="0ns")
    sources = {name: app.source(name, schema) for name, (schema, _) in query.sources.items()}
    app.view("answer", query.program(general, **sources))
    return app


def run(
    query: Query, rows: dict[str, Ints], batch: int, general: bool, own: bool
) -> tuple[float, list[tuple[int, ...]]]:
    """Seconds of CPU until all rows are counted, and the answer."""
    final: Updates | None = None
    batches = max(1, -(-max(map(len, rows.values())) // batch))
    parts = {name: np.array_split(data, batches) for name, data in rows.items()}
    size = 1 + max(len(part) for each in parts.values() for part in each) if own else 1
    seconds = 0.0
    with LocalEngine(compile_app(app_of(query, general))) as engine:
        for place in range(batches):
            now = place * size
            inputs = {
                name: Updates.of(each[place], now + np.arange(len(each[place])) if own else now, 1)
                for name, each in parts.items()
            }
            began = time.process_time()
            changes = engine.run_epoch(now if place else MIN_TIME, now + size, inputs)["answer"]
            seconds += time.process_time() - began
            changes.data[:, -2] = 0
            final = (changes if final is None else Updates.concat([final, changes], changes.width)).consolidate()
    assert final is not None
    return seconds, sorted(tuple(row) for *row, _, diff in final.data.tolist() for _ in range(diff))


def tpch(scale: float) -> Found:
    """The experiment; the scale is TPC-H's scale factor."""
    rows, answers = generated(scale)
    values: dict[str, Any] = {"scale_factor": scale, "rows": {}, "queries": {}}
    table: list[list[str]] = []
    for name, query in QUERIES.items():
        values["rows"][name] = sum(map(len, rows[name].values()))
        for form, (general, own) in FORMS.items():
            found: dict[str, dict[str, float]] = {}
            for batch in reversed(BATCHES):  # smaller batches take longer
                if any(one["s"] > LONG for one in found.values()):
                    break
                seconds, answer = run(query, rows[name], batch, general, own)
                if answer != answers[name]:
                    raise SystemExit(f"tpch: the answer of {name}, {form}, is not DuckDB's")
                found[str(batch)] = {"s": round(seconds, 2), "us_a_row": round(seconds * 1e6 / values["rows"][name], 3)}
            values["queries"][f"{name}, {form}"] = found
            theirs = ARTICLE.get((name, form), ("–",) * len(BATCHES))
            ours = [shown(found[str(batch)]["s"]) if str(batch) in found else "–" for batch in BATCHES]
            table.append([name, form, *theirs, *ours, shown(found[str(BATCHES[-1])]["us_a_row"])])

    def draw(axes: Sequence[Axes]) -> None:
        for place, name in zip(axes, QUERIES, strict=True):
            for form in FORMS:
                found = {int(batch): one["s"] for batch, one in values["queries"][f"{name}, {form}"].items()}
                place.plot(list(found), list(found.values()), marker="o", label=form)
                if (name, form) in ARTICLE:
                    place.plot(BATCHES, list(map(float, ARTICLE[name, form])), ":", label=f"article, {form}")
            place.set(xscale="log", yscale="log", xlabel="rows a batch", ylabel="s")
            place.set_title(f"TPC-H {name}, scale factor {scale:g}", fontsize="medium")
            place.grid(alpha=0.3)
            place.legend(fontsize="x-small")

    head = ["query", "form", *(f"article, {batch:,} a batch, s" for batch in BATCHES)]
    head += [*(f"ours, {batch:,}, s of CPU" for batch in BATCHES), "µs a row at the last"]
    return Found(values, {"tpch": {"head": head, "rows": table}}, draw, len(QUERIES))
