"""Keeps numba's cache of compiled kernels honest.

numba looks for edits in the file of a kernel alone, but a kernel has the code and the constants of the kernels it
imports compiled into it. Here the stamp of a kernel's file covers the kernel files it imports, directly or not, so an
edit compiles again what it concerns, and nothing else, in whatever process comes first; nobody has to clear anything.
Under NUMBA_BOUNDSCHECK=1, which numba's own cache overlooks, kernels have files of their own.

Kernels that several processes have compiled are loaded into one. There numba would take functions of one name for one
another: versions of a closure have numbers, which count from 1 in each process. Here they begin at a random one.

Importing this module is all it takes. The packages of kernels do so before a kernel is compiled.
"""

import hashlib
import itertools
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import bytecode, caching, environment

_config: Any = numba.config
bytecode.FunctionIdentity._unique_ids = itertools.count(int.from_bytes(os.urandom(5), "big"))
_ROOT = Path(__file__).resolve().parents[2]
_COMPILING = tuple(Path(__file__).with_name(name) for name in ("names.py", "linking.py"))
"""How all kernels are compiled."""
_IMPORT = re.compile(rb"^(?:from|import) +vernier\.((?:storage|operators|service)\.kernels\.\w+)", re.MULTILINE)


def kernel_sources(file: Path) -> list[Path]:
    """The kernel files that `file` imports, directly or not, and itself; sorted."""
    found, left = set(), [file]
    while left:
        path = left.pop()
        if path not in found and path.is_file():
            found.add(path)
            names = _IMPORT.findall(path.read_bytes())
            left += [_ROOT.joinpath(*name.decode().split(".")).with_suffix(".py") for name in names]
    return sorted(found)


@cache
def _stamp(file: str) -> bytes:
    digest = hashlib.sha256()
    for path in (*_COMPILING, *kernel_sources(Path(file))):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.digest()


def _whole_environment(modname: str, consts: list[Any], env_name: str) -> Any:
    """A function's constants for Python, as unpickled. numba takes those that are there under its name, and these lack
    what the function's wrapper needs, if a caller that was compiled before the wrapper brought them along."""
    found = _rebuild_env(modname, consts, env_name)
    if len(found.consts) < len(consts):
        found.consts[:] = consts
    return found


_environment: Any = environment
_rebuild_env = _environment._rebuild_env
_environment._rebuild_env = _whole_environment


class _Stamped:
    """A place of compiled kernels, as numba has them, with our stamp."""

    _py_file: str
    _lineno: int

    def get_source_stamp(self) -> Any:
        """What must be the same for a compiled kernel to be used."""
        return _stamp(self._py_file)

    def get_disambiguator(self) -> str:
        """What tells functions of one name, and ways to compile one function, apart in the names of files."""
        return f"{self._lineno}-checked" if _config.BOUNDSCHECK else str(self._lineno)


class Given(_Stamped, caching.UserProvidedCacheLocator):
    """In NUMBA_CACHE_DIR, if that is set."""


class InTree(_Stamped, caching.InTreeCacheLocator):
    """Beside the source, if one may write there."""


class UserWide(_Stamped, caching.UserWideCacheLocator):
    """In the user's own folder of caches."""


_config.CACHE_LOCATOR_CLASSES = ",".join(f"{__name__}.{place.__name__}" for place in (Given, InTree, UserWide))
