"""pandas is loaded when something asks for it, and not by pyarrow's first array.

The first call of `pyarrow.array` imports pandas if it is installed, to recognize its series: 45 MB of memory and half a
second of each process. None of ours gives pyarrow a series, but functions of a program may.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pyarrow as pa

_PANDAS = "pandas"


def defer_pandas() -> None:
    """Let pyarrow work without pandas until something else imports it; from then on pyarrow knows its series, too.

    Call it before the first use of pyarrow. Does nothing if pandas is loaded already, or not installed.
    """
    if _PANDAS in sys.modules:
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    finder.hidden = True
    pa.array([0])
    finder.hidden = False


class _Finder(MetaPathFinder):
    """Hides pandas, or finds it and tells pyarrow once it is loaded."""

    hidden = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See importlib."""
        if fullname != _PANDAS:
            return None
        if self.hidden:
            raise ModuleNotFoundError("pandas is not loaded yet", name=_PANDAS)
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(_PANDAS)
        if spec is not None and spec.loader is not None:
            spec.loader = _Telling(spec.loader)
        return spec


class _Telling(Loader):
    """Loads pandas, and then lets pyarrow look for it again."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """See importlib."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """See importlib."""
        self._loader.exec_module(module)
        _ = pa.lib._pandas_api.pd
