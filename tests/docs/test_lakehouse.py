"""The page on Spark, files and databases, with a real service: a reader sees what it shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext

from tests.docs.test_tutorial import follow


def end_jvm() -> None:
    """End the JVM that tests of this process share, if there is one; the next Spark session starts another one."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # type: ignore[attr-defined]
    gateway.proc.wait()  # type: ignore[attr-defined]
    SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture
def jvm_of_its_own() -> Iterator[None]:
    """The page's paths are relative, to the folder in which the JVM was started."""
    end_jvm()
    yield
    end_jvm()


@pytest.mark.usefixtures("jvm_of_its_own")
@pytest.mark.live
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_reader_sees_what_the_page_shows(tmp_path: Path) -> None:
    assert follow("lakehouse.md", tmp_path) > 15
