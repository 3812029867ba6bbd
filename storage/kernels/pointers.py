"""Read int64 words behind an address, so that one kernel call can walk any number of layers.

A numba function is compiled for the types of its arguments; a list of layers of unknown length is none. A table of
addresses is: its rows say where each layer's arrays begin. The caller keeps the arrays alive while the kernel runs.
"""

import ctypes
from typing import Any

from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

if config.DISABLE_JIT:  # type: ignore[attr-defined,unused-ignore]

    def load(address: int, index: int) -> int:
        """Word `index` behind `address` (interpreted twin, for runs with NUMBA_DISABLE_JIT=1)."""
        return ctypes.c_int64.from_address(int(address) + 8 * int(index)).value

else:

    @intrinsic
    def load(typingctx: Any, address: Any, index: Any) -> Any:
        """Word `index` behind `address`: int64(address, index). Nothing is checked here."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = ir.IntType(64)
            pointer = builder.inttoptr(args[0], ir.PointerType(word))
            return builder.load(builder.gep(pointer, [args[1]]))

        return types.int64(types.int64, types.int64), generate
