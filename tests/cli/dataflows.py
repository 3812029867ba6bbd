"""Tiny dataflows that run every kind of operator, in one worker and in two, on few rows and on many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from vernier.operators.engine.local import LocalEngine
from vernier.operators.language.collection.app import App
from vernier.operators.language.collection.collection import Collection, union
from vernier.operators.language.collection.fixpoint import fixpoint
from vernier.operators.language.expr.builders import concat
from vernier.operators.language.expr.expression import col, lit
from vernier.operators.language.plan.aggregates import arg_min, collect_list, count, max, median, min, mode, sum
from vernier.operators.language.types.scalars import Float64, Int64
from vernier.operators.language.types.schema import RowType, Schema
from vernier.operators.language.types.texts import List, String
from vernier.operators.planning.planner import compile_app
from vernier.service.cluster.exchange.shared_ring import warm_rings
from vernier.service.ingest.formats import FORMATS
from vernier.service.views.view import changes_between, sum_until
from vernier.storage.strings.string_heap import Heap, order, unite
from vernier.storage.trace.batch import Batch, keyed_rows
from vernier.storage.trace.spine import SMALL_BATCHES, Trace
from vernier.storage.updates import CLOSED, MIN_TIME, Ints, Updates

_MESSAGES = {
    "vernier": b'{"v":1,"t":"1","input":"a","u":[[[1,"s"],"2",1],[{"x":1,"s":"s"},3,-1]]}',
    "json": b'{"input":"a","data":[1,"s"],"time":17,"diff":1}',
    "insert_delete": b'{"input":"a","insert":[1,"s"],"time":17}',
}
_MANY = 5000
"""Updates from which sorting takes the way of large batches."""
_LOAD = 1_000_000
"""Updates of a load that is sorted in arrays on large pages and builds its batches directly."""


class _Edge(Schema):
    src: Int64
    dst: Int64
    weight: Int64 | None


class _Node(Schema):
    node: Int64


def _rows() -> App:
    """Row-wise steps and joins, outside loops."""
    app = App("warm-rows")
    edges, nodes = app.source("edges", _Edge), app.source("nodes", _Node)
    kept = edges.filter(col("src") != col("dst")).select("src", "dst", twice=col("weight") * 2)
    app.view("pairs", nodes.join(kept, left_on="node", right_on="src"), key="node")
    app.view("nodes", union(nodes, kept.select(node="dst"), nodes.negate()).distinct())
    return app


def _groups() -> App:
    """Aggregates."""
    app = App("warm-groups")
    edges = app.source("edges", _Edge)
    app.source("nodes", _Node)
    groups = edges.group_by("src", "dst").agg(n=count(), total=sum("weight"), least=min("weight"), most=max("weight"))
    app.view("groups", groups, key=["src", "dst"])
    whole = edges.group_by("src").agg(
        often=mode("weight"), late=median("dst"), every=collect_list("dst"), first=arg_min("dst", "weight"), n=count()
    )
    app.view("whole", whole, key="src")
    app.view("followed", edges.group_by("dst").agg(n=count(), total=sum("weight")), key="dst")
    return app


def _orders() -> App:
    """What looks along an order."""
    app = App("warm-orders")
    edges = app.source("edges", _Edge)
    app.source("nodes", _Node)
    app.view("sums", edges.running_sum("weight", by="dst", within="src"))
    app.view("floats", edges.cast(weight=Float64 | None).running_sum("weight", by="dst", within="src"))
    return app


def _times() -> App:
    """What looks up at a time, waits for one, and brings equal rows together, in loops too."""
    app = App("warm-times")
    edges, nodes = app.source("edges", _Edge), app.source("nodes", _Node)
    app.view("found", nodes.lookup(edges, left_on="node", right_on="src").delay(7).consolidate())

    @fixpoint(max_rounds=3, on_limit="truncate")
    def stay(x: Collection) -> Collection:
        return union(nodes, x.valid_between(to=col("node") + 50)).distinct().consolidate()

    app.view("stay", stay(nodes.negate()), key="node")
    return app


def _texts() -> App:
    """Texts that are longer than words hold, with equal beginnings, on their way between workers and in loops."""
    app = App("warm-texts")
    edges = app.source("edges", _Edge)
    app.source("nodes", _Node)
    begin = lit("as long as the beginning of a text may be ")
    texts = edges.select(src=concat(begin, col("src").cast(String)), dst=concat(begin, col("dst").cast(String)))

    @fixpoint(max_rounds=3, on_limit="truncate")
    def reach(reach: Collection) -> Collection:
        step = reach.join(texts, left_on="node", right_on="src").select(node="dst")
        return union(step, reach).filter(col("node") != begin).distinct()

    app.view("reach", reach(texts.select(node="src").delay(7)), key="node")
    groups = texts.group_by("src").agg(every=collect_list("dst"), least=min("dst"))
    app.view("groups", groups.filter(col("least") < col("src")), key="src")
    return app


def _loops() -> App:
    """A loop, and one in another's body; a source, rows of it and a reduction's output enter it."""
    app = App("warm-loops")
    edges, nodes = app.source("edges", _Edge), app.source("nodes", _Node)
    plain, seeds = edges.select("src", "dst"), nodes.distinct()

    @fixpoint(max_rounds=4, on_limit="truncate")
    def reach(reach: Collection, *, start: Collection) -> Collection:
        step = reach.join(plain, left_on="node", right_on="src").select(node="dst")
        return union(start, step, seeds, edges.select(node="src")).distinct()

    @fixpoint(max_rounds=3, on_limit="truncate")
    def nested(outer: Collection) -> Collection:
        reached: Collection = reach(outer, start=outer)
        return reached.filter(col("node") >= 0).distinct()

    app.view("reach", reach(nodes, start=nodes), key="node")
    app.view("nested", nested(nodes.filter(col("node") > 0)), key="node")
    return app


def run() -> None:
    """Run all of them."""
    for build in (_rows, _groups, _orders, _times, _texts, _loops):
        plan = compile_app(build())
        for workers in (1, 2):
            with LocalEngine(plan, workers, slice_updates=1 << 20) as engine:
                many = _updates(_MANY if workers == 1 else 20, 0)
                engine.run_epoch(MIN_TIME, 100, {name: many[name] for name in plan.sources})
                few = _updates(20, 100)
                engine.run_epoch(100, CLOSED, {name: few[name] for name in plan.sources})
                for trace in engine.workers[0].state.traces.values():
                    trace.cursor_through(CLOSED).range(0)
    _load()
    _contents()
    _small_batches()
    _views()
    warm_rings()
    _messages()


def _load() -> None:
    """The first load of a large graph, in one epoch: nodes within three hops, and the edges that leave them."""
    app = App("warm-load")
    edges, nodes = app.source("edges", _Edge), app.source("nodes", _Node)
    plain = edges.select("src", "dst")

    @fixpoint(max_rounds=4, on_limit="truncate")
    def reach(reach: Collection) -> Collection:
        step = reach.join(plain, left_on="node", right_on="src").select(node="dst")
        return union(nodes, step).distinct()

    reached = reach(nodes)
    app.view("degrees", plain.join(reached, left_on="src", right_on="node").group_by("src").agg(n=count()), key="src")
    plan = compile_app(app)
    choose = np.random.default_rng(0)
    rows = np.column_stack((choose.integers(0, _LOAD // 4, (_LOAD, 2)), np.zeros((_LOAD, 2), np.int64)))
    for workers in (1, 2):
        with LocalEngine(plan, workers) as engine:
            roots = Updates.of(np.arange(1_000, dtype=np.int64).reshape(-1, 1), 0, 1)
            engine.run_epoch(MIN_TIME, 1, {"edges": Updates.of(rows, 0, 1), "nodes": roots})
            engine.run_epoch(1, CLOSED, {"edges": Updates.of(rows[:10], 5, -1), "nodes": roots})


def _small_batches() -> None:
    """Small batches, enough for them to become one."""
    trace = Trace("warm", 1, 1, 0)
    for time in range(SMALL_BATCHES + 1):
        trace.seal(keyed_rows(Updates.of([[time, 0]], time, 1), 1), time, time + 1)
        trace.close_slice(time + 1)


def _contents() -> None:
    """What encodes and decodes rows at the edges of a dataflow."""
    row = RowType([("name", String(), True), ("list", List(String), False)])
    begin = "as long as the beginning of a text may be"
    heap, other = Heap(), Heap()
    words = row.encode_rows([(f"{begin} {i}", [begin, str(i)]) for i in range(20)], heap)
    parts = [heap.dictionary(part, row.text_words) for part in (words[:12], words[8:])]
    other.attach([unite(parts).only(words, row.text_words)])
    sorted_words = words[order(words, np.arange(row.width, dtype=np.int64), row.text_words, other)]
    row.decode_rows(sorted_words, other)


def _views() -> None:
    """What reads the contents of a view, and what changed in it."""
    batch = Batch.build(Updates.of([[1, 1], [2, 1]], 1, 1), 1, 1, 2, 1)
    sum_until([batch], 2, 1)
    changes_between([batch], 2, 1, 2)


def _messages() -> None:
    """What reads messages."""
    row = RowType([("x", Int64(), False), ("s", String(), False)])
    for name, message in _MESSAGES.items():
        FORMATS[name]({"a": row, "b": row}).decode(pa.array([message], pa.large_binary()))


def _updates(n: int, time: int) -> dict[str, Updates]:
    """n updates of each source in ten distinct times from `time` on, on few keys."""
    i = np.arange(n, dtype=np.int64)
    edges: Ints = np.column_stack((i % 7, i % 11, i % 2, i))
    return {
        "edges": Updates.of(edges, time + i % 10, 1),
        "nodes": Updates.of((i % 5).reshape(-1, 1), time + i % 10, 1),
    }
