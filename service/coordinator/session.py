"""Spark: the session, the Kafka stream, and an epoch's barrier stage. Only this module and executors.py know PySpark's
internals.

Spark's own machinery makes up most of the cost of an epoch, so the settings here reduce it (measured in
docs/performance.md): no forked `chmod` for each checkpoint file, no second planning, no transport of results back to
the driver, sockets without delayed acknowledgements, and one expression for the workers that is made once and used for
every epoch.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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

from vernier.service.cluster import template
from vernier.service.cluster.process import Job
from vernier.service.cluster.worker import ATTEMPT, load, nothing, task
from vernier.service.config.settings import Settings
from vernier.service.errors import SparkFailed
from vernier.service.ingest.config import IngestionConfig
from vernier.service.toolchain.jars import spark_jars
from vernier.service.toolchain.jvm import (
    QUICK_START,
    Gateway,
    class_data,
    class_path,
    java_options,
    launch_java,
    prepare_environment,
)
from vernier.storage.cpus import usable_cores

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
EARLIEST, LATEST = -2, -1
CHECKPOINT_MS = 60_000
"""How often Spark writes its checkpoint, which nothing of ours reads, in a thread of its own (decision 47)."""
LONGEST_SOCKET_FOLDER = 60
"""The maximum length of the folder's path in bytes: with a longer one, Spark fails each task that runs Python."""
TASKS_END_SECONDS = 5.0
"""Seconds that the tasks of a failed stage may take to end; Spark kills a Python process that does not after two."""
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_BARRIER = "finished unsuccessfully."
_TRACEBACK = "Traceback (most recent call last):"
_CAUSE = "Caused by: "
_OF_A_FUTURE = "java.util.concurrent.ExecutionException"
"""The exception in which Spark wraps the error of a job that runs asynchronously."""
_ADVICE = " Consider setting "
_log = logging.getLogger("vernier.spark")

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What a task does with the rows of its partition."""


def start_session(settings: Settings, app: str, scratch: Path, gateway: Gateway | None = None) -> SparkSession:
    """Start Spark; takes ~4 s. scratch: the folder for its temporary files. gateway: its JVM, if that was launched
    earlier.

    Raises SparkFailed, JavaMissing, JarsError.
    """
    if gateway is None and SparkContext._gateway is None:
        gateway = launch_java(settings, scratch)
    prepare_environment(settings)
    wanted = {
        "spark.app.name": f"vernier-{app}",
        "spark.master": settings.spark.master or f"local[{local_slots(settings)}]",
        "spark.default.parallelism": str(settings.workers),
        "spark.jars": ",".join(str(jar) for jar in spark_jars()),
        "spark.driver.memory": f"{settings.shares.driver_heap >> 20}m",
        "spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in java_options(settings, scratch)),
        "spark.driver.host": settings.exchange.host,
        "spark.driver.bindAddress": settings.exchange.host,
        **_private(settings),
        **_on_cluster(settings),
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **_sockets(scratch, settings.spark.on_cluster),
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "vernier.service.cluster.daemon",
        "spark.task.maxFailures": "1",
        "spark.dynamicAllocation.enabled": "false",
        "spark.speculation": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(settings.workers),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        # Omitting checksum files halves the writes; the checkpoint is thrown away at each start anyway.
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "16",
        "spark.sql.streaming.stopTimeout": "30000",
        "spark.sql.maxPlanStringLength": "64",
        # Epochs have few rows, and each epoch plans anew. Generating code costs more than it saves (a fifth of the
        # JVM's time): even code that is compiled already must be generated as text again to look it up.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # Operators that are classes of Spark's, not closures: Spark reads and parses the class file around each closure
        # of a job anew, for every job.
        "spark.sql.execution.usePartitionEvaluator": "true",
        **settings.spark.conf,
    }
    if gateway is not None:
        # they are on its class path already
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


def local_slots(settings: Settings) -> int | None:
    """How many tasks Spark can run at once on this host; None if it runs on a cluster. Without `spark.master`, that is
    twice the cores, or as many as there are workers, so that a running service can be given more workers."""
    master = settings.spark.master
    if master is None:
        return max(settings.workers, 2 * usable_cores())
    if settings.spark.on_cluster:
        return None
    count = master.removeprefix("local").strip("[]").partition(",")[0]
    return usable_cores() if count == "*" else int(count or 1)


def open_stream(
    spark: SparkSession,
    settings: Settings,
    ingestion: IngestionConfig,
    offsets: Mapping[str, Mapping[int, int]],
    limit: int | None,
) -> DataFrame:
    """A stream over all ingest topics, from the next offsets on; partitions without a next offset start at the earliest
    one. limit: the maximum number of messages of a micro-batch at first (see `set_limit`).

    Old heartbeats have no meaning and may be gone, so the heartbeat topic is read from its end.
    """
    starting = {
        topic: {
            str(p): LATEST if topic == ingestion.heartbeat_topic else offsets.get(topic, {}).get(p, EARLIEST)
            for p in range(count)
        }
        for topic, count in ingestion.partitions.items()
    }
    options: dict[str, str] = {
        "kafka.bootstrap.servers": settings.kafka.bootstrap,
        "subscribe": ",".join(ingestion.partitions),
        "startingOffsets": json.dumps(starting),
        "includeHeaders": "true",
        # Lost offsets (a topic that was truncated while the service was down) must not go unnoticed.
        "failOnDataLoss": "true",
        # Another service's output topic also contains the messages of its aborted transactions.
        "kafka.isolation.level": "read_committed",
        "fetchOffset.retryIntervalMs": "100",
        # A consumer asks for the next messages as soon as it has some, and a broker answers a connection's requests one
        # after another: the next epoch's first request would wait for that answer.
        "kafka.fetch.max.wait.ms": "0",
        "kafka.max.poll.records": "10000",
        # What is fetched ahead of an epoch is garbage of the young generation this way; larger pieces grow old, and
        # collecting them stops Spark for tenths of a second.
        "kafka.max.partition.fetch.bytes": str(4 << 20),
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
    options = {
        "checkpointLocation": f"file://{checkpoint}",
        "asyncProgressTrackingEnabled": "true",
        "asyncProgressTrackingCheckpointIntervalMs": str(CHECKPOINT_MS),
        # Spark refuses it for sinks that could rely on the checkpoint.
        "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
    }
    return stream.writeStream.foreachBatch(epoch).options(**options).start()


def set_limit(spark: SparkSession, query: StreamingQuery, limit: int) -> bool:
    """Change the rate limit of a running query from its next micro-batch on. False if Spark's internals do not allow
    it.

    Spark reads the option once, when the query starts, and keeps the result in a map from sources to read limits that
    it consults for each batch. That map is no public interface; a test checks it against the Spark release that we pin.
    Call this while a micro-batch runs, so that Spark does not read the map at the same time.
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


