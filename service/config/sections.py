"""The sections of the settings: one model for each part of a service. `settings.py` combines and reads them."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from vernier.operators.errors import ProgramError
from vernier.operators.language.types.duration import nanoseconds
from vernier.service.codec.instants import parse_instant
from vernier.storage.blob.location import CACHE_BYTES, Place
from vernier.storage.errors import CallerError

_MS = 1_000_000


def _ms(text: object) -> object:
    """Parse a duration setting: a number is milliseconds, a text has a unit."""
    if isinstance(text, str):
        if text.strip().isdecimal():
            return int(text)
        try:
            return -(-nanoseconds(text) // _MS)
        except ProgramError as error:
            raise ValueError(str(error)) from error
    return text


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address (with or without brackets). Of names, those that the resolver
    must give a loopback address count: `localhost` and what ends in `.localhost` (RFC 6761)."""
    name = host.strip("[]").lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


class Section(BaseModel):
    """A section of the settings. Unknown keys are refused, and values never change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Kafka(Section):
    """The Kafka brokers, or an embedded one."""

    bootstrap: str = Field(
        default="127.0.0.1:19092", description="host:port of one or more brokers, separated by commas"
    )
    embedded: bool = Field(default=False, description="start a single broker on the port of `bootstrap`, for trials")
    data: Path | None = Field(
        default=None, description="where the embedded broker keeps its log; default: beside the state"
    )
    heap_mb: int | None = Field(
        default=None, ge=64, description="Java heap of the embedded broker; null: a sixteenth of the memory, 128 to 384"
    )
    replication: int = Field(default=-1, description="of topics that the service creates; -1: as the brokers have it")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT", description="how clients talk to the brokers"
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        default="PLAIN", description="how clients log in, with SASL"
    )
    sasl_username: str | None = Field(default=None, description="the user that clients log in as, with SASL")
    sasl_password: SecretStr | None = Field(
        default=None, description="from the environment only; or sasl_password_file"
    )
    sasl_password_file: Path | None = Field(default=None, description="a file that holds the password, nothing else")
    ssl_cafile: Path | None = Field(
        default=None, description="authorities that certificates of brokers are checked by, PEM; default: the system's"
    )
    options: dict[str, str] = Field(default={}, description="handed to Spark's Kafka source as kafka.<name>")

    @property
    def patience_seconds(self) -> float:
        """How long a process waits for brokers at its start.

        An embedded broker starts in parallel, and the supervisor reports it if it fails.
        """
        return 300 if self.embedded else 30


class Source(Section):
    """Where a source comes from and how its time advances."""

    topic: str | None = Field(default=None, description="default: the source's name")
    partitions: int | None = Field(
        default=None, ge=1, description="of the topic, when the service creates it; default: workers"
    )
    format: Literal["vernier", "json", "insert_delete", "debezium", "arrow", "avro", "upsert"] = Field(
        default="vernier", description="how messages spell updates: docs/messages.md"
    )
    key: list[str] | None = Field(
        default=None, description="key columns of a source in format upsert (or debezium without before)"
    )
    schema_file: Path | None = Field(
        default=None, description="Avro schema of messages that are one record, nothing else"
    )
    schema_folder: Path | None = Field(
        default=None, description="Avro schemas <id>.avsc, for messages that begin with a registry's id"
    )
    clock: Literal["arrival", "event"] = Field(
        default="arrival", description="where data times come from: the brokers' arrival times, or the messages"
    )
    lateness: str | None = Field(
        default=None, description="bounded lateness of an event clock without progress, like 5s"
    )
    max_ahead: str | None = Field(
        default="1h",
        description="how far an event clock's times may be ahead of the broker's time of their message; null: any",
    )
    idle_timeout_ms: int | None = Field(
        default=30_000,
        ge=0,
        description="silence after which a partition no longer holds the frontier back; null: never",
    )
    on_new_topic: Literal["stop", "restart"] = Field(
        default="stop",
        description="when the topic was deleted and created again: stop, or read the new one from its beginning",
    )
    on_lost: Literal["stop", "skip"] = Field(
        default="stop",
        description="when the topic has removed messages that were not read: stop, or continue without them",
    )
    on_late: Literal["reject", "advance"] | None = Field(default=None, description="default: what the program says")
    rounding: Literal["exact", "millisecond"] = Field(
        default="exact", description="millisecond: data times are rounded up to it; less work"
    )
    records: int | None = Field(default=None, ge=1, description="about how many updates share a time; less work")

    @property
    def schema_texts(self) -> tuple[tuple[int | None, str], ...]:
        """The Avro schemas by id; None is the id for messages without one. Raises OSError, ValueError."""
        if self.schema_file is not None:
            return ((None, self.schema_file.read_text("utf-8")),)
        if self.schema_folder is None:
            return ()
        files = {int(file.stem): file for file in self.schema_folder.glob("*.avsc") if file.stem.isdecimal()}
        return tuple((number, files[number].read_text("utf-8")) for number in sorted(files))

    @field_validator("lateness", "max_ahead", mode="before")
    @classmethod
    def _is_duration(cls, value: object) -> object:
        if isinstance(value, (int, float)) or (isinstance(value, str) and value.strip().replace(".", "").isdecimal()):
            raise ValueError(f"{value} has no unit; write {value}s for seconds, {value}ms for milliseconds")
        if value is not None:
            _ms(value)
        return value

    _idle = field_validator("idle_timeout_ms", mode="before")(_ms)


RENAMED = {"resolution": "rounding"}
"""Keys of a source under their earlier names. They still work, with a warning that says the new name."""


class Sink(Section):
    """Where a view's changes are written to, and how."""

    view: str | None = Field(default=None, description="the view; default: the sink's name")
    to: Literal["kafka", "parquet", "delta", "sql", "webhook"] = Field(
        default="kafka", description="what the changes are written to: docs/lakehouse.md"
    )
    topic: str | None = Field(default=None, description="kafka: the topic; default: <app>.<sink>")
    format: Literal["vernier", "upsert", "debezium"] = Field(
        default="vernier", description="kafka: how messages spell changes: docs/messages.md"
    )
    partitions: int = Field(default=1, ge=1, description="kafka: of the topic, when the service creates it")
    progress: bool | None = Field(
        default=None, description="kafka: say how far the topic is complete; default: in format vernier"
    )
    path: str | None = Field(default=None, description="parquet, delta: a folder, or a URI like s3://bucket/name")
    url: str | None = Field(default=None, description="sql: the database as SQLAlchemy writes it; webhook: the address")
    url_file: Path | None = Field(default=None, description="a file that holds the url, if that contains a password")
    table: str | None = Field(default=None, description="sql: the table; default: the view's name")
    token_file: Path | None = Field(default=None, description="webhook: a file with a token, sent as bearer token")
    every_ms: int | None = Field(
        default=None,
        ge=1,
        description="the least time from one commit to the next; default: 10s for parquet and delta, else "
        "publish.commit_ms",
    )

    _every = field_validator("every_ms", mode="before")(_ms)

    @model_validator(mode="after")
    def _has_place(self) -> Sink:
        if self.to in ("parquet", "delta") and self.path is None:
            raise ValueError(f"a sink to {self.to} needs a path")
        if self.to in ("sql", "webhook") and (self.url is None) == (self.url_file is None):
            raise ValueError(f"a sink to {self.to} needs a url, or a url_file")
        return self

    @property
    def tells_progress(self) -> bool:
        """Whether progress messages are sent, too."""
        return self.format == "vernier" if self.progress is None else self.progress

    def address(self) -> str:
        """The url, from the settings or its file. Raises OSError."""
        if self.url is not None:
            return self.url
        assert self.url_file is not None
        return self.url_file.read_text("utf-8").strip()


