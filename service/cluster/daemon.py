"""Daemon: the process that Spark forks its Python workers from, with everything loaded before it forks.

Spark starts one on each executor (`spark.python.daemon.module`). Importing the engine and loading its compiled kernels
takes two seconds, which a worker that died in mid-epoch would make its peers wait for; a fork takes milliseconds, and
all workers of a host share those pages. Nothing here may start a thread that outlives the loading.
"""

import gc
import sys

from pyspark.daemon import manager


def load() -> None:
    """Import what workers import, load the kernels, and take all of it out of the garbage collector's sight.

    Spark collects after each task, and what is loaded is a million objects that never die.
    """
    import vernier.service.cluster.worker  # noqa: F401  (to have it in memory)
    from vernier.service.cluster.precompile import warm

    # Says something only where set-up has not compiled for this processor.
    warm(lambda what: print(f"kernels: {what}", file=sys.stderr, flush=True))
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    # Spark reads the daemon's port from its standard output: nothing else may be written there.
    spark_reads, sys.stdout = sys.stdout, sys.stderr
    load()
    sys.stdout = spark_reads
    manager()
