"""An idle partition is reported as idle in every place that shows partitions."""

from collections.abc import Callable

import httpx

from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import Served, builder, serve  # noqa: F401
from vernier.service.cli.display import status_text
from vernier.service.coordinator.source_entries import partition_entry
from vernier.storage.state.manifest import PartitionEntry, sources_of
from vernier.storage.updates import MIN_TIME


def test_a_partition_that_gives_way_is_idle_where_it_was() -> None:
    assert partition_entry(7, {"frontier": 7}, 2) == PartitionEntry(7, lag=2)
    assert partition_entry(None, {"frontier": 5}) == PartitionEntry(5, idle=True)
    # One that has never said anything has no frontier to show.
    assert partition_entry(None, {"frontier": MIN_TIME}) == PartitionEntry(None, idle=True)
    assert partition_entry(None, {}) == PartitionEntry(None, idle=True)


def test_readers_are_told(builder: StateBuilder, serve: Callable[..., Served]) -> None:  # noqa: F811
    parts = {"0": {"frontier": "5", "state": "idle", "lag": 0}, "1": {"frontier": "9", "state": "idle", "lag": 0}}
    mixed = {"0": {"frontier": "5", "state": "idle", "lag": 0}, "1": {"frontier": "9", "state": "active", "lag": 0}}
    about = {"topic": "t", "format": "json", "clock": "event", "held": 0}
    builder.sources = sources_of(
        {
            "edges": about | {"frontier": None, "state": "idle", "partitions": parts},
            "roots": about | {"frontier": "9", "state": "active", "partitions": mixed},
        },
    )
    builder.commit(10, {})
    with httpx.Client(base_url=serve(builder.path).url) as http:
        sources = http.get("/v1/sources").json()["sources"]
        assert {name: (one["state"], one["frontier"]) for name, one in sources.items()} == {
            "edges": ("idle", "5"),
            "roots": ("active", "9"),
        }
        assert [part["state"] for part in sources["roots"]["partitions"].values()] == ["idle", "active"]
        frontiers = http.get("/v1/frontiers").json()["sources"]["roots"]["partitions"]
        assert frontiers == {"0": None, "1": ["9"]}
        status = {"app": "a", "url": "u", "ready": True, "epoch": 1, "stale_ms": 0, "views": [], "latency": {}}
        poisoned = sources | {"edges": sources["edges"] | {"errors": {"poison": 2}}}
        text = status_text(status | {"sources": poisoned})
    (line,) = [one for one in text.splitlines() if one.startswith("edges")]
    assert "idle" in line.split()
    assert "unknown" not in text
    assert "source edges: 2 messages killed or hung their decoder; see `vernier dlq list edges`" in text
