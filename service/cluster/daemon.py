"""Daemon: the process from which Spark forks its Python workers; it loads everything before it forks.

Spark starts one on each executor (`spark.python.daemon.module`). Importing the engine and loading its compiled kernels
takes two seconds; if a worker dies in mid-epoch, its peers would wait for that. A fork takes milliseconds, and all
workers of a host share the pages. Nothing here may start a thread that is still running after loading.
"""

import gc
import sys

from pyspark.daemon import manager


def load() -> None:
    """Import what workers import, load the kernels, and exclude all of it from garbage collection.

    Spark runs a garbage collection after each task, and the loaded modules are a million objects that never die.
    """
    import pyarrow
    import pyspark.worker  # noqa: F401  (to have it in memory, as the next one)

    import vernier.service.cluster.worker  # noqa: F401
    from vernier.service.cluster.precompile import warm

    # Prints only if set-up has not compiled the kernels for this processor.
    warm(lambda what: print(f"kernels: {what}", file=sys.stderr, flush=True))
    # With its first conversion pyarrow imports pandas, a second of work that each new worker would do in its first
    # epoch.
    pyarrow.array([0]).to_numpy()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    # Spark reads the daemon's port from its standard output, so nothing else may be written there.
    spark_reads, sys.stdout = sys.stdout, sys.stderr
    load()
    sys.stdout = spark_reads
    manager()
