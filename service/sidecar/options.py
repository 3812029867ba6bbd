"""The options that a sidecar is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vernier.service.config.settings import Settings
from vernier.service.sidecar.auth import Access
from vernier.service.sidecar.commit_watch import LONGEST_S
from vernier.storage.blob.location import BlobLocation


@dataclass(frozen=True, slots=True)
class Options:
    """Options and limits; the name of each limit includes its unit.

    settings: the service's own settings, shown at /v1/config with secrets masked. poll_ms: interval between checks for
    a new epoch where commits are not heard of (commit_watch.py; with a long interval, no commit is listened for).
    stale_after_ms: age of the newest epoch at which /readyz reports not ready. lag_limit: unread messages of a source
    at which /readyz reports not ready. default_rows, max_rows: rows per page. max_wait_ms: longest wait_ms.
    max_keys: keys per request. event_changes: changes per event (more only if a single data time has more).
    subscriber_bytes: how far a subscriber may be behind. max_subscribers: open change streams. heartbeat_s: longest
    silence in a change stream. stall_s: how long a subscriber may read nothing at all. access: the scopes of tokens.
    sql_workers, sql_memory_mb: processes for questions in SQL, and the memory of each.
    service: the settings used to send updates to Kafka; with None, updates are refused. origins: where each of the
    settings came from. The others are those of `http.` in the settings.
    """

    state: Path | BlobLocation
    host: str = "127.0.0.1"
    port: int = 8642
    settings: dict[str, Any] = field(default_factory=dict)
    poll_ms: float = 5
    stale_after_ms: int = 10_000
    lag_limit: int = 100_000
    default_rows: int = 1_000
    max_rows: int = 100_000
    max_keys: int = 10_000
    max_wait_ms: int = 60_000
    event_changes: int = 1_000
    subscriber_bytes: int = 8 << 20
    max_subscribers: int = 2_000
    heartbeat_s: float = 15
    stall_s: float = 60
    log_bytes: int = 16 << 20
    cache_bytes: int = 64 << 20
    max_response_bytes: int = 64 << 20
    max_body_bytes: int = 16 << 20
    query_ms: int = 30_000
    query_threads: int = 4
    sql_workers: int = 2
    sql_memory_mb: int = 512
    ingest_ms: int = 10_000
    max_ingests: int = 16
    open_metrics: bool = False
    tls: bool = False
    access: Access = field(default_factory=Access)
    service: Settings | None = None
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def watched(self) -> Path | None:
        """The folder in which to listen for commits, if they would be looked for as often as while listening."""
        return BlobLocation.of(self.state).folder if self.poll_ms <= 1000 * LONGEST_S else None
