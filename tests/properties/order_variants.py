"""What depends on order: the first rows, ranks, neighbours, running and prefix sums, windows, joins along time."""

from __future__ import annotations

from collections.abc import Callable

import vernier as vn
from tests.oracle.joins import AsOf, Matched, PrefixSum
from tests.oracle.ordering import Rank, RowNumber, RunningExtreme, RunningSum, Sessions, Shifted, TopK, windows
from tests.oracle.plan import Contents, Expand, Node, PerKey, Project, Row, Whole, columns, item
from tests.oracle.values import By
from tests.properties.variants import Family, Variant, filled, or_else, pair, small, small_b
from vernier import col

UP = (By(item(1)),)
DOWN = (By(item(1), descending=True),)
MIXED = (By(item(0), descending=True), By(item(1)))


def within(key: tuple[int, ...], rule: Callable[[Contents], object], *shown: int) -> Callable[[Node], Node]:
    """The rule for each key, and columns of what it makes: the rows' own and then new ones."""

    def oracle(node: Node) -> Node:
        ruled = PerKey(node, columns(*key), rule)  # type: ignore[arg-type]
        return Project(ruled, lambda row: tuple(row[len(key) + at] for at in shown))

    return oracle


def session(gap: int) -> Variant:
    """Sessions of b by a."""

    def oracle(node: Node) -> Node:
        return within((0,), Sessions(lambda row: int(row[1]), gap), 2, 3)(node)

    return Variant(oracle, lambda rows: rows.window("b", session=gap, by="a").select(a="window_start", b="window_end"))


def as_of(how: str, forward: bool, tolerance: int | None, keyed: bool) -> Variant:
    """The nearest of the other side by b, with its a."""
    key = columns(0) if keyed else columns()

    def output(one: Row, two: Row | None) -> Row:
        return (one[1], 5 if two is None else two[1])

    rule = AsOf("left" if how == "left" else "inner", key, key, item(1), item(1), output, forward, tolerance)

    def product(one: vn.Collection, two: vn.Collection) -> vn.Collection:
        joined = one.as_of_join(
            two.select(c=col("a"), d=col("b")),
            left_on="a" if keyed else None,
            right_on="c" if keyed else None,
            left_time="b",
            right_time="d",
            direction="forward" if forward else "backward",
            tolerance=tolerance,
            how=how,
        )
        return joined.select(a=col("b"), b=filled("d", 5))

    return Variant(lambda one, two: Whole((one, two), rule), product, 2)


def interval(how: str, lower: int, upper: int, keyed: bool) -> Variant:
    """Pairs whose b are near each other."""
    key = columns(0) if keyed else columns()

    def near(one: Row, two: Row) -> bool:
        return bool(lower <= two[1] - one[1] <= upper)

    def oracle(one: Node, two: Node) -> Node:
        joined = Whole((one, two), Matched(how, key, key, pair, near))  # type: ignore[arg-type]
        if how in ("semi", "anti"):
            return joined
        return Project(joined, lambda row: (row[1], or_else(row[3], 5)))

    def product(one: vn.Collection, two: vn.Collection) -> vn.Collection:
        joined = one.interval_join(
            two.select(c=col("a"), d=col("b")),
            left_on="a" if keyed else None,
            right_on="c" if keyed else None,
            left_time="b",
            right_time="d",
            lower=lower,
            upper=upper,
            how=how,
        )
        return joined if how in ("semi", "anti") else joined.select(a=col("b"), b=filled("d", 5))

    return Variant(oracle, product, 2)


def prefix(keyed: bool, bits: int) -> Variant:
    """The sum of b up to each a of the other side, or of a up to a where b is equal."""
    key = columns(1) if keyed else columns()

    def oracle(one: Node, two: Node) -> Node:
        summed = Whole((one, two), PrefixSum(key, key, item(0), item(0), item(0 if keyed else 1)))
        return small(Project(summed, lambda row: (row[0], row[2])))

    def product(one: vn.Collection, two: vn.Collection) -> vn.Collection:
        summed = one.prefix_sum(
            "a" if keyed else "b", at=two, by="a", within="b" if keyed else (), name="total", bits=bits
        )
        return small_b(summed.select("a", b=col("total")))

    return Variant(oracle, product, 2)


