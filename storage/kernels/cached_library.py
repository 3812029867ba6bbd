"""Loads compiled kernels from the cache without parsing their intermediate code.

numba stores a kernel's machine code together with the intermediate code that callers link. At each load it parses that
code, only to list the symbols that it defines: that took two thirds of the time in which a process gets its kernels.
Here the list is stored as well, and the code is parsed when a kernel that calls this one is compiled. What was stored
before, without the list, is loaded as numba does it.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numba

from vernier.storage.kernels.linking import LateLibrary, cpu_target, load_callees


class LoadedLibrary(LateLibrary):
    """The code of one function, compiled in this process or loaded from the cache."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._unparsed: bytes | None = None

    def serialize_using_object_code(self) -> Any:
        """What the cache stores: machine code, intermediate code, and the symbols that it defines."""
        name, kind, (machine, linkable) = super().serialize_using_object_code()  # type: ignore[no-untyped-call,unused-ignore]
        module = self._get_module_for_linking()
        values = (*module.functions, *module.global_variables)
        return name, kind, (machine, linkable, frozenset(value.name for value in values if not value.is_declaration))

    @classmethod
    def _unserialize(cls, codegen: Any, state: Any) -> Any:
        load_callees()
        name, kind, data = state
        if kind != "object" or len(data) == 2:
            return super()._unserialize(codegen, state)  # type: ignore[no-untyped-call,unused-ignore]
        library = codegen.create_library(name)
        machine, library._unparsed, symbols = data
        library.enable_object_caching()
        library._set_compiled_object(machine)
        library._finalize_final_module()
        codegen._engine._defined_symbols |= symbols
        return library

    def _get_module_for_linking(self) -> Any:
        if self._unparsed is not None:
            self._shared_module = llvmlite.binding.parse_bitcode(self._unparsed)  # type: ignore[no-untyped-call,unused-ignore]
            self._unparsed = None
        return super()._get_module_for_linking()  # type: ignore[no-untyped-call,unused-ignore]


if not numba.config.DISABLE_JIT:  # type: ignore[attr-defined,unused-ignore]
    cpu_target.target_context.codegen()._library_class = LoadedLibrary
