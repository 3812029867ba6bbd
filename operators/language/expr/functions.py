"""Functions of the program: when two of them count as the same, and which ones are refused as not deterministic.

A retracted row goes through the same functions as when it was inserted and must give the same result; otherwise the
rows that its insertion produced remain for ever. Functions that read a clock or use random numbers are therefore
refused when the program is built. The check follows the functions that they call, as far as these are the program's own
code. It reads code and can be evaded: it helps, but does not guarantee anything.

`function_key` covers everything that a function computes with: its code with constants and defaults, the values of the
closures and globals that it names, and the program's functions that it calls, to any depth. It leaves out lines, files
and addresses. It is the same in every process of one Python version, so a restart finds its state again, and it changes
when the function changes.
"""

import builtins
import dis
import functools
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import xxhash

from vernier.operators.errors import ProgramError, WrongType
from vernier.operators.location import NOWHERE, Location, at_frame, is_ours_file

Function = Callable[..., Any]

_CHANCE = ("random", "secrets", "numpy.random")
"""Modules all of whose functions return something different at each call."""
_CALLS = {
    *(f"time.{n}" for n in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")),
    *(f"time.{n}" for n in ("process_time", "process_time_ns", "localtime", "gmtime", "ctime", "strftime", "asctime")),
    *("uuid.uuid1", "uuid.uuid4", "uuid.getnode", "os.urandom", "os.getrandom", "os.getpid"),
    # The hash of a text and the address of an object differ between processes.
    *("builtins.hash", "builtins.id", "builtins.input"),
}
_NOW = {"now", "utcnow", "today"}
"""Methods of date classes, in any library."""
_LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FAST"}
_STORES = {"STORE_FAST", "STORE_DEREF", "STORE_NAME"}
_MEMBERS = {"LOAD_ATTR", "LOAD_METHOD"}
_PASSING = {"CACHE", "PUSH_NULL", "EXTENDED_ARG", "NOP"}
"""Instructions that may stand between a name and its member without any effect."""
_STDLIB = sysconfig.get_path("stdlib")


class NotDeterministic(ProgramError):
    """A function whose results depend on more than its arguments: retractions would not cancel what insertions
    added."""


def function_name(function: Function) -> str:
    """The function's name for messages."""
    if isinstance(function, functools.partial):
        return function_name(function.func)
    return str(getattr(function, "__name__", None) or type(function).__name__)


def function_location(function: Function) -> Location:
    """Where the program defines it; NOWHERE for functions that are not written in Python."""
    plain = _plain(function)
    return NOWHERE if plain is None else at_frame(plain.__code__.co_filename, plain.__code__.co_firstlineno)


def check_function(function: object, what: str, deterministic: bool | None = None) -> None:
    """Raise WrongType for an object that cannot be called, NotDeterministic for a function that uses randomness or a
    clock.

    deterministic: None inspects the code; True trusts the program that it is deterministic; False declares that it is
    not.
    """
    if not callable(function):
        raise WrongType(problem=f"{what} takes a function, not {function!r}")
    if deterministic:
        return
    reason = "it is declared deterministic=False" if deterministic is False else _unsteady(function, set())
    if reason:
        raise NotDeterministic(
            problem=f"{what}: the function {function_name(function)} is not deterministic: {reason}. A retraction must "
            "compute the same values as its insertion, or the row is never removed; compute such a value before the "
            "row is sent, and make it a column"
        )


def function_key(function: Function) -> str:
    """32 hexadecimal digits, equal for functions that compute the same in the same way, and the same in every process.

    Raises ProgramError when the function uses a value that has no stable form.
    """
    return xxhash.xxh3_128_hexdigest(repr(_form(function, {})).encode())


# --- what a function uses ---------------------------------------------------------------------------------------------


def _plain(fn: object) -> types.FunctionType | None:
    """The Python function inside a callable that is decorated, partial, bound or compiled by numba."""
    if isinstance(fn, functools.partial):
        return _plain(fn.func)
    if isinstance(fn, types.MethodType):
        return _plain(fn.__func__)
    if isinstance(fn, types.FunctionType):
        wrapped = getattr(fn, "__wrapped__", None)
        return fn if wrapped is None else _plain(wrapped) or fn
    inner = getattr(fn, "py_func", None)
    return inner if isinstance(inner, types.FunctionType) else None


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _names(fn: types.FunctionType) -> dict[str, object]:
    """The values of the names that the function uses from outside: closure cells first, then globals, then builtins."""
    closed: dict[str, object] = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            closed[name] = cell.cell_contents
        except ValueError:  # not set yet: a function that is defined later
            continue
    return {**vars(builtins), **fn.__globals__, **closed}


def _used(fn: types.FunctionType) -> Iterator[tuple[str, object]]:
    """Each (spelling, object) from outside that the code names: `np.random.rand` gives np, np.random, np.random.rand.

    A module that the function itself imports is followed through its local name.
    """
    outside = _names(fn)
    for code in _codes(fn.__code__):
        local: dict[str, object] = {}
        imported: tuple[str, object] = ("", None)
        held: tuple[str, object] | None = None
        for step in dis.get_instructions(code):
            name, before = str(step.argval), held
            if step.opname in _PASSING:
                continue
            held = None
            if step.opname in _LOADS:
                known = local if step.opname == "LOAD_FAST" else outside
                held = (name, known[name]) if name in known else None
            elif step.opname == "IMPORT_NAME":
                held = imported = (name, sys.modules.get(name, types.ModuleType(name)))
            elif step.opname == "IMPORT_FROM":
                held = _member(imported, name)
            elif step.opname in _MEMBERS and before is not None:
                held = _member(before, name)
            elif step.opname in _STORES and before is not None:
                local[name] = before[1]
            if held is not None:
                yield held


def _member(of: tuple[str, object], name: str) -> tuple[str, object] | None:
    """A member of a module or class. Members of other objects are not read, since that could run arbitrary code."""
    if not isinstance(of[1], (types.ModuleType, type)) or not hasattr(of[1], name):
        return None
    return f"{of[0]}.{name}", getattr(of[1], name)


def _is_programs(fn: types.FunctionType) -> bool:
    """Whether a function is the program's own code, that is, neither Vernier's nor an installed package's."""
    file = fn.__code__.co_filename
    packaged = any(part in file for part in ("site-packages", "dist-packages")) or file.startswith((_STDLIB, "<frozen"))
    return not (packaged or is_ours_file(file))


def _unsteady(function: object, seen: set[int]) -> str:
    """Why the function's results may differ from call to call, in words; "" when nothing is found."""
    plain = _plain(function)
    if plain is None or id(plain) in seen:
        return f"it is {function!r}" if _is_unsteady(function) else ""
    seen.add(id(plain))
    for spelled, used in _used(plain):
        if _is_unsteady(used):
            return f"{plain.__name__} uses {spelled}"
        inner = _plain(used)
        deeper = _unsteady(inner, seen) if inner is not None and _is_programs(inner) else ""
        if deeper:
            return deeper
    return ""


def _is_unsteady(used: object) -> bool:
    """Whether an object is a source of randomness or of the current time."""
    if isinstance(used, types.ModuleType):
        return used.__name__ in _CHANCE
    owner = getattr(used, "__self__", None)
    home = str(getattr(used, "__module__", None) or type(owner).__module__)
    if any(place == m or place.startswith(m + ".") for place in (home, type(used).__module__) for m in _CHANCE):
        return True
    member = getattr(used, "__name__", "")
    if isinstance(owner, type):
        return member in _NOW
    return callable(used) and not isinstance(used, type) and f"{home.replace('posix', 'os')}.{member}" in _CALLS


# --- keys ------------------------------------------------------------------------------------------------------------


def _form(value: Any, seen: dict[int, int]) -> object:
    """A value as nested tuples of text and numbers, with the same `repr` in every process."""
    if value is None or isinstance(value, (bool, int, str, bytes, type(Ellipsis))):
        return value
    if isinstance(value, (float, complex)):
        return repr(value)
    if id(value) in seen:
        return ("seen", seen[id(value)])
    seen[id(value)] = len(seen)
    match value:
        case tuple() | list():
            return (type(value).__name__, *(_form(part, seen) for part in value))
        case set() | frozenset():
            # The order differs between processes, so members are sorted by their forms; equal members have equal forms.
            return ("set", *sorted((_form(part, dict(seen)) for part in value), key=repr))
        case dict():
            return ("dict", *((_form(key, seen), _form(part, seen)) for key, part in value.items()))
        case np.ndarray() if value.dtype != object:
            return ("array", value.dtype.str, value.shape, xxhash.xxh3_128_hexdigest(value.tobytes()))
        case np.generic():
            return (value.dtype.str, value.tobytes())
        case types.ModuleType():
            return ("module", value.__name__)
        case types.CodeType():
            return _code(value, seen)
        case staticmethod() | classmethod():
            return _form(value.__func__, seen)
        case property():
            return ("property", _form(value.fget, seen))
        case functools.partial():
            return ("partial", _form(value.func, seen), _form(value.args, seen), _form(value.keywords, seen))
        case types.MethodType():
            return ("method", _form(value.__func__, seen), _form(value.__self__, seen))
    plain = _plain(value)
    if plain is not None:
        return _function(plain, seen) if _is_programs(plain) else ("function", _home(plain), plain.__qualname__)
    return _object(value, seen)


def _home(value: object) -> str:
    """The module of a function or class. Our own modules count under the names that they had in version 0.1.0.

    State identifies functions of the program by their form, so moving one of our modules must not change any form.
    """
    parts = str(getattr(value, "__module__", "")).removeprefix("vernier.").split(".")
    if parts[:2] == ["operators", "language"] and len(parts) > 3:
        _, _, _, *inside, name = parts  # the language had no rooms
        parts = [*parts[:2], *inside, _FORMER.get(name, name)]
    return ".".join(parts)


_FORMER = {"scalars": "types", "expression": "expr"}
"""The former names of the modules of the language that programs' functions mention, where it is another one."""


def _code(code: types.CodeType, seen: dict[int, int], doc: str | None = None) -> object:
    # A docstring has no effect on the result; where there is one, it is the first constant.
    computes = (
        None if place == 0 and doc is not None and part == doc else part for place, part in enumerate(code.co_consts)
    )
    constants = tuple(_form(part, seen) for part in computes)
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return ("code", code.co_code, counts, code.co_names, code.co_varnames, code.co_freevars, constants)


def _function(fn: types.FunctionType, seen: dict[int, int]) -> object:
    code = _code(fn.__code__, seen, fn.__doc__)
    outside = {name: value for name, value in _used(fn) if getattr(builtins, name, None) is not value}
    used = tuple((name, _form(value, seen)) for name, value in outside.items())
    return ("function", code, _form(fn.__defaults__, seen), _form(fn.__kwdefaults__, seen), used)


def _object(value: Any, seen: dict[int, int]) -> object:
    if isinstance(value, type):
        if not _is_programs_class(value):
            return ("class", _home(value), value.__qualname__)
        own = {name: part for name, part in vars(value).items() if isinstance(part, _CLASS_PARTS)}
        return ("class", value.__qualname__, _form(own, seen), tuple(_form(base, seen) for base in value.__bases__))
    if isinstance(value, (types.BuiltinFunctionType, np.ufunc)):
        return ("builtin", _home(value), value.__name__)
    if repr(value) != object.__repr__(value) and not hasattr(value, "__dict__"):
        return (_home(type(value)), type(value).__qualname__, repr(value))
    try:
        return ("object", _form(type(value), seen), _form(dict(vars(value)), seen))
    except TypeError as error:
        raise ProgramError(
            problem=f"a function of the program uses {value!r}, whose type {type(value).__qualname__} has no stable "
            "form by which a change would be seen; use numbers, text, arrays and functions instead"
        ) from error


_CLASS_PARTS = (types.FunctionType, staticmethod, classmethod, property, bool, int, float, str, bytes, tuple)


def _is_programs_class(kind: type) -> bool:
    return any(_is_programs(part) for part in vars(kind).values() if isinstance(part, types.FunctionType))
