"""Stage compiler: turns chains of plain row-wise steps into passes, programs that a kernel runs over each row once.

A program can contain picks, filters, computed columns and factors over Int64, Bool, Date and TimestampNs, with checked
integer arithmetic, comparisons, three-valued logic and nulls. Other steps run on their own
(operators/physical/stages.py). If a row would raise, the kernel gives up and the steps run one by one: they either
raise the proper error or find that an earlier step had dropped the row. So a pass has the same result as its steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vernier.operators.kernels import passes as kernel
from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import (
    Alias,
    Binary,
    Cast,
    Column,
    Expr,
    IsNull,
    Literal,
    Nullability,
    Unary,
)
from vernier.operators.language.plan.tables import RepeatRow
from vernier.operators.language.types.scalars import Bool, Date, Int64, TimestampNs
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.stages import Compute, Expand, Keep, Negated, Stage, Take
from vernier.storage.updates import Ints

_INT, _BOOL = Int64(), Bool()
_PLAIN = (_INT, _BOOL, Date(), TimestampNs())
_ARITHMETIC = {"+": kernel.ADD, "-": kernel.SUB, "*": kernel.MUL}
_COMPARE = {"==": (kernel.EQ, False), "!=": (kernel.NE, False), "<": (kernel.LT, False), "<=": (kernel.LE, False)}
_COMPARE |= {">": (kernel.LT, True), ">=": (kernel.LE, True)}

Value = tuple[int, int | None]
"""The register of a value, and the register of its validity: 1 if not null (None if the value is never null)."""


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
        data, valid = self._value(expr, row)
        if not bound.nullable:
            return [data]
        if valid is None:
            return [self._constant(1), data]
        return [valid, self._do(kernel.MASK, data, valid)]

    def _value(self, expr: Expr, row: RowType) -> Value:
        bound = bind(expr, row)
        if bound.kind not in _PLAIN:
            raise Unfit
        match expr:
            case Alias():
                return self._value(expr.part, row)
            case Column():
                field = row.field(expr.name)
                valid = self._word(field.offset) if field.nullable else None
                return self._word(field.value_offset), valid
            case Literal():
                word = bound.words(np.zeros((1, row.width), np.int64))[0, -1]
                return self._constant(int(word)), None
            case Cast() if _is_null(expr):
                return self._constant(0), self._constant(0)
            case Cast() if bind(expr.part, row).kind == bound.kind:
                return self._value(expr.part, row)
            case IsNull():
                _, valid = self._value(expr.part, row)
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
                if bound.kind == _INT:
                    return self._do(kernel.SUB, self._constant(0), data), valid
            case Binary():
                return self._binary(expr, row)
        raise Unfit

    def _binary(self, expr: Binary, row: RowType) -> Value:
        kinds = {bind(expr.left, row).kind, bind(expr.right, row).kind}
        if len(kinds) > 1 or None in kinds:
            raise Unfit
        if expr.op in _ARITHMETIC and kinds != {_INT}:
            raise Unfit
        (a, a_valid), (b, b_valid) = self._value(expr.left, row), self._value(expr.right, row)
        if expr.op in ("&", "|"):
            return self._logic(expr.op, (a, a_valid), (b, b_valid))
        valid = self._both(a_valid, b_valid)
        if expr.op in _ARITHMETIC:
            return self._do(_ARITHMETIC[expr.op], a, b), valid
        if expr.op in _COMPARE:
            op, swapped = _COMPARE[expr.op]
            return self._do(op, b, a) if swapped else self._do(op, a, b), valid
        raise Unfit

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
