"""What every test gets: hypothesis profiles (tests/profiles.py), options, markers and shared fixtures."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tests.profiles  # noqa: F401  (loads the profile)
from vernier.service.kafka.embedded_broker import EmbeddedBroker

# Spark's workers must be this interpreter, with these packages.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
# A kernel that set-up did not compile fails the test that calls it, in every process that the test starts.
os.environ.setdefault("KERNEL_LIST", "product")
# A shell that runs the tests in the background has them ignore Ctrl-C, and so would every command that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


_BY_FIXTURE = {"broker": "broker", "browser": "browser"}
_BY_FOLDER = {"live": "live", "container": "container", "crash": "simulation"}


@pytest.fixture(scope="session", autouse=True)
def _results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Benchmarks that tests run keep their results in a folder of the tests, not in bench/results."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCH_RESULTS", str(tmp_path_factory.mktemp("results")))
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the project's own options."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files instead of comparing")
    parser.addoption("--nightly", action="store_true", help="run the tests marked nightly, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by what they use; run files with long tests first, so that none is left for the end; skip
    nightly tests unless --nightly is given."""
    for item in items:
        _mark(item)
    longest: dict[Path, float] = {}
    for item in items:
        allowed = item.get_closest_marker("timeout")
        longest[item.path] = max(
            longest.get(item.path, 0.0), float(allowed.args[0]) if allowed and allowed.args else 0.0
        )
    items.sort(key=lambda item: -longest[item.path])
    if not config.getoption("--nightly"):
        skip = pytest.mark.skip(reason="only with --nightly")
        for item in items:
            if "nightly" in item.keywords:
                item.add_marker(skip)


def _mark(item: pytest.Item) -> None:
    """Add the markers that follow from the fixtures of a test and from the folder that it is in."""
    for fixture, marker in _BY_FIXTURE.items():
        if fixture in getattr(item, "fixturenames", ()):
            item.add_marker(marker)
    for folder, marker in _BY_FOLDER.items():
        if folder in item.path.parts:
            item.add_marker(marker)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A running broker, shared by all tests of this process: use topic names of your own, and do not stop it."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten (`make golden`)."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment without VERNIER_ variables of the person who runs the tests."""
    for name in [name for name in os.environ if name.startswith("VERNIER_")]:
        monkeypatch.delenv(name)
    return monkeypatch