def batch_ends(query: StreamingQuery) -> dict[str, dict[int, int]]:
    """By topic and partition, the offset after the last message of the micro-batch that the query is at. Call it while
    the micro-batch runs. Raises SparkFailed."""
    try:
        execution: Any = query._jsq.streamingQuery()
        ends = json.loads(execution.availableOffsets().head()._2().json())
    except Py4JError as error:
        raise SparkFailed(problem=cause_of(error)) from error
    return {topic: {int(one): end for one, end in own.items()} for topic, own in ends.items()}


class Stage:
    """The barrier stage of an epoch's attempt: N tasks that run `work`, by default service/cluster/worker.py."""

    def __init__(self, spark: SparkSession, work: Job | Work, workers: int) -> None:
        self._context = spark.sparkContext
        self._workers = workers
        call = partial(task, work) if isinstance(work, Job) else work
        # Columns are given by name and not from a DataFrame: one expression, pickled once, then fits the frames of all
        # epochs.
        self._expression = _expression(call, COLUMNS)
        jvm: Any = spark._jvm
        self._scan = jvm.org.apache.spark.sql.execution.RDDScanExec
        self._planned: _Planned | None = None

    def run(self, frame: DataFrame, attempt: str) -> bool:
        """Run the attempt's tasks to their end. Returns False if the frame has no rows, so that there was nothing to
        run.

        Raises SparkFailed when a task or its process dies. Workers that survive a failure report it themselves.
        """
        try:
            self._context.setLocalProperty(ATTEMPT, attempt)
            tasks = self._tasks(frame._jdf)
            if (count := tasks.getNumPartitions()) == 0:
                return False
            if count != self._workers:
                # Spark makes no task for a partition without records. The rows of a partition stay together and in
                # order.
                tasks = self._plan(frame.repartition(self._workers, "topic", "partition")._jdf).execute()
            # An RDD's own `count` has Spark parse its largest class files three times; this one parses a small one.
            tasks.toJavaRDD().countAsync().get()
        except Py4JError as error:
            _let_tasks_end(self._context)
            raise SparkFailed(problem=cause_of(error)) from error
        return True

    def cancel(self) -> None:
        """Kill the running tasks, whatever they are doing."""
        self._context.cancelAllJobs()

    def _tasks(self, frame: Any) -> Any:
        """The workers' stage over a frame, as an RDD: counting it avoids the cost of returning results through SQL.

        Spark plans the first frame of a stream. The plans of the following ones differ from it in the rows that they
        scan, so only those are replaced (decision 46).
        """
        logical = frame.logicalPlan()
        if logical.nodeName() != "LogicalRDD":
            return self._plan(frame).execute()
        if self._planned is None:
            plan = self._plan(frame)
            scan = plan.child()
            about = scan.outputPartitioning(), scan.outputOrdering(), scan.stream()
            self._planned = _Planned(
                plan, plan.func(), plan.output(), plan.profile(), scan.output(), scan.name(), about
            )
        else:
            known = self._planned
            scan = self._scan(known.columns, logical.rdd(), known.name, *known.about)
            # The newest plan is kept, so that nothing holds the rows of former ones.
            known.plan = known.plan.copy(known.function, known.output, scan, True, known.profile)
        return self._planned.plan.execute()

    def _plan(self, frame: Any) -> Any:
        """Spark's plan of the workers' stage over a frame."""
        return frame.mapInArrow(self._expression, True, None).queryExecution().executedPlan()


