"""The list of kernels that Python calls, with their argument types: signatures.txt.

Set-up compiles the kernels on the list, and a serving process loads them before its first epoch, so that no kernel is
compiled during an epoch. Under KERNEL_LIST=strict, as in tests/cli/test_warm.py, calling a kernel with types that are
not on the list raises; under KERNEL_LIST=product, as in all other tests, it raises if code of this package makes the
call, so that tests may call kernels directly; under KERNEL_LIST=add it adds a line.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from vernier.storage.kernels.separate import Separate, dispatcher_of

LIST = Path(__file__).with_name("signatures.txt")


class Listed(NamedTuple):
    """A kernel and the argument types that Python calls it with."""

    module: str
    function: str
    types: str

    @property
    def name(self) -> str:
        """The kernel's full name."""
        return f"{self.module}.{self.function}"

    def function_object(self) -> Any:
        """What the kernel's module contains under its name."""
        return getattr(importlib.import_module(self.module), self.function)

    def is_separate(self) -> bool:
        """Whether kernels that call it do not contain it."""
        return isinstance(self.function_object(), Separate)

    def dispatcher(self) -> Any:
        """numba's dispatcher of the kernel."""
        return dispatcher_of(self.function_object())

    def signature(self) -> Any:
        """The types, in numba's form."""
        from numba.core import sigutils

        args, _ = sigutils.normalize_signature(f"void({self.types})")  # type: ignore[no-untyped-call,unused-ignore]
        return args

    def is_compiled(self) -> bool:
        """Whether numba's cache has it for this processor and these sources. Loads nothing."""
        kept = self.dispatcher()._cache
        codegen = self.dispatcher().targetctx.codegen()
        name = kept._cache_file._load_index().get(kept._index_key(self.signature(), codegen))
        return name is not None and os.path.exists(os.path.join(kept.cache_path, name))

    def load(self) -> None:
        """Load it from numba's cache, or compile it."""
        self.dispatcher().compile(self.signature())


@cache
def _lines() -> frozenset[str]:
    return frozenset(LIST.read_text(encoding="utf-8").splitlines()) if LIST.exists() else frozenset()


def kernels() -> Iterator[Listed]:
    """The kernels on the list; none under NUMBA_DISABLE_JIT, which compiles nothing."""
    import numba

    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined,unused-ignore]
        return
    for line in sorted(_lines()):
        name, kinds = line[:-1].split("(", 1)
        module, function = name.rsplit(".", 1)
        yield Listed(module, function, kinds)


def check(dispatcher: Any, args: Sequence[Any]) -> None:
    """Check a call from Python against the list, if KERNEL_LIST demands it."""
    wish = os.environ.get("KERNEL_LIST")
    if wish not in ("strict", "product", "add"):
        return
    function = dispatcher.py_func
    line = f"{function.__module__}.{function.__qualname__}({', '.join(map(_text, args))})"
    if line in _lines():
        return
    if wish == "product" and not _called_by_product():
        return
    if wish != "add":
        raise AssertionError(
            f"{line} is not in {LIST.name}, so a worker would compile it in the middle of an epoch; "
            "call it with types that are there, or add it: run the test again with KERNEL_LIST=add"
        )
    with LIST.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    _lines.cache_clear()


def _called_by_product() -> bool:
    """Whether a module of this package makes the call that is being compiled; the compiler's own frames are skipped."""
    frame = sys._getframe(2)
    compiler = ("numba", "llvmlite", "contextlib", __package__ + ".linking", __package__ + ".separate")
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(compiler):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")).startswith("vernier.")


def _text(kind: Any) -> str:
    """A type in the form that numba parses in a signature's text."""
    import numba

    types: Any = numba.types
    if isinstance(kind, types.BaseTuple):
        return f"Tuple(({', '.join(_text(part) for part in kind)},))"
    if isinstance(kind, types.Array):
        if not kind.mutable or not kind.aligned:
            return f"Array({kind.dtype}, {kind.ndim}, '{kind.layout}', {not kind.mutable}, aligned={kind.aligned})"
        dims = [":"] * kind.ndim
        if kind.layout == "C":
            dims[-1] = "::1"
        elif kind.layout == "F":
            dims[0] = "::1"
        return f"{_text(kind.dtype)}[{', '.join(dims)}]"
    return "boolean" if kind == types.boolean else str(kind)
