"""Kernels that call others by name, or at their addresses, do not contain them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import config, njit

from vernier.storage.kernels import linking, separate
from vernier.storage.kernels.consolidating import consolidate
from vernier.storage.kernels.separate import NUMBER, WORDS, Callee, dispatcher_of

pytestmark = pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")  # type: ignore[attr-defined]


def ours(function: Any) -> Any:
    """The function, compiled as those in our packages of kernels are."""
    function.__module__ = linking.__name__
    return njit(function)


@pytest.fixture(autouse=True)
def _others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test defines is not known to others."""
    monkeypatch.setattr(separate, "_separate", list(separate._separate))


def code_of(kernel: Any) -> str:
    """A kernel's machine code, as text."""
    return str(kernel.overloads[kernel.signatures[0]].library.get_asm_str())


def defined(kernel: Any) -> list[str]:
    """The names that a kernel's machine code defines."""
    return [line.split()[1] for line in code_of(kernel).splitlines() if line.split()[:1] in ([".globl"], [".type"])]


def halved(words, number):  # type: ignore[no-untyped-def]
    if number % 2:
        raise ValueError("odd")
    return words + number // 2, number // 2


def test_a_kernel_that_is_being_compiled_is_complete_before_one_that_calls_it() -> None:
    def increased(number):  # type: ignore[no-untyped-def]
        return number + 1

    def doubled(number):  # type: ignore[no-untyped-def]
        return first(number) * 2

    def moved(number):  # type: ignore[no-untyped-def]
        return shared(number) + 5

    def passed(number):  # type: ignore[no-untyped-def]
        return second(number)

    def both(number):  # type: ignore[no-untyped-def]
        return calls_second(number) + shared(number)

    first = separate.separate(NUMBER, NUMBER)(ours(increased))
    shared = ours(doubled)
    second = separate.separate(NUMBER, NUMBER)(ours(moved))
    calls_second = ours(passed)
    # What `shared` calls is known when this one is compiled, and not again when `second` is.
    assert ours(both)(3) == 13 + 8


def test_it_returns_and_raises_what_the_kernel_does_and_is_not_in_the_caller() -> None:
    by_name = separate.separate((WORDS, NUMBER), WORDS, NUMBER)(ours(halved))

    def caller(words, number):  # type: ignore[no-untyped-def]
        more, half = by_name(words, number)
        return more.sum() + half

    compiled = ours(caller)
    assert compiled(np.arange(4), 8) == 6 + 4 * 4 + 4
    assert compiled(np.arange(4), np.uint8(2)) == 6 + 4 + 1
    for function in (compiled, by_name):
        with pytest.raises(ValueError, match="odd"):
            function(np.arange(4), 3)
    assert by_name(np.arange(2), 2)[0].tolist() == [1, 2]
    assert by_name.symbol in code_of(compiled)
    assert any("6halved" in name for name in defined(dispatcher_of(by_name)))
    assert not any("6halved" in name for name in defined(compiled))


def test_one_calls_those_that_were_defined_before_it() -> None:
    def one(number):  # type: ignore[no-untyped-def]
        return number + 1

    def two(number):  # type: ignore[no-untyped-def]
        return first(first(number))

    def three(number):  # type: ignore[no-untyped-def]
        return second(number) + first(number)

    first = separate.separate(NUMBER, NUMBER)(ours(one))
    second = separate.separate(NUMBER, NUMBER)(ours(two))
    assert ours(three)(5) == 7 + 6
    assert second(1) == 3


def test_types_that_are_not_the_kernels_are_refused() -> None:
    def number(words):  # type: ignore[no-untyped-def]
        return words[0] / 2

    by_name = separate.separate(NUMBER, WORDS)(ours(number))

    def caller(words):  # type: ignore[no-untyped-def]
        return by_name(words)

    with pytest.raises(TypeError, match="number returns float64, not int64"):
        ours(caller)(np.arange(3))
    with pytest.raises(TypeError, match="number returns float64, not int64"):
        Callee("int64(int64[::1])").address(ours(number))


def test_sorting_is_in_no_other_kernel() -> None:
    compiled = njit(consolidate.py_func)
    assert compiled(np.array([[2, 1], [1, 1], [2, 1]]), np.array([0]))[0].tolist() == [[1, 1], [2, 2]]
    assert "vernier.storage.kernels.consolidating.consolidate_in" in code_of(compiled)
    assert not any("sort" in name for name in defined(compiled))


def test_a_caller_from_the_cache_finds_it(tmp_path: Path) -> None:
    (tmp_path / "pair.py").write_text(
        "from numba import njit\n\nfrom vernier.storage.kernels.separate import NUMBER, separate\n\n\n"
        "@separate(NUMBER, NUMBER)\n@njit(cache=True)\ndef inner(x):\n    return x + 1\n\n\n"
        "@njit(cache=True)\ndef outer(x):\n    return inner(x) * 2\n"
    )
    script = "import pair; print(pair.outer(3), sum(pair.outer.stats.cache_hits.values()))"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(linking.__file__).parents[2]}", "KERNEL_LIST": ""}
    for hits in (0, 1):
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
        assert done.stdout == f"8 {hits}\n", done.stderr