@dataclass(slots=True)
class _Planned:
    """A plan of the workers' stage over an RDD, and its parts as Spark's objects. columns, name, about: of its scan."""

    plan: Any
    function: Any
    output: Any
    profile: Any
    columns: Any
    name: Any
    about: tuple[Any, Any, Any]


class Keeper:
    """Has Spark keep its Python processes on this host, which it ends if none of them has had a task for a minute."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tasks: Any = None

    def keep(self) -> None:
        """Run a task that does nothing, in one of the processes: some 20 ms. Raises SparkFailed."""
        try:
            if self._tasks is None:
                frame: Any = self._spark.range(0, 1, 1, 1)._jdf
                plan = frame.mapInArrow(_expression(nothing, ["id"]), False, None).queryExecution().executedPlan()
                self._tasks = plan.execute().toJavaRDD()
            self._tasks.countAsync().get()
        except Py4JError as error:
            raise SparkFailed(problem=cause_of(error)) from error


class LoadStage:
    """The stage of an attempt that loads a part of a snapshot: N tasks, each of which reads one partition of the
    snapshot's frame, without a shuffle.

    It is no barrier stage, because Spark runs those on all partitions of a frame only. names: the columns of the
    source; take: the partitions to read. Set `take` before each epoch.
    """

    def __init__(self, spark: SparkSession, job: Job, workers: int, names: Sequence[str]) -> None:
        self.take: list[int] = []
        self._context, self._workers = spark.sparkContext, workers
        self._expression = _expression(partial(load, job), names)

    def run(self, frame: DataFrame, attempt: str) -> bool:
        """Run the attempt's tasks to their end. frame: it has at least `workers` partitions. Raises SparkFailed."""
        try:
            self._context.setLocalProperty(ATTEMPT, attempt)
            rows = frame._jdf.mapInArrow(self._expression, False, None).queryExecution().toRdd()
            gateway: Any = self._context._gateway
            numbers = gateway.new_array(gateway.jvm.int, self._workers)
            for at, number in enumerate(self.take):
                numbers[at] = number
            rows.toJavaRDD().collectPartitions(numbers)
        except Py4JError as error:
            _let_tasks_end(self._context)
            raise SparkFailed(problem=cause_of(error)) from error
        return True

    def cancel(self) -> None:
        """Kill the running tasks, whatever they are doing."""
        self._context.cancelAllJobs()


