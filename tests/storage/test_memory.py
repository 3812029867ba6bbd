"""How much memory there is: of a machine, in cgroups of both versions, inside and outside of a container."""

import mmap
from pathlib import Path

import pytest

from vernier.storage import memory
from vernier.storage.memory import available_bytes, private_bytes, resident_bytes, usable_bytes

GB = 1 << 30


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine of 16 GB, of which 10 are free, as its files say."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(
        f"MemTotal: {16 << 20} kB\nMemAvailable: {10 << 20} kB\nHugePages_Total: 0\n"
    )
    (tmp_path / "cgroup").mkdir()
    return tmp_path


def ask(machine: Path) -> tuple[int, int | None]:
    """(usable, available)."""
    memory._memberships.cache_clear()
    folders = machine / "proc", machine / "cgroup"
    return usable_bytes(*folders), available_bytes(*folders)


def group(folder: Path, version: int, limit: str, usage: int = 0, idle: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        2: ("memory.max", "memory.current", "inactive_file"),
    }
    most, now, file = names[version]
    (folder / most).write_text(f"{limit}\n")
    (folder / now).write_text(f"{usage}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{file} {idle}\n")


def test_a_machine_without_limits(machine: Path) -> None:
    assert ask(machine) == (16 * GB, 10 * GB)
    (machine / "proc/self/cgroup").write_text("0::/user.slice\n")
    group(machine / "cgroup/user.slice", 2, "max")
    assert ask(machine) == (16 * GB, 10 * GB)


def test_the_least_limit_of_all_groups_around_counts(machine: Path) -> None:
    (machine / "proc/self/cgroup").write_text("0::/a/b\n")
    group(machine / "cgroup/a", 2, str(4 * GB), usage=3 * GB, idle=GB)
    group(machine / "cgroup/a/b", 2, "max", usage=2 * GB)
    assert ask(machine) == (4 * GB, 2 * GB)


def test_version_one(machine: Path) -> None:
    (machine / "proc/self/cgroup").write_text("12:cpu:/x\n9:memory:/docker/1\n1:name=systemd:/\n")
    group(machine / "cgroup/memory/docker/1", 1, str(2 * GB), usage=GB, idle=GB // 2)
    group(machine / "cgroup/memory", 1, str((1 << 63) - 4096), usage=9 * GB)
    assert ask(machine) == (2 * GB, 3 * GB // 2)


def test_inside_a_container_the_path_may_be_the_hosts(machine: Path) -> None:
    (machine / "proc/self/cgroup").write_text("0::/system.slice/of/the/host\n")
    group(machine / "cgroup", 2, str(3 * GB), usage=4 * GB)
    assert ask(machine) == (3 * GB, 0)


def test_what_a_process_has() -> None:
    before = private_bytes()
    # The allocator might take what this process has freed before.
    with mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as taken:
        taken.write(bytes(len(taken)))
        assert private_bytes() > before + (48 << 20)
        assert resident_bytes() > private_bytes()
        assert len(taken) == 64 << 20
    assert usable_bytes() > 0
