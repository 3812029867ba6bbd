"""Functions that a program brings along: what makes two of them the same, and which ones an answer cannot rest on.

A fingerprint must be the same in every process and differ when the function's meaning does, because state is found
again by it. So it covers the bytecode, constants, defaults, what a closure holds, and the globals that the code names,
other functions of the program included; not lines, files or addresses. Another Python version gives another one.
"""

import builtins
import re
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import xxhash

from operators.errors import ProgramError, WrongType
from operators.language.location import NOWHERE, Location, at_frame

_CHANCE = {"random", "secrets"}
"""Modules whose functions give something else at each call."""
_CLOCKS = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "localtime", "gmtime"},
    "datetime": {"now", "utcnow", "today"},
    "uuid": {"uuid1", "uuid4"},
    "os": {"urandom", "getpid", "getrandom"},
}
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class NotDeterministic(ProgramError):
    """A function whose results depend on more than its arguments; retractions would not find what they take back."""


def function_name(function: Callable[..., Any]) -> str:
    """The function's name for people."""
    return str(getattr(function, "__name__", None) or type(function).__name__)


def function_location(function: Callable[..., Any]) -> Location:
    """Where the program defines it; NOWHERE for what is not written in Python."""
    code = getattr(_plain(function), "__code__", None)
    return at_frame(code.co_filename, code.co_firstlineno) if isinstance(code, CodeType) else NOWHERE


def check_function(function: object, what: str) -> None:
    """Raise WrongType for what cannot be called, NotDeterministic for what calls chance or a clock by name.

    Finds what the code and the program's functions that it calls name themselves, no more: it is a help, no proof.
    """
    if not callable(function):
        raise WrongType(problem=f"{what} takes a function, not {function!r}")
    for name in _unsteady(function, set()):
        raise NotDeterministic(
            problem=f"{what}: the function {function_name(function)} uses {name}, which differs from call to call; "
            "rows that were inserted could not be taken back. Put the value into the data instead"
        )


def function_key(function: Callable[..., Any]) -> str:
    """32 hexadecimal digits, equal for functions that do the same in the same way; the same in every process."""
    return xxhash.xxh3_128_hexdigest(repr(_shape(function, ())).encode())


def _plain(function: Any) -> Any:
    """The Python function inside bound methods, partial applications and wrappers."""
    while True:
        if isinstance(function, MethodType):
            function = function.__func__
        elif hasattr(function, "func") and callable(function.func):
            function = function.func
        elif hasattr(function, "py_func"):
            function = function.py_func
        else:
            return function


def _shape(value: Any, above: tuple[int, ...]) -> Any:
    """A value that a function uses, as a tree of plain values."""
    if value is None or isinstance(value, (bool, int, float, str, bytes, complex)):
        return value
    if id(value) in above:
        return ("again", above.index(id(value)))
    above = (*above, id(value))
    if isinstance(value, (tuple, list)):
        return (type(value).__name__, *(_shape(part, above) for part in value))
    if isinstance(value, (set, frozenset)):
        return ("set", *sorted(repr(_shape(part, above)) for part in value))
    if isinstance(value, dict):
        return ("dict", *((repr(_shape(key, above)), _shape(part, above)) for key, part in value.items()))
    if isinstance(value, np.ndarray):
        return (
            "array",
            str(value.dtype),
            value.shape,
            xxhash.xxh3_128_hexdigest(np.ascontiguousarray(value).tobytes()),
        )
    if isinstance(value, CodeType):
        constants = tuple(_shape(constant, above) for constant in value.co_consts)
        return ("code", value.co_code, constants, value.co_names, value.co_varnames, value.co_freevars)
    if isinstance(value, MethodType):
        return ("method", _shape(value.__func__, above), _shape(value.__self__, above))
    if isinstance(value, FunctionType):
        return (
            "function", _shape(value.__code__, above), _shape(value.__defaults__, above),
            _shape(value.__kwdefaults__, above), tuple(_shape(part, above) for part in _held(value)),
            tuple((name, _shape(part, above)) for name, part in _globals(value)),
        )  # fmt: skip
    if isinstance(value, ModuleType):
        return ("module", value.__name__)
    if isinstance(value, (type, BuiltinFunctionType)):
        return ("name", value.__module__, value.__qualname__)
    if hasattr(value, "py_func"):  # compiled by numba
        return ("compiled", _shape(value.py_func, above))
    if hasattr(value, "func") and hasattr(value, "args"):  # functools.partial
        return ("partial", _shape(value.func, above), _shape(value.args, above), _shape(value.keywords, above))
    return (type(value).__module__, type(value).__qualname__, _ADDRESS.sub("", repr(value)))


def _held(function: FunctionType) -> Iterator[Any]:
    """What the function's closure holds."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not set yet
            yield None


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _globals(function: FunctionType) -> list[tuple[str, Any]]:
    """The globals of the program that the code names, by name."""
    found = function.__globals__
    names = sorted(set(_names(function.__code__)))
    return [(name, found[name]) for name in names if name in found and not hasattr(builtins, name)]


def _home(value: Any) -> str:
    """The module that a global comes from; for a method of a C type, its object's."""
    return str(getattr(value, "__module__", None) or type(getattr(value, "__self__", None)).__module__)


def _unsteady(function: Any, seen: set[int]) -> Iterator[str]:
    """What the function names that differs from call to call."""
    function = _plain(function)
    if id(function) in seen or not isinstance(function, FunctionType):
        return
    seen.add(id(function))
    names = set(_names(function.__code__))
    for name, value in [*_globals(function), *(("", part) for part in _held(function))]:
        home = value.__name__ if isinstance(value, ModuleType) else _home(value)
        root = home.split(".")[0]
        if isinstance(value, ModuleType):
            clocks = sorted(_CLOCKS.get(root, set()) & names)
            if root in _CHANCE or (root == "numpy" and "random" in names) or home == "numpy.random":
                yield "numpy.random" if root == "numpy" else root
            elif clocks:
                yield f"{root}.{clocks[0]}"
        elif root in _CHANCE or home.startswith("numpy.random"):
            yield f"{home}.{name}"
        elif getattr(value, "__name__", "") in _CLOCKS.get(root, set()):
            yield f"{root}.{value.__name__}"
        elif root == "datetime" and isinstance(value, type) and _CLOCKS["datetime"] & names:
            yield f"{name}.{sorted(_CLOCKS['datetime'] & names)[0]}"
        else:
            yield from _unsteady(value, seen)
