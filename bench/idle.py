"""Memory of a service whose state is empty: what its processes take before there is anything to keep.

    python -m bench.idle [--workers 2]

bfs over an empty graph. A few epochs are made, of a row that comes and goes, so that every worker has connected,
planned and committed. Then each process's memory, in MB: resident (`rss`), its share of it (`pss`: a page that n
processes have counts 1/n; workers are forked from a daemon that has loaded everything) and its own alone (`uss`); and
which large libraries it has loaded. One JSON line.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from bench.record import tell
from bench.running import Running, free_port, serving
from vernier.service.client.client import connect
from vernier.service.config.settings import load
from vernier.service.kafka.embedded_broker import EmbeddedBroker
from vernier.service.kafka.topics import create_topics

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = ("pandas", "llvmlite", "numba", "pyarrow")


def memory(process: psutil.Process) -> dict[str, Any]:
    """A process's memory in MB, and the libraries whose files it has mapped."""
    info = process.memory_full_info()
    mapped = {part for one in process.memory_maps() for part in Path(one.path).parts}
    return {
        **{f"{kind}_mb": round(getattr(info, kind) / 2**20, 1) for kind in ("rss", "pss", "uss")},
        "loaded": [name for name in LIBRARIES if name in mapped],
    }


def idle(folder: Path, workers: int, epochs: int) -> dict[str, dict[str, Any]]:
    """The memory of each process by its role."""
    with EmbeddedBroker(folder / "kafka") as broker:
        create_topics(broker.bootstrap, {"edges": workers, "roots": workers})
        flags: dict[str, Any] = {
            "program": str(ROOT / "tests" / "programs" / "bfs.py"), "workers": workers, "kafka.embedded": "false",
            "kafka.bootstrap": broker.bootstrap, "state.path": str(folder / "state"), "http.port": free_port(),
        }  # fmt: skip
        loaded = load(None, flags, {})
        with serving(loaded, None, flags) as supervisor, connect(supervisor.url) as client:
            for turn in range(epochs):
                token = client.send("roots", [{"data": [1], "diff": 1 - turn % 2 * 2}])
                client.wait(token)
            time.sleep(5)
            running = Running(loaded.settings, supervisor, folder)
            return {name: memory(process) for name, process in sorted(running.processes().items())}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    given = parser.parse_args()
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        found = idle(Path(folder), given.workers, given.epochs)
    workers = [one for name, one in found.items() if name.startswith("worker")]
    tell(
        {
            "bench": "idle",
            "workers": given.workers,
            "worker_rss_mb": max(one["rss_mb"] for one in workers),
            "processes": found,
        }
    )


if __name__ == "__main__":
    main()
