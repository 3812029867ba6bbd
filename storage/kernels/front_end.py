"""The parts of numba's front end that repeat work, without the repetitions.

Most of the time to compile a kernel goes into Python code of numba's: LLVM takes a fifth. Three parts of it do the same
again and again. With this module, a kernel takes about a sixth less to compile; its machine code is the same.

- *The type of a call.* For each call of a built-in function in a kernel, numba tries all of the function's templates,
  although nearly all calls have had the same arguments before. Here the signature that was found is kept.
- *The variables of a statement.* numba lists them through one method call for each part of a statement, including
  names, numbers and locations, which contain none.
- *Copies of locations.* Inlining copies the callee with its source locations, which never change.

Importing this module is enough. It changes all of numba in this process, because functions of numba's own that kernels
call are compiled with them.
"""

from __future__ import annotations

from typing import Any

import numba.core.ir
import numba.core.types

# numba has no type information for these
ir: Any = numba.core.ir
Function: Any = numba.core.types.functions.BaseFunction

_find_call_type = Function.get_call_type

_signatures: dict[int, tuple[Any, dict[Any, Any]]] = {}
"""For the identity of each function type: the type itself, which keeps its identity from being used again, and the
signatures found for it by typing context and arguments. Guarded by the compiler's lock."""


def _call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
    _, found = _signatures.setdefault(id(self), (self, {}))
    key = context, args, tuple(kws.items()) if kws else ()
    try:
        signature = found.get(key)
    except TypeError:  # an argument is a value that has no hash
        return _find_call_type(self, context, args, kws)
    if signature is None:
        signature = found[key] = _find_call_type(self, context, args, kws)
    return signature


_WITHOUT = frozenset((str, int, float, bool, type(None), ir.Loc))
"""Types of values that contain no variables."""


def _list_variables(_: Any, value: Any) -> list[Any]:
    found: list[Any] = []
    _add_variables(value, found)
    return found


def _add_variables(value: Any, found: list[Any]) -> None:
    kind = type(value)
    if kind is ir.Var:
        found.append(value)
    elif kind is ir.Expr:
        _add_variables(value._kws, found)
    elif kind in _WITHOUT:
        return
    elif isinstance(value, ir.Inst):
        found += value.list_vars()
    elif isinstance(value, (tuple, list)):
        for part in value:
            _add_variables(part, found)
    elif isinstance(value, dict):
        for part in value.values():
            _add_variables(part, found)


def _same(self: Any, _: Any) -> Any:
    return self


if not numba.config.DISABLE_JIT:  # type: ignore[attr-defined,unused-ignore]
    Function.get_call_type = _call_type
    ir.Inst._rec_list_vars = _list_variables
    ir.Loc.__deepcopy__ = _same
