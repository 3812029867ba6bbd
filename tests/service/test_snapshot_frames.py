"""What Spark reads as a snapshot: the columns and types of the source, in pieces that the next process finds again."""

import csv
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from tests.sidecar.builder import row_type
from tests.spark_session import session
from vernier.service.config.snapshots import Snapshot
from vernier.service.coordinator.snapshot_frames import Frame, open_frame
from vernier.service.errors import SnapshotUnreadable

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ORDERS = row_type(id="Int64", name="String | None", at="TimestampNs | None", price="Decimal(8, 2) | None")
WORKERS = 2


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    settings = {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={tmp_path_factory.mktemp('derby')}",
    }
    with session(2, settings) as started:
        yield started


def read(spark: SparkSession, version: int | None = None, **given: object) -> tuple[Frame, list[tuple[object, ...]]]:
    """A frame and its rows, without those that are there to be discarded."""
    frame = open_frame(spark, "orders", ORDERS, Snapshot.model_validate(given), WORKERS, version)
    rows = [tuple(row) for row in frame.rows.collect()]
    assert rows.count((None,) * 4) == WORKERS
    return frame, sorted((row for row in rows if row[0] is not None), key=str)


def test_files_of_any_format_have_the_sources_columns(spark: SparkSession, tmp_path: Path) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    table = pa.table({"price": [1.5, None], "other": [0, 0], "id": pa.array([1, 2], pa.int16()), "at": [at, at]})
    (tmp_path / "parquet").mkdir()
    for number in range(3):
        pq.write_table(table, tmp_path / "parquet" / f"{number}.parquet")
    given = {"format": "parquet", "path": str(tmp_path / "parquet"), "piece_mb": 1}
    frame, rows = read(spark, **given)
    assert (frame.pieces, len(rows)) == (3, 6)
    assert [str(value) for value in rows[0]] == ["1", "None", str(int(at.timestamp()) * 10**9), "1.50"]
    # Another process finds the same pieces, and other ones when a file has changed.
    assert read(spark, **given)[0].print == frame.print
    pq.write_table(table.slice(0, 1), tmp_path / "parquet" / "1.parquet")
    assert read(spark, **given)[0].print != frame.print

    with open(tmp_path / "orders.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "name", "at", "price"], [7, "ada", 12, "2.25"]])
    _, rows = read(spark, format="csv", path=str(tmp_path / "orders.csv"), options={"header": "true"})
    assert [str(value) for value in rows[0]] == ["7", "ada", "12", "2.25"]


def test_a_delta_table_stays_at_its_version(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "delta")
    write_deltalake(path, pa.table({"id": [1, 2], "name": ["a", "b"]}))
    frame, rows = read(spark, format="delta", path=path)
    assert [row[:2] for row in rows] == [(1, "a"), (2, "b")]
    write_deltalake(path, pa.table({"id": [3], "name": ["c"]}), mode="append")
    again, rows = read(spark, frame.version, format="delta", path=path)
    assert (again.print, len(rows)) == (frame.print, 2)
    assert len(read(spark, format="delta", path=path)[1]) == 3


def test_a_database_is_read_in_the_partitions_that_are_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    about = {"url": f"jdbc:derby:{tmp_path / 'db'};create=true", "driver": "org.apache.derby.jdbc.EmbeddedDriver"}
    orders = spark.createDataFrame([(n, f"n{n}") for n in range(20)], "id long, name string")
    orders.write.format("jdbc").options(**about, dbtable="orders").save()
    cut = {"partitionColumn": "id", "lowerBound": "0", "upperBound": "20", "numPartitions": "4"}
    frame, rows = read(spark, format="jdbc", table="orders", options={**about, **cut})
    assert (frame.pieces, len(rows)) == (4, 20)
    frame, rows = read(spark, format="jdbc", query='select "id" from orders where "id" < 3', options=about)
    assert (frame.pieces, [row[0] for row in rows]) == (1, [0, 1, 2])


def test_what_cannot_be_read_is_said(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SnapshotUnreadable, match=r"source orders cannot be read: .*(PATH_NOT_FOUND|does not exist)"):
        read(spark, format="parquet", path=str(tmp_path / "none"))
    pq.write_table(pa.table({"no": [1]}), tmp_path / "no.parquet")
    with pytest.raises(SnapshotUnreadable, match=r"it has no column 'id' \(it has no\)"):
        read(spark, format="parquet", path=str(tmp_path / "no.parquet"))
