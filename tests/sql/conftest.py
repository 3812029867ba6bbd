"""What tests of SQL share: one Spark session per process, which plans and is the oracle."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sql.snapshots import Oracle


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    """Spark, for the tests of a file. Files of other folders stop the session that all of a process share."""
    scratch: Path = tmp_path_factory.mktemp("plans")
    with Oracle.started(scratch) as running:
        yield running
