"""What the front end of numba no longer repeats has the same results."""

import copy
from typing import Any

import numba.core.compiler
import numpy as np
import pytest
from numba import config, njit
from numba.core import ir

from vernier.storage.kernels import front_end, sorting

pytestmark = pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")  # type: ignore[attr-defined]


def listed(value: Any) -> list[Any]:
    """The variables in a part of a statement: numba's own definition."""
    if isinstance(value, ir.Var):
        return [value]
    if isinstance(value, ir.Inst):
        return value.list_vars()  # type: ignore[no-any-return]
    if isinstance(value, (list, tuple)):
        return [variable for part in value for variable in listed(part)]
    if isinstance(value, dict):
        return [variable for part in value.values() for variable in listed(part)]
    return []


def test_the_variables_of_statements() -> None:
    statements = 0
    for kernel in (sorting.merge_sort, sorting._mend_order, sorting._spread):
        for block in numba.core.compiler.run_frontend(kernel.py_func).blocks.values():
            for statement in block.body:
                parts = statement._kws if isinstance(statement, ir.Expr) else vars(statement)
                assert [v.name for v in statement.list_vars()] == [v.name for v in listed(parts)], statement
                statements += 1
    assert statements > 300


def test_locations_are_not_copied() -> None:
    block = next(iter(numba.core.compiler.run_frontend(sorting.merge_sort.py_func).blocks.values()))
    copied = copy.deepcopy(block)
    assert copied.body[0] is not block.body[0]
    assert copied.body[0].loc is block.body[0].loc


def test_calls_of_the_same_types_are_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = []

    def find(self: Any, context: Any, args: Any, kws: Any) -> Any:
        resolved.append((str(self), args))
        return found(self, context, args, kws)

    found = front_end._find_call_type
    monkeypatch.setattr(front_end, "_find_call_type", find)
    monkeypatch.setattr(front_end, "_signatures", {})

    def kernel(a, b):  # type: ignore[no-untyped-def]
        total = a + b
        for i in range(3):
            total = total + b
            total = total + i
        return total

    assert njit(kernel)(1, 2) == 1 + 2 + 3 * 2 + 3
    assert len(resolved) == len(set(resolved))
    again = len(resolved)
    # Other types are other calls.
    assert njit(kernel)(1.5, 2.0) == 1.5 + 2 + 3 * 2 + 3
    assert len(resolved) > again


def test_a_call_that_has_no_type_is_refused_each_time() -> None:
    def kernel(words):  # type: ignore[no-untyped-def]
        return words + "text"

    for _ in range(2):
        with pytest.raises(numba.TypingError):
            njit(kernel)(np.arange(3))
