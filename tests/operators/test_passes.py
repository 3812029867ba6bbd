"""A pass of the kernel gives what its steps give one by one, errors too."""

import math
from decimal import Decimal
from operator import add, floordiv, mod, mul, sub, truediv
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vernier as vn
from vernier import col, lit
from vernier.operators.engine.worker import Worker
from vernier.operators.errors import ArithmeticOverflow
from vernier.operators.language.expr.expression import Expr
from vernier.operators.physical.stage_compiler import Pass, passes
from vernier.operators.physical.stages import compile_chain, compile_stage
from vernier.operators.planning.ops import LinearOp
from vernier.operators.planning.planner import compile_app
from vernier.operators.planning.stages import Stage
from vernier.storage.errors import VernierError

MOST = 2**63 - 1


class Row(vn.Schema):
    a: vn.Int64
    b: vn.Int64 | None
    f: vn.Float64
    p: vn.Bool | None
    t: vn.TimestampNs


NUMBERS = st.integers(-3, 3) | st.sampled_from([MOST, -MOST - 1, 2**31, -(2**31), 2**62, 2**32])
ROWS = st.lists(
    st.tuples(
        NUMBERS, st.none() | NUMBERS, st.just(0.5), st.none() | st.booleans(), st.integers(-3, 3), st.integers(-2, 2)
    ),
    max_size=6,
)


def integers(depth: int) -> st.SearchStrategy[Expr]:
    leaf = st.sampled_from([col("a"), col("b"), lit(1), lit(-2), lit(0), lit(-1), lit(MOST), lit(None).cast(vn.Int64)])
    if depth == 0:
        return leaf
    below = integers(depth - 1)
    operators: dict[str, Any] = {"+": add, "-": sub, "*": mul, "//": floordiv, "%": mod}
    made = st.tuples(below, below, st.sampled_from(list(operators))).map(lambda x: operators[x[2]](x[0], x[1]))
    return leaf | made | below.map(lambda x: -x) | below.map(lambda x: x.cast(vn.Int64))


def conditions(depth: int) -> st.SearchStrategy[Expr]:
    whole = integers(1)
    leaf = st.one_of(
        st.tuples(whole, whole, st.sampled_from(["<", "<=", ">", ">=", "==", "!="])).map(_compare),
        whole.map(lambda x: x.is_null()),
        st.sampled_from([col("p"), col("p") == lit(True), col("b").is_in(1, 2), col("f") > 0.0, col("a") / 2 > 0]),
    )
    if depth == 0:
        return leaf
    below = conditions(depth - 1)
    return leaf | st.tuples(below, below).map(lambda x: x[0] & x[1]) | st.tuples(below, below).map(
        lambda x: x[0] | x[1]
    ) | below.map(lambda x: ~x)  # fmt: skip


def _compare(parts: tuple[Expr, Expr, str]) -> Expr:
    a, b, op = parts
    compared: Any = {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}[op]
    found: Expr = compared
    return found


STEPS = st.one_of(
    conditions(2).map(lambda x: lambda c: c.filter(x)),
    integers(2).map(lambda x: lambda c: c.with_columns(b=x).cast(b=vn.Int64 | None)),
    conditions(1).map(lambda x: lambda c: c.with_columns(p=x).cast(p=vn.Bool | None)),
    integers(1).map(lambda x: lambda c: c.map_diff(x)),
    st.just(lambda c: c.negate()),
    st.just(lambda c: c.filter(col("b").is_not_null()).select("p", "a", "b", "t", "f")),
)


def stages_of(collection: vn.Collection, app: vn.App) -> tuple[tuple[Stage, ...], Worker]:
    """The chain that a program has, and a worker to run it in."""
    app.view("v", collection)
    plan = compile_app(app)
    chains = [op.stages for op in plan.ops if isinstance(op, LinearOp)]
    return (chains[0] if chains else ()), Worker(plan)


def outcome(run: Any, data: np.ndarray[Any, Any]) -> Any:
    try:
        return sorted(map(tuple, run(data).tolist()))
    except VernierError as error:
        return type(error), str(error)


def check(schema: type[vn.Schema], steps: list[Any], rows: list[Any]) -> None:
    """A chain of steps over rows, each with its diff, gives what the steps give one by one."""
    app = vn.App("t")
    collection = app.source("s", schema)
    row = collection.schema
    for step in steps:
        collection = step(collection)
    stages, worker = stages_of(collection, app)
    words = row.encode_rows([one[:-1] for one in rows], worker.root.heap)
    data = np.hstack((words, np.array([[7, one[-1]] for one in rows], np.int64).reshape(-1, 2)))

    def apart(data: Any) -> Any:
        for stage in stages:
            data = compile_stage(stage, 2, worker.root)(data)
        return data

    assert outcome(compile_chain(stages, row.width, 2, worker.root), data) == outcome(apart, data)


