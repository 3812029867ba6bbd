"""Programs over rows with long texts: answers do not depend on workers, epochs or which texts memory has dropped."""

from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from vernier import col
from vernier.operators.engine.local import LocalEngine
from vernier.operators.planning.plan import Plan
from vernier.operators.planning.planner import compile_app
from vernier.operators.runtime.exchange import Threads
from vernier.operators.runtime.string_exchange import swap_parcels
from vernier.storage.strings.contents import Contents
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import Updates

# Short ones, long ones, and long ones that words alone do not put in order.
NAMES = ["", "a", "n" * 15, "n" * 16, "n" * 15 + "z", *(f"a node of the graph, number {i}" for i in range(5))]


class Edge(vn.Schema):
    src: vn.String
    dst: vn.String
    weight: vn.Decimal(20, 2)  # type: ignore[valid-type]
    tags: vn.List(vn.String | None) | None  # type: ignore[valid-type]
    about: vn.Struct(kind=vn.String, blob=vn.Binary | None)  # type: ignore[valid-type]


class Root(vn.Schema):
    node: vn.String


@vn.fixpoint(max_rounds=50)
def reached(nodes: vn.Collection, *, edges: vn.Collection, roots: vn.Collection) -> vn.Collection:
    step = nodes.join(edges, left_on="node", right_on="src").select(node="dst")
    return vn.union(roots, step).distinct()


def program() -> vn.App:
    app = vn.App("texts")
    edges, roots = app.source("edges", Edge), app.source("roots", Root)
    app.view("reach", reached(roots, edges=edges, roots=roots), key=["node"])
    app.view("outgoing", roots.join(edges, left_on="node", right_on="src"), key=["node", "dst"])
    app.view("late", edges.delay("7ns").select("tags", "about"))
    app.view("tagged", edges.group_by("tags").agg(n=vn.count()), key=["tags"])
    return app


def row_of(number: int) -> tuple[Any, ...]:
    src, dst = NAMES[number % 10], NAMES[number // 10 % 10]
    tags = None if number % 7 == 0 else [dst, None, src][: number % 4]
    return (
        src,
        dst,
        (Decimal(number) / 4).quantize(Decimal("0.01")),
        tags,
        {"kind": src + dst, "blob": None if number % 3 else dst.encode() * 2},
    )


Change = tuple[int, int, int]
"""The number of an edge, time, diff."""


def drop_everything(heap: Heap) -> None:
    """Make a heap drop all its texts whenever it may drop some."""
    setattr(heap, "trim", partial(heap.trim, 0))  # noqa: B010 - mypy takes no assignment to a method


def answer(changes: Sequence[Change], *, workers: int, epochs: Iterable[int], drop: bool) -> dict[str, list[Any]]:
    """The changes of all views; drop: heaps drop everything between epochs."""
    with vn.testing.run(program(), workers=workers, epochs=sorted(set(epochs))) as t:
        if drop:
            for worker in t._engine.workers:
                drop_everything(worker.state.heap)
        t.update("roots", [((NAMES[0],), 0, 1), ((NAMES[9],), 5, 1), ((NAMES[9],), 15, -1)])
        t.update("edges", [(row_of(number), time, diff) for number, time, diff in changes])
        t.finish()
        return {view: t.changes(view) for view in ("reach", "outgoing", "late", "tagged")}


CHANGES = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 15), st.integers(1, 8)), max_size=25).map(
    lambda given: [one for number, time, stays in given for one in [(number, time, 1), (number, time + stays, -1)]]
)


