"""Decorators for the functions that kernels consist of.

numba increments and decrements, atomically, the reference count of each array that a function is given, at each call,
also when LLVM inlines it. A function that only reads and writes the arrays it is given does not need that.
"""

from collections.abc import Callable
from typing import Any

from numba import njit

Decorator = Callable[[Callable[..., Any]], Any]

_njit: Any = njit

inlined: Decorator = _njit(cache=True, forceinline=True, _nrt=False)
"""A function that LLVM inlines, and that neither counts references nor allocates: its callers grow its arrays."""

borrowing: Decorator = _njit(cache=True, _nrt=False)
"""A function that neither counts references nor allocates."""

allocating: Decorator = _njit(cache=True, _nrt=True)
"""A function that allocates, and that may be called by those above."""
