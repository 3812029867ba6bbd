"""Fixtures of the service's tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.broker import EmbeddedBroker
from tests.service.driven import Service


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """One running broker for all tests that only need one; use topic names of your own, do not stop it."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def service(tmp_path: Path, broker: EmbeddedBroker) -> Iterator[Service]:
    """A service that was not started yet."""
    made = Service(tmp_path, broker, f"pairs-{os.getpid()}-{tmp_path.name}")
    yield made
    made.close()
