"""The data source in Spark: SQL on a view, filters that reach it, a stream restarted by its checkpoint, a write."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import vernier as vn
from tests.service.test_ingest import prepare
from tests.service.test_send import read
from tests.sidecar.builder import Change, StateBuilder, ViewModel
from tests.sidecar.conftest import Served
from tests.sidecar.conftest import builder as builder
from tests.sidecar.conftest import serve as serve
from tests.spark_session import session
from tests.spark_source.test_readers import PEOPLE, VIEWS, person
from vernier.service.config.settings import load
from vernier.service.kafka.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as any Spark program has one."""
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    with session(2, {"spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": warehouse}) as started:
        vn.register(started)
        yield started


def test_sql_on_a_view(spark: SparkSession, tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path / "state", VIEWS, shards=3)
    builder.commit(100, {"people": [(person(n), n, 1) for n in range(90)]})
    builder.close()
    read = spark.read.format("vernier").option("state", str(tmp_path / "state")).option("view", "people")
    people = read.option("as_of", "59").option("partitions", "3").load()
    assert people.schema.names == list(PEOPLE.names)
    assert people.rdd.getNumPartitions() == 3
    chosen = people.where("age > 50 and ok and day is not null").select("name", "at", "price", "tags", "place")
    assert "Filter " in chosen._jdf.queryExecution().executedPlan().toString()
    found = {row.name: row for row in chosen.collect()}
    assert sorted(found) == ["52", "56", "58"]
    assert (found["56"].at, str(found["56"].price), found["56"].tags) == (10**18 + 56, "14.00", ["56", None])
    assert found["56"].place.asDict() == {"x": 28.0, "since": 56}
    people.createOrReplaceTempView("people")
    assert spark.sql("select count(*) n, sum(age) a from people").first().asDict() == {
        "n": 60, "a": sum(n for n in range(60) if n % 3),
    }  # fmt: skip


def test_a_stream_restarted_ten_times_has_each_change_once(spark: SparkSession, tmp_path: Path) -> None:
    builder, model, chance = (
        StateBuilder(tmp_path / "state", {"reach": VIEWS["reach"]}, shards=2),
        ViewModel(),
        random.Random(3),
    )
    found: list[tuple[int, int, int]] = []

    def take(batch: DataFrame, number: int) -> None:
        found.extend(tuple(row) for row in batch.collect())

    for number in range(11):
        lower = number * 10
        own: list[Change] = [
            ((chance.randrange(9),), lower + chance.randrange(10), chance.choice([1, 1, -1])) for _ in range(20)
        ]
        model.changes += own
        builder.commit(lower + 10, {"reach": own}, keep=3)
        stream = spark.readStream.format("vernier").option("state", str(builder.path)).option("view", "reach")
        query = (
            stream.option("since", "0").load().writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(60)
    builder.close()
    assert Counter(found) == Counter((row[0], at, diff) for row, at, diff in model.between(0, 1 << 62))


def test_rows_are_those_of_http(spark: SparkSession, serve: Callable[..., Served], tmp_path: Path) -> None:
    own = StateBuilder(tmp_path / "state", {"reach": VIEWS["reach"]}, shards=2)
    own.commit(100, {"reach": [((n,), n % 90, 1 + n % 2) for n in range(20_000)]})
    own.commit(200, {"reach": [((n,), 150, -1) for n in range(0, 20_000, 2)]})
    own.close()
    served = serve(own.path)
    with vn.connect(served.url) as client:
        for as_of in (40, 99, 170):
            wanted = Counter({row["node"]: row["_diff"] for row in client.arrow("reach", as_of=as_of).to_pylist()})
            for place in ({"state": str(own.path), "partitions": "2"}, {"url": served.url}):
                found = spark.read.format("vernier").options(view="reach", as_of=str(as_of), **place).load()
                assert Counter(row.node for row in found.collect()) == wanted


def test_mistakes_are_named(spark: SparkSession, tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path / "state", VIEWS)
    builder.commit(10, {})
    builder.close()
    given: dict[str, Any] = {"state": str(tmp_path / "state"), "view": "people"}
    with pytest.raises(Exception, match="there is no view 'peeple'; did you mean 'people'"):
        spark.read.format("vernier").options(**{**given, "view": "peeple"}).load()
    stream = spark.readStream.format("vernier").options(**given).load().writeStream.format("noop")
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(Exception, match="a stream has changes, with the columns _time and _diff"):
        query.awaitTermination()


@pytest.mark.broker
def test_frames_and_streams_go_into_a_source(
    spark: SparkSession, builder: StateBuilder, serve: Callable[..., Served], broker: EmbeddedBroker, tmp_path: Path
) -> None:
    broker.create_topics({"spark-edges": 1})
    prepare(builder, "spark-edges", "event")
    url = serve(builder.path, service=load(None, {"kafka.bootstrap": broker.bootstrap}, {}).settings).url
    frame = spark.createDataFrame([(n, n + 1, 20 + n) for n in range(5)], "src long, dst long, _time long")
    frame.write.format("vernier").option("url", url).option("source", "edges").mode("append").save()
    with pytest.raises(Exception, match="option mode: is overwrite"):
        frame.write.format("vernier").option("url", url).option("source", "edges").mode("overwrite").save()
    changes = spark.readStream.format("vernier").option("url", url).option("view", "reach").option("since", "0").load()
    query = (
        changes.selectExpr("node + 100 as src", "node as dst", "_time + 90 as _time", "_diff")
        .writeStream.format("vernier").option("url", url).option("source", "edges")
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(60)
    messages = [json.loads(record.value) for records in read(broker, "spark-edges").values() for record in records]
    updates = sorted((*map(int, row), int(at), diff) for message in messages for row, at, diff in message["u"])
    assert updates == [*((n, n + 1, 20 + n, 1) for n in range(5)), (101, 1, 93, 1)]


def test_filters_that_are_pushed_down(spark: SparkSession, tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path / "state", VIEWS)
    builder.commit(100, {"people": [(person(n), n, 1) for n in range(90)]})
    builder.close()
    read = spark.read.format("vernier").option("state", str(tmp_path / "state")).option("view", "people")
    chosen = read.option("pushdown", "true").load().where("age > 50 and ok and day is not null")
    # Spark itself filters nothing: all three conditions are evaluated by the view's readers.
    assert "Filter " not in chosen._jdf.queryExecution().executedPlan().toString()
    assert chosen.count() == len([n for n in range(51, 90) if n % 2 == 0 and n % 3])
