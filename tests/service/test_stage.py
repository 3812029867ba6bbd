"""The workers' stage on the pinned Spark: tasks read the rows of their own frame, though Spark plans only the first."""

import json
import subprocess
import sys
import textwrap
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = textwrap.dedent("""
    import json, os, sys, threading, time
    from pathlib import Path
    from vernier.service.config.settings import load
    from vernier.service.coordinator.session import Stage, start_session
    from vernier.service.errors import SparkFailed

    folder = Path(sys.argv[1])
    spark = start_session(load(None, {"workers": 2}, {}).settings, "stage", folder)

    def rows(first, count, partitions):
        return spark.range(first, first + count, 1, partitions).selectExpr(
            "cast(null as binary) key", "cast(cast(id as string) as binary) value", "'t' topic",
            "cast(id % 2 as int) partition", "id offset", "timestamp_millis(0) timestamp",
            "array(named_struct('key', 'a', 'value', cast('x' as binary))) headers",
        )

    def micro_batch(first, count, partitions=2):
        # as foreachBatch has them: rows of an RDD
        own = rows(first, count, partitions)
        return spark.createDataFrame(own.rdd, own.schema)

    def keep(batches):
        from pyspark import TaskContext
        found = [value.decode() for batch in batches for value in batch["value"].to_pylist()]
        place = folder / f"{TaskContext.get().partitionId()}.json"
        place.write_text(json.dumps(found))
        return iter(())

    def raises(batches):
        raise ValueError("the cup is empty")

    def dies(batches):
        os._exit(3)

    def waits(batches):
        (folder / "waiting").touch()
        threading.Event().wait(120)
        return iter(())

    def seen(frame):
        for place in folder.glob("*.json"):
            place.unlink()
        ran = stage.run(frame, "a")
        found = {int(one.stem): json.loads(one.read_text()) for one in folder.glob("*.json")}
        return [ran, sorted(found), sorted((int(value) for own in found.values() for value in own))]

    def failure(work):
        try:
            Stage(spark, work, 2).run(micro_batch(0, 4), "b")
        except SparkFailed as error:
            return str(error)

    stage = Stage(spark, keep, 2)
    told = {
        "first": seen(micro_batch(0, 4)),
        "second": seen(micro_batch(10, 3)),
        "one partition": seen(micro_batch(20, 4, partitions=1)),
        "after it": seen(micro_batch(30, 2)),
        "no rdd": seen(rows(40, 4, 2)),
        "after that": seen(micro_batch(50, 4)),
        "empty": stage.run(spark.createDataFrame(spark.sparkContext.emptyRDD(), rows(0, 1, 1).schema), "a"),
        "raises": failure(raises),
        "dies": failure(dies),
    }
    stopped = Stage(spark, waits, 2)

    def cancel():
        while not (folder / "waiting").exists():
            time.sleep(0.01)
        stopped.cancel()

    threading.Thread(target=cancel).start()
    try:
        stopped.run(micro_batch(0, 4), "c")
    except SparkFailed as error:
        told["cancelled"] = str(error)
    told["at last"] = seen(micro_batch(60, 2))
    spark.stop()
    print(json.dumps(told))
""")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("stage")
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(folder)], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("which", "rows"),
    [
        ("first", [0, 1, 2, 3]),
        ("second", [10, 11, 12]),
        ("one partition", [20, 21, 22, 23]),
        ("after it", [30, 31]),
        ("no rdd", [40, 41, 42, 43]),
        ("after that", [50, 51, 52, 53]),
        ("at last", [60, 61]),
    ],
)
def test_each_task_reads_the_rows_of_its_own_frame(told: Any, which: str, rows: list[int]) -> None:
    assert told[which] == [True, [0, 1], rows]


def test_a_frame_without_partitions_runs_nothing(told: Any) -> None:
    assert told["empty"] is False


def test_a_failure_is_named(told: Any) -> None:
    assert told["raises"] == "ValueError: the cup is empty"
    assert told["dies"]
    assert "cancelled as part of cancellation of all jobs" in told["cancelled"]
