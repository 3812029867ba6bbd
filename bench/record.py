"""What a benchmark found, kept beside the code: bench/results/NAME.json.

A file holds the runs of one benchmark, the newest for each key; a key is the run's arguments unless the benchmark gives
it another one. A run has its command, when it began, the commit, the machine, the load, the versions of what it used,
its values, and, where the benchmark makes one, the table that the documentation shows. `tools/results.py` compares the
documentation with these files, by the units at the end of the values' names (`_ms`, `_mb`, …). BENCH_RESULTS names
another folder.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = ("numba", "numpy", "pyspark")
_BEGAN = time.time()
_LOAD = round(os.getloadavg()[0], 1)

Table = dict[str, list[Any]]
"""`head`: the columns' names; `rows`: lists of cells."""


def processor() -> str:
    """The name of the machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def commit() -> str:
    """The commit of the checkout, with a + if tracked files differ from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--exclude=*"], cwd=ROOT, capture_output=True, text=True
    )
    return described.stdout.strip()


def about(began: float | None = None) -> dict[str, Any]:
    """Where and when this process runs. began: Unix seconds; now if none."""
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        "commit": commit(),
        "machine": f"{processor()}, {os.cpu_count()} cores",
        "versions": {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}},
        "load": [_LOAD, round(os.getloadavg()[0], 1)] if began else round(os.getloadavg()[0], 1),
    }


def benchmark() -> str:
    """The benchmark that this process runs: `python -m bench.NAME`."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name.removeprefix("bench.").removesuffix(".__main__") if spec else Path(sys.argv[0]).stem


def _arguments(given: list[str]) -> list[str]:
    """Without the file of the picture, which is another one everywhere."""
    at = given.index("--plot") if "--plot" in given else len(given)
    return given[:at] + given[at + 2 :]


def record(values: Any, key: str = "", tables: dict[str, Table] | None = None, command: str = "") -> None:
    """Keep what a run of this process's benchmark found. key: its arguments if empty."""
    name, arguments = benchmark(), shlex.join(_arguments(sys.argv[1:]))
    folder = Path(os.environ.get("BENCH_RESULTS") or ROOT / "bench" / "results")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    runs = json.loads(file.read_text("utf-8"))["runs"] if file.exists() else {}
    run = {"command": command or f"python -m bench.{name} {arguments}".rstrip(), **about(_BEGAN), "values": values}
    runs[key or arguments or "default"] = run | ({"tables": tables} if tables else {})
    written = json.dumps({"runs": dict(sorted(runs.items()))}, indent=1, ensure_ascii=False)
    file.write_text(written + "\n", encoding="utf-8")


def tell(values: dict[str, Any], key: str = "", tables: dict[str, Table] | None = None, command: str = "") -> None:
    """Print the values as a JSON line, and keep them: see `record`."""
    print(json.dumps(values), flush=True)
    record(values, key, tables, command)
