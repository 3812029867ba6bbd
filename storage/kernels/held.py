"""Arrays that kernels keep in words: matrices of int64 whose owners are counted by hand.

A kernel that walks a plan has any number of arrays, and numba has no variables for them. `hold` takes a reference to an
array's memory and returns the owner as a word; code that stores that word must `drop` it once. `matrix` and `vector`
read memory without owning it, so an owner must live as long as they do. `owned` makes an array for Python, with a
reference of its own. The owner 0 stands for memory that Python keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numba.extending
from llvmlite import ir
from numba.core import cgutils
from numba.np import arrayobj

types: Any = numba.types
_intrinsic: Callable[[Callable[..., Any]], Any] = numba.extending.intrinsic
_arrays: Any = arrayobj
_OWNER = types.MemInfoPointer(types.voidptr)
_MATRIX, _VECTOR = types.Array(types.int64, 2, "C"), types.Array(types.int64, 1, "C")


def _pointer(builder: Any, word: Any) -> Any:
    return builder.inttoptr(word, cgutils.voidptr_t)


def _array(context: Any, builder: Any, kind: Any, address: Any, shape: Any, owner: Any = None) -> Any:
    """An array structure of C layout."""
    array = context.make_array(kind)(context, builder)
    size = context.get_constant(types.intp, 8)
    strides = [size] if len(shape) == 1 else [builder.mul(shape[1], size), size]
    data = builder.inttoptr(address, ir.PointerType(ir.IntType(64)))
    _arrays.populate_array(array, data=data, shape=shape, strides=strides, itemsize=size, meminfo=owner)
    return array._getvalue()


@_intrinsic
def hold(typingctx: Any, rows: Any) -> Any:
    """Take a reference to the memory of an array: its owner, int64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        context.nrt.incref(builder, signature.args[0], args[0])
        owner = context.make_array(signature.args[0])(context, builder, args[0]).meminfo
        return builder.ptrtoint(owner, ir.IntType(64))

    return types.int64(rows), generate


@_intrinsic
def retain(typingctx: Any, owner: Any) -> Any:
    """Take one more reference of an owner."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        context.nrt.incref(builder, _OWNER, _pointer(builder, args[0]))
        return context.get_dummy_value()

    return types.void(types.int64), generate


@_intrinsic
def drop(typingctx: Any, owner: Any) -> Any:
    """Give a reference back. The memory is freed with the last one."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        context.nrt.decref(builder, _OWNER, _pointer(builder, args[0]))
        return context.get_dummy_value()

    return types.void(types.int64), generate


@_intrinsic
def store(typingctx: Any, address: Any, index: Any, value: Any) -> Any:
    """Write word `index` from `address` on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        words = builder.inttoptr(args[0], ir.PointerType(ir.IntType(64)))
        builder.store(args[2], builder.gep(words, [args[1]]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@_intrinsic
def matrix(typingctx: Any, address: Any, rows: Any, columns: Any) -> Any:
    """int64[rows, columns] at an address, not owned."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _array(context, builder, _MATRIX, args[0], args[1:])

    return _MATRIX(types.int64, types.int64, types.int64), generate


@_intrinsic
def vector(typingctx: Any, address: Any, size: Any) -> Any:
    """int64[size] at an address, not owned."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _array(context, builder, _VECTOR, args[0], args[1:])

    return _VECTOR(types.int64, types.int64), generate


@_intrinsic
def owned(typingctx: Any, owner: Any, address: Any, rows: Any, columns: Any) -> Any:
    """int64[rows, columns] at an address, with a reference of its own to its owner, which is not 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        held = _pointer(builder, args[0])
        context.nrt.incref(builder, _OWNER, held)
        return _array(context, builder, _MATRIX, args[1], args[2:], held)

    return _MATRIX(types.int64, types.int64, types.int64, types.int64), generate


@_intrinsic
def owned_vector(typingctx: Any, owner: Any, address: Any, size: Any) -> Any:
    """Like `owned`, for int64[size]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        held = _pointer(builder, args[0])
        context.nrt.incref(builder, _OWNER, held)
        return _array(context, builder, _VECTOR, args[1], args[2:], held)

    return _VECTOR(types.int64, types.int64, types.int64), generate
