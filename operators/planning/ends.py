"""Which reductions depend on a part of a group, and how its rows must be ordered for that: on one end
(kernels/ends.py), on the surroundings of the rows that change (kernels/surroundings.py), or on the rows behind them and
the sum of those before (kernels/stretches.py)."""

from __future__ import annotations

from collections.abc import Sequence

from vernier.operators.group_functions.logic import LogicSpec
from vernier.operators.group_functions.ordered import OrderedSpec, Rank
from vernier.operators.group_functions.running import RunningExtreme
from vernier.operators.kernels.aggregating import FLAG, KIND, MAX, MIN, WORD, WORDS
from vernier.operators.language.expr.order import Orders
from vernier.operators.language.types.schema import Field, RowType
from vernier.operators.planning.reduction_ops import Ends, Stretches, Surroundings
from vernier.operators.planning.stages import Words

FARTHEST = 1 << 16
"""The most copies that are read on either side of a row."""
MOST = 1 << 30
"""The most copies of a group that are followed one by one."""


def ends_of_order(by: Orders, val: RowType, most: int) -> Ends | None:
    """What the first `most` copies depend on, if vals begin with the columns of the order; None if that is the group.

    Vals are compared by their words, which is not the order of long texts: where these decide, or where descending
    columns follow ascending ones, all rows that are equal up to there are read.
    """
    down = whole = 0
    exact = True
    for name, descending in by:
        column = val.field(name)
        if _has_text(column) or (descending and whole > down):
            exact = False
            break
        whole += column.words
        down += column.words if descending else 0
    if exact and not val.text_words:
        return Ends(down, val.width, most)
    return Ends(down, whole, most) if whole else None


def ends_of_extreme(aggregations: Sequence[Words], width: int) -> Ends | None:
    """What a least or greatest value of integers depends on, if vals of `width` words begin with the value."""
    if len(aggregations) != 1:
        return None
    (row,) = aggregations
    flag = row[FLAG]
    if row[KIND] not in (MIN, MAX) or (flag if flag >= 0 else row[WORD]) != 0:
        return None
    read = row[WORDS] + (1 if flag >= 0 else 0)
    return Ends(read if row[KIND] == MAX else 0, width, 1, flag)


def surroundings_of(spec: LogicSpec, val: RowType) -> tuple[list[str], Surroundings] | None:
    """The columns that vals must begin with, and what the logic reads of a group then; None if that is the group."""
    if not isinstance(spec, OrderedSpec) or spec.reach is None or spec.reach > FARTHEST:
        return None
    names, whole = [name for name, _ in spec.by], _leading(spec.by, val)
    return (names, Surroundings(whole, spec.reach)) if whole else None


def stretches_of(spec: LogicSpec, val: RowType) -> tuple[list[str], Stretches] | None:
    """The columns that vals must begin with, and what the logic reads of a group then; None if that is the group."""
    if not isinstance(spec, OrderedSpec) or not spec.adds_up(val):
        return None
    names = [name for name, _ in spec.by]
    whole, down = _leading(spec.by, val), spec.by[0][1]
    if isinstance(spec, Rank):
        # Rows that are equal in the order have one rank, whatever the order of their other words.
        whole = min(whole, sum(val.field(name).words for name in dict.fromkeys(names)))
    if not whole:
        return None
    if spec.summed is None:
        return names, Stretches(whole, down)
    field = ordered_first(names, val).field(spec.summed)
    flag = field.offset if field.nullable else -1
    return names, Stretches(whole, down, field.value_offset, field.type.words, flag)


def directed(spec: RunningExtreme, val: RowType) -> bool:
    """Whether vals that begin with the columns of the order have that order, or the reverse of it if the first column
    is descending, and the values that are compared sort as their words do."""
    if not spec.by or val.field(spec.column).text_words:
        return False
    whole = _leading(spec.by, val)
    return whole == val.width or (spec.single and whole == sum(val.field(name).words for name, _ in spec.by))


def _leading(by: Orders, val: RowType) -> int:
    """How many words of vals that begin with the columns of the order are in that order, all in the same direction;
    all words if ties are, too."""
    whole = 0
    for name, descending in by:
        field = val.field(name)
        if field.text_words or descending != by[0][1]:
            break
        whole += field.words
    if all(not descending for _, descending in by) and not val.text_words:
        whole = val.width
    return whole


def ordered_first(by: Sequence[str], val: RowType) -> RowType:
    """The columns of val, those of an order first."""
    return val.take(list(dict.fromkeys((*by, *val.names))))


def _has_text(column: Field) -> bool:
    return bool(column.text_words)
