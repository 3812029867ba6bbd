"""The messages between a sidecar and a worker, and the socket that carries them.

A frame is its length (8 bytes, big-endian) and a message in MessagePack. The first message of a worker is `Ready`. It
answers `Read` with `Reads`, and `Run` with `Wanted`, then, when it has the parts of every wanted table, with `Done`;
instead of an answer it may send `Refused`.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Any, Literal

import msgspec

Form = Literal["json", "ndjson", "csv", "arrow"]
_LENGTH = struct.Struct(">Q")
_PIECE = 1 << 20


class Ready(msgspec.Struct, tag=True):
    """The first message of a worker: it has started."""


class Read(msgspec.Struct, tag=True):
    """Parse a question."""

    sql: str
    seconds: float


class Name(msgspec.Struct):
    """A table that a question names. qualified: with a schema that is not the views', so it is no view."""

    name: str
    line: int | None
    column: int | None
    qualified: bool


class Reads(msgspec.Struct, tag=True):
    """What a question reads. as_of: the time after AS OF, as written."""

    as_of: str | None
    names: list[Name]


class Table(msgspec.Struct):
    """A view as a question names it, and the number of its contents: equal numbers are equal rows."""

    name: str
    number: int


class Run(msgspec.Struct, tag=True):
    """Answer a question. max_rows, max_bytes, seconds: its limits."""

    sql: str
    as_of: int
    tables: list[Table]
    form: Form
    max_rows: int
    max_bytes: int
    seconds: float


class Wanted(msgspec.Struct, tag=True):
    """The contents that the worker does not have, to be sent in this order."""

    numbers: list[int]


class Part(msgspec.Struct, tag=True):
    """The next bytes of a table's Arrow stream; the end if there are none. failed: the sidecar gives up."""

    data: bytes
    failed: bool = False


class Column(msgspec.Struct):
    """A column of an answer, with DuckDB's name of its type."""

    name: str
    type: str


class Done(msgspec.Struct, tag=True):
    """An encoded answer."""

    columns: list[Column]
    rows: int
    body: bytes


class Refused(msgspec.Struct, tag=True):
    """An error: the name of its class in errors.py, and its fields."""

    error: str
    fields: dict[str, Any]


Message = Ready | Read | Reads | Run | Wanted | Part | Done | Refused


class Closed(Exception):
    """The other process has ended."""


class Channel:
    """One end of the connection. Blocking, for one thread at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._encoder, self._decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Message)

    def send(self, message: Message, until: float | None = None) -> None:
        """Send a message. until: on the monotonic clock. Raises Closed, TimeoutError."""
        body = self._encoder.encode(message)
        try:
            self._socket.settimeout(_left(until))
            self._socket.sendall(_LENGTH.pack(len(body)) + body)
        except TimeoutError:
            raise
        except OSError as error:
            raise Closed from error

    def receive(self, until: float | None = None) -> Any:
        """The next message. Raises Closed, TimeoutError."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size, until))
        return self._decoder.decode(self._exactly(length, until))

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _exactly(self, size: int, until: float | None) -> bytearray:
        found = bytearray()
        try:
            while len(found) < size:
                self._socket.settimeout(_left(until))
                piece = self._socket.recv(min(size - len(found), _PIECE))
                if not piece:
                    raise Closed
                found += piece
        except TimeoutError:
            raise
        except OSError as error:
            raise Closed from error
        return found


def _left(until: float | None) -> float | None:
    if until is None:
        return None
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
