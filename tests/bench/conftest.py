"""Benchmarks that tests run keep their results in the test's own folder."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_RESULTS", str(tmp_path / "results"))
