"""Spark: the session, the Kafka stream, and an epoch's barrier stage. The only place that knows PySpark.

An epoch costs what Spark's own machinery costs, so the settings here are about that (measured in docs/performance.md):
no forked `chmod` for each checkpoint file, no planning twice, no way back for results, sockets without delayed
acknowledgements, and one expression for the workers that is made once and used for every epoch.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.util import PythonEvalType

from vernier.service.cluster.worker import ATTEMPT, Job, task
from vernier.service.config.settings import Settings
from vernier.service.errors import SparkFailed
from vernier.service.ingest.config import DoorConfig
from vernier.service.toolchain.jars import spark_jars
from vernier.service.toolchain.jvm import Gateway, java_options, launch_java, prepare_environment

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
EARLIEST, LATEST = -2, -1
LONGEST_SOCKET_FOLDER = 60
"""Bytes of a folder's path: with a longer one Spark fails each task that has Python in it."""
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_BARRIER = "finished unsuccessfully."
_TRACEBACK = "Traceback (most recent call last):"
_CAUSE = "Caused by: "
_ADVICE = " Consider setting "
_log = logging.getLogger("vernier.spark")


def start_session(settings: Settings, app: str, scratch: Path, gateway: Gateway | None = None) -> SparkSession:
    """Start Spark; takes ~4 s. scratch: for its temporary files. gateway: its JVM, if that was launched before.

    Raises SparkFailed, JavaMissing, JarsError.
    """
    if gateway is None and SparkContext._gateway is None:
        gateway = launch_java(settings, scratch)
    prepare_environment(settings)
    wanted = {
        "spark.app.name": f"vernier-{app}",
        "spark.master": settings.spark.master or f"local[{settings.workers}]",
        "spark.jars": ",".join(str(jar) for jar in spark_jars()),
        "spark.driver.memory": f"{settings.shares.driver_heap >> 20}m",
        "spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in java_options(settings, scratch)),
        "spark.driver.host": settings.exchange.host,
        "spark.driver.bindAddress": settings.exchange.host,
        **_private(settings),
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **_sockets(scratch),
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "vernier.service.cluster.daemon",
        "spark.task.maxFailures": "1",
        "spark.dynamicAllocation.enabled": "false",
        "spark.speculation": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(settings.workers),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        # Without checksum files there is half as much to write, and the checkpoint is thrown away at each start.
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "16",
        "spark.sql.streaming.stopTimeout": "30000",
        "spark.sql.maxPlanStringLength": "64",
        # Rows are few and plans new each epoch: making code for them costs more than it saves (a fifth of the JVM's
        # time), because even code that is compiled already is written as text again to be found.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        **settings.spark.conf,
    }
    if gateway is not None:
        # They are on its class path
        del wanted["spark.jars"]
        os.environ.update(where := gateway.connect())
        atexit.register(gateway.end)
    builder = SparkSession.builder
    for key, value in wanted.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise SparkFailed(problem=f"spark does not start: {cause_of(error)}") from error
    finally:
        if gateway is not None:
            for name in where:
                os.environ.pop(name, None)


def open_stream(
    spark: SparkSession,
    settings: Settings,
    door: DoorConfig,
    offsets: Mapping[str, Mapping[int, int]],
    limit: int | None,
) -> DataFrame:
    """The stream of all the door's topics from the next offsets on, the earliest where there is none. limit: messages a
    micro-batch takes at most, to begin with (see `set_limit`).

    Old heartbeats tell nothing and may be gone, so theirs begins at its end.
    """
    starting = {
        topic: {
            str(p): LATEST if topic == door.heartbeat_topic else offsets.get(topic, {}).get(p, EARLIEST)
            for p in range(count)
        }
        for topic, count in door.partitions.items()
    }
    options: dict[str, str] = {
        "kafka.bootstrap.servers": settings.kafka.bootstrap,
        "subscribe": ",".join(door.partitions),
        "startingOffsets": json.dumps(starting),
        "includeHeaders": "true",
        # Lost offsets (a topic that was cut while the service was down) must not pass in silence.
        "failOnDataLoss": "true",
        # Another service's output topic has what its transactions threw away, too.
        "kafka.isolation.level": "read_committed",
        "fetchOffset.retryIntervalMs": "100",
        "kafka.fetch.max.wait.ms": "10",
        "kafka.max.poll.records": "10000",
        "kafka.max.partition.fetch.bytes": str(32 << 20),
        "kafka.fetch.max.bytes": str(64 << 20),
        "kafka.receive.buffer.bytes": str(1 << 20),
        **_security(settings),
        **{f"kafka.{key}": value for key, value in settings.kafka.options.items()},
    }
    if limit is not None:
        options["maxOffsetsPerTrigger"] = str(limit)
    return spark.readStream.format("kafka").options(**options).load()


def start_query(stream: DataFrame, epoch: Callable[[DataFrame, int], None], checkpoint: Path) -> StreamingQuery:
    """Start the query that calls `epoch` for each micro-batch, one after another, as soon as there are records."""
    return stream.writeStream.foreachBatch(epoch).option("checkpointLocation", f"file://{checkpoint}").start()


