"""Prefix sums over large ordered domains, computed only at the positions that a program asks for.

At each level l, a position belongs to one block of 16**l positions; a prefix is the union of at most 15 blocks of each
level. Each row is counted in its block at every level, and a question adds up the blocks of its prefix. Both therefore
cost time by the number of levels, not of positions. Sums are linear, so the sum of a block is kept as the multiplicity
of the row that stands for the block.
"""

from collections.abc import Sequence

import numpy as np

from vernier.operators.errors import BadValue, NameClash, WrongType
from vernier.operators.language.collection.matching import pick
from vernier.operators.language.collection.ordering import Columns, keys
from vernier.operators.language.collection.rows import C, Rows, check_collection, column_name
from vernier.operators.language.expr.evaluate import Heap
from vernier.operators.language.expr.expression import Column, Expr, Literal, Nullability
from vernier.operators.language.plan.aggregation import Aggregation
from vernier.operators.language.plan.buckets import ordinal, present
from vernier.operators.language.plan.linear_nodes import ExpandNode
from vernier.operators.language.plan.logical import AggregateNode, JoinNode, ProjectNode, UnionNode
from vernier.operators.language.plan.node import Node
from vernier.operators.language.plan.tables import Expanded, Expansion, RepeatRow, TableFunction, spread
from vernier.operators.language.types.scalars import Int64, Words, spell
from vernier.operators.language.types.schema import RowType, check_name

_DIGIT = 4
"""Bits of a position per level of blocks. With more bits a change updates fewer blocks, but a question reads more."""
_LEVEL, _BLOCK, _VALUE = "_level", "_block", "_value"
"""Hidden columns. Programs cannot use these names."""


def prefix_sum(
    self: C,
    column: str | Expr,
    *,
    at: Rows,
    by: str | Expr,
    within: Columns = (),
    name: str = "prefix_sum",
    bits: int = 64,
) -> C:
    """The rows of `at`, each with the sum of `column` over the rows here whose `by` is at most its own.

    Both collections have the columns `by` (Int64, TimestampNs or Date) and `within`, whose values must be equal;
    nulls of `within` are equal. Each row counts with its multiplicity. Null values and rows with a null `by` add
    nothing, and the sum over nothing is 0. The sum is Int64; a sum of a block or of a prefix that does not fit is
    an error. `bits`: positions are in [0, 2**bits) or, with 64, arbitrary; fewer bits cost less.

    Cost: bits / 4 updates for a change here, up to 4 * bits for a row of `at` that is added or removed, and one for
    each row of `at` whose sum changes.
    """
    check_collection(at, "prefix_sum")
    check_name(name, "the new column")
    if name in at.schema:
        raise NameClash(problem=f"at= of prefix_sum has a column {name!r} already; give the sum another name=")
    value = self.schema.field(column_name(column, "prefix_sum"))
    place = ordinal(self.schema.field(column_name(by, "prefix_sum")), "prefix_sum")
    groups = keys(within, self.schema, "within= of prefix_sum")
    if value.type != Int64():
        raise WrongType(problem=f"prefix_sum adds Int64, but {value.name!r} is {value.type}; cast it")
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= 64:
        raise WrongType(problem=f"prefix_sum takes bits from 1 to 64, not {bits!r}")
    if place.name in groups:
        raise WrongType(problem=f"prefix_sum by {place.name!r} cannot have it in within=, too")
    target = _asked(self, at, (*groups, place.name))
    block = (*groups, _LEVEL, _BLOCK)
    here: Node = ExpandNode(_typed(self.node, target, (_VALUE, Column(value.name))), RepeatRow(Column(_VALUE)))
    here = pick(ExpandNode(here, Blocks(place.name, bits, False)), block)
    questions = _retyped(at.node, target)
    asked = AggregateNode(questions, target.names, ())
    parts = pick(
        JoinNode(ExpandNode(asked, Blocks(place.name, bits, True)), here, block, block, null_safe=True), target.names
    )
    counted = UnionNode(
        (_typed(asked, target, (_VALUE, Literal(0, Int64()))), _typed(parts, target, (_VALUE, Literal(1, Int64()))))
    )
    sums = AggregateNode(counted, target.names, ((name, Aggregation("sum", Column(_VALUE))),))
    answered = JoinNode(questions, sums, target.names, target.names, null_safe=True)
    outputs = [(f.name, _back(f.name, f.nullable, target)) for f in at.schema.fields]
    return self._of(ProjectNode(answered, (*outputs, (name, Column(name)))))


