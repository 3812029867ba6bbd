"""A kernel is compiled once, together with what it calls."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import config, njit

from vernier.storage.kernels import linking, listing

pytestmark = pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")  # type: ignore[attr-defined]


def ours(function: Any, **options: Any) -> Any:
    """The function, compiled as those in our packages of kernels are."""
    function.__module__ = linking.__name__
    return njit(**options)(function)


def _wider(rows, size):  # type: ignore[no-untyped-def]
    more = np.empty((size, rows.shape[1]), np.int64)
    for i in range(rows.shape[0]):
        for c in range(rows.shape[1]):
            more[i, c] = rows[i, c]
    return more


wider = ours(_wider)


def _sum_of_two(rows):  # type: ignore[no-untyped-def]
    total = 0
    for size in (rows.shape[0] + 1, rows.shape[0] + 2):
        total += wider(rows, size).shape[0]
    return total + wider(rows, 7).shape[0]


def test_what_only_kernels_call_has_no_machine_code_and_one_version() -> None:
    caller = ours(_sum_of_two)
    rows = np.ones((3, 2), np.int64)
    assert caller(rows) == 4 + 5 + 7
    # One version, for constants and other integers; nothing to call it by.
    (inner,) = wider.overloads.values()
    assert isinstance(inner.entry_point, linking.Unfinished)
    assert not inner.library._finalized
    # Called from Python, it gets machine code, and callers that come later still link its code.
    assert wider(rows, 5)[:3].tolist() == rows.tolist()
    (outer,) = wider.overloads.values()
    assert not isinstance(outer.entry_point, linking.Unfinished)
    assert ours(_sum_of_two)(rows) == 4 + 5 + 7
    assert caller(rows) == 4 + 5 + 7


def test_a_kernel_that_was_called_first_is_linked_too() -> None:
    alone = ours(_wider)
    rows = np.ones((3, 2), np.int64)
    assert alone(rows, 4).shape == (4, 2)

    def twice(rows):  # type: ignore[no-untyped-def]
        return alone(alone(rows, 4), 9)

    assert ours(twice)(rows).shape == (9, 2)


def test_errors_and_threads_as_numba_has_them() -> None:
    def check(x):  # type: ignore[no-untyped-def]
        if x < 0:
            raise ValueError("below zero")
        return x

    inner = ours(check, nogil=True)

    def outer(x):  # type: ignore[no-untyped-def]
        return inner(x) + 1

    function = ours(outer)
    assert function(1) == 2
    with pytest.raises(ValueError, match="below zero"):
        function(-1)
    assert inner(3) == 3
    with pytest.raises(ValueError, match="below zero"):
        inner(-3)


def test_only_kernels_that_python_calls_are_kept(tmp_path: Path) -> None:
    (tmp_path / "pair.py").write_text(
        "from numba import njit\n\nimport vernier.storage.kernels\n\n\n"
        "@njit(cache=True)\ndef inner(x):\n    return x + 1\n\n\n"
        "@njit(cache=True)\ndef outer(x):\n    return inner(x) * 2\n"
    )
    script = (
        "import sys, pair; print(pair.outer(3), *(sum(f.stats.cache_hits.values()) for f in (pair.outer, pair.inner)))"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(linking.__file__).parents[2]}"}
    for hits in ("0 0", "1 0"):
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
        assert done.stdout == f"8 {hits}\n", done.stderr
    kept = {path.name.split("-")[0] for path in (tmp_path / "__pycache__").glob("*.nbi")}
    assert kept == {"pair.outer"}


def test_a_kernel_that_python_and_kernels_call_is_loaded_behind_its_caller(tmp_path: Path) -> None:
    # What Python needs of its array's type came with the caller, from before there was a way to call it from Python.
    folder = tmp_path / "storage" / "kernels"
    folder_of_kernels = Path(linking.__file__).parent
    shutil.copytree(folder_of_kernels, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "storage" / "__init__.py").touch()
    shutil.copy(folder_of_kernels.parents[1] / "vernier.py", tmp_path)
    (folder / "pair.py").write_text(
        "import numpy as np\nfrom numba import njit\n\n\n"
        "@njit(cache=True)\ndef inner(n):\n    return np.zeros(n, np.int64)\n\n\n"
        "@njit(cache=True)\ndef outer(n):\n    return inner(n + 1)\n"
    )
    called = "print(len(outer(3)), len(inner(5)), inner.stats.cache_hits.total())"
    script = f"from vernier.storage.kernels.pair import *; {called}"
    for hits in (0, 1):
        environment = {**os.environ, "KERNEL_LIST": ""}
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.stdout == f"4 5 {hits}\n", done.stderr


def test_the_list_reads_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_only = np.zeros(3, np.uint8)
    read_only.flags.writeable = False
    matrix = np.zeros((2, 3))
    arguments = (1, True, 2.0, matrix, matrix.T, matrix[:, ::2], read_only, (np.arange(3), matrix), (np.arange(3),))

    def takes(*arguments):  # type: ignore[no-untyped-def]
        return len(arguments)

    function = ours(takes, cache=True)
    function.py_func.__qualname__ = "takes"
    monkeypatch.setattr(listing, "LIST", tmp_path / "signatures.txt")
    monkeypatch.setenv("KERNEL_LIST", "strict")
    listing._lines.cache_clear()
    kinds = tuple(function.typeof_pyval(argument) for argument in arguments)
    try:
        with pytest.raises(AssertionError, match=r"linking\.takes\(int64, boolean, float64, .* KERNEL_LIST=add"):
            listing.check(function, kinds)
        monkeypatch.setenv("KERNEL_LIST", "add")
        listing.check(function, kinds)
        monkeypatch.setenv("KERNEL_LIST", "strict")
        listing.check(function, kinds)
        (line,) = listing.kernels()
        assert line.name == f"{linking.__name__}.takes"
        assert line.signature() == kinds
    finally:
        monkeypatch.undo()
        listing._lines.cache_clear()


def test_the_list_names_kernels_that_are_there_once_each() -> None:
    kernels = list(listing.kernels())
    assert len(kernels) > 50
    for kernel in kernels:
        found = kernel.dispatcher()
        assert found.py_func.__module__ == kernel.module
        assert len(kernel.signature()) == found.py_func.__code__.co_argcount
    assert listing.LIST.read_text().splitlines() == sorted(set(listing.LIST.read_text().splitlines()))


def test_a_kernel_from_the_cache_is_linked_into_one_that_is_compiled(tmp_path: Path) -> None:
    # Its intermediate code is parsed then, not when it is loaded.
    (tmp_path / "pair.py").write_text(
        "from numba import njit\n\nimport vernier.storage.kernels\n\n\n"
        "@njit(cache=True)\ndef inner(x):\n    return x + 1\n\n\n"
        "@njit\ndef outer(x):\n    return inner(x) * 2\n"
    )
    script = (
        "import pair; print(pair.inner(3), next(iter(pair.inner.overloads.values())).library._unparsed is None,"
        " pair.outer(3), next(iter(pair.inner.overloads.values())).library._unparsed is None)"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(linking.__file__).parents[2]}"}
    for compiled in (True, False):
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
        assert done.stdout == f"4 {compiled} 8 True\n", done.stderr
