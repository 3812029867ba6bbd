"""Stage compiler: turns chains of plain row-wise steps into passes, programs that a kernel runs over each row once.

A program can contain picks, filters, computed columns and factors over Int64, Bool, Date, TimestampNs and Float64:
arithmetic (checked for integers), comparisons, three-valued logic, nulls, when/otherwise and coalesce. Values of other
types can be tested for equality, and constants are short texts then. Other steps run on their own
(operators/physical/stages.py). If a row would raise, the kernel gives up and the steps run one by one: they either
raise the proper error or find that an earlier step had dropped the row. So a pass has the same result as its steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vernier.operators.kernels import passes as kernel
from vernier.operators.language.expr.compute.coercion import as_kind, common
from vernier.operators.language.expr.compute.operations import never_zero
from vernier.operators.language.expr.compute.vector import Bound
from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import (
    Alias,
    Binary,
    Call,
    Case,
    Cast,
    Column,
    Expr,
    IsNull,
    Literal,
    Nullability,
    Unary,
)
from vernier.operators.language.plan.tables import RepeatRow
from vernier.operators.language.types.scalars import Bool, Date, Float64, Int64, TimestampNs, Type
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.ops import JoinOp, LinearOp
from vernier.operators.planning.plan import Plan
from vernier.operators.planning.stages import Compute, Expand, Keep, Negated, Stage, Take
from vernier.storage.errors import VernierError
from vernier.storage.updates import Ints

_INT, _BOOL, _TIME, _FLOAT = Int64(), Bool(), TimestampNs(), Float64()
_SINGLE = (_INT, _BOOL, Date(), _TIME, _FLOAT)
"""The types of one word whose order is that of the words."""
_ARITHMETIC = {"+": kernel.ADD, "-": kernel.SUB, "*": kernel.MUL}
_DIVISION = {"//": kernel.QUOTIENT, "%": kernel.REMAINDER}
_DOUBLES = {"+": kernel.ADD_DOUBLES, "-": kernel.SUB_DOUBLES, "*": kernel.MUL_DOUBLES, "/": kernel.DIV_DOUBLES}
_COMPARE = {"==": (kernel.EQ, False), "!=": (kernel.NE, False), "<": (kernel.LT, False), "<=": (kernel.LE, False)}
_COMPARE |= {">": (kernel.LT, True), ">=": (kernel.LE, True)}

Value = tuple[int, int | None]
"""The register of a value, and the register of its validity: 1 if not null (None if the value is never null)."""
Coded = tuple[list[int], int | None]
"""The same for a value of any type: the registers of its words."""


class Unfit(Exception):
    """A step that cannot be part of a program."""


def _is_null(expr: Expr) -> bool:
    """Whether it is the null of a type, such as outer joins have for what has no partner."""
    while isinstance(expr, Alias) or (isinstance(expr, Nullability) and expr.nullable):
        expr = expr.part
    return isinstance(expr, Cast) and isinstance(expr.part, Literal) and expr.part.value is None


class Pass:
    """A program: first built, then run. A new one leaves rows of `width` words unchanged."""

    def __init__(self, width: int) -> None:
        self.stages: tuple[Stage, ...] = ()
        self._code: list[tuple[int, int, int, int]] = []
        self._constants: list[int] = []
        self._made: dict[tuple[int, int, int], int] = {}
        self._registers = 0
        self._row: list[int | None] = [None] * width
        self._inputs = list(range(width))
        self.program: tuple[Ints, Ints, int, Ints]
        """Instructions, constants, number of registers and output registers, for kernels.passes.run_pass."""

    def add(self, stage: Stage) -> None:
        """Append a step. Raises Unfit and leaves the pass unchanged if the step cannot be part of a program."""
        before = (len(self._code), len(self._constants), dict(self._made), self._registers, list(self._row))
        inputs = list(self._inputs)
        try:
            self._add(stage)
        except Unfit:
            code, constants, self._made, self._registers, self._row = before
            self._inputs = inputs
            del self._code[code:], self._constants[constants:]
            raise

    def run(self, data: Ints, tail: int) -> Ints | None:
        """The updates `[row | tail columns]` after all steps, or None if the steps must run one by one."""
        rows, status = kernel.run_pass(np.ascontiguousarray(data), tail, *self.program)
        found: Ints = rows
        return found if status == 0 else None

    def close(self) -> None:
        """Finish the program; no more steps follow."""
        words = np.array([self._word(i) for i in range(len(self._row))], np.int64)
        code = np.array(self._code, np.int64).reshape(-1, 4)
        self.program = (code, np.array(self._constants, np.int64), max(1, self._registers), words)

    # --- steps --------------------------------------------------------------------------------------------------------

    def _add(self, stage: Stage) -> None:
        match stage:
            case Take():
                self._row = [self._row[w] for w in stage.words]
                self._inputs = [self._inputs[w] for w in stage.words]
            case Keep():
                self._keep(self._true(self._value(stage.predicate, stage.schema)))
            case Compute():
                words = [word for expr in stage.exprs for word in self._words(expr, stage.schema)]
                self._row, self._inputs = list(words), [-1] * len(words)
            case Negated():
                self._emit(kernel.SCALE, self._constant(-1))
            case Expand() if isinstance(stage.table, RepeatRow):
                data, valid = self._value(stage.table.factor, stage.schema)
                factor = data if valid is None else self._do(kernel.MASK, data, valid)
                self._keep(self._do(kernel.NE, factor, self._constant(0)))
                self._emit(kernel.SCALE, factor)
            case _:
                raise Unfit

    def _keep(self, register: int) -> None:
        self._emit(kernel.KEEP, register)

    # --- registers ----------------------------------------------------------------------------------------------------

    def _emit(self, op: int, a: int) -> None:
        self._code.append((op, 0, a, 0))

    def _do(self, op: int, a: int, b: int = 0) -> int:
        """The register of a result. An equal computation is not repeated: its register is reused."""
        if (op, a, b) not in self._made:
            self._made[(op, a, b)] = self._registers
            self._code.append((op, self._registers, a, b))
            self._registers += 1
        return self._made[(op, a, b)]

    def _constant(self, value: int) -> int:
        if value not in self._constants:
            self._constants.append(value)
        return self._do(kernel.CONST, self._constants.index(value))

    def _word(self, index: int) -> int:
        """The register of a word of the current row."""
        register = self._row[index]
        if register is None:
            register = self._row[index] = self._do(kernel.LOAD, self._inputs[index])
        return register

    # --- expressions --------------------------------------------------------------------------------------------------

    def _words(self, expr: Expr, row: RowType) -> list[int]:
        """The registers of a column's words."""
        if expr.column is not None:
            return [self._word(int(w)) for w in row.index([expr.column])]
        bound = bind(expr, row)
        if _is_null(expr):
            return [self._constant(0)] * (1 + bound.type.words)
        words, valid = self._coded(expr, row)
        if not bound.nullable:
            return words
        if valid is None:
            return [self._constant(1), *words]
        return [valid, *(self._do(kernel.MASK, word, valid) for word in words)]

    def _coded(self, expr: Expr, row: RowType) -> Coded:
        """A value of any type."""
        bound = bind(expr, row)
        if bound.kind in _SINGLE:
            data, valid = self._value(expr, row)
            return [data], valid
        match expr:
            case Alias():
                return self._coded(expr.part, row)
            case Column():
                field = row.field(expr.name)
                valid = self._word(field.offset) if field.nullable else None
                return [self._word(w) for w in range(field.value_offset, field.offset + field.words)], valid
            case Literal() if bound.kind is not None:
                return self._literal(bound, row), None
        raise Unfit

    def _literal(self, bound: Bound, row: RowType) -> list[int]:
        """The words of a constant. A text that is not in its words alone has to be in the heap, where its hash is
        compared with others."""
        try:
            words = bound.words(np.zeros((1, row.width), np.int64))[0]
        except VernierError as error:
            raise Unfit from error
        return [self._constant(int(word)) for word in words]

    def _as(self, expr: Expr, row: RowType, kind: Type) -> Coded:
        """A value as another type, if it has this type or is a constant; an integer also as a double."""
        bound = bind(expr, row)
        if bound.kind == kind:
            return self._coded(expr, row)
        if bound.kind == _INT and kind == _FLOAT:
            data, valid = self._value(expr, row)
            return [self._do(kernel.DOUBLE, data)], valid
        if bound.kind is None or bound.literal is None:
            raise Unfit
        return self._literal(as_kind(bound, kind), row), None

    def _value(self, expr: Expr, row: RowType) -> Value:
        """A value of one word."""
        bound = bind(expr, row)
        if bound.kind not in _SINGLE:
            raise Unfit
        match expr:
            case Alias():
                return self._value(expr.part, row)
            case Column():
                field = row.field(expr.name)
                valid = self._word(field.offset) if field.nullable else None
                return self._word(field.value_offset), valid
            case Literal():
                (word,) = self._literal(bound, row)
                return word, None
            case Cast() if _is_null(expr):
                return self._constant(0), self._constant(0)
            case Cast() if bind(expr.part, row).kind == bound.kind:
                return self._value(expr.part, row)
            case Cast(type=Float64()):
                (data,), valid = self._as(expr.part, row, _FLOAT)
                return data, valid
            case IsNull():
                _, valid = self._coded(expr.part, row)
                return (self._constant(0) if valid is None else self._do(kernel.NOT, valid)), None
            case Nullability():
                data, valid = self._value(expr.part, row)
                if expr.nullable or valid is None:
                    return data, valid
                self._emit(kernel.MUST, valid)
                return data, None
            case Unary():
                data, valid = self._value(expr.part, row)
                if expr.op == "~":
                    return self._do(kernel.NOT, data), valid
                if bound.kind in (_INT, _FLOAT):
                    op = kernel.SUB if bound.kind == _INT else kernel.SUB_DOUBLES
                    return self._do(op, self._constant(0), data), valid
            case Binary():
                return self._binary(expr, row)
            case Case():
                return self._case(expr, row, bound)
            case Call(function="coalesce"):
                return self._first(expr, row, bound)
            case Call(function="is_in"):
                return self._is_in(expr, row)
        raise Unfit

    def _binary(self, expr: Binary, row: RowType) -> Value:
        left, right = bind(expr.left, row), bind(expr.right, row)
        if expr.op in _COMPARE:
            return self._compare(expr, row, common((left, right), str(expr)))
        kind = bind(expr, row).kind
        if expr.op in ("&", "|"):
            return self._logic(expr.op, self._value(expr.left, row), self._value(expr.right, row))
        if kind == _FLOAT and expr.op in _DOUBLES:
            ((a,), a_valid), ((b,), b_valid) = self._as(expr.left, row, _FLOAT), self._as(expr.right, row, _FLOAT)
            op = _DOUBLES[expr.op]
        elif {left.kind, right.kind} <= {_INT, _TIME} and kind in (_INT, _TIME):
            (a, a_valid), (b, b_valid) = self._value(expr.left, row), self._value(expr.right, row)
            op = _ARITHMETIC[expr.op] if expr.op in _ARITHMETIC else _DIVISION[expr.op]
        else:
            raise Unfit
        valid = self._both(a_valid, b_valid)
        if expr.op in ("/", "//", "%") and not never_zero(right):
            valid = self._both(valid, self._do(kernel.NE, b, self._constant(0)))  # null where the divisor is 0
        return self._do(op, a, b), valid

    def _compare(self, expr: Binary, row: RowType, kind: Type | None) -> Value:
        if kind is None:
            raise Unfit
        (a, a_valid), (b, b_valid) = self._as(expr.left, row, kind), self._as(expr.right, row, kind)
        valid = self._both(a_valid, b_valid)
        if kind in _SINGLE:
            op, swapped = _COMPARE[expr.op]
            return self._do(op, b[0], a[0]) if swapped else self._do(op, a[0], b[0]), valid
        if expr.op not in ("==", "!="):
            raise Unfit
        equal = self._equal(a, b)
        return (equal if expr.op == "==" else self._do(kernel.NOT, equal)), valid

    def _equal(self, a: list[int], b: list[int]) -> int:
        """Whether all words are equal."""
        found = self._do(kernel.EQ, a[0], b[0])
        for one, two in zip(a[1:], b[1:], strict=True):
            found = self._do(kernel.AND, found, self._do(kernel.EQ, one, two))
        return found

    def _is_in(self, expr: Call, row: RowType) -> Value:
        """Whether it equals one of the values; null if it does not and one of them is null."""
        bounds = [bind(part, row) for part in expr.arguments]
        kind = common(bounds, str(expr))
        if kind is None:
            raise Unfit
        (one, one_valid), *others = (self._as(part, row, kind) for part in expr.arguments)
        found, known = self._constant(0), one_valid
        for other, other_valid in others:
            equal, valid = self._equal(one, other), self._both(one_valid, other_valid)
            found = self._do(kernel.OR, found, equal if valid is None else self._do(kernel.AND, equal, valid))
            known = self._both(known, other_valid)
        return found, None if known is None else self._do(kernel.OR, known, found)

    def _case(self, expr: Case, row: RowType, bound: Bound) -> Value:
        """when/otherwise: each value is computed for all rows, and masked where another one is taken. If it overflows
        in such a row, the steps run one by one."""
        taken = []
        left = self._constant(1)
        for condition, value in expr.branches:
            takes = self._do(kernel.AND, left, self._true(self._value(condition, row)))
            left = self._do(kernel.AND, left, self._do(kernel.NOT, takes))
            taken.append((takes, value))
        if expr.default is not None:
            taken.append((left, expr.default))
        data, there = self._constant(0), self._constant(0)
        for takes, value in taken:
            if bind(value, row).kind is None:  # a null without a type
                continue
            (word,), valid = self._as(value, row, bound.type)
            data = self._do(kernel.OR, data, self._do(kernel.MASK, word, takes))
            there = self._do(kernel.OR, there, takes if valid is None else self._do(kernel.AND, takes, valid))
        return data, there if bound.nullable else None

    def _first(self, expr: Call, row: RowType, bound: Bound) -> Value:
        """coalesce: the first value that is not null."""
        left, data = self._constant(1), self._constant(0)
        for value in expr.arguments:
            if bind(value, row).kind is None:
                continue
            (word,), valid = self._as(value, row, bound.type)
            takes = left if valid is None else self._do(kernel.AND, left, valid)
            data = self._do(kernel.OR, data, self._do(kernel.MASK, word, takes))
            left = self._do(kernel.AND, left, self._do(kernel.NOT, takes))
        return data, self._do(kernel.NOT, left) if bound.nullable else None

    def _logic(self, op: str, left: Value, right: Value) -> Value:
        """Three-valued `&` and `|`: null unless one side decides."""
        both = kernel.AND if op == "&" else kernel.OR
        (a, a_valid), (b, b_valid) = left, right
        if a_valid is None and b_valid is None:
            return self._do(both, a, b), None
        a_valid = self._constant(1) if a_valid is None else a_valid
        b_valid = self._constant(1) if b_valid is None else b_valid
        if op == "&":  # null counts as true, and false decides
            a, b = (self._do(kernel.OR, x, self._do(kernel.NOT, v)) for x, v in ((a, a_valid), (b, b_valid)))
            decides = [self._do(kernel.NOT, x) for x in (a, b)]
        else:  # null counts as false, and true decides
            a, b = (self._do(kernel.AND, x, v) for x, v in ((a, a_valid), (b, b_valid)))
            decides = [a, b]
        known = self._do(kernel.AND, a_valid, b_valid)
        for one in decides:
            known = self._do(kernel.OR, known, one)
        return self._do(both, a, b), known

    def _both(self, a: int | None, b: int | None) -> int | None:
        if a is None or b is None:
            return b if a is None else a
        return self._do(kernel.AND, a, b)

    def _true(self, value: Value) -> int:
        data, valid = value
        return data if valid is None else self._do(kernel.AND, data, valid)


def passes_of(plan: Plan, op: LinearOp | JoinOp, width: int) -> list[Pass | Stage]:
    """`passes` of an operator's stages, compiled once for all workers that run the plan."""
    if op.id not in plan.passes:
        plan.passes[op.id] = passes(op.stages, width)
    found: list[Pass | Stage] = plan.passes[op.id]
    return found


def passes(stages: Sequence[Stage], width: int) -> list[Pass | Stage]:
    """The stages of a chain on rows of `width` words, with runs of compilable stages replaced by passes. A lone `Take`
    stays a stage."""
    found: list[Pass | Stage] = []
    run: list[Stage] = []
    one = Pass(width)

    def end() -> None:
        if len(run) > 1 or (run and not isinstance(run[0], Take)):
            one.close()
            one.stages = tuple(run)
            found.append(one)
        else:
            found.extend(run)

    for stage in stages:
        try:
            one.add(stage)
            run.append(stage)
        except Unfit:
            end()
            found.append(stage)
            run = []
            one = Pass(stage.width_after(width))
        width = stage.width_after(width)
    end()
    return found
