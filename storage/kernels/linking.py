"""Compile a kernel once, together with what it calls.

numba builds a library for each function, including functions that only other kernels call and its own (such as
`np.empty`). It optimizes the function with everything it calls, emits machine code, and wraps that for Python and for
C. Each caller then links the result and optimizes all of it again. That came to 340 libraries and 240 s for the 100
kernels that Python calls. With this module, a function that is compiled for a caller remains LLVM intermediate code. A
kernel that Python calls is linked with the code of everything it calls, optimized, and emitted once.

A constant argument of a call between kernels has the type of any integer here; numba would compile one version of the
callee for each constant. A callee that must know its widths is inlined (`forceinline`), so that LLVM sees the
constants.

Importing this module is enough: functions of our kernel packages, and the functions they call, are compiled this way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numba
import numba.core.caching
import numba.core.cpu
import numba.core.dispatcher
import numba.core.environment
import numba.core.registry
import numba.core.sigutils
from llvmlite.binding import Linkage
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.targetconfig import TargetConfig

from vernier.storage.kernels import listing
from vernier.storage.kernels.names import OURS
from vernier.storage.kernels.separate import load_called, load_separate, own_calls

# numba has no type information for these
caching: Any = numba.core.caching
config: Any = numba.config
cpu: Any = numba.core.cpu
dispatcher: Any = numba.core.dispatcher
environment: Any = numba.core.environment
sigutils: Any = numba.core.sigutils
types: Any = numba.types
cpu_target: Any = numba.core.registry.cpu_target

_WRAPPERS = ("wrapper", "cfunc_wrapper")
"""Modules with the code through which Python or C calls a function. Callers inside kernels do not need them."""


class Unfinished:
    """Placeholder for the machine code of a function that has none yet; numba uses it as a lookup key."""


class LateLibrary(JITCodeLibrary):  # type: ignore[misc,unused-ignore]
    """The code of one function. The functions that it calls are linked in, and everything is optimized, only when
    machine code is needed."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)  # type: ignore[no-untyped-call,unused-ignore]
        self._own: Any = self._final_module
        self._wrapping: list[Any] = []
        self._linkable: Any = None

    def add_linking_library(self, library: Any) -> None:
        """Link another library's code into this one later. numba's own method would finalize that library here."""
        self._linking_libraries.append(library)

    def add_ir_module(self, ir_module: Any) -> None:
        """Add code of this function; its wrappers are kept separate from what callers link."""
        if ir_module.name in _WRAPPERS:
            self._raise_if_finalized()  # type: ignore[no-untyped-call,unused-ignore]
            self._wrapping.append(ir_module)
            return
        super().add_ir_module(ir_module)  # type: ignore[no-untyped-call,unused-ignore]

    def _optimize_functions(self, ll_module: Any) -> None:
        """Simplify each function alone. The whole is optimized thoroughly when it is linked."""
        ll_module.data_layout = self._codegen._data_layout
        for function in ll_module.functions:
            if not function.is_declaration:
                passes, builder = self._codegen._function_pass_manager(opt=1)  # type: ignore[no-untyped-call,unused-ignore]
                passes.run(function, builder)

    def linkable(self) -> Any:
        """The code of this function alone, with linkage that allows several modules to contain it."""
        if self._linkable is None:
            self._linkable = self._own.clone()
            for function in self._linkable.functions:
                if not function.is_declaration and function.linkage == Linkage.external:
                    function.linkage = "linkonce_odr"
        return self._linkable

    def finalize(self) -> None:
        """Link, optimize and emit machine code."""
        self._codegen._check_llvm_bugs()  # type: ignore[no-untyped-call,unused-ignore]
        self._raise_if_finalized()  # type: ignore[no-untyped-call,unused-ignore]
        self._final_module = self._own.clone()
        self._final_module.name = self._own.name
        for wrapper in self._wrapping:
            super().add_ir_module(wrapper)  # type: ignore[no-untyped-call,unused-ignore]
        seen, waiting = {self}, self._linking_libraries[::-1]
        while waiting:
            library = waiting.pop()
            if library in seen:
                continue
            seen.add(library)
            self._reload_init.update(library._reload_init)
            if isinstance(library, LateLibrary) and not library._disable_inspection:
                self._final_module.link_in(library.linkable(), preserve=True)
                waiting += library._linking_libraries[::-1]
            else:
                # From numba's cache, or built before this module was imported: it contains what it calls.
                self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._optimize_final_module()  # type: ignore[no-untyped-call,unused-ignore]
        self._final_module.verify()
        self._finalize_final_module()  # type: ignore[no-untyped-call,unused-ignore]


_depth = 0
"""How many nested functions are being compiled, each for the one before it. Guarded by the compiler's lock."""
_first: Any = None
"""The first of them, which Python calls."""

