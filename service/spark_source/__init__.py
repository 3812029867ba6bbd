"""The Spark data source `vernier`: views as DataFrames and streams of changes, and DataFrames written into sources.

In: views of a state directory, or of a sidecar over HTTP; DataFrames to write. Out: Arrow batches for Spark, parallel
by ranges of hashes; requests that carry a DataFrame's rows to a source. Spark's Python processes run this room: they
plan a read in one process and run its parts in others, so everything that goes between them can be pickled.
Read first: source.py, which Spark calls; from_state.py and from_http.py read the data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the format `vernier` known to a Spark session.

        vernier.register(spark)
        spark.read.format("vernier").option("state", ".run/state").option("view", "reach").load()

    Sets `spark.sql.python.filterPushdown.enabled`, which the option `pushdown` needs.
    """
    from vernier.service.spark_source.source import VernierSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(VernierSource)
