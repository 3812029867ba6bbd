"""Memory of a whole service: the use of each process, and a limit for all of them together.

The limit is a control group of the kernel's where this process may make one (root; cgroup v2 or v1), so that exceeding
it has the same consequences as in a container. Elsewhere the sum of the processes' shares is watched, and
each process's own data are limited (RLIMIT_DATA).
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import psutil

_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


class Group:
    """The control group of a service's processes. limit: bytes for all of them; None counts alone.

    kind: cgroup2, cgroup1, or None where there is none. A context manager.
    """

    def __init__(self, name: str, limit: int | None) -> None:
        self.limit = limit
        self.kind: str | None = None
        self.path: Path | None = None
        self._name = name

    def __enter__(self) -> Group:
        for root, kind, file in ((_V2, "cgroup2", "memory.max"), (_V1, "cgroup1", "memory.limit_in_bytes")):
            path = root / self._name
            if kind == "cgroup2" and not _delegates(root):
                continue
            try:
                path.mkdir()
            except OSError:
                continue
            try:
                if self.limit is not None:
                    (path / file).write_text(str(self.limit))
                elif not (path / file).exists():
                    raise FileNotFoundError(path / file)
            except OSError:
                path.rmdir()
                continue
            self.path, self.kind = path, kind
            break
        return self

    def __exit__(self, *_: object) -> None:
        if self.path is not None:
            with contextlib.suppress(OSError):
                self.path.rmdir()

    def enter(self) -> None:
        """Put this process into the group, with all processes that it starts from now on."""
        if self.path is not None:
            (self.path / "cgroup.procs").write_text(str(os.getpid()))
        elif self.limit is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (self.limit, self.limit))

    def killed(self) -> int:
        """How many processes the kernel has killed because the group was full."""
        if self.path is None:
            return 0
        file = "memory.events" if self.kind == "cgroup2" else "memory.oom_control"
        return int(_numbers(self.path / file).get("oom_kill", 0))

    def used(self) -> int:
        """Bytes that belong to no file: the kernel cannot drop them. 0 if there is no group."""
        if self.path is None:
            return 0
        stat = _numbers(self.path / "memory.stat")
        if self.kind == "cgroup2":
            return stat.get("anon", 0) + stat.get("shmem", 0)
        return stat.get("total_rss", 0) + stat.get("total_shmem", 0)


class Peaks:
    """The highest samples, in bytes: by role of process, of all at once, and of the group."""

    def __init__(self, group: Group) -> None:
        self.of: dict[str, int] = defaultdict(int)
        self.whole = self.grouped = 0
        self._group = group

    def look(self, family: Iterable[tuple[psutil.Process, str]]) -> None:
        """Sample all processes; a page that several share counts proportionally for each (PSS)."""
        whole = 0
        for process, role in family:
            share = _share(process.pid)
            self.of[role] = max(self.of[role], share)
            whole += share
        self.whole = max(self.whole, whole)
        self.grouped = max(self.grouped, self._group.used())

    @property
    def over(self) -> bool:
        """Whether all together exceeded the limit, if no group enforces it."""
        return self._group.path is None and self._group.limit is not None and self.whole > self._group.limit


def _delegates(root: Path) -> bool:
    """Whether that is a hierarchy of cgroup v2 whose children count memory; with v1 it is but a folder of folders."""
    with contextlib.suppress(OSError):
        return "memory" in (root / "cgroup.subtree_control").read_text().split()
    return False


def _share(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def _numbers(file: Path) -> dict[str, int]:
    with contextlib.suppress(OSError):
        pairs = (line.split() for line in file.read_text().splitlines())
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
    return {}
