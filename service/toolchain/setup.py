"""The parts of `make setup` that need the project's own packages.

python -m vernier.service.toolchain.setup check                is every locked package installed and whole?
python -m vernier.service.toolchain.setup kernels [--force]    compile the numba kernels ahead of the first use
"""

import hashlib
import importlib.metadata
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vernier.service.toolchain.home import ROOT, cache_folder

if TYPE_CHECKING:
    from packaging.markers import Marker

STAMP = cache_folder() / "kernels"
COMPILED = ("storage", "operators", "service")


def missing_packages(lock: Path = ROOT / "requirements.lock") -> list[str]:
    """Return the locked packages that this interpreter lacks, has in another version, or has lost files of.

    It checks versions and the top-level entry of every installed file, not each file: ~60 ms.
    """
    problems = []
    present: dict[Path, set[str]] = {}
    for name, version in _locked(lock):
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            problems.append(f"{name} is missing")
            continue
        if found.version != version:
            problems.append(f"{name} is {found.version} instead of {version}")
            continue
        site = Path(str(found.locate_file("")))
        if site not in present:
            present[site] = {path.name for path in site.iterdir()}
        tops = {line.split(",")[0].split("/")[0].strip('"') for line in (found.read_text("RECORD") or "").splitlines()}
        lost = sorted(tops - present[site] - {"..", "", "__pycache__"})
        if lost:
            problems.append(f"{name} lacks {lost[0]}")
    return problems


def _locked(lock: Path) -> Iterator[tuple[str, str]]:
    """Yield (name, version) of the lock's lines that apply to this interpreter."""
    for line in lock.read_text(encoding="utf-8").splitlines():
        found = re.match(r"([A-Za-z0-9._-]+)==([^\s;\\]+)(?:\s*;\s*([^\\]+))?", line)
        if found and (not found[3] or _marker(found[3].strip()).evaluate()):
            yield found[1], found[2]


def _marker(text: str) -> "Marker":
    from packaging.markers import Marker  # missing while the environment is incomplete: then `check` fails, rightly

    return Marker(text)


def kernel_sources() -> list[Path]:
    """Return the files that import numba or its decorators, sorted within each package."""
    files = (path for folder in COMPILED for path in sorted((ROOT / folder).rglob("*.py")))
    imports = re.compile(rb"^\s*(from|import) (numba|vernier\.storage\.kernels\.inlining)\b", re.MULTILINE)
    return [path for path in files if imports.search(path.read_bytes())]


def compiled() -> bool:
    """Whether the present version of the kernels is compiled; ~20 ms."""
    return STAMP.is_file() and STAMP.read_text(encoding="utf-8") == _fingerprint()


def _fingerprint() -> str:
    digest = hashlib.sha256(f"{sys.version} {importlib.metadata.version('numba')} {_processor()}".encode())
    for path in (*kernel_sources(), *(ROOT / "storage" / "kernels").glob("*.txt")):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _processor() -> str:
    """The processor that kernels are compiled for, as in storage/kernels/processor.py but without importing numba."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text(encoding="utf-8").splitlines() if about.exists() else [platform.machine()]
    own = sorted({line for line in lines if line.startswith(("flags", "Features", "model name", platform.machine()))})
    return " ".join((os.environ.get("NUMBA_CPU_NAME", ""), *own))


def kernels(*, force: bool = False, say: Callable[[str], None] = lambda line: None) -> float:
    """Compile the kernels unless nothing has changed since the last time; returns the seconds it took, 0.0 if skipped.

    Takes two cores for a minute when fresh. It takes less after an edit (numba's cache keeps unaffected kernels) or an
    interruption (each compiled kernel is kept), and milliseconds if there is nothing to do. `force` empties the cache
    first. Raises RuntimeError if a kernel does not compile.
    """
    now = _fingerprint()
    if not force and compiled():
        return 0.0
    if force:
        for folder in COMPILED:
            for cached in [*(ROOT / folder).rglob("*.nbi"), *(ROOT / folder).rglob("*.nbc")]:
                cached.unlink(missing_ok=True)
    started = time.monotonic()
    importlib.import_module("vernier.service.cluster.precompile").prepare(lambda what: say(f"kernels: {what}"))
    STAMP.parent.mkdir(parents=True, exist_ok=True)
    STAMP.write_text(now, encoding="utf-8")
    return time.monotonic() - started


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line above; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["check"]:
        try:
            problems = missing_packages()
        except ImportError as error:
            problems = [str(error)]
        if problems:
            print("; ".join(problems[:3]) + (f" and {len(problems) - 3} more" if len(problems) > 3 else ""))
        return 1 if problems else 0
    if words in (["kernels"], ["kernels", "--force"]):
        seconds = kernels(force="--force" in words, say=lambda line: print(line, flush=True))
        if seconds:
            print(f"kernels: compiled in {seconds:.0f} s", flush=True)
        return 0
    print("usage: python -m vernier.service.toolchain.setup check | kernels [--force]", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
