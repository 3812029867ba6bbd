"""How a service divides the memory that there is, and what its settings say of it."""

from pathlib import Path

import pytest

from vernier.service.config.memory_shares import LEAST_WORKER, MB, divide, java_bytes
from vernier.service.config.settings import BadSettings, load

GB = 1 << 30


@pytest.mark.parametrize("usable", [4 * GB, 8 * GB, 64 * GB])
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("broker", [True, False])
def test_all_of_it_together_fits(usable: int, workers: int, broker: bool) -> None:
    shares = divide(usable, workers, broker=broker)
    together = shares.driver_heap + workers * shares.worker + (shares.broker_heap if broker else 0)
    if shares.worker > LEAST_WORKER:
        # A gigabyte and more is for what has no bound of its own.
        assert together + 1100 * MB < usable
    assert shares.driver_heap <= 1024 * MB
    assert shares.broker_heap <= 384 * MB


def test_four_gigabytes_are_enough_for_two_workers() -> None:
    shares = divide(4 * GB, 2, broker=True)
    assert (shares.driver_heap // MB, shares.broker_heap // MB) == (682, 256)
    assert shares.worker > 700 * MB


def test_what_the_settings_say_counts() -> None:
    flags = {"spark.driver_memory": "2g", "kafka.heap_mb": 100, "workers": 1, "worker_memory_max_mb": 900}
    settings = load(None, flags, {}).settings
    assert settings.shares.driver_heap == 2 * GB
    assert settings.shares.broker_heap == 100 * MB
    assert settings.most_bytes == 900 * MB


def test_an_epoch_may_take_more_than_is_kept_behind_it() -> None:
    settings = load(None, {"worker_memory_mb": 128, "workers": 1}, {}).settings
    assert settings.most_bytes == 640 * MB
    away = load(None, {"spark.master": "spark://elsewhere:7077"}, {}).settings
    assert away.most_bytes is None


def test_sizes_as_java_writes_them() -> None:
    assert [java_bytes(text) for text in ("1g", "512m", "2GB", "300", "2048K")] == [
        GB, 512 * MB, 2 * GB, 300 * MB, 2 * MB,
    ]  # fmt: skip
    with pytest.raises(BadSettings, match="write it like 1g or 512m"):
        load(None, {"spark.driver_memory": "much"}, {})


def test_the_scratch_folder_lies_beside_the_state(tmp_path: Path) -> None:
    beside = load(None, {"state.path": str(tmp_path / "state")}, {}).settings
    assert beside.scratch_root == tmp_path / "state.scratch"
    given = load(None, {"state.scratch": str(tmp_path / "else")}, {}).settings
    assert given.scratch_root == tmp_path / "else"
