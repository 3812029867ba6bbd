"""The sections of the settings for the parts of a service: state, epochs, Spark, HTTP, the workers' exchange, logs.

streams.py has those for what comes in and goes out; settings.py combines and reads them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from vernier.service.codec.instants import parse_instant
from vernier.service.config.loopback import is_loopback
from vernier.service.config.memory_shares import java_bytes
from vernier.service.config.section import Section, milliseconds
from vernier.storage.blob.leases import LEAST_LOCK_MS, LOCK_MS
from vernier.storage.blob.location import CACHE_BYTES, BlobLocation
from vernier.storage.errors import CallerError


class State(Section):
    """The state directory."""

    path: str = Field(default=".run/state", description="a directory, or a URI like s3://bucket/name")
    cache: Path | None = Field(
        default=None, description="where segments of a URI are copied to; default: among the temporary folders"
    )
    cache_mb: int = Field(default=CACHE_BYTES >> 20, ge=1, description="the size that these copies may reach")
    scratch: Path | None = Field(
        default=None,
        description="for short-lived files (Spark's, sockets, native libraries); default: beside the state",
    )
    keep: int = Field(default=64, ge=2, description="epochs whose manifests stay for readers that follow")
    scrub_mb_s: int = Field(
        default=16,
        ge=0,
        description="MB a second that the driver reads, after a start, to find damaged files; 0: none",
    )
    standby: bool = Field(
        default=False,
        description="while another coordinator owns the state: wait with Spark started, and take over when it ends",
    )
    lock_ms: int = Field(
        default=LOCK_MS,
        ge=LEAST_LOCK_MS,
        description="in an object store: the silence of the owner after which another machine may take over",
    )
    rebuild: bool = Field(
        default=False,
        description="if a changed program cannot continue from the state: start empty and read all of the topics",
    )
    discard_after: str | None = Field(
        default=None,
        description="give up what is in the topics now at or after this data time; see `vernier up --discard-after`",
    )
    keep_sources: bool = Field(
        default=False, description="keep every source's rows whole, so that programs can join or change later"
    )

    _durations = field_validator("lock_ms", mode="before")(milliseconds)

    @field_validator("discard_after", mode="before")
    @classmethod
    def _is_instant(cls, value: object) -> str | None:
        if value is None:
            return None
        if isinstance(value, datetime):  # YAML has parsed it as a date
            value = value.isoformat()
        try:
            return str(parse_instant(value if isinstance(value, int) else str(value)))
        except CallerError as error:
            raise ValueError(str(error)) from error

    @field_validator("path", mode="before")
    @classmethod
    def _written(cls, value: object) -> object:
        return os.fspath(value) if isinstance(value, Path) else value

    @property
    def place(self) -> BlobLocation:
        """The location of the state, for all processes of the service."""
        cache = None if self.cache is None else str(self.cache.resolve())
        place = BlobLocation(self.path, cache, self.cache_mb << 20, self.lock_ms)
        return place if place.folder is None else replace(place, uri=str(place.folder))

    @property
    def beside(self) -> Path:
        """The default place for files that are not state: beside the state directory, or `.run` if the state is at a
        URI.
        """
        folder = self.place.folder
        return Path(".run") if folder is None else folder.parent


class Epoch(Section):
    """How epochs run."""

    attempts: int = Field(default=4, ge=1, description="tries of one epoch before the query is started again")
    stop_ms: int = Field(
        default=4_000,
        ge=0,
        description="how long the running epoch may continue when the service stops; then it is abandoned",
    )
    on_error: Literal["retry", "stop"] = Field(
        default="retry", description="when the program fails on its data: try again, or stop and keep answering"
    )
    retry_ms: int = Field(
        default=30_000, ge=100, description="the longest pause before a failed program is tried again"
    )
    timeout_ms: int = Field(
        default=300_000, ge=1_000, description="how long one attempt may take, compilation included"
    )
    function_ms: int = Field(
        default=30_000,
        ge=50,
        description="how long a call of a function of the program takes until it is named; the call continues",
    )
    quarantine_ms: int = Field(
        default=10_000,
        ge=100,
        description="processor time that decoding one message may take once an attempt has died of decoding",
    )
    heartbeat_ms: int = Field(
        default=500, ge=10, description="silence after which the service makes an epoch by itself"
    )
    target_ms: int | None = Field(
        default=2_000, ge=50, description="how long a full epoch should take; null: only max_messages limits epochs"
    )
    min_messages: int = Field(default=1_000, ge=1, description="messages that an epoch may take, however slow they are")
    max_messages: int | None = Field(
        default=200_000, ge=1, description="messages an epoch takes at most; null: all there are"
    )
    direct_messages: int = Field(
        default=500,
        ge=0,
        description="the driver itself reads epochs of at most this many messages and sends them to the workers, "
        "without a job of Spark's; 0: none; not on a cluster",
    )
    slice_updates: int = Field(
        default=0,
        ge=0,
        description="updates a worker that go through the dataflow together; 0: as many as suit the state",
    )

    _durations = field_validator(
        "timeout_ms", "function_ms", "stop_ms", "heartbeat_ms", "retry_ms", "target_ms", "quarantine_ms", mode="before"
    )(milliseconds)


class Spark(Section):
    """The Spark engine."""

    master: str | None = Field(
        default=None, description="default: local[n], n the workers, or twice the cores if that is more"
    )
    driver_memory: str | None = Field(
        default=None, description="Java heap of the driver, like 1g; null: a sixth of the memory, 384m to 1g"
    )
    conf: dict[str, str] = Field(default={}, description="added to Spark's configuration; wins over what we set")
    gone_ms: int = Field(
        default=90_000,
        ge=1_000,
        description="on a cluster: how long Spark may lack cores for all workers, once it had them, until another "
        "driver takes over with a new Spark application; four times as long if it never had them",
    )

    @property
    def on_cluster(self) -> bool:
        """Whether executors are processes of their own."""
        return self.master is not None and self.master != "local" and not self.master.startswith("local[")

    @field_validator("driver_memory")
    @classmethod
    def _is_size(cls, value: str | None) -> str | None:
        if value is not None:
            java_bytes(value)
        return value


class Http(Section):
    """The sidecar: where it listens, who may send requests, and its limits."""

    host: str = Field(default="127.0.0.1", description="the address that the sidecar listens on")
    port: int = Field(default=8642, ge=0, le=65535, description="the port that the sidecar listens on")
    stale_after_ms: int = Field(
        default=10_000, ge=100, description="age of the newest epoch from which /readyz answers 503"
    )
    read_tokens: SecretStr | None = Field(
        default=None,
        description="tokens of clients that may read, separated by commas; from the environment only, or "
        "read_tokens_file",
    )
    read_tokens_file: Path | None = Field(default=None, description="a token a line; # begins a comment")
    admin_tokens: SecretStr | None = Field(
        default=None, description="tokens of clients that may also send updates, control the service and see settings"
    )
    admin_tokens_file: Path | None = Field(
        default=None, description="a file of tokens with the scope admin, one a line"
    )
    anonymous: Literal["none", "read", "admin"] | None = Field(
        default=None, description="what a request without a token may do; null: all on loopback without tokens"
    )
    open_metrics: bool = Field(default=False, description="/metrics needs no token")
    tls_cert: Path | None = Field(default=None, description="certificate (chain) in PEM; with tls_key: HTTPS")
    tls_key: Path | None = Field(default=None, description="its private key in PEM, not encrypted")
    max_rows: int = Field(default=100_000, ge=1, description="rows a page")
    max_response_bytes: int = Field(default=64 << 20, ge=1024, description="a page of rows ends before it is longer")
    max_body_bytes: int = Field(default=16 << 20, ge=1024, description="a longer request is refused")
    query_ms: int = Field(default=30_000, ge=1, description="a query that takes longer is abandoned")
    query_threads: int = Field(default=4, ge=1, description="longer queries that run at once; others wait")
    max_wait_ms: int = Field(default=60_000, ge=0, description="longest wait_ms of a request")
    max_subscribers: int = Field(default=2_000, ge=0, description="open change streams")
    subscriber_bytes: int = Field(
        default=8 << 20, ge=1024, description="size of the changes that may be queued for a subscriber"
    )
    heartbeat_ms: int = Field(default=15_000, ge=1, description="longest silence in a change stream")
    ingest_ms: int = Field(default=10_000, ge=100, description="how long Kafka may take for updates sent over HTTP")
    max_ingests: int = Field(default=16, ge=0, description="requests with updates at once; 0: none are taken")

    _durations = field_validator(
        "stale_after_ms", "query_ms", "max_wait_ms", "heartbeat_ms", "ingest_ms", mode="before"
    )(milliseconds)

    @model_validator(mode="after")
    def _pair(self) -> Http:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("set both tls_cert and tls_key, or neither")
        return self


class Sql(Section):
    """Questions in SQL over the views (`POST /v1/sql`). Their other limits are those of `http`: `query_ms`, `max_rows`,
    `max_response_bytes`.
    """

    workers: int = Field(
        default=2, ge=0, description="questions that run at once, each in a process; 0: none are taken"
    )
    memory_mb: int = Field(default=512, ge=64, description="memory of each of these processes, for views and questions")


class Exchange(Section):
    """How the driver and its workers reach each other."""

    host: str = Field(
        default="127.0.0.1", description="address at which workers reach the driver; they listen on theirs towards it"
    )
    encrypt: bool | None = Field(
        default=None, description="TLS and CURVE between them; default: unless `host` is loopback"
    )

    @field_validator("host")
    @classmethod
    def _is_somewhere(cls, value: str) -> str:
        if value in ("0.0.0.0", "::", ""):
            raise ValueError(f"workers cannot connect to {value!r}; give an address of the driver's host")
        return value

    @property
    def encrypted(self) -> bool:
        """Whether the connections are encrypted."""
        return not is_loopback(self.host) if self.encrypt is None else self.encrypt


class Log(Section):
    """Logging."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="the least level that is logged"
    )
    format: Literal["text", "json"] = Field(default="text", description="json: an object a line")
    directory: Path | None = Field(
        default=None, description="where the processes write their logs; default: beside the state"
    )


class Otel(Section):
    """Tracing spans of epochs, an extra: `pip install vernier[otel]`."""

    endpoint: str | None = Field(
        default=None, description="OTLP over HTTP, like http://127.0.0.1:4318/v1/traces; default: no spans"
    )
