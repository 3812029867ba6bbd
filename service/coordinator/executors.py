"""Executors: Spark's processes on a cluster, which come and go; new ones are warm before an epoch needs them.

A barrier stage needs a free core for each of its tasks. When an executor dies, Spark starts another one: a JVM, a
Python daemon with the engine, its kernels. Where the cluster has cores to spare, the next attempt runs at once on the
executors that are left, and the new one becomes the spare; its daemon is started beside the epochs, before it is
needed. Cost: two calls to Spark's JVM a second, and a job of empty tasks for each new executor.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from vernier.service.cluster.rendezvous import Attempt
from vernier.service.coordinator.attempt_watch import AttemptWatch
from vernier.service.errors import CoresLost
from vernier.storage.threads import Threads

NEVER = 4
"""How many times as long Spark may lack cores that it never had: others may use them, or machines may have to start."""

_log = logging.getLogger("vernier.workers")


class Executors:
    """The executors of a Spark session, for a service of `workers` workers, a number that may change. on_cluster:
    whether they are processes of their own. threads: the owner of the threads that wake them."""

    def __init__(self, spark: SparkSession, workers: int, threads: Threads, *, on_cluster: bool) -> None:
        self.workers = workers
        self._spark, self._threads, self._on_cluster = spark, threads, on_cluster
        self._known: frozenset[str] = frozenset()
        self._waking = threading.Lock()
        self._had, self._short_since = False, math.inf

    def wake(self) -> None:
        """Start the Python daemons of executors that are new since the last call (service/cluster/daemon.py). Returns
        at once; a failure shows up in the next epoch."""
        known = self._names()
        fresh, self._known = known - self._known, known
        if fresh:
            self._threads.start("wake-workers", self._wake, again=False)

    def check(self, seconds: float) -> None:
        """Raises CoresLost when Spark, which had cores for all workers, has had too few for that long, or when it never
        had enough, for NEVER times as long.

        A master that has lost the connection to an application for a moment ends its executors, and forgets it: no
        others come, and nothing is said. Call it every second or so.
        """
        slots, now = self.slots(), time.monotonic()
        if slots is None or slots >= self.workers:
            self._had |= slots is not None
            self._short_since = math.inf
            return
        self._short_since = min(self._short_since, now)
        if now - self._short_since > (seconds if self._had else NEVER * seconds):
            why = "where it had enough before" if self._had else "and never had enough"
            raise CoresLost(slots=slots, workers=self.workers, seconds=now - self._short_since, why=why)

    def expect(self) -> None:
        """From now on `check` takes Spark for one that had cores for all workers, and counts anew: the driver that had
        them is gone."""
        self._had, self._short_since = True, math.inf

    def missing(self) -> str:
        """What Spark lacks, in words, for a stage of all workers."""
        slots = self.slots()
        if slots is None:
            return "Spark does not answer"
        if slots < self.workers:
            return f"Spark has free cores for {slots} of {self.workers} tasks and waits for an executor"
        return "Spark has an executor for each task; a Python worker is starting"

    def slots(self) -> int | None:
        """The number of tasks that Spark can run at once; None if it does not answer."""
        with contextlib.suppress(Exception):
            context: Any = self._spark.sparkContext._jsc
            jvm_context = context.sc()
            profile = jvm_context.resourceProfileManager().defaultResourceProfile()
            return int(jvm_context.maxNumConcurrentTasks(profile))
        return None

    def _names(self) -> frozenset[str]:
        """The executors' addresses, the driver's included; those of the last call if Spark does not answer."""
        with contextlib.suppress(Exception):
            context: Any = self._spark.sparkContext._jsc
            return frozenset(str(context.sc().getExecutorMemoryStatus().keySet().mkString(" ")).split())
        return self._known

    def _wake(self, _stopping: threading.Event) -> None:
        with self._waking, contextlib.suppress(Exception):
            # As many on each executor as an epoch has tasks there: one more would take them in turn with the others.
            there = max(1, len(self._known) - 1) if self._on_cluster else 1
            run_empty(self._spark, there * -(-self.workers // there))


def run_empty(spark: SparkSession, tasks: int) -> None:
    """Run a number of empty tasks at once, in Python, and wait for them: Spark starts the workers that it lacks, and
    ends none of the others for being idle."""
    spark.range(tasks, numPartitions=tasks).mapInArrow(_nothing, "id long").collect()


class MissingWorkers(AttemptWatch):
    """Watches an attempt until it has ended. report: called with the attempt, the number of workers that have not begun
    their tasks and the seconds, each time when some of them are missing after another `seconds`."""

    def __init__(self, attempt: Attempt, seconds: float, report: Callable[[Attempt, int, float], None]) -> None:
        self._report = report
        super().__init__(attempt, seconds)

    def look(self) -> bool:
        """Report the workers that are missing now; returns True."""
        if missing := self.attempt.missing:
            self._report(self.attempt, missing, self.seconds)
        return True


def _nothing(_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return iter(())
