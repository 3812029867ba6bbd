"""Call a kernel from another one without compiling it again.

numba links a kernel into each kernel that calls it and optimizes it there once more. Here the caller knows only the
callee's types, and calls it at an address, which it is given as a word. So the callee is compiled once, and the caller
is cached as usual: what it contains does not depend on where the callee is in this process.

A declared type that is not the callee's would be undefined behaviour, so `Callee.address` compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numba.extending
from llvmlite import ir
from numba.core import cgutils, sigutils

types: Any = numba.types
_intrinsic: Callable[[Callable[..., Any]], Any] = numba.extending.intrinsic


class Callee:
    """The types of a kernel that other kernels call: "returned(argument, …)" in numba's notation."""

    def __init__(self, signature: str) -> None:
        arguments, returns = sigutils.normalize_signature(signature)  # type: ignore[no-untyped-call,unused-ignore]
        self._arguments, self._returns = tuple(arguments), returns
        self._kernels: list[Any] = []

    def address(self, kernel: Any) -> int:
        """The address of the kernel, which is loaded from numba's cache or compiled. It is valid while this object
        is."""
        kernel.compile(self._arguments)
        found = kernel.overloads[self._arguments]
        if found.signature.return_type != self._returns:
            raise TypeError(f"{kernel.__name__} returns {found.signature.return_type}, not {self._returns}")
        self._kernels.append(found)
        return int(found.library.get_pointer_to_function(found.fndesc.llvm_func_name))

    def intrinsic(self) -> Any:
        """A function for kernels: call(address, (argument, …)). It returns what the callee returns, and raises what it
        raises. Integers of other types are converted."""
        arguments, returns = self._arguments, self._returns

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            given = cgutils.unpack_tuple(builder, args[1])  # type: ignore[no-untyped-call,unused-ignore]
            kinds = signature.args[1].types
            cast = [context.cast(builder, *of) for of in zip(given, kinds, arguments, strict=True)]
            convention = context.call_conv
            kind = convention.get_function_type(returns, arguments)
            callee = builder.inttoptr(args[0], ir.PointerType(kind))
            status, found = convention.call_function(builder, callee, returns, arguments, cast)
            with cgutils.if_unlikely(builder, status.is_error):  # type: ignore[no-untyped-call,unused-ignore]
                convention.return_status_propagate(builder, status)
            return found

        @_intrinsic
        def call(typingctx: Any, address: Any, arguments: Any) -> Any:
            return returns(types.int64, arguments), generate

        return call


@_intrinsic
def read_clock(typingctx: Any, address: Any, kind: Any, to: Any) -> Any:
    """Call the system's clock_gettime, which is at `address`: writes seconds and nanoseconds to the two words at
    `to`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word, half = ir.IntType(64), ir.IntType(32)
        kind = ir.FunctionType(half, [half, ir.PointerType(word)])
        clock = builder.inttoptr(args[0], ir.PointerType(kind))
        builder.call(clock, [builder.trunc(args[1], half), builder.inttoptr(args[2], ir.PointerType(word))])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@_intrinsic
def invoke(typingctx: Any, address: Any, arguments: Any) -> Any:
    """Call a C function of int64 arguments that returns an int64, at `address`: invoke(address, (argument, …))."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given = cgutils.unpack_tuple(builder, args[1])  # type: ignore[no-untyped-call,unused-ignore]
        kinds = signature.args[1].types
        cast = [context.cast(builder, one, of, types.int64) for one, of in zip(given, kinds, strict=True)]
        word = ir.IntType(64)
        kind = ir.FunctionType(word, [word] * len(cast))
        return builder.call(builder.inttoptr(args[0], ir.PointerType(kind)), cast)

    return types.int64(types.int64, arguments), generate
