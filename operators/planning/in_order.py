"""Which columns along ordered rows one kernel computes (kernels/in_order.py), and from which words of the rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vernier.operators.group_functions.frames import FrameSums
from vernier.operators.group_functions.ordered import OrderedSpec, Rank, RowNumber, Shift
from vernier.operators.group_functions.running import RunningSum, limits_of, sum_type
from vernier.operators.kernels.in_order import FRAME, NUMBER, RANK, SHIFT, SUM
from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import Literal
from vernier.operators.language.types.schema import Field, RowType
from vernier.operators.planning.stages import Words


@dataclass(frozen=True)
class InOrder:
    """What `follow_order` computes; see there."""

    kind: int
    first: int
    last: int
    columns: tuple[Words, ...]
    limits: tuple[Words, ...]
    none: Words
    by: Words
    flips: Words
    equal: Words


def in_order_of(spec: OrderedSpec, val: RowType) -> InOrder | None:
    """How the kernel computes this function of rows with the columns `val`, or None."""
    fields = [(val.field(name), descending) for name, descending in spec.by]
    equal = tuple(word for field, _ in fields for word in range(field.offset, field.offset + field.words))
    flips = tuple(-1 if descending else 0 for field, descending in fields for _ in range(field.words))
    ready = not any(flips) and equal == tuple(range(len(equal))) and not val.text_words
    order = ((), (), equal) if ready else (equal, flips, equal)
    if isinstance(spec, Rank):
        return InOrder(RANK, 0, 0, (), (), (), *order)
    if isinstance(spec, RowNumber):
        return InOrder(NUMBER, 0, 0, (), (), (), *order)
    if isinstance(spec, RunningSum) and spec.adds_up(val):
        field = val.field(spec.column)
        flag = field.offset if field.nullable else -1
        column = (field.value_offset, field.type.words, flag, sum_type(field).words)
        return InOrder(SUM, 0, 0, (column,), (_limits(field),), (), *order)
    if isinstance(spec, FrameSums):
        summed = [val.field(name) for name in spec.columns]
        columns = tuple((field.offset, field.words, -1, sum_type(field).words) for field in summed)
        limits = tuple(_limits(field) for field in summed)
        return InOrder(FRAME, spec.first, spec.last, columns, limits, (), *order)
    if isinstance(spec, Shift) and (spec.default is None or isinstance(spec.default, Literal)):
        field = val.field(spec.column)
        kind, nullable = spec.added(val)
        if kind.text_words and spec.default is not None:
            return None
        shifted = (field.offset, field.words, 1 if nullable and not field.nullable else 0, 0)
        none = _absent(spec, val, kind.words + nullable, nullable)
        return InOrder(SHIFT, spec.step, 0, (shifted,), (), none, *order)
    return None


def _limits(field: Field) -> Words:
    return tuple(limits_of(sum_type(field)).tolist())


def _absent(spec: Shift, val: RowType, width: int, nullable: bool) -> Words:
    """The words of a copy that is not there: null, or the default."""
    words = [0] * width
    if spec.default is not None:
        default = bind(spec.default, val)
        value = default.words(np.zeros((1, val.width), np.int64), None)[0].tolist()
        words[width - len(value) :] = value
        if nullable and not default.nullable:
            words[0] = 1
    return tuple(words)