ORDERED: Family = {
    "top": Variant(within((0,), TopK(2, DOWN), 0, 1), lambda rows: rows.top_k(2, by=col("b").desc(), within="a")),
    "first": Variant(within((), TopK(1, UP), 0, 1), lambda rows: rows.top_k(1, by="b")),
    "top_mixed": Variant(
        within((), TopK(3, MIXED), 0, 1), lambda rows: rows.top_k(3, by=[col("a").desc(), col("b").asc()])
    ),
    "rank": Variant(
        within((), Rank((By(item(0)),)), 1, 2), lambda rows: rows.rank(by="a", name="r").select(a=col("b"), b=col("r"))
    ),
    "dense_rank": Variant(
        within((0,), Rank(DOWN, True), 0, 2),
        lambda rows: rows.dense_rank(by=[col("b").desc()], within=["a"]).select("a", b=col("dense_rank")),
    ),
    "row_number": Variant(
        within((), RowNumber((By(item(0), True),)), 1, 2),
        lambda rows: rows.row_number(by=col("a").desc()).select(a=col("b"), b=col("row_number")),
    ),
    "row_number_by": Variant(
        within((1,), RowNumber((By(item(0)),)), 1, 2),
        lambda rows: rows.row_number(by="a", within="b", name="n").select(a=col("b"), b=col("n")),
    ),
    "lag": Variant(
        lambda node: Project(
            within((0,), Shifted(item(1), 1, UP), 1, 2)(node), lambda row: (row[0], or_else(row[1], 5))
        ),
        lambda rows: rows.lag("b", by="b", within="a").select(a=col("b"), b=filled("lag", 5)),
    ),
    "lead": Variant(
        within((), Shifted(item(0), -2, MIXED, 6), 1, 2),
        lambda rows: rows.lead("a", 2, by=[col("a").desc(), "b"], name="x", default=6).select(
            a=col("b"), b=filled("x", 0)
        ),
    ),
    "running_sum": Variant(
        lambda node: small(within((0,), RunningSum(item(1), DOWN), 0, 2)(node)),
        lambda rows: small_b(
            rows.running_sum("b", by=col("b").desc(), within="a").select("a", b=filled("running_sum", 9))
        ),
    ),
    "running_max": Variant(
        lambda node: within((0,), RunningExtreme(item(1), UP, True), 0, 2)(node),
        lambda rows: rows.running_max("b", by="b", within="a").select("a", b="running_max"),
    ),
    "running_min": Variant(
        lambda node: within((0,), RunningExtreme(item(1), DOWN, False), 0, 2)(node),
        lambda rows: rows.running_min("b", by=col("b").desc(), within="a").select("a", b="running_min"),
    ),
    "tumble": Variant(
        lambda node: Expand(node, lambda row: [(window, 1) for window in windows(row[1], 2, 2)]),
        lambda rows: rows.window("b", tumble=2).select(a="window_start", b="window_end"),
    ),
    "hop": Variant(
        lambda node: Expand(node, lambda row: [((row[0], start), 1) for start, _ in windows(row[1], 5, 2)]),
        lambda rows: rows.window("b", hop=5, every=2).select("a", b=col("window_start")),
    ),
    "session": session(1),
    "long_session": session(2),
    "as_of": as_of("inner", False, None, True),
    "as_of_left": as_of("left", False, 1, True),
    "as_of_forward": as_of("left", True, None, False),
    "as_of_near": as_of("inner", True, 0, True),
    "interval": interval("inner", -1, 2, True),
    "interval_left": interval("left", 0, 1, True),
    "interval_semi": interval("semi", -2, -1, False),
    "interval_anti": interval("anti", 1, 1, True),
    "prefix": prefix(False, 64),
    "prefix_by": prefix(True, 64),
}