class Publish(Section):
    """Which views are published to Kafka, and how. Sinks to other places are written in any case."""

    views: Literal["all", "listed", "none"] = Field(
        default="all", description="all views, those that `sinks` lists, or none"
    )
    commit_ms: int = Field(default=100, ge=1, description="the least time from one transaction to the next")
    hold_epochs: int = Field(
        default=2_000, ge=0, description="epochs kept for a publisher that is behind, beyond state.keep"
    )

    _commit = field_validator("commit_ms", mode="before")(_ms)


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
    def place(self) -> Place:
        """The location of the state, for all processes of the service."""
        cache = None if self.cache is None else str(self.cache.resolve())
        place = Place(self.path, cache, self.cache_mb << 20)
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
    slice_updates: int = Field(
        default=0,
        ge=0,
        description="updates a worker that go through the dataflow together; 0: as many as suit the state",
    )

    _durations = field_validator(
        "timeout_ms", "function_ms", "stop_ms", "heartbeat_ms", "retry_ms", "target_ms", "quarantine_ms", mode="before"
    )(_ms)


def java_bytes(text: str) -> int:
    """The bytes of a size as Java and Spark write it: 1g, 512m. Raises ValueError."""
    unit = {"k": 10, "m": 20, "g": 30, "t": 40}.get(text.strip().lower().removesuffix("b")[-1:])
    digits = text.strip().lower().removesuffix("b")[: -1 if unit else None]
    if not digits.isdecimal():
        raise ValueError(f"{text!r} is no size of a Java heap; write 1g or 512m")
    # Spark reads a number without a unit as mebibytes.
    return int(digits) << (unit or 20)


class Spark(Section):
    """The Spark engine."""

    master: str | None = Field(default=None, description="default: local[workers]")
    driver_memory: str | None = Field(
        default=None, description="Java heap of the driver, like 1g; null: a sixth of the memory, 384m to 1g"
    )
    conf: dict[str, str] = Field(default={}, description="added to Spark's configuration; wins over what we set")

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
    )(_ms)

    @model_validator(mode="after")
    def _pair(self) -> Http:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together; set both, or none")
        return self


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
            raise ValueError(f"{value!r} is no address that a worker can connect to; give the driver's own")
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
