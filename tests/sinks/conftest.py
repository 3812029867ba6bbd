"""Fixtures of the service's tests."""

from collections.abc import Iterator

import pytest

from service.broker import EmbeddedBroker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """One running broker for all tests that only need one; use topic names of your own, do not stop it."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running