@settings(max_examples=200)
@given(st.lists(STEPS, min_size=1, max_size=4), ROWS)
def test_a_pass_is_its_steps(steps: list[Any], rows: list[Any]) -> None:
    check(Row, steps, rows)


class Mixed(vn.Schema):
    a: vn.Int64 | None
    f: vn.Float64 | None
    s: vn.String
    u: vn.String | None
    m: vn.Decimal(9, 2)  # type: ignore[valid-type]


TEXTS = st.sampled_from(["", "x", "y", "x" * 40, "x" * 39 + "z"])
MIXED = st.lists(
    st.tuples(
        st.none() | st.integers(-2, 2) | st.just(MOST),
        st.none() | st.sampled_from([0.0, -0.0, 0.5, 1.0, math.nan, math.inf, -math.inf]),
        TEXTS,
        st.none() | TEXTS,
        st.sampled_from([Decimal("0.00"), Decimal("1.00"), Decimal("1.50")]),
        st.integers(-2, 2),
    ),
    max_size=6,
)


def chosen(leaf: st.SearchStrategy[Expr], depth: int) -> st.SearchStrategy[Expr]:
    """Values of one type: leaves, and choices between them."""
    if depth == 0:
        return leaf
    below, test = chosen(leaf, depth - 1), judged(depth - 1)
    return st.one_of(
        leaf,
        st.tuples(test, below).map(lambda x: vn.when(x[0], x[1])),
        st.tuples(test, below, below).map(lambda x: vn.when(x[0], x[1]).otherwise(x[2])),
        st.tuples(test, below, test, below, below).map(lambda x: vn.when(x[0], x[1]).when(x[2], x[3]).otherwise(x[4])),
        st.tuples(below, below).map(lambda x: vn.coalesce(*x)),
        below.map(lambda x: vn.coalesce(lit(None), x)),
        below.map(lambda x: vn.when(col("a") > 0, lit(None)).otherwise(x)),
    )


def whole(depth: int) -> st.SearchStrategy[Expr]:
    leaf = st.sampled_from([col("a"), col("a") + 1, lit(1), lit(None).cast(vn.Int64)])
    return chosen(leaf, depth)


def floats(depth: int) -> st.SearchStrategy[Expr]:
    leaf = st.sampled_from(
        [col("f"), lit(0.5), lit(math.nan), lit(-0.0), lit(None).cast(vn.Float64), col("a").cast(vn.Float64)]
    )
    operators = st.sampled_from([add, sub, mul, truediv])
    operand = leaf | st.sampled_from([col("a"), lit(3), lit(0), lit(1e300)])
    made = st.tuples(operators, leaf, operand).map(lambda x: x[0](x[1], x[2]))
    return chosen(leaf | made | made.map(lambda x: -x) | st.just(col("a") / col("f")), depth)


def judged(depth: int) -> st.SearchStrategy[Expr]:
    """Conditions over all types."""
    operators = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    texts = st.sampled_from([col("s"), col("u"), lit("x"), lit("x" * 40)])
    return st.one_of(
        st.tuples(floats(depth), floats(depth), operators).map(_compare),
        st.tuples(floats(depth), st.just(lit(1)), operators).map(_compare),
        st.tuples(whole(depth), whole(depth), operators).map(_compare),
        st.tuples(texts, texts, st.sampled_from(["==", "!=", "<"])).map(_compare),
        st.tuples(st.just(col("m")), st.sampled_from([col("m"), lit(1)]), st.sampled_from(["==", "!="])).map(_compare),
        st.sampled_from(
            [
                col("u").is_in("x", "y"),
                col("s").is_in(col("u"), "x"),
                col("s").is_in("x" * 40, "y"),
                col("f").is_in(0, 0.5, math.nan),
                col("a").is_in(1, lit(None).cast(vn.Int64)),
                col("m").is_in(1, 2),
                col("u").is_null(),
                col("s") == col("u"),
            ]
        ),
    )


MIXED_STEPS = st.one_of(
    judged(1).map(lambda x: lambda c: c.filter(x)),
    judged(1).map(lambda x: lambda c: c.filter(~x)),
    whole(2).map(lambda x: lambda c: c.with_columns(a=x).cast(a=vn.Int64 | None)),
    floats(2).map(lambda x: lambda c: c.with_columns(f=x).cast(f=vn.Float64 | None)),
    st.just(lambda c: c.with_columns(u=lit("y")).cast(u=vn.String | None)),
    st.just(lambda c: c.with_columns(u=col("s"), s=vn.coalesce("u", lit("x"))).cast(u=vn.String | None)),
)