@given(CHANGES, st.integers(1, 3), st.lists(st.integers(1, 30), max_size=6), st.booleans())
def test_answers_are_those_of_plain_python(changes: list[Change], workers: int, epochs: list[int], drop: bool) -> None:
    found = answer(changes, workers=workers, epochs=epochs, drop=drop)
    for time in range(32):
        edges: Counter[int] = Counter()
        for number, at, diff in changes:
            edges[number] += diff if at <= time else 0
        roots = [NAMES[0], *([NAMES[9]] if 5 <= time < 15 else [])]
        rows = [(row_of(number), count) for number, count in edges.items() if count]
        nodes = set(roots)
        while more := {row[1] for row, _ in rows if row[0] in nodes} - nodes:
            nodes |= more
        late: Counter[int] = Counter()
        for number, at, diff in changes:
            late[number] += diff if at + 7 <= time else 0
        tagged: Counter[str] = Counter()
        for row, count in rows:
            tagged[repr(row[3])] += count
        expected = {
            "reach": Counter({repr((node,)): 1 for node in nodes}),
            "outgoing": Counter(),
            "late": Counter(),
            "tagged": Counter({repr((row[3], tagged[repr(row[3])])): 1 for row, _ in rows}),
        }
        for row, count in rows:
            expected["outgoing"][repr((row[0], *row))] += count * roots.count(row[0])
        for number, count in late.items():
            expected["late"][repr(row_of(number)[3:])] += count
        for view, wanted in expected.items():
            held: Counter[str] = Counter()
            for row, at, diff in found[view]:
                held[repr(row)] += diff if at <= time else 0
            assert +held == +wanted, (view, time)


@pytest.mark.parametrize("workers", [2, 3])
def test_contents_travel_once_with_the_rows_that_need_them(workers: int) -> None:
    threads = Threads.connected(workers)
    heaps = [Heap() for _ in threads]
    texts = [b"a text of some length, number %d" % i for i in range(50)]
    rows = heaps[0].encode(Contents.of(texts))
    wide = rows.repeat(2, axis=0)
    with LocalEngine(compile_app(program()), workers) as engine:
        assert engine._pool is not None
        jobs = []
        for i, room in enumerate(threads):
            mine = [wide if i == 0 and to == 1 else wide[:0] for to in range(workers)]
            jobs.append(engine._pool.submit(swap_parcels, room, _wider(mine), (0,), heaps[i], (3, i + 1), 2))
        results = [job.result() for job in jobs]
    assert [least for _, least in results] == [(3, 1)] * workers
    received = results[1][0][0][:, :4]
    assert heaps[1].decode(received).strings() == [text for text in texts for _ in range(2)]
    assert [len(heap) for heap in heaps] == [50, 50, 0][:workers]


def _wider(parts: list[Any]) -> list[Any]:
    """With columns for time, rounds and diff, as rows on their way have them."""
    return [part[:, [0, 1, 2, 3, 2, 2, 2, 2]] for part in parts]


def test_programs_without_texts_touch_no_heap() -> None:
    class Pair(vn.Schema):
        a: vn.Int64
        b: vn.Decimal(30, 3) | None  # type: ignore[valid-type]

    app = vn.App("plain")
    pairs = app.source("pairs", Pair)
    app.view("v", pairs.distinct())
    plan = compile_app(app)
    assert not any(shape.texts for shape in plan.arrangements.values())
    with LocalEngine(plan, 2) as engine:
        rows = pairs.node.schema.encode_rows([(1, Decimal(5)), (2, None)])
        changes = engine.run_epoch(0, 10, {"pairs": Updates.of(rows, 1, 1)})
        assert pairs.node.schema.decode_rows(changes["v"].rows) == [(1, Decimal(5)), (2, None)]
        assert [worker.state.heap._attached for worker in engine.workers] == [{}, {}]


def test_rows_with_lists_are_counted_and_sorted() -> None:
    class Item(vn.Schema):
        tags: vn.List(vn.Int64)  # type: ignore[valid-type]
        point: vn.Struct(x=vn.Float64, label=vn.String) | None  # type: ignore[valid-type]

    app = vn.App("lists")
    app.view("items", app.source("items", Item))
    with vn.testing.run(app) as t:
        one, two = {"x": 1.0, "label": "one"}, {"x": 2.0, "label": "a label that is longer than fifteen bytes"}
        t.insert("items", ([2, 1], one), at=1)
        t.insert("items", ([2, 1], (1.0, "one")), at=2)
        t.insert("items", ([2], None), at=3)
        t.insert("items", {"tags": [2, 1], "point": two}, at=4)
        t.advance(10)
        assert t.rows("items") == [([2], None), ([2, 1], one), ([2, 1], one), ([2, 1], two)]
        assert t.counts("items", at=3) == {((2, 1), (1.0, "one")): 2, ((2,), None): 1}


