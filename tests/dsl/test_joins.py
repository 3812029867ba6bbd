"""All kinds of join, and the set operations, against a nested loop; and how few arrangements they are planned with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.dsl.recompute import check, cuts, updates
from tests.oracle.model import Change, Collection
from tests.profiles import examples
from vernier import col
from vernier.operators.language.collection.matching import HOW
from vernier.operators.planning.planner import compile_app

Pairs = list[tuple[tuple[Any, ...], int]]


class Left(vn.Schema):
    k: vn.Int64 | None
    a: vn.Int64


class Right(vn.Schema):
    k: vn.Int64 | None
    b: vn.Int64


SCHEMAS: dict[str, type[vn.Schema]] = {"left": Left, "right": Right}
rows = st.tuples(st.sampled_from((0, 1, 2, None)), st.integers(0, 3))
both = st.fixed_dictionaries({"left": updates(rows), "right": updates(rows)})


def fits(one: tuple[Any, ...], two: tuple[Any, ...], where: bool) -> bool:
    return one[0] is not None and one[0] == two[0] and (not where or one[1] <= two[1])


def nested_loop(left: Collection, right: Collection, how: str, where: bool) -> Pairs:
    """Rows (k, a, b) of the pairs and outer rows, or (k, a) of semi and anti joins."""
    lonely = [one for one in left if not any(fits(one, two, where) and right[two] > 0 for two in right)]
    unmet = [two for two in right if not any(fits(one, two, where) and left[one] > 0 for one in left)]
    if how == "semi":
        return [(one, count) for one, count in left.items() if one not in lonely]
    if how == "anti":
        return [(one, left[one]) for one in lonely]
    out = [((*one, two[1]), left[one] * right[two]) for one in left for two in right if fits(one, two, where)]
    if how in ("left", "full"):
        out += [((*one, None), left[one]) for one in lonely]
    if how in ("right", "full"):
        out += [((two[0], None, two[1]), right[two]) for two in unmet]
    return out


@pytest.mark.parametrize("where", [False, True])
@pytest.mark.parametrize("how", HOW)
@examples(25)
@given(changes=both, cuts=cuts, workers=st.sampled_from((1, 2)))
def test_a_join_is_its_nested_loop(
    how: str, where: bool, changes: dict[str, list[Change]], cuts: list[int], workers: int
) -> None:
    condition = col("a") <= col("b") if where else None

    def one_key(left: vn.Collection, right: vn.Collection) -> vn.Collection:
        return left.join(right, on="k", how=how, where=condition)

    def two_keys(left: vn.Collection, right: vn.Collection) -> vn.Collection:
        return left.join(right.rename(k="j"), left_on="k", right_on="j", how=how, where=condition)

    def two_key_answer(left: Collection, right: Collection) -> Iterable[tuple[tuple[Any, ...], int]]:
        for row, count in nested_loop(left, right, how, where):
            if len(row) == 3:
                k, a, b = row
                row = (None if a is None else k, a, None if b is None else k, b)
            yield row, count

    check(one_key, SCHEMAS, lambda one, two: nested_loop(one, two, how, where), changes, cuts, workers)
    check(two_keys, SCHEMAS, two_key_answer, changes, cuts, workers)


@pytest.mark.parametrize("where", [False, True])
@pytest.mark.parametrize("how", HOW)
def test_joins_of_distinct_rows(how: str, where: bool) -> None:
    changes: dict[str, list[Change]] = {
        "left": [((1, 1), 1, 1), ((1, 2), 2, 2), ((None, 1), 2, 1), ((2, 1), 3, 1), ((1, 1), 5, -1)],
        "right": [((1, 0), 2, 1), ((1, 2), 3, 3), ((1, 2), 4, -3), ((3, 1), 4, 1), ((2, 0), 6, 1)],
    }
    condition = col("a") <= col("b") if where else None
    check(
        lambda left, right: left.distinct().join(right.distinct(), on="k", how=how, where=condition),
        SCHEMAS,
        lambda one, two: nested_loop(dict.fromkeys(one, 1), dict.fromkeys(two, 1), how, where),
        changes,
        (3, 5),
    )


@pytest.mark.parametrize("how", HOW)
@examples(15)
@given(changes=both, cuts=cuts)
def test_joins_with_keys_that_are_there_once(how: str, changes: dict[str, list[Change]], cuts: list[int]) -> None:
    def build(left: vn.Collection, right: vn.Collection) -> vn.Collection:
        counts = right.group_by("k").agg(b=vn.count()).filter(col("b") > 0)
        return left.join(counts, on="k", how=how)

    def answer(left: Collection, right: Collection) -> Pairs:
        total: Counter[Any] = Counter()
        for (k, _), count in right.items():
            total[k] += count
        return nested_loop(left, {(k, count): 1 for k, count in total.items() if count > 0}, how, False)

    check(build, SCHEMAS, answer, changes, cuts)


@examples(60)
@given(changes=both, cuts=cuts)
def test_except_all_and_intersect(changes: dict[str, list[Change]], cuts: list[int]) -> None:
    def without(one: Collection, two: Collection) -> Pairs:
        return [(row, max(0, one.get(row, 0) - two.get(row, 0))) for row in {**one, **two}]

    def common(one: Collection, two: Collection) -> Pairs:
        return [(row, 1) for row, count in one.items() if count > 0 and two.get(row, 0) > 0]

    operations: list[tuple[Callable[..., vn.Collection], Callable[..., Pairs]]] = [
        (lambda one, two: one.except_all(two.rename(b="a")), without),
        (lambda one, two: one.intersect(two.select(a="b", k="k")), common),
    ]
    for build, answer in operations:
        check(build, SCHEMAS, answer, changes, cuts)


@pytest.mark.parametrize("how", HOW)
@examples(20)
@given(changes=both, cuts=cuts, workers=st.sampled_from((1, 2)))
def test_joins_in_loops(how: str, changes: dict[str, list[Change]], cuts: list[int], workers: int) -> None:
    """A value grows by 1 a round while its key is (not) on the right side with a value as great."""

    def build(left: vn.Collection, right: vn.Collection) -> vn.Collection:
        @vn.fixpoint(max_rounds=6, on_limit="truncate")
        def grown(grown: vn.Collection) -> vn.Collection:
            kept = grown.join(right, on="k", how=how, where=col("a") <= col("b"))
            grown = kept.select("k", a=vn.coalesce(col("a"), 0) + 1).filter(col("a") < 6)
            return vn.union(left, grown).distinct()

        result: vn.Collection = grown(left)
        return result

    def answer(left: Collection, right: Collection) -> Pairs:
        current = left
        for _ in range(6):
            kept = [(row[:2], count) for row, count in nested_loop(current, right, how, True)]
            found = dict(left)
            for (k, a), count in kept:
                row = (k, (a or 0) + 1)
                if row[1] < 6:
                    found[row] = found.get(row, 0) + count
            current = {row: 1 for row, count in found.items() if count > 0}
        return list(current.items())

    check(build, SCHEMAS, answer, changes, cuts, workers)


def operators(build: Callable[[vn.Collection, vn.Collection], vn.Collection]) -> dict[str, int]:
    """How many operators of each kind the plan of a view has, the view's own arrangement left out."""
    app = vn.App("plan")
    app.view("v", build(app.source("left", Left), app.source("right", Right)))
    kinds = [op["kind"] for op in compile_app(app).explain()["operators"] if not op["name"].startswith("view v")]
    return {kind: kinds.count(kind) for kind in kinds}


