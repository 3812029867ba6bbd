"""An object store in memory: puts are atomic and durable, what was put is listed at once, nothing is lost."""

import errno
import os
from collections.abc import Iterable


class SimStore:
    """All calls of `vernier.storage.blob.object_store.Store`. objects: what is in it, by name."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def ready(self) -> None:
        pass

    def read(self, name: str, large: bool = False) -> bytes:
        if name not in self.objects:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self.objects[name]

    def put(self, name: str, data: bytes) -> None:
        self.objects[name] = bytes(data)

    def create(self, name: str, data: bytes) -> None:
        if name in self.objects:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        self.put(name, data)

    def remove(self, name: str) -> None:
        self.read(name)
        del self.objects[name]

    def size(self, name: str) -> int:
        return len(self.read(name))

    def names(self, folder: str) -> Iterable[str]:
        return [os.path.basename(name) for name in self.objects if os.path.dirname(name) == folder]
