"""Messages between a process and one that it forks: small words through a socket, arrays through memory that both map.

*The way of a message.* The sender pickles it without its arrays, copies those into its half of the memory, and sends
the pickle and the sizes through the socket. The receiver copies them out before it returns, so what it gets is its own.
*The invariant.* Each half has one writer, and holds the arrays of one message. So a side that has sent arrays must not
send others before it has received an answer. Questions and answers, as a parent's and its worker's, keep that by
themselves.
*The cost.* Two copies of memory. Through the socket, arrays would be copied four times and in pieces of some hundred
kilobytes, for each of which one process must wake the other. Arrays of more than ROOM bytes in all go that way.
*A failure in the middle.* A process that has ended closes its socket; what is in the memory goes with the last of both.
"""

from __future__ import annotations

import mmap
import pickle
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext
from typing import Any

ROOM = 16 << 20
"""Bytes for the arrays of one message. Pages that no message has reached take no memory."""


class Channel:
    """One end of a channel. Create a pair before the fork."""

    def __init__(self, socket: Connection, ours: mmap.mmap, theirs: mmap.mmap) -> None:
        self._socket = socket
        self._ours, self._theirs = ours, theirs

    @classmethod
    def pair(cls, context: ForkContext) -> tuple[Channel, Channel]:
        """Both ends."""
        one, other = context.Pipe()
        here, there = mmap.mmap(-1, ROOM), mmap.mmap(-1, ROOM)
        return cls(one, here, there), cls(other, there, here)

    def fileno(self) -> int:
        """The socket's descriptor; it is readable when a message has come or the other side has ended."""
        return self._socket.fileno()

    def send(self, message: Any) -> None:
        """Send a message. Raises OSError if the other side has ended."""
        parts: list[pickle.PickleBuffer] = []
        head = pickle.dumps(message, 5, buffer_callback=parts.append)
        arrays = [part.raw() for part in parts]
        sizes = [array.nbytes for array in arrays]
        if sum(sizes) > ROOM:
            self._socket.send((message, None))
            return
        at = 0
        for array, size in zip(arrays, sizes, strict=True):
            self._ours[at : at + size] = array
            at += size
        self._socket.send((head, sizes))

    def receive(self) -> Any:
        """Wait for a message. Raises EOFError or OSError if the other side has ended."""
        head, sizes = self._socket.recv()
        if sizes is None:
            return head
        at, arrays = 0, []
        for size in sizes:
            arrays.append(bytearray(memoryview(self._theirs)[at : at + size]))
            at += size
        return pickle.loads(head, buffers=arrays)

    def close(self) -> None:
        """Close this end's socket. The memory goes when nothing refers to it."""
        self._socket.close()
