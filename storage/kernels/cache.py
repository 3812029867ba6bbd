"""Makes numba's cache of compiled kernels notice every relevant edit.

numba checks only a kernel's own file for edits, but the code and constants of the kernels it imports are compiled into
it. Here the stamp of a kernel's file also covers the kernel files that it imports, directly or indirectly. An edit
therefore recompiles the affected kernels, and no others, in the first process that needs them; the cache never has to
be cleared by hand. Under NUMBA_BOUNDSCHECK=1, which numba's own cache ignores, kernels have separate cache files.

Kernels compiled by several processes may be loaded into one. There numba would confuse functions of one name: it
numbers the versions of a closure from 1 in each process. Here the numbers begin at a random one.

Importing this module is enough. The kernel packages import it before they compile a kernel.
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
"""The files that affect how every kernel is compiled."""
_IMPORT = re.compile(rb"^(?:from|import) +vernier\.((?:storage|operators|service)\.kernels\.\w+)", re.MULTILINE)
_FROM = re.compile(
    rb"^from +vernier\.((?:storage|operators|service)\.kernels) +import +(\([^)]*\)|[^\n]*)", re.MULTILINE
)
"""Imports of files as such, several in one statement."""
_NAME = re.compile(rb"(\w+)(?: +as +\w+)?")


def kernel_sources(file: Path) -> list[Path]:
    """`file` and the kernel files that it imports, directly or indirectly; sorted."""
    found, left = set(), [file]
    while left:
        path = left.pop()
        if path not in found and path.is_file():
            found.add(path)
            text = path.read_bytes()
            names = _IMPORT.findall(text)
            names += [package + b"." + name for package, some in _FROM.findall(text) for name in _NAME.findall(some)]
            left += [_ROOT.joinpath(*name.decode().split(".")).with_suffix(".py") for name in names]
    return sorted(found)


@cache
def _stamp(file: str) -> bytes:
    digest = hashlib.sha256()
    for path in (*_COMPILING, *kernel_sources(Path(file))):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.digest()


def _whole_environment(modname: str, consts: list[Any], env_name: str) -> Any:
    """A function's constants for Python, as unpickled. numba reuses constants that exist under the function's name
    already. If a caller that was compiled before the function's wrapper has loaded them, they lack what the wrapper
    needs; then they are replaced."""
    found = _rebuild_env(modname, consts, env_name)
    if len(found.consts) < len(consts):
        found.consts[:] = consts
    return found


_environment: Any = environment
_rebuild_env = _environment._rebuild_env
_environment._rebuild_env = _whole_environment


class _Stamped:
    """Adds our stamp to one of numba's cache locators."""

    _py_file: str
    _lineno: int

    def get_source_stamp(self) -> Any:
        """The stamp that must be equal for a compiled kernel to be reused."""
        return _stamp(self._py_file)

    def get_disambiguator(self) -> str:
        """Distinguishes, in cache file names, functions of the same name and the ways to compile one function."""
        return f"{self._lineno}-checked" if _config.BOUNDSCHECK else str(self._lineno)


class Given(_Stamped, caching.UserProvidedCacheLocator):
    """In NUMBA_CACHE_DIR, if it is set."""


class InTree(_Stamped, caching.InTreeCacheLocator):
    """Beside the source, if that folder is writable."""


class UserWide(_Stamped, caching.UserWideCacheLocator):
    """In the user's cache folder."""


_config.CACHE_LOCATOR_CLASSES = ",".join(f"{__name__}.{place.__name__}" for place in (Given, InTree, UserWide))
