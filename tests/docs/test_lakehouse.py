"""The page on Spark, files and databases, with a real service: a reader sees what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.session import Session
from tests.docs.test_tutorial import Service


@pytest.mark.live
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_reader_sees_what_the_page_shows(tmp_path: Path) -> None:
    session = Session(tmp_path)
    service = Service(session)
    session.instead["vernier up"] = service.up
    try:
        assert session.follow("lakehouse.md") > 15
    finally:
        service.down()
