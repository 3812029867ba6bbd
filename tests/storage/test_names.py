"""Names of arrays that become one in kernels: fewer references are counted, and nothing else is different."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config, njit
from numba.core import runtime

import vernier.storage.kernels.names
from vernier.storage.kernels.cells import cell, more_rows

_runtime: Any = runtime
compiled_alone = pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")  # type: ignore[attr-defined]


def kernel(function: Callable[..., Any]) -> Any:
    """The function, compiled as those in our packages of kernels are."""
    function.__module__ = vernier.storage.kernels.names.__name__
    return njit(function)


@njit(inline="always")
def alike(rows, i, others, j):  # type: ignore[no-untyped-def]
    same = True
    for c in range(rows.shape[1]):
        same = same and cell(rows, i, c) == cell(others, j, c)
    return same


def runs(rows):  # type: ignore[no-untyped-def]
    out = np.empty((1, rows.shape[1]), np.int64)
    count = 0
    for i in range(rows.shape[0]):
        if i > 0 and alike(rows, i, rows, i - 1):
            continue
        if count == out.shape[0]:
            out = more_rows(out, count)
        for c in range(rows.shape[1]):
            out[count, c] = rows[i, c]
        count += 1
    return out[:count]


@compiled_alone
def test_inlined_functions_and_loops_count_no_references() -> None:
    rows = np.array([[1, 2], [1, 2], [1, 3], [4, 5], [4, 5], [6, 7]])
    counted = []
    for compile_ in (njit, kernel):
        function = compile_(runs)
        assert function(rows).tolist() == [[1, 2], [1, 3], [4, 5], [6, 7]]
        counted.append(function.overloads[function.signatures[0]].library.get_asm_str().count("NRT_incref"))
    assert counted[1] < counted[0]


NAMES = "abc"


@st.composite
def bodies(draw: st.DrawFn, depth: int = 2) -> list[str]:
    """Statements that give the names of arrays to other arrays, in branches and loops."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["copy", "swap", "new", "write", *(["if", "for"] if depth else [])]))
        one, two = draw(st.sampled_from(NAMES)), draw(st.sampled_from(NAMES))
        if kind == "copy":
            lines.append(f"{one} = {two}")
        elif kind == "swap":
            lines.append(f"{one}, {two} = {two}, {one}")
        elif kind == "new":
            lines.append(f"{one} = {two} + {draw(st.integers(1, 9))}")
        elif kind == "write":
            lines.append(f"{one}[0] += {two}[1] + {draw(st.integers(1, 9))}")
        else:
            bit = draw(st.integers(0, 3))
            lines.append(f"if seed >> {bit} & 1:" if kind == "if" else f"for _ in range(seed >> {bit} & 3):")
            lines += [f"    {line}" for line in draw(bodies(depth=depth - 1))]
    return lines


@pytest.mark.slow
@compiled_alone
@settings(max_examples=20, deadline=None)
@given(body=bodies())
def test_names_that_become_one_change_no_answer_and_leak_nothing(body: list[str]) -> None:
    source = ["def function(a, b, seed):", "    c = a", *(f"    {line}" for line in body), "    return a, b, c"]
    found: dict[str, Any] = {}
    exec("\n".join(source), found)
    function = found["function"]
    compiled = kernel(function)
    _runtime._nrt_python.memsys_enable_stats()
    gc.collect()  # arrays of other tests, which are not to go while this one counts
    gc.disable()
    try:
        check(function, compiled)
    finally:
        gc.enable()


def check(function: Callable[..., Any], compiled: Callable[..., Any]) -> None:
    """Both give the same, and as many arrays go as come."""
    for seed in range(16):
        wanted = [one.tolist() for one in function(np.array([1, 2]), np.array([3, 5]), seed)]
        before = _runtime.rtsys.get_allocation_stats()
        assert [one.tolist() for one in compiled(np.array([1, 2]), np.array([3, 5]), seed)] == wanted
        after = _runtime.rtsys.get_allocation_stats()
        assert after.mi_alloc - before.mi_alloc == after.mi_free - before.mi_free
