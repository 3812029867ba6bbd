"""How much memory this process uses and how much it may use: the machine's total, a cgroup's limit or an rlimit.

File pages do not count as the process's own, because the kernel reclaims them under memory pressure.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60
"""Limits of at least this value are how cgroups and rlimits express "no limit"."""
_UNKNOWN = 4 << 30
"""Assumed memory of a machine whose system does not report it."""


def resident_bytes() -> int:
    """This process's resident memory now, or its peak where the system reports only that."""
    return _statm()[0]


def private_bytes() -> int:
    """The part of the resident memory that only this process can free: everything but file pages and shared memory.

    O(1), about ten microseconds.
    """
    resident, shared = _statm()
    return resident - shared


def peak_bytes(process: int, proc: Path = _PROC) -> int:
    """The most resident memory that a process has had; 0 if it is gone or the system does not report it."""
    try:
        with open(proc / f"{process}/status", encoding="ascii", errors="replace") as status:
            return next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:")), 0)
    except OSError:
        return 0


def _statm() -> tuple[int, int]:
    try:
        with open(_PROC / "self/statm", encoding="ascii") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, 0
    size = resource.getpagesize()
    return resident * size, shared * size


def usable_bytes(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """The minimum of the machine's memory, the limits of this process's cgroups, and its rlimits."""
    found = [_UNKNOWN]
    total = _fields(proc / "meminfo").get("MemTotal")
    if total is not None:
        found = [total * 1024]
    found += [limit for folder, version in _folders(proc, cgroups) if (limit := _limit(folder, version)) is not None]
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        if 0 <= soft < _NO_LIMIT:
            found.append(soft)
    return min(found)


def available_bytes(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int | None:
    """How much more memory this process can use before the kernel kills a process; None where the system does not
    report it."""
    found = []
    free = _fields(proc / "meminfo").get("MemAvailable")
    if free is not None:
        found.append(free * 1024)
    for folder, version in _folders(proc, cgroups):
        limit = _limit(folder, version)
        if limit is None:
            continue
        usage = _number(folder / ("memory.current" if version == 2 else "memory.usage_in_bytes"))
        # The kernel reclaims inactive file pages first, so they count as available.
        idle = _fields(folder / "memory.stat").get("inactive_file" if version == 2 else "total_inactive_file", 0)
        if usage is not None:
            found.append(limit - usage + idle)
    return max(0, min(found)) if found else None


def _folders(proc: Path, cgroups: Path) -> Iterator[tuple[Path, int]]:
    """The cgroup folders that account for this process's memory, innermost first, each with its cgroup version."""
    for path, version in _memberships(proc):
        root = cgroups if version == 2 or not (cgroups / "memory").is_dir() else cgroups / "memory"
        folder = root / path.lstrip("/")
        # Inside a container the path may be the host's, which is not visible there. The limit is then at the root.
        while True:
            if folder.is_dir():
                yield folder, version
            if folder == root:
                break
            folder = folder.parent


@cache
def _memberships(proc: Path) -> tuple[tuple[str, int], ...]:
    try:
        lines = (proc / "self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return ()
    found = []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            found.append((path, 2))
        elif "memory" in controllers.split(","):
            found.append((path, 1))
    return tuple(found)


def _limit(folder: Path, version: int) -> int | None:
    limit = _number(folder / ("memory.max" if version == 2 else "memory.limit_in_bytes"))
    return None if limit is None or limit >= _NO_LIMIT else limit


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text("ascii"))
    except (OSError, ValueError):  # "max", or the file does not exist
        return None


def _fields(file: Path) -> dict[str, int]:
    """The numbers of a file that has one name and one number per line."""
    try:
        lines = file.read_text("ascii").splitlines()
    except OSError:
        return {}
    pairs = (line.replace(":", " ").split()[:2] for line in lines)
    return {name: int(number) for name, number in pairs}
