"""Unchecked access to cells of int64 matrices and words of int64 arrays.

An index in numba may be negative and then counts from the end, so each access compares and branches; in loops over a
few entries that is a third of the time. Callers must pass indexes inside the matrix; NUMBA_BOUNDSCHECK=1 checks them.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

if config.DISABLE_JIT or config.BOUNDSCHECK:  # type: ignore[attr-defined,unused-ignore]

    @njit(inline="always")
    def cell(rows: Any, i: int, c: int) -> int:
        """rows[i, c] of a C-contiguous matrix; i and c must not be negative."""
        return rows[i, c]

    @njit(inline="always")
    def put(rows: Any, i: int, c: int, value: int) -> None:
        """rows[i, c] = value, with the same conditions."""
        rows[i, c] = value

    @njit(inline="always")
    def word(words: Any, i: int) -> int:
        """words[i] of a contiguous array; i must not be negative."""
        return words[i]

    @njit(inline="always")
    def put_word(words: Any, i: int, value: int) -> None:
        """words[i] = value, with the same conditions."""
        words[i] = value

    @njit(inline="always")
    def fetch(rows: Any, i: int, c: int) -> None:
        """Nothing."""

else:

    def _must_be_contiguous(array: Any) -> None:
        if array.layout != "C":
            raise TypingError(f"cells are read of C-contiguous arrays alone, not of {array}")

    def _address(context: Any, builder: Any, kind: Any, rows: Any, i: Any, c: Any) -> Any:
        matrix = context.make_array(kind)(context, builder, rows)
        (_, columns) = cgutils.unpack_tuple(builder, matrix.shape, 2)  # type: ignore[no-untyped-call,unused-ignore]
        return builder.gep(matrix.data, [builder.add(builder.mul(i, columns), c)])

    @intrinsic
    def cell(typingctx: Any, rows: Any, i: Any, c: Any) -> Any:
        """rows[i, c] of a C-contiguous matrix; i and c must not be negative."""
        _must_be_contiguous(rows)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            i, c = (context.cast(builder, args[n], signature.args[n], types.int64) for n in (1, 2))
            return builder.load(_address(context, builder, signature.args[0], args[0], i, c))

        return types.int64(rows, i, c), generate

    @intrinsic
    def put(typingctx: Any, rows: Any, i: Any, c: Any, value: Any) -> Any:
        """rows[i, c] = value, with the same conditions."""
        _must_be_contiguous(rows)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            i, c, value = (context.cast(builder, args[n], signature.args[n], types.int64) for n in (1, 2, 3))
            builder.store(value, _address(context, builder, signature.args[0], args[0], i, c))
            return context.get_dummy_value()

        return types.void(rows, i, c, value), generate

    @intrinsic
    def word(typingctx: Any, words: Any, i: Any) -> Any:
        """words[i] of a contiguous array; i must not be negative."""
        _must_be_contiguous(words)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, args[0])
            i = context.cast(builder, args[1], signature.args[1], types.int64)
            return builder.load(builder.gep(array.data, [i]))

        return types.int64(words, i), generate

    @intrinsic
    def put_word(typingctx: Any, words: Any, i: Any, value: Any) -> Any:
        """words[i] = value, with the same conditions."""
        _must_be_contiguous(words)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, args[0])
            i, value = (context.cast(builder, args[n], signature.args[n], types.int64) for n in (1, 2))
            builder.store(value, builder.gep(array.data, [i]))
            return context.get_dummy_value()

        return types.void(words, i, value), generate

    @intrinsic
    def fetch(typingctx: Any, rows: Any, i: Any, c: Any) -> Any:
        """Let the processor fetch the line of rows[i, c] into its caches, without waiting for it. The cell may lie
        outside the matrix. A loop that visits places all over a large matrix fetches those of the next few turns."""
        _must_be_contiguous(rows)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            i, c = (context.cast(builder, args[n], signature.args[n], types.int64) for n in (1, 2))
            half, place = ir.IntType(32), _address(context, builder, signature.args[0], args[0], i, c)
            kind = ir.FunctionType(ir.VoidType(), [place.type, half, half, half])
            builder.call(
                builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind),
                [place, half(0), half(3), half(1)],
            )
            return context.get_dummy_value()

        return types.void(rows, i, c), generate


@njit(cache=True)
def copy_rows(rows: Any, column: int, n: int, to: Any, first: int) -> None:
    """Copy the first n rows, from number `column` of their columns on, over those of `to` from number `first` on, which
    may be narrower. Both matrices are C-contiguous.

    Assigning a slice would do the same, but numba then compiles the formatting of an error message: a second each time.
    """
    for i in range(n):
        for c in range(to.shape[1]):
            put(to, first + i, c, cell(rows, i, column + c))


@njit(cache=True)
def more_rows(rows: Any, size: int) -> Any:
    """A matrix with space for `2 * size` rows that begins with these rows."""
    more = np.empty((2 * size, rows.shape[1]), np.int64)
    copy_rows(rows, 0, rows.shape[0], more, 0)
    return more
