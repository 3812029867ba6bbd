"""Query: Spark skips what the driver has processed without it in one micro-batch."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vernier.service.config.settings import load
from vernier.service.coordinator import streaming_query
from vernier.service.ingest.config import IngestionConfig


def test_the_next_micro_batch_has_what_is_processed_already(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limits: list[int] = []
    micro_batches: list[Callable[[Any, int], None]] = []

    def start(_stream: object, epoch: Callable[[Any, int], None], _checkpoint: Path) -> SimpleNamespace:
        micro_batches.append(epoch)
        return SimpleNamespace(stop=lambda: None)

    monkeypatch.setattr(streaming_query, "open_stream", lambda *_: None)
    monkeypatch.setattr(streaming_query, "start_query", start)
    monkeypatch.setattr(streaming_query, "set_limit", lambda _spark, _query, limit: limits.append(limit))
    small = SimpleNamespace(ahead=0, close=lambda: None)
    spark: Any = None
    query = streaming_query.Query(
        spark, load(None, {}, {}).settings, IngestionConfig({}), {}, 100, lambda _frame, _number: None, tmp_path
    )
    query.small = small  # type: ignore[assignment]
    for ahead, wanted in ((0, []), (100, []), (250, [350]), (900, [1000]), (40, [100]), (30, [])):
        small.ahead = ahead
        micro_batches[0](None, 0)
        assert limits == wanted
        limits.clear()
    query.close()
