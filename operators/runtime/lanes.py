"""Lanes: memory through which workers of one host exchange rows while a kernel runs a slice.

operators/kernels/lanes.py has the protocol. Threads of one process have their lanes in an array; processes have them in
memory that both map (service/cluster/exchange/shared_ring.py).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence

import numpy as np

from vernier.operators.kernels import lanes as kernel
from vernier.operators.kernels import runs
from vernier.operators.runtime.callback import Callback
from vernier.storage.updates import Ints

WORDS = 1 << 15
"""The size of a lane in words, a quarter of a megabyte. Larger messages travel in pieces."""
_LOOKS = 1 << 12
"""How often a worker looks for news before it yields its core, some 30 microseconds."""
_FUTEX = {"x86_64": 202, "aarch64": 98}
"""The number of the system call, by processor."""


def _system_call() -> tuple[int, int]:
    """The address of the C library's `syscall`, and the number of futex; (0, 0) where there is none."""
    number = _FUTEX.get(os.uname().machine, 0) if sys.platform == "linux" else 0
    address = ctypes.cast(ctypes.CDLL(None).syscall, ctypes.c_void_p).value if number else 0
    return address or 0, number


class Lanes:
    """One worker's lanes to and from the others, in one attempt at an epoch.

    mark: two words that no other attempt over the same memory has. check: called now and then while a kernel waits,
    with True if another worker shares this one's core; it raises to end the attempt. looks: whether there are cores for
    all workers. agreed: whether all workers are connected, and all know it. began: when the running slice began, in
    seconds. bytes_sent: to other workers; waited: seconds of waiting for others.
    """

    def __init__(
        self, workers: int, index: int, mark: Sequence[int], check: Callable[[bool], None], looks: bool
    ) -> None:
        self.agreed = False
        self.began = self.waited = 0.0
        self.bytes_sent = 0
        self._check = check
        self._mark = np.array(mark, np.int64)
        self._streams = np.zeros((workers, kernel.STREAM_WORDS), np.int64)
        self._streams[:, kernel.SIZE] = WORDS - kernel.ROOM
        self._callback = Callback(self._called, 1)
        call, futex = _system_call()
        self._words = {
            runs.WORKERS: workers,
            runs.INDEX: index,
            runs.LANES: self._mark.ctypes.data,
            runs.STREAMS: self._streams.ctypes.data,
            runs.CHECK: self._callback.address,
            runs.CHECK_SAID: self._callback.said,
            runs.SYSCALL: call,
            runs.FUTEX: futex,
            runs.LOOKS: _LOOKS if looks else 0,
        }
        self._index = index

    def connect(self, outs: Sequence[int], ins: Sequence[int]) -> None:
        """The addresses of the lanes to each worker and from it, WORDS words each; any for this worker itself."""
        self._streams[:, kernel.OUT], self._streams[:, kernel.IN] = outs, ins

    def describe(self, run: Ints) -> None:
        """Write into a run where the lanes are."""
        run[list(self._words)] = list(self._words.values())

    def statuses(self, own: int) -> set[int]:
        """With which statuses the workers have given up a slice; `own`: this one's. The same on all workers."""
        return {own, *np.delete(self._streams[:, kernel.STATUS], self._index).tolist()}

    def count(self, words: int, nanoseconds: int) -> None:
        """Count what a slice has sent, and how long its exchanges took."""
        self.bytes_sent += 8 * words
        self.waited += nanoseconds / 1e9

    def fail(self) -> None:
        """Raise the error that has ended the attempt, if there is one."""
        self._callback.fail()

    def _called(self, shares: int) -> int:
        self._check(shares != 0)
        return kernel.GOES_ON
