"""Expressions on words: give an expression its type against a row type, and compute it for many rows at once.

Meaning is Spark SQL's, with 64-bit integers that never wrap: null in an operator gives null; `&`, `|`, `~` are three-
valued; a comparison with null is null; NaN equals NaN and is the greatest Float64, -0.0 equals 0.0; `//` and `%`
truncate towards zero (Spark's `div` and `%`), `/` is Float64, and all three give null for a zero divisor. Integer
results that do not fit raise ArithmeticOverflow. What could raise is computed only for the rows that reach it: the
branch of a `when`, the right side of `&` behind false and of `|` behind true. Everything is vectorised, O(rows) for
each part; only the columns used are decoded.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from operators.errors import BadValue, WrongType
from operators.language import arithmetic
from operators.language.expr import Alias, Binary, Case, Cast, Column, Expr, IsNull, Literal, Nullability, Unary
from operators.language.schema import RowType
from operators.language.types import Bool, Date, Float64, Int64, TimestampNs, Type, Values, Words, spell

_INT, _FLOAT, _BOOL, _DATE, _TIME = Int64(), Float64(), Bool(), Date(), TimestampNs()


class Vector(NamedTuple):
    """An expression's values for n rows: `data` of its type's numpy dtype, `valid` False where null (None: nowhere)."""

    data: Values
    valid: Values | None


Heap = Any
"""Where the contents of long texts are (None while there are none)."""
Run = Callable[[Words, Heap], Vector]


@dataclass(frozen=True)
class Bound:
    """An expression with its type; `kind` is None for a bare null. `fallible`: it could raise for some rows."""

    expr: Expr
    kind: Type | None
    nullable: bool
    fallible: bool
    compute: Run

    @property
    def type(self) -> Type:
        """The type; raises WrongType for a bare null, which has none."""
        if self.kind is None:
            raise WrongType(problem=f"{self.expr} is null of no type; write e.g. lit(None).cast(vn.Int64)")
        return self.kind

    def __str__(self) -> str:
        return f"{self.expr} is {'null' if self.kind is None else spell(self.kind, self.nullable)}"

    def run(self, rows: Words, heap: Heap = None) -> Vector:
        """Compute int64[n, width] -> the n values; `heap` holds the contents of the rows' long texts."""
        return self.compute(rows, heap)

    def words(self, rows: Words, heap: Heap = None) -> Words:
        """Compute int64[n, width] -> int64[n, k], k = the words of a column of this type and nullability."""
        data, valid = self.compute(rows, heap)
        encoded = self.type.to_words(data)
        if not self.nullable:
            return encoded
        mask = np.ones(len(rows), np.bool_) if valid is None else valid
        return np.hstack((mask[:, None].astype(np.int64), np.where(mask[:, None], encoded, 0)))


def evaluate(expr: Expr, row: RowType, words: Words, heap: Heap = None) -> Words:
    """Compute one expression for int64[n, width] -> int64[n, k]; to compute it often, keep `bind(expr, row).words`."""
    return bind(expr, row).words(words, heap)


class RowFunction(Protocol):
    """A function of rows int64[n, width], given the heap with the contents of their long texts."""

    def __call__(self, words: Words, heap: Heap = None) -> Values: ...


def project(exprs: Sequence[Expr], row: RowType) -> RowFunction:
    """A function from rows int64[n, width] to the words of all `exprs` side by side; a mere take of columns is one."""
    if all(expr.column is not None for expr in exprs):
        index = row.index([str(expr.column) for expr in exprs])
        if np.array_equal(index, np.arange(row.width)):
            return lambda words, heap=None: words
        return lambda words, heap=None: words[:, index]
    parts = [bind(expr, row).words if expr.column is None else _take(row, str(expr.column)) for expr in exprs]
    return lambda words, heap=None: np.hstack([part(words, heap) for part in parts])


def predicate(expr: Expr, row: RowType) -> RowFunction:
    """A function from rows int64[n, width] to bool[n]: True where `expr` is true (not false, not null).

    Raises WrongType when the expression is not Bool.
    """
    bound = bind(expr, row)
    if bound.kind not in (None, _BOOL):
        raise WrongType(problem=f"a condition must be Bool, but {bound}")
    typed = _as(bound, _BOOL)
    return lambda words, heap=None: _true(typed.run(words, heap))


