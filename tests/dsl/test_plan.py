"""What programs mean: schemas, scopes and fingerprints of the logical plan."""

import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import vernier as vn
from vernier import col
from vernier.operators.errors import BadLoop
from vernier.operators.language.plan.logical import AggregateNode, FilterNode, JoinNode, ProjectNode, UnionNode
from vernier.operators.language.plan.loops import LoopResultNode, VariableNode
from vernier.operators.language.plan.node import ROOT, walk
from vernier.operators.planning.plan import Plan
from vernier.operators.planning.planner import compile_app

PROGRAMS = Path(__file__).parent.parent / "programs"


class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64


class Node(vn.Schema):
    node: vn.Int64


class Sale(vn.Schema):
    shop: vn.Int64 | None
    price: vn.Int64
    tax: vn.Int64 | None


def sources() -> tuple[vn.App, vn.Collection, vn.Collection, vn.Collection]:
    app = vn.App("t")
    return app, app.source("edges", Edge), app.source("nodes", Node), app.source("sales", Sale)


def reachable(edges: vn.Collection, roots: vn.Collection, rounds: int = 100) -> vn.Collection:
    @vn.fixpoint(max_rounds=rounds)
    def reach(reach: vn.Collection, *, edges: vn.Collection) -> vn.Collection:
        step = reach.join(edges, left_on="node", right_on="src").select(node=col("dst"))
        return vn.union(roots, step).distinct()

    result = reach(roots, edges=edges)
    assert isinstance(result, vn.Collection)
    return result


def spelled(collection: vn.Collection) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in collection.schema.to_json())


def test_reachability_has_the_nodes_that_it_should() -> None:
    app = vn.load_program(PROGRAMS / "reachability.py")
    result = app.views["reach"].node
    assert isinstance(result, LoopResultNode)
    loop = result.loop
    assert (loop.name, loop.variables, loop.max_rounds, loop.on_limit) == ("reach", ("reach",), 10_000, "error")
    assert loop.initials == (app.sources["roots"],)
    (distinct,) = loop.bodies
    (union,) = distinct.inputs
    assert isinstance(union, UnionNode)
    assert union.inputs[0] is app.sources["roots"]
    project = union.inputs[1]
    assert isinstance(project, ProjectNode)
    assert [(name, expr.column) for name, expr in project.exprs] == [("node", "dst")]
    join = project.input
    assert isinstance(join, JoinNode)
    assert isinstance(join.left, VariableNode)
    assert join.right is app.sources["edges"]
    assert (join.left_on, join.right_on, join.scope.depth) == (("node",), ("src",), 1)
    assert result.scope is ROOT
    assert distinct.where.text == "return vn.union(roots, step).distinct()"
    assert (app.retain_ns, app.on_late, app.views["reach"].key) == (600_000_000_000, "dead_letter", ("node",))


def test_schemas_follow_from_the_methods() -> None:
    _, edges, nodes, sales = sources()
    assert spelled(edges.select("dst", both=col("src") + col("dst"))) == "dst Int64, both Int64"
    assert spelled(edges.with_columns(dst=1.5, ratio=col("src") / 2)) == "src Int64, dst Float64, ratio Float64"
    assert spelled(edges.with_columns(col("src").alias("again"))) == "src Int64, dst Int64, again Int64"
    assert spelled(edges.rename(src="a").rename({"dst": "b"})) == "a Int64, b Int64"
    assert spelled(edges.drop("src")) == "dst Int64"
    assert spelled(edges.drop(col("src"))) == "dst Int64"
    assert spelled(sales.cast(price=vn.Float64, tax=vn.Bool)) == "shop Int64 | None, price Float64, tax Bool | None"
    assert spelled(edges.cast({"src": vn.Int64 | None})) == "src Int64 | None, dst Int64"
    assert spelled(edges.join(nodes, left_on="src", right_on="node")) == "src Int64, dst Int64, node Int64"
    assert spelled(edges.join(edges.rename(dst="to"), on="src")) == "src Int64, dst Int64, to Int64"
    joined = edges.rename(src="dst", dst="src").join(edges.with_columns(n=1), on=["src", "dst"])
    assert spelled(joined) == "src Int64, dst Int64, n Int64"
    assert spelled(vn.union(edges, edges.select("dst", "src"))) == "src Int64, dst Int64"
    assert spelled(edges.cast(dst=vn.Int64 | None).union(edges)) == "src Int64, dst Int64 | None"
    assert spelled(edges.union(edges.cast(dst=vn.Int64 | None))) == "src Int64, dst Int64 | None"


