"""Runs a chain of row-wise steps in one pass over the rows: a small program whose instructions work on registers.

A register holds a value for each row of a block, so an instruction is one tight loop and the block stays in the L1
cache. Each register is written once. operators/physical/stage_compiler.py creates the programs.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.joining import multiply
from vernier.storage.kernels.cells import cell, put, put_word, word
from vernier.storage.kernels.inlining import inlined
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OK, OVERFLOW

(LOAD, CONST, ADD, SUB, MUL, EQ, NE, LT, LE, AND, OR, NOT, MASK, KEEP, MUST, QUOTIENT, REMAINDER) = range(17)
(DOUBLE, ADD_DOUBLES, SUB_DOUBLES, MUL_DOUBLES, DIV_DOUBLES, SCALE) = range(17, 23)
"""LOAD, CONST: dst = word a of the row; the constant a. ADD to MUL: a + b, a - b, a * b, checked. QUOTIENT, REMAINDER:
of a / b, rounded towards zero; anything where b is 0. DOUBLE: the integer a as a Float64; ADD_DOUBLES to DIV_DOUBLES:
of Float64. EQ to LE: comparisons. AND, OR, NOT: of values 0 and 1. MASK: a where b, else 0. The rest have no dst. KEEP:
drop rows without a; MUST: all rows must have a; SCALE: multiply the diff by a."""

_BLOCK = 128
_LEAST, _MAGNITUDE = np.int64(-(2**63)), np.int64(2**63 - 1)
_NAN = np.float64(np.nan).view(np.int64)


@inlined
def _double(word):  # type: ignore[no-untyped-def]
    """The double of a word of a Float64 (operators/language/types/scalars.py)."""
    return np.int64(word if word >= 0 else word ^ _MAGNITUDE).view(np.float64)


@inlined
def _word(value):  # type: ignore[no-untyped-def]
    """The word of a double: there is one NaN, and -0.0 is 0.0."""
    bits = _NAN if value != value else np.float64(value + 0.0).view(np.int64)
    return bits if bits >= 0 else bits ^ _MAGNITUDE


@njit(cache=True)
def run_pass(data, tail, code, constants, registers, words):  # type: ignore[no-untyped-def]
    """Run updates `[row | tail columns: time, rounds, diff]` through a program.

    code: int64[k, 4], rows (instruction, dst, a, b); constants: int64[c]; registers: their number; words: int64[w], the
    registers of the output row. Returns (remaining updates, status). A status other than OK means that a row that had
    not been dropped overflowed or violated a MUST; the result is then void.
    """
    n, total = data.shape
    width, w = total - tail, words.shape[0]
    size = min(n, _BLOCK)
    block, alive = np.empty((registers, size), np.int64), np.empty(size, np.bool_)
    diff, places = np.empty(size, np.int64), np.empty(size, np.int64)
    out = np.empty((n + 1, w + tail), np.int64)
    count = 0
    for start in range(0, n, _BLOCK):
        m = min(_BLOCK, n - start)
        for i in range(m):
            alive[i] = True
            put_word(diff, i, cell(data, start + i, total - 1))
        for p in range(code.shape[0]):
            op, dst, a, b = code[p, 0], code[p, 1], code[p, 2], code[p, 3]
            bad = False
            if op == LOAD:
                for i in range(m):
                    put(block, dst, i, cell(data, start + i, a))
            elif op == CONST:
                for i in range(m):
                    put(block, dst, i, word(constants, a))
            elif op == ADD:
                for i in range(m):
                    made, wrapped = add_checked(cell(block, a, i), cell(block, b, i))
                    put(block, dst, i, made)
                    bad |= wrapped & alive[i]
            elif op == SUB:
                for i in range(m):
                    x, y = cell(block, a, i), cell(block, b, i)
                    # x - y = x + ~y + 1: the difference overflows if the signs differ and the result has the sign of y.
                    z = x - y
                    put(block, dst, i, z)
                    bad |= (((x ^ y) & (x ^ z)) < 0) & alive[i]
            elif op == MUL:
                for i in range(m):
                    made, wrapped = multiply(cell(block, a, i), cell(block, b, i))
                    put(block, dst, i, made)
                    bad |= wrapped & alive[i]
            elif op == EQ:
                for i in range(m):
                    put(block, dst, i, np.int64(cell(block, a, i) == cell(block, b, i)))
            elif op == NE:
                for i in range(m):
                    put(block, dst, i, np.int64(cell(block, a, i) != cell(block, b, i)))
            elif op == LT:
                for i in range(m):
                    put(block, dst, i, np.int64(cell(block, a, i) < cell(block, b, i)))
            elif op == LE:
                for i in range(m):
                    put(block, dst, i, np.int64(cell(block, a, i) <= cell(block, b, i)))
            elif op == AND:
                for i in range(m):
                    put(block, dst, i, cell(block, a, i) & cell(block, b, i))
            elif op == OR:
                for i in range(m):
                    put(block, dst, i, cell(block, a, i) | cell(block, b, i))
            elif op == NOT:
                for i in range(m):
                    put(block, dst, i, cell(block, a, i) ^ 1)
            elif op == MASK:
                for i in range(m):
                    put(block, dst, i, cell(block, a, i) if cell(block, b, i) != 0 else 0)
            elif op == KEEP:
                for i in range(m):
                    alive[i] &= cell(block, a, i) != 0
            elif op == MUST:
                for i in range(m):
                    bad |= (cell(block, a, i) == 0) & alive[i]
            elif op == QUOTIENT:
                for i in range(m):
                    x, y = cell(block, a, i), cell(block, b, i)
                    wraps = (x == _LEAST) & (y == -1)
                    bad |= wraps & alive[i]
                    y = np.int64(1) if (y == 0) | wraps else y
                    z = x // y
                    # Rounded down; where the signs differ, that is away from zero.
                    put(block, dst, i, z + np.int64((z < 0) & (z * y != x)))
            elif op == REMAINDER:
                for i in range(m):
                    x, y = cell(block, a, i), cell(block, b, i)
                    y = np.int64(1) if (y == 0) | (y == -1) else y
                    z = x % y
                    put(block, dst, i, z - y if (z != 0) & ((x < 0) != (y < 0)) else z)
            elif op == DOUBLE:
                for i in range(m):
                    put(block, dst, i, _word(np.float64(cell(block, a, i))))
            elif op == ADD_DOUBLES:
                for i in range(m):
                    put(block, dst, i, _word(_double(cell(block, a, i)) + _double(cell(block, b, i))))
            elif op == SUB_DOUBLES:
                for i in range(m):
                    put(block, dst, i, _word(_double(cell(block, a, i)) - _double(cell(block, b, i))))
            elif op == MUL_DOUBLES:
                for i in range(m):
                    put(block, dst, i, _word(_double(cell(block, a, i)) * _double(cell(block, b, i))))
            elif op == DIV_DOUBLES:
                for i in range(m):
                    by = _double(cell(block, b, i) if cell(block, b, i) != 0 else 1)  # null where it is 0
                    put(block, dst, i, _word(_double(cell(block, a, i)) / by))
            else:
                for i in range(m):
                    made, wrapped = multiply(word(diff, i), cell(block, a, i))
                    put_word(diff, i, made)
                    bad |= wrapped & alive[i]
            if bad:
                return out[:0], OVERFLOW
        # A row that is dropped is written, too, to a place behind all others: a branch would often be guessed wrong.
        for i in range(m):
            kept = np.int64(alive[i])
            put_word(places, i, (count & -kept) | (n & (kept - 1)))
            count += kept
        for c in range(w):
            register = word(words, c)
            for i in range(m):
                put(out, word(places, i), c, cell(block, register, i))
        for c in range(tail - 1):
            for i in range(m):
                put(out, word(places, i), w + c, cell(data, start + i, width + c))
        for i in range(m):
            put(out, word(places, i), w + tail - 1, word(diff, i))
    return out[:count], OK