@pytest.mark.parametrize("workers", [1, 2])
def test_another_program_goes_on_with_the_texts_that_are_there(workers: int) -> None:
    def plan(*views: str) -> Plan:
        app = vn.App("adopted")
        edges, roots = app.source("edges", Edge), app.source("roots", Root)
        if "reach" in views:
            app.view("reach", reached(roots, edges=edges, roots=roots), key=["node"])
        if "about" in views:
            app.view("about", edges.select("about", "src").distinct())
        return compile_app(app, keep_sources=True)

    whole = plan("reach", "about")
    edges, roots = whole.sources["edges"], whole.sources["roots"]
    rows = [row_of(number) for number in range(0, 99, 7)]
    found: dict[str, list[str]] = {}
    for first in (whole, plan("reach")):
        with LocalEngine(first, workers) as engine:
            for lower, upper in ((0, 10), (10, 20)):
                inputs = {
                    "edges": Updates.of(edges.encode_rows(rows[lower // 10 :: 2], engine.heap), lower, 1),
                    "roots": Updates.of(roots.encode_rows([(NAMES[lower // 10],)], engine.heap), lower, 1),
                }
                changes = engine.run_epoch(lower, upper, inputs)
                for worker in engine.workers:
                    worker.state.heap.trim(0)
                if lower == 0:
                    engine.migrate(whole)
            for view in ("reach", "about"):
                words = changes[view]
                decoded = whole.views[view].schema.decode_rows(words.rows, engine.heap)
                said = sorted(map(repr, zip(decoded, words.time.tolist(), words.diff.tolist(), strict=True)))
                assert found.setdefault(view, said) == said
                assert said


class Pair(vn.Schema):
    a: vn.Int64
    b: vn.Int64


class Named(vn.Schema):
    name: vn.String
    b: vn.Int64


def every_operator() -> vn.App:
    """All names are long and begin alike."""
    app = vn.App("every")
    pairs, begin = app.source("pairs", Pair), vn.lit("a name that is longer than words are: ")
    one = pairs.select("b", name=vn.concat(begin, col("a").cast(vn.String))).select("name", "b")
    two = pairs.select(other=vn.concat(begin, col("b").cast(vn.String)), w="a")
    same = two.select(name="other", b="w")
    on: Any = {"left_on": "name", "right_on": "other"}
    app.view("lookup", one.lookup(two, **on))
    app.view("as-of", one.as_of_join(two, **on, left_time="b", right_time="w"))
    app.view("full", one.join(two, **on, how="full"))
    app.view("anti", one.join(two, **on, how="anti"))
    app.view("numbered", one.row_number(by="name", within=["b"]))
    app.view("top", one.top_k(1, by="name", within=["b"]))
    app.view("sessions", one.window("b", session=2, by=["name"]))
    app.view("less", one.except_all(same))
    app.view("both", one.intersect(same))
    app.view("totals", one.group_by("name").agg(total=vn.sum("b"), n=vn.count()), key=["name"])
    groups = one.group_by("b").agg(
        often=vn.mode("name"), middle=vn.median("name"), late=vn.arg_max("name", "b"), every=vn.collect_list("name"),
        least=vn.min("name"), most=vn.max("name"), n=vn.count_distinct("name"),
    )  # fmt: skip
    app.view("groups", groups, key=["b"])
    app.view("exploded", groups.explode("every").select("b", "every"))
    app.view("twice", one.threshold(2))
    app.view("coarse", one.coarsen(5).consolidate())
    fed = vn.Variable("fed", Named, delay=20)
    fed.set(one.filter(col("b") > 0).distinct())
    app.view("fed", fed.union(one).distinct())
    return app


def test_every_operator_finds_its_texts_whatever_was_let_go_of() -> None:
    updates = [((i % 7, i % 3), i, 1 if i < 60 else -1) for i in range(100)]
    answers = []
    for workers, epochs in ((1, []), (2, range(0, 130, 9)), (3, range(0, 130, 4))):
        app = every_operator()
        with vn.testing.run(app, workers=workers, epochs=epochs) as t:
            for worker in t._engine.workers:
                drop_everything(worker.state.heap)
            t.update("pairs", updates)
            t.finish()
            answers.append({view: t.changes(view) for view in app.views})
    assert all(answers[0].values())
    for view, changes in answers[0].items():
        assert [other[view] for other in answers[1:]] == [changes, changes], view