@settings(max_examples=300)
@given(st.lists(MIXED_STEPS, min_size=1, max_size=4), MIXED)
def test_a_pass_over_floats_and_texts_is_its_steps(steps: list[Any], rows: list[Any]) -> None:
    check(Mixed, steps, rows)


@pytest.mark.parametrize(
    "test",
    [
        col("s") == "x", col("s") != col("u"), col("s").is_in("x", "y"), col("f") > 1, col("f") <= 0.5, col("m") == 1,
        vn.coalesce("a", 0) > 3, col("a") // 60 > 1, 60 % col("a") == 1, col("u").is_null(),
        vn.when(col("f") > 1, 1).otherwise(2) == 1, col("f") * 2.0 > col("a"), col("a") / 3 < 1,
    ],
)  # fmt: skip
def test_common_conditions_are_part_of_a_pass(test: Expr) -> None:
    app = vn.App("t")
    rows = app.source("s", Mixed)
    stages, _ = stages_of(rows.filter(test).negate(), app)
    (one,) = passes(stages, rows.schema.width)
    assert isinstance(one, Pass)


def test_a_long_text_is_compared_where_the_heap_is() -> None:
    app = vn.App("t")
    stages, _ = stages_of(app.source("s", Mixed).filter(col("s") == "x" * 40).negate(), app)
    assert [type(part).__name__ for part in passes(stages, 20)] == ["Keep", "Pass"]


def test_plain_steps_are_one_pass() -> None:
    app = vn.App("t")
    rows = app.source("s", Row).filter(col("a") > 0).with_columns(c=col("a") * 2 + col("b")).filter(~col("p"))
    stages, _ = stages_of(rows.select("c", "t").map_diff("c").negate(), app)
    (one,) = passes(stages, 7)
    assert isinstance(one, Pass)
    assert one.stages == stages


@pytest.mark.parametrize("kind", [vn.Int64, vn.Float64, vn.String, vn.Date, vn.Decimal(10, 2)])
def test_nulls_of_any_type_are_part_of_a_pass(kind: Any) -> None:
    app = vn.App("t")
    stages, worker = stages_of(app.source("s", Row).with_columns(f=lit(None).cast(kind), a=col("a") + 1), app)
    (one,) = passes(stages, 7)
    assert isinstance(one, Pass)
    data = np.array([[5, 1, 3, 0, 1, 1, 9, 7, 1], [6, 0, 0, 0, 0, 0, 9, 7, -1]], np.int64)
    (stage,) = stages
    assert one.run(data, 2).tolist() == compile_stage(stage, 2, worker.root)(data).tolist()  # type: ignore[union-attr]


def test_other_steps_run_between_passes() -> None:
    app = vn.App("t")
    rows = app.source("s", Row).filter(col("a") > 0).with_columns(f=col("f") % 2.0).filter(col("p")).negate()
    stages, _ = stages_of(rows, app)
    assert [type(part).__name__ for part in passes(stages, 7)] == ["Pass", "Compute", "Pass"]


def test_rows_that_are_gone_do_not_overflow() -> None:
    app = vn.App("t")
    rows = app.source("s", Row)
    app.view("v", rows.filter(col("a") < 10).select(n=col("a") * 2**60))
    with vn.testing.run(app) as t:
        t.insert("s", (MOST, None, 0.0, None, 0), at=1)
        t.insert("s", (3, None, 0.0, None, 0), at=1)
        t.advance(2)
        assert t.rows("v") == [(3 * 2**60,)]
        t.insert("s", (9, None, 0.0, None, 0), at=3)
        with pytest.raises(ArithmeticOverflow, match=r"9 \* 1152921504606846976"):
            t.advance(4)


def test_blocks_and_empty_batches() -> None:
    app = vn.App("t")
    rows = app.source("s", Row).filter(col("a") > 3).with_columns(a=col("a") + 1)
    stages, worker = stages_of(rows, app)
    run = compile_chain(stages, 7, 2, worker.root)
    for n in (0, 1, 127, 128, 129, 1000):
        data = np.zeros((n, 9), np.int64)
        data[:, 0] = np.arange(n)
        data[:, -1] = 1
        assert run(np.asfortranarray(data))[:, 0].tolist() == list(range(5, n + 1))