def _asked(rows: Rows, at: Rows, names: Sequence[str]) -> RowType:
    """The columns of a question that are used: of equal types on both sides, nullable where either side is."""
    columns = []
    for name in names:
        here, there = rows.schema.field(name), at.schema.field(name, "at= of prefix_sum")
        if here.type != there.type:
            found = f"{spell(here.type, here.nullable)} here and {spell(there.type, there.nullable)} in at="
            raise WrongType(problem=f"prefix_sum: {name!r} is {found}; cast one of them")
        columns.append((name, here.type, here.nullable or there.nullable))
    return RowType(columns)


class Blocks(TableFunction):
    """All columns, plus the level and number of each block that contains the position, or of which its prefix consists.

    Positions are unsigned numbers of `bits` bits; with 64 bits, all int64 values map to them in order.
    """

    name = "blocks"

    def __init__(self, on: str, bits: int, prefix: bool) -> None:
        self.on, self.bits, self.prefix = on, bits, prefix

    def key(self) -> tuple[object, ...]:
        """See TableFunction."""
        return (self.name, self.on, self.bits, self.prefix)

    def schema(self, row: RowType) -> RowType:
        """See TableFunction."""
        kept = [(f.name, f.type, f.nullable) for f in row.fields]
        return RowType([*kept, (_LEVEL, Int64(), False), (_BLOCK, Int64(), False)])

    def source_words(self, row: RowType) -> tuple[int, ...]:
        """See TableFunction."""
        return (*range(row.width), -1, -1)

    def compile(self, row: RowType) -> Expansion:
        """See TableFunction. O(rows * bits)."""
        field, bits = row.field(self.on), self.bits

        def expand(rows: Words, heap: Heap) -> Expanded:
            alive, places = present(rows, field)
            if bits < 64 and len(places) and not 0 <= int(places.min()) <= int(places.max()) < 1 << bits:
                wrong = places[(places < 0) | (places >= 1 << bits)][0]
                raise BadValue(column=field.name, problem=f"{wrong} is outside of [0, 2**{bits}) of prefix_sum")
            unsigned = places.view(np.uint64) if bits < 64 else places.view(np.uint64) ^ np.uint64(1 << 63)
            levels = -(-bits // _DIGIT)
            shifts = np.arange(levels, dtype=np.uint64) * np.uint64(_DIGIT)
            if self.prefix:
                # The prefix [0, u] is u itself plus, at each level, the blocks before that of u within the same larger
                # block.
                at = unsigned[:, None] >> shifts
                digit = at & np.uint64(2**_DIGIT - 1)
                cell, nth = spread(digit.astype(np.int64).ravel())
                block = (at - digit).ravel()[cell] + nth.astype(np.uint64)
                parent = np.concatenate((np.arange(len(places)), cell // levels))
                level = np.concatenate((np.zeros(len(places), np.int64), cell % levels))
                block = np.concatenate((unsigned, block))
            else:
                parent, level = spread(np.full(len(places), levels))
                block = unsigned[parent] >> shifts[level]
            made = np.column_stack((rows[alive[parent]], level, block.view(np.int64)))
            return Expanded(alive[parent], made)

        return expand


def _typed(node: Node, target: RowType, *more: tuple[str, Expr]) -> Node:
    """The columns of a question, and further ones."""
    return ProjectNode(node, (*((f.name, _nullable(f.name, node.schema, f.nullable)) for f in target.fields), *more))


def _retyped(node: Node, target: RowType) -> Node:
    """All columns; those of a question are nullable where either side is."""
    if all(node.schema.field(f.name) == f for f in target.fields):
        return node
    exprs = [
        (f.name, _nullable(f.name, node.schema, f.nullable or (f.name in target and target.field(f.name).nullable)))
        for f in node.schema.fields
    ]
    return ProjectNode(node, tuple(exprs))


def _nullable(name: str, row: RowType, nullable: bool) -> Expr:
    return Nullability(Column(name), True) if nullable and not row.field(name).nullable else Column(name)


def _back(name: str, nullable: bool, target: RowType) -> Expr:
    """A column with the nullability that it had in the question."""
    if name in target and target.field(name).nullable and not nullable:
        return Nullability(Column(name), False)
    return Column(name)