_get_executable = cpu.CPUContext.get_executable
_compile = dispatcher.Dispatcher.compile
_add_overload = dispatcher.Dispatcher.add_overload
_get_call_template = dispatcher.Dispatcher.get_call_template
_customize_flags = dispatcher._FunctionCompiler._customize_flags
_unequal: Any = TargetConfig.__eq__
_save_overload = caching.Cache.save_overload


def _is_ours(function: Any) -> bool:
    return (function.__module__ or "").startswith(OURS)


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """Compile other kernels, which Python calls as well, while one is compiled or loaded."""
    global _depth, _first
    depth, first = _depth, _first
    _depth, _first = 0, None
    try:
        yield
    finally:
        _depth, _first = depth, first


def load_callees() -> None:
    """Load what machine code from the cache may call by name, before it is loaded itself."""
    first = _first
    with global_compiler_lock, _apart():
        load_separate(first)


def _executable(self: Any, library: Any, fndesc: Any, env: Any) -> Any:
    """The entry point through which Python calls a function; a placeholder if it is compiled for a caller."""
    if _depth > 1 and not library._disable_inspection:
        return Unfinished()
    if _depth <= 1:
        with _apart():
            load_called()
    function = _get_executable(self, library, fndesc, env)
    # Also set the environments of the functions that were linked in, as numba does when it loads a library from its
    # cache.
    for variable in library._final_module.global_variables:
        found = environment.lookup_environment(variable.name) if variable.name.startswith("_ZN08NumbaEnv") else None
        if found is not None:
            library.codegen.set_env(variable.name, found)
    return function


def _overload(self: Any, cres: Any) -> None:
    if isinstance(cres.entry_point, Unfinished):
        self.overloads[tuple(cres.signature.args)] = cres
    else:
        _add_overload(self, cres)


def _compile_late(self: Any, sig: Any) -> Any:
    """Dispatcher.compile, which emits machine code only for functions that Python calls."""
    global _depth, _first
    with global_compiler_lock, own_calls() if _depth == 0 else contextlib.nullcontext():
        if _depth == 0:
            _first = self
        if _depth == 0 and self._cache.cache_path is not None and _is_ours(self.py_func):
            listing.check(self, sigutils.normalize_signature(sig)[0])
        _depth += 1
        try:
            entry = _compile(self, sig)
            return _finish(self, sig) if _depth == 1 and isinstance(entry, Unfinished) else entry
        finally:
            _depth -= 1


def _finish(self: Any, sig: Any) -> Any:
    """Emit machine code for a function that was compiled for a caller and that Python calls now."""
    cres = self.overloads[tuple(sigutils.normalize_signature(sig)[0])]
    context, library = cres.target_context, cres.library
    context.create_cpython_wrapper(
        library, cres.fndesc, cres.environment, cres.call_helper, bool(self.targetoptions.get("nogil"))
    )
    function = _executable(context, library, cres.fndesc, cres.environment)
    context.insert_user_function(function, cres.fndesc, [library])
    cres = cres._replace(entry_point=function)
    self.add_overload(cres)
    self._cache.save_overload(sig, cres)
    return function


def _save(self: Any, sig: Any, data: Any) -> None:
    if not isinstance(getattr(data, "entry_point", None), Unfinished):
        _save_overload(self, sig, data)


def _without_constants(self: Any, args: Any, kws: Any) -> Any:
    if _is_ours(self.py_func):
        args = tuple(types.unliteral(kind) for kind in args)
        kws = {name: types.unliteral(kind) for name, kind in kws.items()}
    return _get_call_template(self, args, kws)


def _flags(self: Any, flags: Any) -> Any:
    """No C wrapper, and a Python wrapper only for functions that Python calls."""
    flags = _customize_flags(self, flags)
    inner = _depth > 1 and (self.py_func.__module__ or "").startswith((*OURS, "numba."))
    if inner or _is_ours(self.py_func):
        flags.no_cfunc_wrapper = True
    if inner:
        flags.no_cpython_wrapper = True
    return flags


def _hash(self: Any) -> int:
    """Consistent with numba's equality. numba's own hash sorts all options each time, which is a tenth of the compile
    time."""
    return hash(type(self))


def _equal(self: Any, other: Any) -> Any:
    if isinstance(other, TargetConfig) and self._values == other._values:
        return True
    return _unequal(self, other)


if not config.DISABLE_JIT:
    cpu.CPUContext.get_executable = _executable
    dispatcher.Dispatcher.compile = _compile_late
    dispatcher.Dispatcher.add_overload = _overload
    dispatcher.Dispatcher.get_call_template = _without_constants
    dispatcher._FunctionCompiler._customize_flags = _flags
    caching.Cache.save_overload = _save
    TargetConfig.__hash__ = _hash  # type: ignore[method-assign,unused-ignore]
    TargetConfig.__eq__ = _equal  # type: ignore[method-assign,unused-ignore]
    cpu_target.target_context.codegen()._library_class = LateLibrary
