"""Messages that end where readable memory ends, so that a kernel that reads one byte too many dies."""

import ctypes
import mmap

import pyarrow as pa

_PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)


class GuardedMemory:
    """Memory of a few pages, behind which nothing may be read."""

    def __init__(self, pages: int = 4) -> None:
        self._size = pages * _PAGE
        self._map = mmap.mmap(-1, self._size + _PAGE)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if _LIBC.mprotect(ctypes.c_void_p(self._address + self._size), ctypes.c_size_t(_PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")

    def messages(self, batch: list[bytes]) -> pa.LargeBinaryArray:
        """The messages, the last one at the end of the memory. They are lost when the next ones come."""
        given = pa.array(batch, pa.large_binary())
        data = b"".join(batch)
        start = self._size - len(data)
        self._map[start : self._size] = data
        buffer = pa.foreign_buffer(self._address + start, len(data), self)
        return pa.LargeBinaryArray.from_buffers(given.type, len(given), [None, given.buffers()[1], buffer])