def set_limit(spark: SparkSession, query: StreamingQuery, limit: int) -> bool:
    """Let a running query's next micro-batches take at most so many messages. False when Spark does not let us.

    The option is read once, when the query starts, and what became of it is in the map of sources to read limits that
    Spark looks into for each batch. That map is no public interface: a test holds it to the release we are cut for.
    Call it while a micro-batch runs, so that nobody looks into the map meanwhile.
    """
    try:
        execution: Any = query._jsq.streamingQuery()
        jvm: Any = spark._jvm
        wanted = jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.maxRows(limit)
        sources = execution.uniqueSources()
        changed = sources.updated(sources.head()._1(), wanted)
        getattr(execution, "uniqueSources_$eq")(changed)
    except (Py4JError, TypeError) as error:
        _log.warning("the limit of %d messages waits for the next query: %s", limit, cause_of(error))
        return False
    return True


def wake_workers(spark: SparkSession, workers: int) -> None:
    """Have Spark start the process that forks its Python workers, which loads the engine (see
    service/cluster/daemon.py).

    On a thread of its own, so that this goes on beside everything else that comes before the first epoch. Returns at
    once; a failure is left for the first epoch to tell.
    """

    def wake() -> None:
        with contextlib.suppress(Exception):
            spark.range(workers, numPartitions=workers).mapInArrow(_nothing, "id long").collect()

    threading.Thread(target=wake, name="wake-workers", daemon=True).start()


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return iter(())


class Stage:
    """The barrier stage of an epoch's attempt: N tasks that run service/cluster/worker.py."""

    def __init__(self, spark: SparkSession, job: Job, workers: int) -> None:
        self._context = spark.sparkContext
        self._workers = workers
        udf: Any = pandas_udf(  # type: ignore[call-overload]
            partial(task, job), returnType="none int", functionType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
        )
        # By name instead of from a DataFrame: then one expression, pickled once, fits the frames of all epochs.
        self._expression = udf(*[col(name) for name in COLUMNS])._jc

    def run(self, frame: DataFrame, attempt: str) -> bool:
        """Run the attempt's tasks to their end. False when the frame has no rows, so that there was nothing to run.

        Raises SparkFailed when a task or its process dies; workers that live through a failure report it themselves.
        """
        try:
            self._context.setLocalProperty(ATTEMPT, attempt)
            tasks = self._tasks(frame._jdf)
            if tasks.getNumPartitions() == 0:
                return False
            if tasks.getNumPartitions() != self._workers:
                # Spark makes no task for a partition without records. A partition's rows stay together, in order.
                spread = frame.repartition(self._workers, "topic", "partition")
                tasks = self._tasks(spread._jdf)
            tasks.count()
        except Py4JError as error:
            raise SparkFailed(problem=cause_of(error)) from error
        return True

    def cancel(self) -> None:
        """Kill the running tasks, whatever they do."""
        self._context.cancelAllJobs()

    def _tasks(self, frame: Any) -> Any:
        """The workers' stage over a frame, as an RDD: its count has no way back through SQL to pay for."""
        return frame.mapInArrow(self._expression, True, None).queryExecution().toRdd()


def _sockets(folder: Path) -> dict[str, str]:
    """Where Spark's sockets are: in a folder of ours if its path is as short as Spark wants it. If not, TCP is used."""
    fits = len(os.fsencode(folder)) <= LONGEST_SOCKET_FOLDER
    enabled = {"spark.python.unix.domain.socket.enabled": str(fits).lower()}
    return enabled | ({"spark.python.unix.domain.socket.dir": str(folder)} if fits else {})


def _private(settings: Settings) -> dict[str, str]:
    """Spark's own channels carry the keys of ours to the workers, so between hosts they are private, too."""
    if not settings.exchange.encrypted or (settings.spark.master or "local").startswith("local"):
        return {}
    return {"spark.authenticate": "true", "spark.network.crypto.enabled": "true", "spark.io.encryption.enabled": "true"}


def _security(settings: Settings) -> dict[str, str]:
    kafka = settings.kafka
    if kafka.security_protocol == "PLAINTEXT":
        return {}
    options: dict[str, str] = {"kafka.security.protocol": kafka.security_protocol}
    if kafka.ssl_cafile is not None:
        options |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": str(kafka.ssl_cafile)}
    if kafka.security_protocol.startswith("SASL"):
        kind = "plain.PlainLoginModule" if kafka.sasl_mechanism == "PLAIN" else "scram.ScramLoginModule"
        who = f"username={json.dumps(kafka.sasl_username)} password={json.dumps(settings.password())}"
        options["kafka.sasl.mechanism"] = kafka.sasl_mechanism
        options["kafka.sasl.jaas.config"] = f"org.apache.kafka.common.security.{kind} required {who};"
    return options


def cause_of(error: BaseException) -> str:
    """One line that names why Spark failed, out of the Java stack trace that is the error's text.

    A barrier stage's own line only says which task failed: the line below it says why. Of a Python exception that is
    the last line of its traceback. Else it is the cause that the stack trace names last, if that has a message.
    """
    lines = str(error).splitlines() or [type(error).__name__]
    said = next((at for at, line in enumerate(lines) if "Exception" in line or "Error" in line), 0)
    if lines[said].endswith(_BARRIER) and said + 1 < len(lines):
        said += 1
    line = lines[said]
    if line.endswith(_TRACEBACK):
        last = max(at for at, one in enumerate(lines) if one.endswith(_TRACEBACK))
        line = next((one for one in lines[last + 1 :] if one and not one[0].isspace()), line)
    else:
        causes = [one.strip().removeprefix(_CAUSE) for one in lines if one.strip().startswith(_CAUSE)]
        # "java.io.EOFException" alone tells less than "Python worker exited unexpectedly".
        line = next((one for one in reversed(causes) if ": " in one), line)
    return line.removeprefix(": ").partition(_ADVICE)[0].strip()[:300]
