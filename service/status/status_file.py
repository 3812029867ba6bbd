"""Status files: small JSON files in the state directory in which a process tells the others what it does or wants.

They decide nothing about epochs. Each is written as a whole by one process at a time, and may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from vernier.storage.blob.blob import Blob
from vernier.storage.errors import StorageError

T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True)
class StatusFile(Generic[T]):
    """One status file: its name and the type of its contents."""

    name: str
    kind: type[T]

    def write(self, state: Blob, status: T) -> None:
        """Write the file. Raises StorageErrors."""
        state.put(self.name, [msgspec.json.encode(status)])

    def delete(self, state: Blob) -> None:
        """Delete the file."""
        state.delete(self.name)

    def read(self, state: Blob) -> T | None:
        """The file's contents; None if it does not exist or cannot be read."""
        try:
            return msgspec.json.decode(state.get(self.name), type=self.kind)
        except (StorageError, msgspec.MsgspecError):
            return None
