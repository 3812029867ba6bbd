"""Standbys: coordinators that have started and wait for the state directory of another one.

Each holds a name `standby/<host>.<pid>.<serial>` in the state directory while it waits, as readers hold leases, so it
vanishes with its process. The names decide nothing: the process that takes the lock of the directory next is its
owner.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

from vernier.storage.blob.blob import Blob, HeldLock
from vernier.storage.errors import OwnershipLost, StorageError

FOLDER = "standby"


class Presence:
    """Shows that this process is a standby, from its creation until `release` or the end of the process. Raises
    StorageErrors."""

    def __init__(self, blob: Blob) -> None:
        blob.prepare((FOLDER,))
        self._blob = blob
        self._held = self._hold()

    def renew(self) -> None:
        """Show it under a new name if others may have deleted the old one, as they do with one that was cut off from
        the store for long. Call it now and then. No request while the name is valid."""
        try:
            self._held.check()
        except OwnershipLost:
            with suppress(StorageError):
                found = self._hold()
                self._held.release()
                self._held = found

    def release(self) -> None:
        """This process is no standby any more. Idempotent."""
        self._held.release()

    def _hold(self) -> HeldLock:
        return self._blob.hold(f"{FOLDER}/{_host()}")


def waits(blob: Blob, pid: int) -> bool:
    """Whether the process `pid` of this host is a standby. One listing."""
    mine = f"{FOLDER}/{_host()}.{pid}."
    return any(name.startswith(mine) for name in blob.list(FOLDER))


def living(blob: Blob) -> list[str]:
    """The standbys, as `host (pid N)`; deletes the names of dead ones. O(standbys)."""
    names = [name.removeprefix(f"{FOLDER}/").rsplit(".", 2) for name in blob.present(FOLDER)]
    return sorted(f"{host} (pid {pid})" for host, pid, _ in names)


def _host() -> str:
    """This host's name, as a part of a file name. os.uname is never empty on Linux."""
    return "".join(one if one.isalnum() or one in "-_" else "-" for one in socket.gethostname() or os.uname().nodename)
