"""The sections of the settings for what comes in and goes out: the brokers, sources, and the topics of views."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from vernier.service.config.section import Section, milliseconds
from vernier.service.config.snapshots import Snapshot


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
    format: Literal["vernier", "json", "insert_delete", "debezium", "arrow", "avro", "protobuf", "upsert"] = Field(
        default="vernier", description="how messages spell updates: docs/messages.md"
    )
    key: list[str] | None = Field(
        default=None, description="key columns of a source in format upsert (or debezium without before)"
    )
    schema_file: Path | None = Field(
        default=None, description="Avro schema of messages that are one record, nothing else"
    )
    schema_folder: Path | None = Field(
        default=None,
        description="Avro schemas <id>.avsc, or Protobuf descriptor sets <id>.desc, for messages that begin with a "
        "registry's id",
    )
    registry: str | None = Field(
        default=None, description="URL of a schema registry, for messages in Avro or Protobuf that begin with its id"
    )
    subject: str | None = Field(
        default=None, description="the registry's subject of the topic's schemas; default: <topic>-value"
    )
    registry_auth_file: Path | None = Field(default=None, description="a file with user:password for the registry")
    descriptor_file: Path | None = Field(
        default=None, description="Protobuf descriptor set (protoc --descriptor_set_out --include_imports)"
    )
    message: str | None = Field(
        default=None, description="name of the Protobuf message; default: the only one of its file, or as messages say"
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
    snapshot: Snapshot | None = Field(default=None, description="rows that were there before: docs/lakehouse.md")

    @model_validator(mode="after")
    def _snapshot_has_time(self) -> Source:
        if self.snapshot is not None and self.clock == "event" and self.snapshot.time is None:
            raise ValueError("with an event clock, a snapshot needs the data time of its rows; set snapshot.time")
        return self

    @property
    def schema_texts(self) -> tuple[tuple[int | None, str], ...]:
        """The schemas by id, those of Protobuf in base64; None is the id for messages without one. Raises OSError,
        ValueError."""
        one, ending = (self.descriptor_file, "desc") if self.format == "protobuf" else (self.schema_file, "avsc")
        if one is not None:
            return ((None, self._schema_text(one)),)
        if self.schema_folder is None:
            return ()
        files = {int(file.stem): file for file in self.schema_folder.glob(f"*.{ending}") if file.stem.isdecimal()}
        return tuple((number, self._schema_text(files[number])) for number in sorted(files))

    def _schema_text(self, file: Path) -> str:
        """The text of a schema file. Raises OSError, ValueError."""
        return b64encode(file.read_bytes()).decode() if self.format == "protobuf" else file.read_text("utf-8")

    @field_validator("lateness", "max_ahead", mode="before")
    @classmethod
    def _is_duration(cls, value: object) -> object:
        if isinstance(value, (int, float)) or (isinstance(value, str) and value.strip().replace(".", "").isdecimal()):
            raise ValueError(f"{value} has no unit; write {value}s for seconds, {value}ms for milliseconds")
        if value is not None:
            milliseconds(value)
        return value

    _idle = field_validator("idle_timeout_ms", mode="before")(milliseconds)


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

    _every = field_validator("every_ms", mode="before")(milliseconds)

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

    _commit = field_validator("commit_ms", mode="before")(milliseconds)
