"""Fixtures of the service's tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.driven import Service
from vernier.service.kafka.embedded_broker import EmbeddedBroker


@pytest.fixture
def service(tmp_path: Path, broker: EmbeddedBroker) -> Iterator[Service]:
    """A service that was not started yet."""
    made = Service(tmp_path, broker, f"pairs-{os.getpid()}-{tmp_path.name}")
    yield made
    made.close()
