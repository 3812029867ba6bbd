"""Read words and bytes at an address, so that one kernel call can read any number of batches.

A numba function is compiled for the types of its arguments, and a list of batches of unknown length has no such type. A
table of addresses has: each of its rows says where one batch's arrays begin. The caller keeps the arrays alive while
the kernel runs.
"""

import ctypes
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

if config.DISABLE_JIT:  # type: ignore[attr-defined,unused-ignore]

    def load(address: int, index: int) -> np.int64:
        """Word `index` from `address` on (the interpreted version, for runs with NUMBA_DISABLE_JIT=1)."""
        return np.int64(ctypes.c_int64.from_address(int(address) + 8 * int(index)).value)

    def equal_words(address: int, index: int, wanted: int) -> int:
        """Which of the eight words from number `index` on equal `wanted`: one bit each, the first one lowest."""
        return sum(1 << j for j in range(8) if load(address, index + j) == wanted)

    def load_unaligned(address: int) -> np.int64:
        """The eight bytes at `address`, in native order, as int64."""
        return np.int64(ctypes.c_int64.from_address(int(address)).value)

    def store_unaligned(address: int, value: int) -> None:
        """Write int64 `value` as the eight bytes at `address`, in native order."""
        ctypes.c_int64.from_address(int(address)).value = int(value)

    def load_byte(address: int) -> np.int64:
        """The byte at `address`, 0 to 255."""
        return np.int64(ctypes.c_uint8.from_address(int(address)).value)

    def store_byte(address: int, value: int) -> None:
        """Write a value of 0 to 255 as the byte at `address`."""
        ctypes.c_uint8.from_address(int(address)).value = int(value)

    def copy_bytes(to: int, source: int, length: int) -> None:
        """Copy `length` bytes from one address to another; they must not overlap."""
        ctypes.memmove(int(to), int(source), int(length))

    def fetch_word(address: int, index: int) -> None:
        """Nothing."""

else:

    @intrinsic
    def load(typingctx: Any, address: Any, index: Any) -> Any:
        """Word `index` from `address` on: int64(address, index). Unchecked."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = ir.IntType(64)
            pointer = builder.inttoptr(args[0], ir.PointerType(word))
            return builder.load(builder.gep(pointer, [args[1]]))

        return types.int64(types.int64, types.int64), generate

    @intrinsic
    def equal_words(typingctx: Any, address: Any, index: Any, wanted: Any) -> Any:
        """Which of the eight words from number `index` on equal `wanted`: one bit each, the first one lowest.

        One vector comparison; from a loop the compiler generates word-by-word comparisons.
        """

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word, words = ir.IntType(64), ir.VectorType(ir.IntType(64), 8)
            pointer = builder.gep(builder.inttoptr(args[0], ir.PointerType(word)), [args[1]])
            found = builder.load(builder.bitcast(pointer, ir.PointerType(words)), align=8)
            unset, first = ir.Constant(words, ir.Undefined), ir.Constant(ir.IntType(32), 0)
            spread = ir.Constant(ir.VectorType(ir.IntType(32), 8), [0] * 8)
            wanted = builder.shuffle_vector(builder.insert_element(unset, args[2], first), unset, spread)
            return builder.zext(builder.bitcast(builder.icmp_signed("==", found, wanted), ir.IntType(8)), word)

        return types.int64(types.int64, types.int64, types.int64), generate

    @intrinsic
    def load_unaligned(typingctx: Any, address: Any) -> Any:
        """The eight bytes at `address`, in native order, as int64."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load(builder.inttoptr(args[0], ir.PointerType(ir.IntType(64))), align=1)

        return types.int64(types.int64), generate

    @intrinsic
    def store_unaligned(typingctx: Any, address: Any, value: Any) -> Any:
        """Write int64 `value` as the eight bytes at `address`, in native order."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store(args[1], builder.inttoptr(args[0], ir.PointerType(ir.IntType(64))), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    @intrinsic
    def load_byte(typingctx: Any, address: Any) -> Any:
        """The byte at `address`, 0 to 255."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            byte = builder.load(builder.inttoptr(args[0], ir.PointerType(ir.IntType(8))))
            return builder.zext(byte, ir.IntType(64))

        return types.int64(types.int64), generate

    @intrinsic
    def store_byte(typingctx: Any, address: Any, value: Any) -> Any:
        """Write a value of 0 to 255 as the byte at `address`."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            byte = ir.IntType(8)
            builder.store(builder.trunc(args[1], byte), builder.inttoptr(args[0], ir.PointerType(byte)))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    @intrinsic
    def copy_bytes(typingctx: Any, to: Any, source: Any, length: Any) -> Any:
        """Copy `length` bytes from one address to another; they must not overlap."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            byte = ir.PointerType(ir.IntType(8))
            to, source = (builder.inttoptr(arg, byte) for arg in args[:2])
            cgutils.raw_memcpy(builder, to, source, args[2], 1)  # type: ignore[no-untyped-call,unused-ignore]
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), generate

    @intrinsic
    def fetch_word(typingctx: Any, address: Any, index: Any) -> Any:
        """Let the processor fetch the line of word `index` from `address` on, as kernels.cells.fetch does."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            half, word = ir.IntType(32), ir.PointerType(ir.IntType(64))
            place = builder.gep(builder.inttoptr(args[0], word), [args[1]])
            kind = ir.FunctionType(ir.VoidType(), [place.type, half, half, half])
            builder.call(
                builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind),
                [place, half(0), half(3), half(1)],
            )
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate
