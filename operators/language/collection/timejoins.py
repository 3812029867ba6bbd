"""Joins along time: with the newest or next row, and with all rows that are near.

Time is a column with distances: TimestampNs, Date, Int64.
"""

from collections.abc import Sequence
from typing import Any

from vernier.operators.errors import WrongType, listed, meant
from vernier.operators.group_functions.asof import AsOf, side_columns
from vernier.operators.language.collection.joins import join_keys
from vernier.operators.language.collection.matching import Sides, occurring, padded, pick, without_nulls
from vernier.operators.language.collection.ordering import grouped_by
from vernier.operators.language.collection.rows import C, Rows, check_collection, column_name, conform
from vernier.operators.language.collection.windows import span
from vernier.operators.language.expr.expression import Cast, Column, Expr, Literal, Nullability
from vernier.operators.language.plan.buckets import Buckets, ordinal
from vernier.operators.language.plan.linear_nodes import ExpandNode
from vernier.operators.language.plan.logical import (
    DistinctNode,
    FilterNode,
    NegateNode,
    ProjectNode,
    UnionNode,
    pair_type,
)
from vernier.operators.language.plan.node import Node
from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.schema import RowType

_HOW_AS_OF = ("inner", "left")
_HOW_INTERVAL = ("inner", "left", "semi", "anti")
_BUCKET = "_bucket"
"""The hidden key of interval joins. Programs cannot use this name."""


def as_of_join(
    self: C,
    other: Rows,
    on: str | Sequence[str] | None = None,
    *,
    left_on: str | Sequence[str] | None = None,
    right_on: str | Sequence[str] | None = None,
    left_time: str | Expr,
    right_time: str | Expr,
    direction: str = "backward",
    tolerance: str | int | None = None,
    how: str = "inner",
) -> C:
    """Each row with the one row of `other` that was the newest at its time or, with direction "forward", comes
    next.

    Of the present rows with equal keys (keys are optional), that is the row with the greatest right_time at or
    before left_time, at most `tolerance` away ("5s"; days for Date). With "forward" it is the row with the least
    right_time at or after left_time. Of several rows at that time, the greatest in the order of the columns is
    taken. Left rows keep their multiplicity. Those without a match are kept only with how="left", with nulls. Null
    keys and null times match nothing. Answers are revised when either side changes. Columns are as in `join`. Cost:
    O(rows of the key) for a change; with a tolerance O(rows of the key that are near), regardless of how long the
    key has existed.
    """
    left_keys, right_keys = _time_join(self, other, on, left_on, right_on, how, _HOW_AS_OF, "as_of_join")
    if direction not in ("backward", "forward"):
        hint = meant(str(direction), ("backward", "forward"))
        raise WrongType(problem=f'direction is "backward" or "forward", not {direction!r}{hint}')
    times = _times(self, other, left_time, right_time, "as_of_join")
    kind = self.schema.field(times[0]).type
    most = None if tolerance is None else span(tolerance, kind, "tolerance", zero=True)
    left, right = without_nulls(self.node, left_keys), without_nulls(other.node, right_keys)
    pairs = pair_type(left.schema, right.schema, left_keys, right_keys)
    merged = left_keys == right_keys
    if merged and (times[0] in left_keys or times[1] in right_keys):
        raise WrongType(problem="as_of_join looks along time within equal keys; the times themselves cannot be keys")
    rows = [row.take([n for n in row.names if not (merged and n in left_keys)]) for row in (left.schema, right.schema)]
    keys = left_keys if merged else tuple(f"key {name}" for name in left_keys)
    alone = [name for name in left_keys if self.schema.field(name).nullable]
    left_on, right_on = left_keys, right_keys
    if most is not None:
        # With a tolerance, rows also meet by buckets of time: a right row is in each bucket to which it is near
        # enough.
        before, after = (0, most) if direction == "backward" else (-most, 0)
        left = ExpandNode(left, Buckets(times[0], 0, 0, most + 1, _BUCKET))
        right = ExpandNode(right, Buckets(times[1], before, after, most + 1, _BUCKET))
        keys, left_on, right_on = (*keys, _BUCKET), (*left_keys, _BUCKET), (*right_keys, _BUCKET)
        alone += [times[0]] if self.schema.field(times[0]).nullable else []
    both = UnionNode((_tagged(left, left_on, keys, rows, 0), _tagged(right, right_on, keys, rows, 1)))
    outer = how == "left"
    spec = AsOf(rows[0], rows[1], *times, direction == "backward", most, outer)
    found = pick(grouped_by(both, keys, spec), pairs.names)
    if not outer or not alone:
        return self._of(found)
    # Rows with a null key, or here a null time, match nothing.
    target = RowType(
        (f.name, f.type, self.schema.field(f.name).nullable if f.name in self.schema else True)
        for f in found.schema.fields
    )
    lonely: Expr = Column(alone[0]).is_null()
    for name in alone[1:]:
        lonely = lonely | Column(name).is_null()
    return self._of(UnionNode((conform(found, target, "the join"), padded(FilterNode(self.node, lonely), target))))