def _expression(call: Callable[..., Any], names: Iterable[str]) -> Any:
    """A task's function, applied to columns, as Spark's object. All are of one kind: each kind has Python processes of
    its own."""
    udf: Any = pandas_udf(  # type: ignore[call-overload]
        call, returnType="none int", functionType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    return udf(*[col(name) for name in names])._jc


def _let_tasks_end(context: SparkContext) -> None:
    """After a stage has failed on this host, wait for its other tasks. The processes that run them have their shards in
    memory; without waiting, Spark would start new ones for the next attempt. On a cluster the next attempt must not
    wait for an executor that is gone."""
    deadline = time.monotonic() + TASKS_END_SECONDS
    with contextlib.suppress(Exception):
        scheduler: Any = context._jsc.sc().taskScheduler()
        while time.monotonic() < deadline:
            running = scheduler.runningTasksByExecutors().get("driver")
            if running.isEmpty() or running.get() == 0:
                return
            time.sleep(0.005)


def _sockets(folder: Path, on_cluster: bool) -> dict[str, str]:
    """Put Spark's sockets into a folder of ours if its path is short enough for Spark; otherwise Spark uses TCP, and an
    epoch waits 40 ms for delayed acknowledgements. Our folder is on the driver's host alone: on a cluster, the sockets
    are in the folder for temporary files of each process, on the driver's host the one that ours is in."""
    fits = len(os.fsencode(folder)) <= LONGEST_SOCKET_FOLDER
    enabled = {"spark.python.unix.domain.socket.enabled": str(fits).lower()}
    return enabled | ({"spark.python.unix.domain.socket.dir": str(folder)} if fits and not on_cluster else {})


def _private(settings: Settings) -> dict[str, str]:
    """Spark's own channels carry our keys to the workers, so between hosts these channels are encrypted, too."""
    if not settings.exchange.encrypted or (settings.spark.master or "local").startswith("local"):
        return {}
    return {"spark.authenticate": "true", "spark.network.crypto.enabled": "true", "spark.io.encryption.enabled": "true"}


def _on_cluster(settings: Settings) -> dict[str, str]:
    """On a cluster, an executor that dies must not hold epochs up for longer than its successor takes.

    Spark looks every 15 s whether it has the cores for a barrier stage, and gives up after 40 looks; and it believes
    for two minutes in an executor whose host has vanished without a word. Executors start with the class data of this
    host's JVMs, where theirs has it at the same path: the archive's class path has to be the first part of theirs.
    """
    if not settings.spark.on_cluster:
        return {}
    path, own = class_path("spark"), (settings.spark.master or "").startswith(("spark://", "local-cluster"))
    return {
        **({f"spark.executorEnv.{template.WANTED}": "1"} if own else {}),
        "spark.executor.extraClassPath": os.pathsep.join(map(str, path)),
        "spark.executor.extraJavaOptions": " ".join([*QUICK_START, *class_data("spark", path, record=False)]),
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": str(max(40, settings.epoch.timeout_ms // 1000)),
        # A task prefers the executor where its partition was read before, and Spark keeps it for three seconds from any
        # other one: after an executor's end, and again when its successor is there. All tasks of a barrier stage wait.
        # Without that time Spark still takes the preferred one if it is free.
        "spark.locality.wait": "0s",
        "spark.executor.heartbeatInterval": "2s",
        "spark.network.timeoutInterval": "5s",
        "spark.storage.blockManagerHeartbeatTimeoutMs": "20000",
    }


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
    """One line that names the cause of Spark's failure, extracted from the Java stack trace that is the error's text.

    A barrier stage's own line only says which task failed; the line after it has the reason. If the reason is a Python
    exception, the cause is the last line of its traceback. Otherwise it is the last cause in the stack trace that has a
    message.
    """
    lines = str(error).splitlines() or [type(error).__name__]
    if any(_OF_A_FUTURE in line for line in lines[:2]):
        at = next((at for at, line in enumerate(lines) if line.startswith(_CAUSE)), 0)
        lines = [lines[at].removeprefix(_CAUSE), *lines[at + 1 :]]
    said = next((at for at, line in enumerate(lines) if "Exception" in line or "Error" in line), 0)
    if lines[said].endswith(_BARRIER) and said + 1 < len(lines):
        said += 1
    line = lines[said]
    if line.endswith(_TRACEBACK):
        last = max(at for at, one in enumerate(lines) if one.endswith(_TRACEBACK))
        line = next((one for one in lines[last + 1 :] if one and not one[0].isspace()), line)
    else:
        causes = [one.strip().removeprefix(_CAUSE) for one in lines if one.strip().startswith(_CAUSE)]
        # "java.io.EOFException" alone is less helpful than "Python worker exited unexpectedly".
        line = next((one for one in reversed(causes) if ": " in one), line)
    return line.removeprefix(": ").partition(_ADVICE)[0].strip()[:300]
