"""Words: small files in the state directory by which one process of a service tells others what it does or wants.

They decide nothing about epochs. Each is written whole by one process at a time and may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from vernier.storage.blob.blob import Blob
from vernier.storage.errors import StorageError

T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True)
class Word(Generic[T]):
    """One of these files, and what it says."""

    file: str
    kind: type[T]

    def leave(self, state: Blob, said: T) -> None:
        """Write it. Raises StorageErrors."""
        state.put(self.file, [msgspec.json.encode(said)])

    def forget(self, state: Blob) -> None:
        """Take it back."""
        state.delete(self.file)

    def read(self, state: Blob) -> T | None:
        """What was left; None where there is none, or nobody can read it."""
        try:
            return msgspec.json.decode(state.get(self.file), type=self.kind)
        except (StorageError, msgspec.MsgspecError):
            return None
