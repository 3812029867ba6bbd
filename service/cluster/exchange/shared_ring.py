"""Shared ring: how messages get from one process to another on the same host without the network.

The ring is anonymous memory that the writer makes and the reader opens through the writer's entry in /proc. Only the
same user on the same host can do that, and nothing is left behind, however the two processes end. Until the reader has
opened it, and where it cannot, messages travel as between hosts (service/cluster/exchange/transport.py). A message
through a loopback socket costs four thread switches; a message through memory that the reader is polling costs none.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct

import numpy as np

from vernier.operators.runtime.lanes import WORDS as LANE_WORDS
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
"""The size of a ring in words, half a megabyte: more than one round of a loop usually sends, and little compared with
the rest of a worker."""
_BYTES = 8 * (WORDS + LANE_WORDS)
_NONCE = slice(NONCE, NONCE + 2)
_OFFER = struct.Struct("<qq16s")
"""pid, descriptor, nonce"""
OFFER_BYTES = _OFFER.size


class Ring:
    """One direction between two processes: one writer, one reader. address: where the ring is mapped; lane: where,
    behind it, a lane is, for kernels (operators/runtime/lanes.py)."""

    def __init__(self, descriptor: int, writer: int) -> None:
        self._descriptor, self._writer = descriptor, writer
        self._words: Ints = np.frombuffer(mmap.mmap(descriptor, _BYTES), np.int64)[:WORDS]
        self.address = self._words.ctypes.data
        self.lane = self.address + 8 * WORDS

    @staticmethod
    def make() -> Ring | None:
        """The writer's end; None if the system has no such memory."""
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
        """What the reader needs to open the ring."""
        return _OFFER.pack(self._writer, self._descriptor, self._words[_NONCE].tobytes())

    @staticmethod
    def accept(offer: bytes) -> Ring | None:
        """The reader's end of an offered ring; None if it cannot be opened from here."""
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
        """Whether the reader has opened it; then the writer no longer needs its descriptor."""
        if self._words[READY] == 0:
            return False
        self._close()
        return True

    @property
    def over(self) -> bool:
        """Whether the writer will write nothing more."""
        return bool(self._words[OVER]) or not os.path.exists(f"/proc/{self._writer}")

    @property
    def core(self) -> int:
        """The core on which the writer ran at its last write."""
        return int(self._words[CORE])

    def write(self, header: Ints, words: Ints) -> int:
        """Write a message; returns FULL, WRITTEN or WAKE (service/kernels/rings.py)."""
        return int(push(self._words, header, words))

    def read(self, header: Ints) -> Ints:
        """The next message, which must be there; its header is copied into `header`."""
        words: Ints = pull(self._words, header)
        return words

    def close(self) -> None:
        """Stop writing. The system frees the memory when the last process has unmapped it."""
        self._words[OVER] = 1
        self._close()

    def _close(self) -> None:
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
