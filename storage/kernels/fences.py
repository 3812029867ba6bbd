"""Memory fences for words that two processes share: what the writer wrote before a word is visible to a reader of that
word.

With plain loads and stores this would not hold: the compiler and, on some machines, the processor may reorder them.
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
        """The word at `address` (interpreted twin, for runs with NUMBA_DISABLE_JIT=1; ordered on x86 only)."""
        return ctypes.c_int64.from_address(int(address)).value

    def release(address: int, value: int) -> None:
        """Set the word at `address`."""
        ctypes.c_int64.from_address(int(address)).value = int(value)

    def fence() -> None:
        """Does nothing: the interpreter takes locks all the time, which act as fences."""

    def give_way() -> None:
        """Yield the core to another thread."""
        os.sched_yield()

    def core() -> int:
        """The core on which the thread runs; -1 if the system does not report it."""
        return int(ctypes.CDLL(None).sched_getcpu()) if sys.platform == "linux" else -1

else:
    _WORD = ir.IntType(64)

    @intrinsic
    def acquire(typingctx: Any, address: Any) -> Any:
        """The word at `address`: int64(address). Reads after it see everything that was written before that word
        was."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load_atomic(builder.inttoptr(args[0], ir.PointerType(_WORD)), "acquire", 8)

        return types.int64(types.int64), generate

    @intrinsic
    def release(typingctx: Any, address: Any, value: Any) -> Any:
        """Set the word at `address`. A thread that acquires it also sees everything that was written before it."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store_atomic(args[1], builder.inttoptr(args[0], ir.PointerType(_WORD)), "release", 8)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    @intrinsic
    def fence(typingctx: Any) -> Any:
        """Make all earlier writes visible to all threads before any later read is done."""

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
            """The core is not reported on this system."""
            return -1
