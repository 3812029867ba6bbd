"""Messages in memory that two processes share: a ring of words that one writes and the other reads.

Words HEAD and TAIL count all that has ever been written and read; each has one writer, and stands in a cache line of
its own. A message is its size, the words of its header and its words.
"""

import numpy as np
from numba import njit

from vernier.service.kernels.fences import acquire, core, fence, give_way, release

READY, OVER, NONCE, HEAD, CORE, TAIL, ASLEEP, DATA = 0, 1, 2, 8, 9, 16, 24, 32
"""Where the words stand: whether the reader has mapped the ring, whether the writer writes no more, two that nobody
else knows, counts (that of the writer with where it ran when it wrote last), whether the reader waits elsewhere; where
the messages' room begins."""
FULL, WRITTEN, WAKE = 0, 1, 2
"""What came of writing: nothing, there is no room; it is there; it is there, and the reader must be woken."""


@njit(cache=True, nogil=True)
def push(ring, header, words):  # type: ignore[no-untyped-def]
    """Write a message: header int64[h], words int64[n]. Returns FULL, WRITTEN or WAKE. O(n)."""
    base = ring.ctypes.data
    room = ring.shape[0] - DATA
    head, tail = ring[HEAD], acquire(base + 8 * TAIL)
    h, n = header.shape[0], words.shape[0]
    if head - tail + 1 + h + n > room:
        return FULL
    at = head % room
    ring[DATA + at] = n
    for i in range(h):
        at = at + 1 if at + 1 < room else 0
        ring[DATA + at] = header[i]
    at = at + 1 if at + 1 < room else 0
    first = min(n, room - at)
    for i in range(first):
        ring[DATA + at + i] = words[i]
    for i in range(n - first):
        ring[DATA + i] = words[first + i]
    ring[CORE] = core()
    release(base + 8 * HEAD, head + 1 + h + n)
    fence()
    return WAKE if acquire(base + 8 * ASLEEP) != 0 else WRITTEN


@njit(cache=True, nogil=True)
def pull(ring, header):  # type: ignore[no-untyped-def]
    """Read a message that is there: fills header int64[h], returns its words int64[n]. O(n)."""
    base = ring.ctypes.data
    room = ring.shape[0] - DATA
    tail = ring[TAIL]
    at = tail % room
    h, n = header.shape[0], ring[DATA + at]
    for i in range(h):
        at = at + 1 if at + 1 < room else 0
        header[i] = ring[DATA + at]
    at = at + 1 if at + 1 < room else 0
    words = np.empty(n, np.int64)
    first = min(n, room - at)
    for i in range(first):
        words[i] = ring[DATA + at + i]
    for i in range(n - first):
        words[first + i] = ring[DATA + i]
    release(base + 8 * TAIL, tail + 1 + h + n)
    return words


@njit(cache=True, nogil=True)
def watch_any(addresses: np.ndarray, looks: int) -> int:
    """The first of the rings at these addresses that has a message, or -1 after so many looks, a nanosecond or two
    each. Nobody else has the core meanwhile."""
    for _ in range(looks):
        for i in range(addresses.shape[0]):
            base = addresses[i]
            if acquire(base + 8 * HEAD) != acquire(base + 8 * TAIL):
                return i
    return -1


@njit(cache=True, nogil=True)
def await_any(addresses: np.ndarray, turns: int) -> int:
    """The first of the rings at these addresses that has a message, or -1 after so many turns without one. Between
    turns whoever else wants the core has it."""
    for turn in range(turns + 1):
        for i in range(addresses.shape[0]):
            base = addresses[i]
            if acquire(base + 8 * HEAD) != acquire(base + 8 * TAIL):
                return i
        if turn < turns:
            give_way()
    return -1


@njit(cache=True, nogil=True)
def this_core() -> int:
    """Where the caller runs; -1 where the system does not tell."""
    return core()


@njit(cache=True, nogil=True)
def fall_asleep(addresses: np.ndarray, asleep: int) -> None:
    """Tell the writers of the rings that they must wake the reader (1), or need not (0). Look once more behind it."""
    for i in range(addresses.shape[0]):
        release(addresses[i] + 8 * ASLEEP, asleep)
    fence()
