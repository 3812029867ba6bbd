"""Ring: how messages get from one process to another of the same host without its network.

Memory without a name, which the writer makes and the reader opens through the writer's entry in /proc: whoever may do
that is the same user on the same host, and nothing is left behind however the two end. Until the reader has opened it,
and where it cannot, messages go as they go between hosts (service/cluster/exchange/transport.py). A message through a
socket of the loopback takes four switches between threads; through memory that the reader is looking at it takes none.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct

import numpy as np

from vernier.service.kernels.rings import (
    CORE,
    NONCE,
    OVER,
    READY,
    await_any,
    fall_asleep,
    pull,
    push,
    this_core,
    watch_any,
)
from vernier.storage.updates import Ints

WORDS = 1 << 16
"""Of a ring, half a megabyte: more than a round of a loop sends as a rule, and of no weight beside a worker."""
_BYTES = 8 * WORDS
_NONCE = slice(NONCE, NONCE + 2)
_OFFER = struct.Struct("<qq16s")
"""pid, descriptor, nonce"""
OFFER_BYTES = _OFFER.size


class Ring:
    """One direction between two processes: a writer, a reader. address: where it is mapped."""

    def __init__(self, descriptor: int, writer: int) -> None:
        self._descriptor, self._writer = descriptor, writer
        self._words: Ints = np.frombuffer(mmap.mmap(descriptor, _BYTES), np.int64)
        self.address = self._words.ctypes.data

    @staticmethod
    def make() -> Ring | None:
        """The writer's end; None where the system has no such memory."""
        if not hasattr(os, "memfd_create"):
            return None
        try:
            descriptor = os.memfd_create("vernier-ring")
            os.ftruncate(descriptor, _BYTES)
            made = Ring(descriptor, os.getpid())
        except OSError:
            return None
        made._words[_NONCE] = np.frombuffer(secrets.token_bytes(16), np.int64)
        return made

    @property
    def offer(self) -> bytes:
        """What the reader needs to open it."""
        return _OFFER.pack(self._writer, self._descriptor, self._words[_NONCE].tobytes())

    @staticmethod
    def accept(offer: bytes) -> Ring | None:
        """The reader's end of what was offered; None when that is not to be had from here."""
        try:
            pid, descriptor, nonce = _OFFER.unpack(offer)
            opened = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, struct.error):
            return None
        try:
            if os.fstat(opened).st_size != _BYTES or os.fstat(opened).st_uid != os.geteuid():
                return None
            found = Ring(opened, pid)
        except OSError:
            return None
        finally:
            os.close(opened)
        if found._words[_NONCE].tobytes() != nonce:
            return None
        found._descriptor = -1
        found._words[READY] = 1
        return found

    @property
    def ready(self) -> bool:
        """Whether the reader has it; the writer then needs its descriptor no more."""
        if self._words[READY] == 0:
            return False
        self._give_back()
        return True

    @property
    def over(self) -> bool:
        """Whether nothing will be written any more."""
        return bool(self._words[OVER]) or not os.path.exists(f"/proc/{self._writer}")

    @property
    def core(self) -> int:
        """Where the writer ran when it wrote last."""
        return int(self._words[CORE])

    def write(self, header: Ints, words: Ints) -> int:
        """FULL, WRITTEN or WAKE (service/kernels/rings.py)."""
        return int(push(self._words, header, words))

    def read(self, header: Ints) -> Ints:
        """The next message, which must be there; its header goes into `header`."""
        words: Ints = pull(self._words, header)
        return words

    def close(self) -> None:
        """Write no more; the memory goes with the last process that has it mapped."""
        self._words[OVER] = 1
        self._give_back()

    def _give_back(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def warm_rings() -> None:
    """Compile or load the kernels of rings."""
    ring = Ring.make()
    if ring is None:
        return
    header, words = np.zeros(1, np.int64), np.zeros(1, np.int64)
    ring.write(header, words)
    address = np.array([ring.address], np.int64)
    fall_asleep(address, await_any(address, 0))
    ring.read(header)
    watch_any(address, this_core() & 1)
    ring.close()