def bind(expr: Expr, row: RowType) -> Bound:
    """Give an expression its type against a row type. Raises UnknownColumn and WrongType (errors of the program)."""
    match expr:
        case Column():
            return _column(expr, row)
        case Literal():
            return _literal(expr)
        case Alias():
            return bind(expr.part, row)
        case Unary():
            return _negate(expr, bind(expr.part, row)) if expr.op == "-" else _not(expr, bind(expr.part, row))
        case IsNull():
            return _is_null(expr, bind(expr.part, row))
        case Cast():
            return _cast(expr, bind(expr.part, row))
        case Nullability():
            return _nullability(expr, bind(expr.part, row))
        case Case():
            return _case(expr, row)
        case Binary():
            left, right = bind(expr.left, row), bind(expr.right, row)
            if expr.op in ("&", "|"):
                return _logic(expr, left, right)
            if expr.op in arithmetic.COMPARE:
                return _compare(expr, left, right)
            return _divide(expr, left, right) if expr.op in ("/", "//", "%") else _arithmetic(expr, left, right)
    raise WrongType(problem=f"{expr!r} is no expression that can be computed")


# --- leaves -----------------------------------------------------------------------------------------------------------


def _take(row: RowType, name: str) -> RowFunction:
    field = row.field(name)
    return lambda words, heap=None: words[:, field.offset : field.offset + field.words]


def _column(expr: Column, row: RowType) -> Bound:
    field = row.field(expr.name)
    kind, start, stop = field.type, field.value_offset, field.offset + field.words

    def run(words: Words, heap: Heap) -> Vector:
        valid = words[:, field.offset] != 0 if field.nullable else None
        return Vector(kind.from_words(words[:, start:stop]), valid)

    return Bound(expr, kind, field.nullable, False, run)


def _literal(expr: Literal) -> Bound:
    kind, value = expr.type, expr.value
    if kind is None:
        return Bound(expr, None, True, False, lambda words, heap: _nulls(len(words), np.dtype(np.int64)))
    constant = np.array(value, kind.numpy)
    return Bound(expr, kind, False, False, lambda words, heap: Vector(np.broadcast_to(constant, len(words)), None))


def _nulls(n: int, dtype: "np.dtype[np.generic]") -> Vector:
    return Vector(np.zeros(n, dtype), np.zeros(n, np.bool_))


# --- types ------------------------------------------------------------------------------------------------------------


def _as(bound: Bound, kind: Type) -> Bound:
    """The same values as `kind`: a bare null gets the type, Int64 widens to Float64; others must be of it already."""
    if bound.kind == kind:
        return bound
    run = bound.compute
    if bound.kind is None:
        return Bound(bound.expr, kind, True, False, lambda words, heap: _nulls(len(words), kind.numpy))

    def widened(words: Words, heap: Heap) -> Vector:
        data, valid = run(words, heap)
        return Vector(data.astype(np.float64), valid)

    return Bound(bound.expr, kind, bound.nullable, bound.fallible, widened)


def _common(bounds: Sequence[Bound], what: str) -> Type | None:
    """The one type that all values can have: theirs, Float64 for Int64 and Float64, None if all are bare nulls."""
    found: Type | None = None
    for bound in bounds:
        if bound.kind is None or bound.kind == found:
            continue
        if found is None:
            found = bound.kind
        elif {found.name, bound.kind.name} == {"Int64", "Float64"}:
            found = _FLOAT
        else:
            shown = "; ".join(str(b) for b in bounds)
            raise WrongType(problem=f"{what} has values of different types ({shown}); cast one of them")
    return found


def _both(left: Vector, right: Vector) -> Values | None:
    """Where neither is null."""
    if left.valid is None:
        return right.valid
    return left.valid if right.valid is None else left.valid & right.valid


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _result_type(op: str, left: Type, right: Type) -> Type | None:
    """The type of left `op` right for + - *; None when there is none."""
    pair = {left.name, right.name}
    if pair <= {"Int64", "Float64"}:
        return _FLOAT if "Float64" in pair else _INT
    for kind in (_DATE, _TIME):
        if (op in "+-" and left == kind and right == _INT) or (op == "+" and left == _INT and right == kind):
            return kind
        if op == "-" and left == kind and right == kind:
            return _INT
    return None


def _operands(expr: Binary, left: Bound, right: Bound) -> tuple[Bound, Bound]:
    """Both operands with types: a bare null takes the other's."""
    kind = left.kind or right.kind or _INT
    return (left if left.kind else _as(left, kind), right if right.kind else _as(right, kind))