def interval_join(
    self: C,
    other: Rows,
    on: str | Sequence[str] | None = None,
    *,
    left_on: str | Sequence[str] | None = None,
    right_on: str | Sequence[str] | None = None,
    left_time: str | Expr,
    right_time: str | Expr,
    lower: str | int,
    upper: str | int,
    how: str = "inner",
) -> C:
    """Pairs of rows with equal keys (keys are optional) whose times are near: lower <= right − left <= upper.

    The bounds are durations such as "-5s" (days for Date), both inclusive. `how` is "inner", "left", "semi" or
    "anti"; it and multiplicities are as in `join`. Null keys and null times match nothing. Rows meet by key and by
    a bucket of time as long as the interval, so the cost of a change depends on the rows near it, not on how long
    the key has existed.
    """
    left_keys, right_keys = _time_join(self, other, on, left_on, right_on, how, _HOW_INTERVAL, "interval_join")
    times = _times(self, other, left_time, right_time, "interval_join")
    kind = self.schema.field(times[0]).type
    low, high = (
        span(bound, kind, what, signed=True, zero=True) for bound, what in ((lower, "lower"), (upper, "upper"))
    )
    if low > high:
        raise WrongType(problem=f"interval_join: lower={lower!r} is above upper={upper!r}, so nothing would match")
    left = without_nulls(self.node, tuple(dict.fromkeys((*left_keys, times[0]))))
    right = without_nulls(other.node, tuple(dict.fromkeys((*right_keys, times[1]))))
    pairs = pair_type(left.schema, right.schema, left_keys, right_keys)
    labels = (_BUCKET, _BUCKET) if left_keys == right_keys else (f"{_BUCKET} left", f"{_BUCKET} right")
    near = (Column(times[1]) - Column(times[0])).between(low, high)
    sides = Sides(
        ExpandNode(left, Buckets(times[0], low, high, high - low + 1, labels[0])),
        ExpandNode(right, Buckets(times[1], 0, 0, high - low + 1, labels[1])),
        (*left_keys, labels[0]),
        (*right_keys, labels[1]),
        near,
    )
    matches = pick(sides.pairs(), pairs.names)
    if how == "inner":
        return self._of(matches)
    once = sides.pairs(sides.right if sides.right.is_positive else DistinctNode(sides.right))
    matched = conform(pick(occurring(left, once), left.schema.names), self.schema, "the join")
    if how == "semi":
        return self._of(matched)
    unmatched = UnionNode((self.node, NegateNode(matched)))
    if how == "anti":
        return self._of(unmatched)
    target = RowType(
        (f.name, f.type, self.schema.field(f.name).nullable if f.name in self.schema else True) for f in pairs.fields
    )
    return self._of(UnionNode((conform(matches, target, "the join"), padded(unmatched, target))))


def _time_join(
    rows: Rows, other: Rows, on: Any, left_on: Any, right_on: Any, how: str, known: tuple[str, ...], what: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Check the arguments that both joins have in common; returns the key columns of both sides."""
    check_collection(other, what)
    if how not in known:
        raise WrongType(problem=f"{what} has no how={how!r}{meant(str(how), known)} (it has {listed(known)})")
    keys = join_keys(on, left_on, right_on, what, needed=False)
    rows._check_columns(keys[0], f"the left side of {what}")
    other._check_columns(keys[1], f"the right side of {what}")
    return keys


def _times(rows: Rows, other: Rows, left: str | Expr, right: str | Expr, what: str) -> tuple[str, str]:
    """The names of the time columns, which must have the same type, one that has distances."""
    one = ordinal(rows.schema.field(column_name(left, what), f"the left side of {what}"), what)
    two = ordinal(other.schema.field(column_name(right, what), f"the right side of {what}"), what)
    if one.type != two.type:
        raise WrongType(
            problem=f"{what} compares times of one type, but {one.name} is {one.type} and {two.name} is {two.type}"
        )
    return one.name, two.name


def _tagged(node: Node, on: tuple[str, ...], keys: tuple[str, ...], rows: list[RowType], side: int) -> Node:
    """One side's rows in the layout for both sides (see AsOf): keys, side, all columns, nulls for the other side."""
    exprs: list[tuple[str, Expr]] = [(key, Column(name)) for key, name in zip(keys, on, strict=True)]
    exprs.append(("side", Literal(side, Int64())))
    for label, name, of in side_columns(rows[0], rows[1]):
        value = Column(name) if of == side else Cast(Literal(None, None), rows[of].field(name).type)
        exprs.append((label, Nullability(value, True)))
    return ProjectNode(node, tuple(exprs))