def test_aggregates_have_their_types() -> None:
    _, edges, _, sales = sources()
    everything = sales.group_by("shop").agg(
        n=vn.count(),
        taxed=vn.count("tax"),
        tax=vn.sum("tax"),
        low=vn.min("price"),
        high=vn.max(col("tax")),
        mean=vn.avg("price"),
    )
    assert spelled(everything) == (
        "shop Int64 | None, n Int64, taxed Int64, tax Int64 | None, low Int64, high Int64 | None, mean Float64 | None"
    )
    aggregate = everything.node
    assert isinstance(aggregate, AggregateNode)
    assert {agg.kind for _, agg in aggregate.aggs} == {"count", "sum", "min", "max", "avg"}
    assert spelled(edges.group_by().agg(n=vn.count())) == "n Int64"
    assert spelled(edges.group_by(bucket=col("src") // 10).agg(n=vn.count())) == "bucket Int64, n Int64"
    assert spelled(edges.group_by("dst", src=col("src") % 2).agg(n=vn.count())) == "dst Int64, src Int64, n Int64"
    # Without computed keys there is nothing around the aggregate.
    assert isinstance(edges.group_by("dst").agg(n=vn.count()).node, AggregateNode)


def test_join_keys_lose_their_nulls() -> None:
    _, edges, _, sales = sources()
    joined = sales.join(edges, left_on="shop", right_on="src", where=col("price") > col("dst"))
    assert isinstance(joined.node, FilterNode)
    join = joined.node.input
    assert isinstance(join, JoinNode)
    assert spelled(joined) == "shop Int64, price Int64, tax Int64 | None, src Int64, dst Int64"
    kept = join.left.inputs[0]
    assert isinstance(kept, FilterNode)
    assert str(kept.predicate) == 'col("shop").is_not_null()'
    assert join.right is edges.node


def test_equal_structure_has_one_fingerprint() -> None:
    _, edges, nodes, _ = sources()
    _, edges2, nodes2, _ = sources()
    assert edges.node.fingerprint == edges2.node.fingerprint
    assert edges.node.fingerprint != nodes.node.fingerprint
    one, two = reachable(edges, nodes), reachable(edges2, nodes2)
    assert one.node is not two.node
    assert one.node.fingerprint == two.node.fingerprint
    assert one.node.key() == two.node.key()
    assert reachable(edges, nodes, rounds=101).node.fingerprint != one.node.fingerprint
    assert edges.filter(col("src") > 1).node.key() == edges.filter(col("src") > 1).node.key()
    assert edges.filter(col("src") > 1).node.key() != edges.filter(col("src") >= 1).node.key()
    assert edges.distinct().node.key() != edges.negate().node.key()
    assert (
        edges.group_by("src").agg(n=vn.min("dst")).node.key() != edges.group_by("src").agg(n=vn.max("dst")).node.key()
    )


def loops(result: vn.Collection) -> tuple[list[VariableNode], list[str]]:
    """The variables below a result and the fingerprints of all nodes."""
    nodes = list(walk([result.node]))
    return [node for node in nodes if isinstance(node, VariableNode)], [node.fingerprint for node in nodes]


def test_variables_of_different_loops_differ_also_when_nested() -> None:
    _, _, nodes, _ = sources()

    def nested(inner_rounds: int, outer_rounds: int = 9) -> vn.Collection:
        @vn.fixpoint(max_rounds=outer_rounds)
        def outer(x: vn.Collection) -> vn.Collection:
            @vn.fixpoint(max_rounds=inner_rounds)
            def inner(y: vn.Collection) -> vn.Collection:
                return y.union(x, nodes).distinct()

            result = inner(x)
            assert isinstance(result, vn.Collection)
            return result.union(x).distinct()

        result = outer(nodes)
        assert isinstance(result, vn.Collection)
        return result

    one, again, other, outside = nested(5), nested(5), nested(6), nested(5, 8)
    variables, prints = loops(one)
    assert sorted(variable.scope.depth for variable in variables) == [1, 2]
    assert len(set(prints)) == len(prints)
    assert prints == loops(again)[1]
    # A change in the inner loop, or around it, changes every variable, but not what is outside of the loops.
    for changed in (other, outside):
        assert not {v.fingerprint for v in loops(changed)[0]} & {v.fingerprint for v in variables}
        assert nodes.node.fingerprint in loops(changed)[1]


def test_a_body_is_without_fingerprint_until_it_returns() -> None:
    _, _, nodes, _ = sources()

    @vn.fixpoint
    def looking(x: vn.Collection) -> vn.Collection:
        with pytest.raises(BadLoop, match="still being built"):
            x.node.key()
        return x

    looking(nodes)


def test_diamonds_stay_cheap() -> None:
    _, edges, _, _ = sources()
    collection = edges
    for _ in range(60):
        collection = collection.union(collection)
    assert len(collection.node.fingerprint) == 32
    assert len(list(walk([collection.node]))) == 61


def test_fingerprints_do_not_depend_on_the_process() -> None:
    code = (
        "import sys, vernier as vn; app = vn.load_program(sys.argv[1]); "
        "print(app.fingerprint, *(v.node.fingerprint for v in app.views.values()))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code, str(PROGRAMS / "bfs.py")],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(PROGRAMS.parent.parent)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    # The program's text may move without changing what it means.
    text = "# a new first line\n" + (PROGRAMS / "bfs.py").read_text()
    assert vn.load_program(text).fingerprint == outputs.pop().split()[0]


def test_plans_pickle() -> None:
    app = vn.load_program(PROGRAMS / "bfs.py")
    node = app.views["histogram"].node
    assert pickle.loads(pickle.dumps(node)).fingerprint == node.fingerprint


def test_a_name_that_the_program_gives_is_for_people_alone() -> None:
    def plan(*names: str) -> Plan:
        app = vn.App("names")
        edges = app.source("edges", Edge)
        both = vn.union(edges, edges.negate(), edges)
        distinct = both.distinct()
        for collection, name in zip((both, distinct), names):
            assert collection.named(name).node is collection.node
        app.view("v", distinct, key=["src"])
        return compile_app(app)

    plain, titled = plan(), plan("all uses", "uses")
    assert {op.name for op in titled.ops} >= {"all uses", "uses"}
    labels = [shape.label for shape in titled.arrangements.values()]
    assert "all uses by src, dst" in labels
    assert any(re.fullmatch(r"union at test_plan\.py:\d+ by src, dst", s.label) for s in plain.arrangements.values())
    assert plain.fingerprint == titled.fingerprint
    assert plain.arrangements.keys() == titled.arrangements.keys()
    assert len(repr(plain)) < 200
