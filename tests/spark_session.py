"""Spark sessions of tests: on this machine's loopback, without the user interface."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def session(cores: int, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session with this number of cores and these settings; it stops at the end."""
    # The JVM of an earlier session, which no spark-submit started, names no application.
    builder = SparkSession.builder.master(f"local[{cores}]").appName("tests")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        **settings,
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