def _arithmetic(expr: Binary, left: Bound, right: Bound) -> Bound:
    left, right = _operands(expr, left, right)
    kind = _result_type(expr.op, left.type, right.type)
    if kind is None:
        raise WrongType(problem=f"{expr} cannot be computed: {left}, {right}")
    if kind == _FLOAT:
        left, right = _as(left, _FLOAT), _as(right, _FLOAT)
    compute = arithmetic.FLOAT[expr.op] if kind == _FLOAT else arithmetic.EXACT[expr.op]

    def run(words: Words, heap: Heap) -> Vector:
        a, b = left.run(words, heap), right.run(words, heap)
        valid = _both(a, b)
        data = compute(a.data, b.data, valid, expr)
        if kind == _DATE:
            arithmetic.check_date(data, valid, expr)
        return Vector(data, valid)

    return Bound(expr, kind, left.nullable or right.nullable, kind != _FLOAT or left.fallible or right.fallible, run)


def _divide(expr: Binary, left: Bound, right: Bound) -> Bound:
    left, right = _operands(expr, left, right)
    pair = {left.type.name, right.type.name}
    if not pair <= {"Int64", "Float64"} or (expr.op == "//" and "Float64" in pair):
        hint = "; // is for Int64, so cast the operands or use /" if pair <= {"Int64", "Float64"} else ""
        raise WrongType(problem=f"{expr} cannot be computed: {left}, {right}{hint}")
    kind: Type = _FLOAT if expr.op == "/" or "Float64" in pair else _INT
    left, right = _as(left, kind), _as(right, kind)
    divisor = expr.right
    while isinstance(divisor, Alias):
        divisor = divisor.part
    never_zero = isinstance(divisor, Literal) and bool(divisor.value)
    compute = arithmetic.DIVIDE[(expr.op, kind.name)]

    def run(words: Words, heap: Heap) -> Vector:
        a, b = left.run(words, heap), right.run(words, heap)
        valid = _both(a, b)
        if not never_zero:
            valid = (b.data != 0) if valid is None else valid & (b.data != 0)
        return Vector(compute(a.data, b.data, valid, expr), valid)

    nullable = left.nullable or right.nullable or not never_zero
    return Bound(expr, kind, nullable, expr.op == "//" or left.fallible or right.fallible, run)


def _negate(expr: Unary, part: Bound) -> Bound:
    if part.type not in (_INT, _FLOAT):
        raise WrongType(problem=f"{expr} cannot be computed: {part}")

    def run(words: Words, heap: Heap) -> Vector:
        data, valid = part.run(words, heap)
        if part.kind == _FLOAT:
            return Vector(-data, valid)
        return Vector(arithmetic.EXACT["-"](np.zeros_like(data), data, valid, expr), valid)

    return Bound(expr, part.type, part.nullable, part.kind == _INT or part.fallible, run)


# --- comparison and logic ---------------------------------------------------------------------------------------------


def _compare(expr: Binary, left: Bound, right: Bound) -> Bound:
    kind = _common((left, right), str(expr)) or _INT
    left, right = _as(left, kind), _as(right, kind)
    compare = arithmetic.COMPARE[expr.op]

    def run(words: Words, heap: Heap) -> Vector:
        a, b = left.run(words, heap), right.run(words, heap)
        if kind == _FLOAT:  # words have Spark's order of NaN and -0.0; IEEE comparisons do not
            return Vector(compare(kind.to_words(a.data)[:, 0], kind.to_words(b.data)[:, 0]), _both(a, b))
        return Vector(compare(a.data, b.data), _both(a, b))

    return Bound(expr, _BOOL, left.nullable or right.nullable, left.fallible or right.fallible, run)


def _is_null(expr: IsNull, part: Bound) -> Bound:
    def run(words: Words, heap: Heap) -> Vector:
        valid = part.run(words, heap).valid
        return Vector(np.zeros(len(words), np.bool_) if valid is None else ~valid, None)

    return Bound(expr, _BOOL, False, part.fallible, run)


def _not(expr: Unary, part: Bound) -> Bound:
    part = _boolean(expr, part)

    def run(words: Words, heap: Heap) -> Vector:
        data, valid = part.run(words, heap)
        return Vector(~data, valid)

    return Bound(expr, _BOOL, part.nullable, part.fallible, run)


