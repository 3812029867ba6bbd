"""Words that two processes share: one writes, the other reads, and what was written before is there, too.

Plain loads and stores may be put in another order by the compiler and, on some machines, by the processor.
"""

import ctypes
import os
import sys
from typing import Any

from llvmlite import ir
from numba import config, njit, types
from numba.extending import intrinsic

if config.DISABLE_JIT:  # type: ignore[attr-defined,unused-ignore]

    def acquire(address: int) -> int:
        """The word at `address` (interpreted twin, for runs with NUMBA_DISABLE_JIT=1; in order on x86 alone)."""
        return ctypes.c_int64.from_address(int(address)).value

    def release(address: int, value: int) -> None:
        """Set the word at `address`."""
        ctypes.c_int64.from_address(int(address)).value = int(value)

    def fence() -> None:
        """Nothing: the interpreter takes locks all the time."""

    def give_way() -> None:
        """Let another thread have the core."""
        os.sched_yield()

    def core() -> int:
        """Where the thread runs; -1 where the system does not tell."""
        return int(ctypes.CDLL(None).sched_getcpu()) if sys.platform == "linux" else -1

else:
    _WORD = ir.IntType(64)

    @intrinsic
    def acquire(typingctx: Any, address: Any) -> Any:
        """The word at `address`: int64(address). Reads behind it see all that was written before that word was."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load_atomic(builder.inttoptr(args[0], ir.PointerType(_WORD)), "acquire", 8)

        return types.int64(types.int64), generate

    @intrinsic
    def release(typingctx: Any, address: Any, value: Any) -> Any:
        """Set the word at `address`: whoever acquires it there also sees what was written before."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store_atomic(args[1], builder.inttoptr(args[0], ir.PointerType(_WORD)), "release", 8)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    @intrinsic
    def fence(typingctx: Any) -> Any:
        """Writes before it are visible to all before reads behind it are made."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.fence("seq_cst")
            return context.get_dummy_value()

        return types.void(), generate

    give_way = types.ExternalFunction("sched_yield", types.int32())
    if sys.platform == "linux":
        core = types.ExternalFunction("sched_getcpu", types.int32())
    else:

        @njit(inline="always")
        def core() -> int:
            """Where the thread runs is not told here."""
            return -1
