"""Call a kernel from another one without compiling it again.

numba links a kernel into each kernel that calls it and optimizes it there once more. Here the caller knows only the
callee's types, and calls it at an address, which it is given as a word. So the callee is compiled once, and the caller
is cached as usual: what it contains does not depend on where the callee is in this process.

`separate` does the same for a kernel that is always the same one: the caller names it, and it is found by its name when
the caller's machine code is loaded. Sorting was in 23 kernels before, and more than a third of all machine code.

A declared type that is not the callee's would be undefined behaviour, so both compare them.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import llvmlite.binding
import numba
import numba.core.extending
import numba.extending
from llvmlite import ir
from numba.core import cgutils, sigutils

types: Any = numba.types
_intrinsic: Callable[[Callable[..., Any]], Any] = numba.extending.intrinsic
_Intrinsic: Any = numba.core.extending._Intrinsic

NUMBER, NOTHING = types.int64, types.void
WORDS, ROWS = types.int64[::1], types.int64[:, ::1]
"""Types of what kernels pass to each other."""


class Separate(_Intrinsic):  # type: ignore[misc,unused-ignore]
    """A kernel that other kernels call by name. Python calls it as usual."""

    def __init__(self, kernel: Any, arguments: tuple[Any, ...], returns: Any) -> None:
        self.kernel, self.arguments, self.returns = kernel, arguments, returns
        self.symbol = f"{kernel.__module__}.{kernel.__name__}"
        self.loaded: Any = None

        def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
            _called.append(self)
            kind = context.call_conv.get_function_type(returns, arguments)
            function = cgutils.get_or_insert_function(builder.module, kind, self.symbol)  # type: ignore[no-untyped-call,unused-ignore]
            return _call(context, builder, function, returns, arguments, args)

        def call(typingctx: Any, *given: Any) -> Any:
            return returns(*arguments), generate

        parameters = inspect.signature(kernel.py_func).parameters.values()
        context = inspect.Parameter("typingctx", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        call.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]
        super().__init__(kernel.__name__, call)
        functools.update_wrapper(self, kernel.py_func)
        self._register()

    def __call__(self, *arguments: Any) -> Any:
        return self.kernel(*arguments)

    def load(self) -> None:
        """Load it from numba's cache, or compile it, and make its name known to the machine code of callers."""
        self.kernel.compile(self.arguments)
        found = self.kernel.overloads[self.arguments]
        if found.signature.return_type != self.returns:
            raise TypeError(f"{self.symbol} returns {found.signature.return_type}, not {self.returns}")
        address = int(found.library.get_pointer_to_function(found.fndesc.llvm_func_name))
        llvmlite.binding.add_symbol(self.symbol, address)  # type: ignore[no-untyped-call,unused-ignore]
        self.loaded = found


_separate: list[Separate] = []
"""In the order of their definitions, so each one follows those that it calls. Guarded by the compiler's lock."""
_called: list[Separate] = []
"""Those that code which was generated here calls, until they are loaded. Guarded by the compiler's lock."""


def separate(returns: Any, *arguments: Any) -> Callable[[Any], Any]:
    """Decorates a kernel: the machine code of kernels that call it does not contain it.

    returns, arguments: types of numba's; several returned values as a tuple of types. It raises what the kernel raises.
    Costs a call that is not inlined, so it is for kernels that take longer than that. Under NUMBA_DISABLE_JIT it
    changes nothing.
    """

    def decorate(kernel: Any) -> Any:
        if numba.config.DISABLE_JIT:  # type: ignore[attr-defined,unused-ignore]
            return kernel
        callee = Separate(kernel, arguments, types.Tuple(returns) if isinstance(returns, tuple) else returns)
        _separate.append(callee)
        return callee

    return decorate


def dispatcher_of(kernel: Any) -> Any:
    """numba's dispatcher of a kernel, which may be called by name."""
    return kernel.kernel if isinstance(kernel, Separate) else kernel


@contextlib.contextmanager
def own_calls() -> Iterator[None]:
    """Know what the code that is generated inside calls by name apart from what other code calls, whose turn comes
    later: a kernel that is being loaded must be complete before one that calls it becomes machine code."""
    outer = _called.copy()
    _called.clear()
    try:
        yield
    finally:
        _called.extend(outer)


def load_called() -> None:
    """Load the kernels that newly generated code calls by name, before it becomes machine code.

    Those that are defined first come first: a later one may call them in code that another kernel has generated."""
    while _called:
        callee = min(_called, key=_separate.index)
        _called.remove(callee)
        if callee.loaded is None:
            callee.load()


def load_separate(beside: Any) -> None:
    """Load all kernels that others call by name, before machine code is loaded that may call them. `beside`: the kernel
    that is compiled or loaded; if others call it by name as well, it calls only those defined before it."""
    for callee in _separate:
        if callee.kernel is beside:
            return
        if callee.loaded is None:
            callee.load()


def _call(context: Any, builder: Any, function: Any, returns: Any, arguments: Any, args: Any) -> Any:
    """Call a kernel; what it raises, the caller raises."""
    convention = context.call_conv
    status, found = convention.call_function(builder, function, returns, arguments, args)
    with cgutils.if_unlikely(builder, status.is_error):  # type: ignore[no-untyped-call,unused-ignore]
        convention.return_status_propagate(builder, status)
    return found


class Callee:
    """The types of a kernel that other kernels call: "returned(argument, …)" in numba's notation."""

    def __init__(self, signature: str) -> None:
        arguments, returns = sigutils.normalize_signature(signature)  # type: ignore[no-untyped-call,unused-ignore]
        self._arguments, self._returns = tuple(arguments), returns
        self._kernels: list[Any] = []

    def address(self, kernel: Any) -> int:
        """The address of the kernel, which is loaded from numba's cache or compiled. It is valid while this object
        is."""
        kernel = dispatcher_of(kernel)
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
            kind = context.call_conv.get_function_type(returns, arguments)
            callee = builder.inttoptr(args[0], ir.PointerType(kind))
            return _call(context, builder, callee, returns, arguments, cast)

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
