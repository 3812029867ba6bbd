"""A simulated object store, and the clock of the processes that use it."""

import pytest

from tests.crash.simstore import SimStore
from tests.storage.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> SimStore:
    return SimStore()
