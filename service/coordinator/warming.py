"""Warming: what a standby does while it waits, so that its first epoch takes no longer than a later one.

It runs micro-batches of the real topics through Spark and drops what it decodes (service/cluster/rehearsal.py): the JVM
then has loaded and compiled the classes of a query, of its Kafka source and of a barrier stage, and the Python workers
have the programs' plan. Spark ends Python workers that were idle for a minute, so they get an empty task more often.
Where the state is in an object store, the segments of each new epoch are copied into the standby's own cache. Nothing
that is read here decides anything.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from concurrent.futures import Future
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from vernier.service.cluster.rehearsal import Rehearsal
from vernier.service.config.settings import Settings
from vernier.service.coordinator.executors import run_empty
from vernier.service.coordinator.session import Stage
from vernier.service.coordinator.streaming_query import Query
from vernier.service.errors import SparkFailed
from vernier.storage.errors import StorageError
from vernier.storage.state.state import StateDirectory
from vernier.storage.threads import Threads

BATCHES, MESSAGES = 5, 20
"""Micro-batches of the query that warms Spark, and the most messages of each."""
QUERY_SECONDS = 60.0
"""How long that query may take. A service without messages has none to run it with."""
TOUCH_SECONDS = 20.0
"""Seconds between two tasks of an idle worker."""
LOOK_SECONDS = 1.0
"""Seconds between looks for a new epoch, whose segments are copied."""

_log = logging.getLogger("vernier.standby")


class Warming:
    """Warms one standby, in threads, until `close`. session: Spark, once it has started; scratch: the folder for
    checkpoints. A failure is logged and changes nothing."""

    def __init__(self, settings: Settings, rehearsal: Rehearsal, session: Future[SparkSession], scratch: Path) -> None:
        self._settings, self._rehearsal, self._session, self._scratch = settings, rehearsal, session, scratch
        self._enough, self._closed = threading.Event(), threading.Event()
        threads = Threads()
        self._loops = [threads.start("warm-spark", self._run_query, again=False)]
        if settings.state.place.folder is None:
            self._loops.append(threads.start("warm-cache", self._copy))

    def close(self) -> None:
        """Stop, because the standby goes on as the owner. Waits for nothing: the query of the owner starts beside what
        is left."""
        self._closed.set()
        self._enough.set()
        for loop in self._loops:
            loop.stopping.set()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _run_query(self, stopping: threading.Event) -> None:
        spark, workers = self._session.result(), self._settings.workers
        if self._closed.is_set():
            return
        stage, seen = Stage(spark, self._rehearsal, workers), 0

        def epoch(frame: DataFrame, _batch: int) -> None:
            nonlocal seen
            try:
                if not self._enough.is_set():
                    stage.run(frame, "standby")
                    seen += 1
            except SparkFailed as error:
                if not self._enough.is_set():  # otherwise the query has been stopped in the middle of one
                    _log.warning("standby: spark does not warm up: %s", error)
                self._enough.set()
            if seen == BATCHES:
                self._enough.set()

        query = Query(spark, self._settings, self._rehearsal.ingestion, {}, MESSAGES, epoch, self._scratch)
        try:
            self._enough.wait(QUERY_SECONDS)
        finally:
            self._enough.set()
            with contextlib.suppress(PySparkException):
                query.close()
        _log.info("standby: spark has run %d micro-batches to warm up", seen)
        while not stopping.wait(TOUCH_SECONDS):
            with contextlib.suppress(PySparkException):
                run_empty(spark, workers)

    def _copy(self, stopping: threading.Event) -> None:
        directory, known, reached = StateDirectory(self._settings.state.place), frozenset[str](), 0
        while not stopping.wait(LOOK_SECONDS):
            with contextlib.suppress(StorageError):  # such as an epoch that is collected meanwhile
                head = directory.head()
                if head == reached:
                    continue
                names = directory.manifest(head).segments()
                for name in names - known:
                    directory.open(name)
                    if stopping.is_set():
                        return
                known, reached = names, head
