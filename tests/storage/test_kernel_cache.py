"""numba's cache sees edits in the kernels that a kernel imports."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import vernier.storage.kernels.cache

KERNELS = Path(vernier.storage.kernels.cache.__file__).parent
CALLEE = """from numba import njit

FACTOR = {factor}


@njit(cache=True)
def scale(x):
    return FACTOR * x
"""
CALLER = """from numba import njit

from vernier.storage.kernels.callee import scale


@njit(cache=True)
def scaled_twice(x):
    return scale(scale(x))


if __name__ == "vernier.storage.kernels.caller":
    print(scaled_twice(1), sum(scaled_twice.stats.cache_hits.values()))
"""


def run(root: Path, **environment: str) -> tuple[int, bool]:
    """What the caller computes in a new process, and whether it was in the cache."""
    done = subprocess.run(
        [sys.executable, "-c", "import vernier.storage.kernels.caller"],
        cwd=root,
        env={**os.environ, "KERNEL_LIST": "", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    value, hits = done.stdout.split()
    return int(value), hits == "1"


def test_an_edit_in_a_kernel_that_a_kernel_imports_compiles_it_again(tmp_path: Path) -> None:
    folder = tmp_path / "storage" / "kernels"
    folder.mkdir(parents=True)
    (tmp_path / "storage" / "__init__.py").touch()
    shutil.copy(KERNELS.parents[1] / "vernier.py", tmp_path)
    for name in (
        "__init__",
        "cache",
        "cached_library",
        "front_end",
        "linking",
        "listing",
        "names",
        "processor",
        "separate",
    ):
        shutil.copy(KERNELS / f"{name}.py", folder)
    (folder / "caller.py").write_text(CALLER)
    (folder / "callee.py").write_text(CALLEE.format(factor=2))
    assert run(tmp_path) == (4, False)
    assert run(tmp_path) == (4, True)
    (folder / "callee.py").write_text(CALLEE.format(factor=3))
    assert run(tmp_path) == (9, False)
    assert run(tmp_path) == (9, True)
    # Checked kernels are other kernels, and neither kind drives the other out.
    assert run(tmp_path, NUMBA_BOUNDSCHECK="1") == (9, False)
    assert run(tmp_path, NUMBA_BOUNDSCHECK="1") == (9, True)
    assert run(tmp_path) == (9, True)
    # So are kernels for another processor, which this one's cache has none of.
    assert run(tmp_path, NUMBA_CPU_NAME="generic") == (9, False)
    assert run(tmp_path, NUMBA_CPU_NAME="generic") == (9, True)
    assert run(tmp_path) == (9, True)


def test_sources_are_followed_through_imports() -> None:
    root = Path(vernier.storage.kernels.cache.__file__).parents[2]
    found = vernier.storage.kernels.cache.kernel_sources(root / "operators" / "kernels" / "reducing.py")
    names = {str(path.relative_to(root)) for path in found}
    assert {"operators/kernels/reducing.py", "storage/kernels/sorting.py", "storage/kernels/status.py"} <= names


def test_files_that_are_imported_as_such_are_followed(tmp_path: Path) -> None:
    root = Path(vernier.storage.kernels.cache.__file__).parents[2]
    found = vernier.storage.kernels.cache.kernel_sources(root / "operators" / "kernels" / "interpreting.py")
    assert {"steps.py", "reductions.py", "group_steps.py"} <= {path.name for path in found}
    one = tmp_path / "one.py"
    one.write_text(
        "from vernier.storage.kernels import (\n    tries,\n    held as kept,\n)\nimport vernier.storage.kernels.wide\n"
    )
    names = {path.name for path in vernier.storage.kernels.cache.kernel_sources(one)}
    assert {"one.py", "tries.py", "held.py", "wide.py", "pointers.py"} <= names


def test_kernels_import_kernels_alone() -> None:
    # What else a kernel imported would be compiled into it, unseen by the stamp.
    root = Path(vernier.storage.kernels.cache.__file__).parents[2]
    for path in root.glob("*/kernels/*.py"):
        if path.parts[len(root.parts)] in ("storage", "operators", "service"):
            for line in path.read_text().splitlines():
                if line.startswith(("from vernier", "import vernier")):
                    assert ".kernels" in line, f"{path}: {line}"


def test_functions_of_one_name_from_two_processes_are_told_apart() -> None:
    ids = "from numba.core.bytecode import FunctionIdentity as f; print(next(f._unique_ids))"
    script = f"import vernier.storage.kernels; {ids}"
    first, second = (
        int(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)
        for _ in range(2)
    )
    assert abs(first - second) > 10_000
