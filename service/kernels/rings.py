"""Messages in memory that two processes share: a ring of words with one writer and one reader.

The words HEAD and TAIL count everything that has ever been written and read. Each has a single writer and its own cache
line. A message is its size, the words of its header and its words.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.fences import acquire, core, fence, give_way, release

READY, OVER, NONCE, HEAD, CORE, TAIL, ASLEEP, DATA = 0, 1, 2, 8, 9, 16, 24, 32
"""The positions of the control words: whether the reader has mapped the ring; whether the writer has finished; two
secret words that identify the ring; the two counts (next to the writer's, the core on which it ran at its last write);
whether the reader sleeps; and where the space for messages begins."""
FULL, WRITTEN, WAKE = 0, 1, 2
"""The results of writing: no space, nothing was written; written; written, and the reader must be woken."""


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
    """Read the next message, which must be there: fills header int64[h], returns its words int64[n]. O(n)."""
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
    """The first of the rings at these addresses that has a message, or -1 after this many polls, a nanosecond or two
    each. Keeps the core meanwhile."""
    for _ in range(looks):
        for i in range(addresses.shape[0]):
            base = addresses[i]
            if acquire(base + 8 * HEAD) != acquire(base + 8 * TAIL):
                return i
    return -1


@njit(cache=True, nogil=True)
def await_any(addresses: np.ndarray, turns: int) -> int:
    """The first of the rings at these addresses that has a message, or -1 after this many polls. Between polls it
    yields the core to other threads."""
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
    """The core on which the caller runs; -1 if the system does not report it."""
    return core()


@njit(cache=True, nogil=True)
def fall_asleep(addresses: np.ndarray, asleep: int) -> None:
    """Tell the writers of the rings that they must wake the reader (1) or need not (0). Poll once more after calling
    this."""
    for i in range(addresses.shape[0]):
        release(addresses[i] + 8 * ASLEEP, asleep)
    fence()
