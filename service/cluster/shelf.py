"""Shelf: memory of the driver in which workers of its host find the messages of their next epoch.

Through a connection 2.5 MB take 2 to 3 ms a worker, and all of them wait until the last one has them. On the shelf the
messages lie before the epoch begins, and its assignment only says where. The memory is anonymous, and workers open it
through the driver's entry in /proc, as they open each other's rings (service/cluster/exchange/shared_ring.py): only
processes of the same user on the same host can, and nothing is left behind. Workers on other hosts get the messages
with the assignment.

There are two sheets, so that one can be laid while the other may still be read. Each begins with the number under which
it was laid last. A worker copies its messages and looks at the number before and after: what is read too late, by a
worker of an attempt that is over, is noticed.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
from collections.abc import Sequence

import msgspec

from vernier.service.errors import RowsGone

_NUMBER = struct.Struct("<Q")
_ALIGNMENT = 64
_NOTHING = 0
"""The number of a sheet that is being laid."""


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where something lies: in the sheet that is the descriptor of process `pid`, laid under `number`; `size` bytes
    from byte `begin` on."""

    pid: int
    descriptor: int
    number: int
    begin: int
    size: int


Rows = bytes | Place
"""A worker's messages as a stream of Arrow's, or where it lies."""


class Shelf:
    """The driver's side; not thread-safe. Raises OSError if the system has no such memory, or no more of it."""

    def __init__(self) -> None:
        self._sheets = [_Sheet(), _Sheet()]
        self._sample = _Sheet()
        (self.sample,) = self._sample.lay([b"seen"])
        """A place that a worker tries to read, to find out whether it can see the shelf."""

    def lay(self, streams: Sequence[bytes]) -> list[Rows]:
        """Lay these on the sheet that was laid less recently. Empty ones have no place. O(bytes)."""
        self._sheets.reverse()
        return [place if place.size else b"" for place in self._sheets[0].lay(streams)]

    def read(self, place: Place) -> bytes:
        """What lies at a place of the two sheets. Raises RowsGone."""
        for sheet in self._sheets:
            if sheet.descriptor == place.descriptor:
                return _copied(sheet.pages, place)
        raise RowsGone()

    def close(self) -> None:
        """Give the memory back; workers that have opened it keep it until they end."""
        for sheet in (*self._sheets, self._sample):
            sheet.close()


class _Sheet:
    def __init__(self) -> None:
        self.descriptor = os.memfd_create("vernier-shelf")
        os.ftruncate(self.descriptor, mmap.PAGESIZE)
        self.pages = mmap.mmap(self.descriptor, mmap.PAGESIZE)

    def lay(self, streams: Sequence[bytes]) -> list[Place]:
        begins, end = [], _ALIGNMENT
        for stream in streams:
            begins.append(end)
            end += len(stream) + -len(stream) % _ALIGNMENT
        _NUMBER.pack_into(self.pages, 0, _NOTHING)
        if end > len(self.pages):
            os.ftruncate(self.descriptor, end)
            self.pages = mmap.mmap(self.descriptor, end)
        for begin, stream in zip(begins, streams, strict=True):
            self.pages[begin : begin + len(stream)] = stream
        number = 1 + secrets.randbelow((1 << 63) - 1)
        _NUMBER.pack_into(self.pages, 0, number)
        return [Place(os.getpid(), self.descriptor, number, begin, len(one)) for begin, one in zip(begins, streams)]

    def close(self) -> None:
        if not self.pages.closed:
            self.pages.close()
            os.close(self.descriptor)


class Borrower:
    """A worker's side: the sheets that it has opened."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], mmap.mmap] = {}

    def sees(self, place: Place) -> bool:
        """Whether it can read what lies there."""
        try:
            self.read(place)
        except RowsGone:
            return False
        return True

    def read(self, place: Place) -> bytes:
        """A copy of what lies at the place. Raises RowsGone if it is no longer there, or cannot be opened. O(bytes)."""
        key = place.pid, place.descriptor
        known = self._open.get(key)
        if known is None or len(known) < place.begin + place.size:
            known = self._open[key] = _opened(place)
        return _copied(known, place)


def _opened(place: Place) -> mmap.mmap:
    try:
        descriptor = os.open(f"/proc/{place.pid}/fd/{place.descriptor}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise RowsGone() from error
    try:
        about = os.fstat(descriptor)
        if about.st_uid != os.geteuid() or about.st_size < place.begin + place.size:
            raise RowsGone()
        return mmap.mmap(descriptor, about.st_size, prot=mmap.PROT_READ)
    except (OSError, ValueError) as error:
        raise RowsGone() from error
    finally:
        os.close(descriptor)


def _copied(pages: mmap.mmap, place: Place) -> bytes:
    if _NUMBER.unpack_from(pages, 0) != (place.number,):
        raise RowsGone()
    found = pages[place.begin : place.begin + place.size]
    if _NUMBER.unpack_from(pages, 0) != (place.number,):
        raise RowsGone()
    return found