@pytest.mark.parametrize(
    ("how", "arranged", "reduced"), [("semi", 2, 1), ("anti", 2, 1), ("left", 2, 1), ("full", 2, 2)]
)
def test_arrangements_are_shared(how: str, arranged: int, reduced: int) -> None:
    found = operators(lambda left, right: left.join(right, on="k", how=how))
    assert (found["arrange"], found["reduce"]) == (arranged, reduced)


def test_a_collection_joined_with_itself_under_other_names_is_kept_once() -> None:
    for how in ("semi", "left", "full"):
        found = operators(lambda left, right, how=how: left.join(left.rename(k="j"), on="a", how=how))  # type: ignore[misc]
        assert (found["arrange"], found["reduce"]) == (1, 1), how
        found = operators(lambda left, right, how=how: left.join(left.rename(a="b"), on="k", how=how))  # type: ignore[misc]
        assert (found["arrange"], found["reduce"]) == (1, 1), how
    changes: dict[str, list[Change]] = {"left": [((1, 1), 1, 1), ((None, 1), 2, 1), ((1, 2), 3, 1), ((1, 1), 4, -1)]}
    check(
        lambda left: left.join(left.rename(a="b"), on="k", how="full", where=col("a") <= col("b")),
        {"left": Left},
        lambda left: nested_loop(left, left, "full", True),
        changes,
    )


def test_no_distinct_is_needless() -> None:
    found = operators(lambda left, right: left.intersect(right.rename(b="a")))
    assert (found["arrange"], found["reduce"], found["join"]) == (2, 2, 1)
    found = operators(lambda left, right: left.distinct().intersect(right.rename(b="a").distinct()))
    assert (found["arrange"], found["reduce"], found["join"]) == (2, 2, 1)
    found = operators(lambda left, right: left.except_all(right.rename(b="a")))
    assert (found["arrange"], found["reduce"]) == (1, 1)
    # Keys that are there once need not be asked whether they are present.
    unique: list[Callable[[vn.Collection], vn.Collection]] = [
        lambda right: right.group_by("k").agg(n=vn.count()),
        lambda right: right.select("k").distinct(),
        lambda right: right.group_by(j="k").agg(n=vn.count()).filter(col("n") > 1).select(k="j", m=col("n") + 1),
    ]
    for once in unique:
        found = operators(lambda left, right, once=once: left.join(once(right), on="k", how="anti"))  # type: ignore[misc]
        assert found["reduce"] == 1
    # Nothing is asked for rows apart that are known to be there at least once: the arrangement has the key alone.
    positive: list[Callable[[vn.Collection], vn.Collection]] = [
        lambda left: left.top_k(3, by="a", within="k"),
        lambda left: left.distinct().window("a", hop=4, every=2),
        lambda left: left.except_all(left.filter(col("a") > 1)),
    ]
    for build in positive:
        app = vn.App("t")
        app.view("v", build(app.source("left", Left)).group_by("k").agg(n=vn.count()))
        shapes = [one for one in compile_app(app).arrangements.values() if not one.retained]
        assert shapes[-1].val_width == 0
    found = operators(lambda left, right: left.distinct().distinct().filter(col("a") > 1).distinct())
    assert (found["arrange"], found["reduce"]) == (1, 1)
