"""Daemon: the process from which Spark forks its Python workers; it loads everything before it forks.

Spark starts one on each executor (`spark.python.daemon.module`). Importing the engine and loading its compiled kernels
takes five seconds of CPU; if a worker dies in mid-epoch, its peers would wait for that. A fork takes milliseconds, and
all workers of a host share the pages. For an executor that follows one that has died see template.py. Nothing here may
start a thread that is still running after loading.
"""

import gc
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from vernier.service.cluster import template


def load() -> None:
    """Import what workers import, load the kernels, and exclude all of it from garbage collection.

    Spark runs a garbage collection after each task, and the loaded modules are a million objects that never die.
    """
    from vernier.service.codec.lazy_pandas import defer_pandas

    defer_pandas()
    import pyspark.worker

    from vernier.service.cluster.between_tasks import attending
    from vernier.service.cluster.precompile import warm

    # Prints only if set-up has not compiled the kernels for this processor.
    warm(lambda what: print(f"kernels: {what}", file=sys.stderr, flush=True))
    pyspark.worker.main = attending(pyspark.worker.main)
    gc.collect()
    gc.freeze()


def main() -> None:
    """Be the daemon, or let a process of the template be it."""
    name = template.name_of(Path(__file__).resolve().parents[2]) if os.environ.get(template.WANTED) else None
    if name is not None and (status := template.borrow(name)) is not None:
        sys.exit(status)
    # Spark reads the daemon's port from its standard output, so nothing else may be written there.
    spark_reads, sys.stdout = sys.stdout, sys.stderr
    load()
    sys.stdout = spark_reads
    if name is not None:
        template.leave(name, partial(manage, name))
    manage(name)


def manage(name: bytes | None) -> None:
    """Fork workers until Spark ends. name: the template to dismiss if Spark says so first, by SIGTERM: its process may
    also be gone without a word."""
    from pyspark.daemon import manager

    heard, came = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(came, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
    try:
        manager()
    finally:
        with suppress(BlockingIOError):
            if name is not None and signal.SIGTERM in os.read(heard, 1 << 12):
                template.dismiss(name)


if __name__ == "__main__":
    main()
