"""What tests of SQL share: one Spark session per process, which plans and is the oracle."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sql.snapshots import Oracle


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    """Spark, for all tests of this process."""
    scratch: Path = tmp_path_factory.mktemp("plans")
    with Oracle.started(scratch) as running:
        yield running