def _boolean(expr: Expr, part: Bound) -> Bound:
    if part.kind not in (None, _BOOL):
        raise WrongType(
            problem=f"{expr} needs Bool on each side, but {part}; put comparisons in parentheses: (a > 1) & (b < 2)"
        )
    return _as(part, _BOOL)


def _true(vector: Vector) -> Values:
    return vector.data if vector.valid is None else vector.data & vector.valid


def _false(vector: Vector) -> Values:
    return ~vector.data if vector.valid is None else ~vector.data & vector.valid


def _logic(expr: Binary, left: Bound, right: Bound) -> Bound:
    left, right = _boolean(expr, left), _boolean(expr, right)
    decides = _false if expr.op == "&" else _true

    def run(words: Words, heap: Heap) -> Vector:
        a = left.run(words, heap)
        b = _on_rows(right, words, heap, ~decides(a))
        decided = decides(a) | decides(b)
        # Where nothing decides the result is null, or what `&` (True) and `|` (False) have left.
        data = ~decided if expr.op == "&" else decided
        valid = _both(a, b)
        return Vector(data, None if valid is None else valid | decided)

    return Bound(expr, _BOOL, left.nullable or right.nullable, left.fallible or right.fallible, run)


def _on_rows(bound: Bound, words: Words, heap: Heap, wanted: Values) -> Vector:
    """The values for all rows; rows that are not wanted are not computed if that could raise (they read as zero)."""
    if not bound.fallible or wanted.all():
        return bound.run(words, heap)
    some = bound.run(words[wanted], heap)
    data = np.zeros(len(words), some.data.dtype)
    data[wanted] = some.data
    if some.valid is None:
        return Vector(data, None)
    valid = np.zeros(len(words), np.bool_)
    valid[wanted] = some.valid
    return Vector(data, valid)


def _case(expr: Case, row: RowType) -> Bound:
    conditions = [_boolean(condition, bind(condition, row)) for condition, _ in expr.branches]
    values = [bind(value, row) for _, value in expr.branches]
    if expr.default is not None:
        values.append(bind(expr.default, row))
    kind = _common(values, str(expr))
    if kind is None:
        raise WrongType(problem=f"all values of {expr} are null of no type; write e.g. lit(None).cast(vn.Int64)")
    values = [_as(value, kind) for value in values]
    nullable = expr.default is None or any(value.nullable for value in values)

    def run(words: Words, heap: Heap) -> Vector:
        n = len(words)
        data, valid = np.zeros(n, kind.numpy), np.zeros(n, np.bool_)
        left = np.ones(n, np.bool_)
        for i, value in enumerate(values):
            rows = left & _true(_on_rows(conditions[i], words, heap, left)) if i < len(conditions) else left
            result = _on_rows(value, words, heap, rows)
            data[rows] = result.data[rows]
            valid[rows] = True if result.valid is None else result.valid[rows]
            left = left & ~rows
        return Vector(data, valid if nullable else None)

    fallible = any(bound.fallible for bound in (*conditions, *values))
    return Bound(expr, kind, nullable, fallible, run)


# --- conversion -------------------------------------------------------------------------------------------------------


def _cast(expr: Cast, part: Bound) -> Bound:
    kind = expr.type
    if part.kind is None or part.kind == kind:
        typed = _as(part, kind)
        return Bound(expr, kind, typed.nullable, typed.fallible, typed.compute)
    convert = arithmetic.CONVERT.get((part.type.name, kind.name))
    if convert is None:
        raise WrongType(problem=f"no cast leads there: {part}, and {kind} is asked for")

    def run(words: Words, heap: Heap) -> Vector:
        data, valid = part.run(words, heap)
        return Vector(convert(data, valid, expr), valid)

    fallible = part.fallible or (part.type.name, kind.name) in arithmetic.FALLIBLE
    return Bound(expr, kind, part.nullable, fallible, run)


def _nullability(expr: Nullability, part: Bound) -> Bound:
    if expr.nullable or not part.nullable:
        return Bound(expr, part.type, expr.nullable, part.fallible, part.compute)

    def run(words: Words, heap: Heap) -> Vector:
        data, valid = part.run(words, heap)
        if valid is not None and not valid.all():
            raise BadValue(column=str(expr), problem="null where a filter should have left none")
        return Vector(data, None)

    return Bound(expr, part.type, False, True, run)
