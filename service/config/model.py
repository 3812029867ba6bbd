"""The settings as one schema: all sections together, and what follows from them.

settings.py reads them.
"""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from vernier.operators.language.types.duration import nanoseconds
from vernier.service.config.carry import carried
from vernier.service.config.memory_shares import Shares, divide, java_bytes
from vernier.service.config.sections import Epoch, Exchange, Http, Log, Otel, Spark, Sql, State
from vernier.service.config.streams import Kafka, Publish, Sink, Source
from vernier.service.ingest.bounds import DIFF_RANGE, MOST_BYTES
from vernier.storage.cpus import usable_cores
from vernier.storage.errors import CallerError
from vernier.storage.memory import usable_bytes

if TYPE_CHECKING:  # importing the engine is left to the processes that need it
    from vernier.operators.language.collection.app import App
    from vernier.service.ingest.config import IngestionConfig
    from vernier.service.ingest.formats.by_schema import Schemas
    from vernier.service.ingest.formats.registry import Registry

PREFIX = "VERNIER_"


class BadSettings(CallerError):
    """A setting is unknown, has the wrong type, or contradicts another one; one line for each."""

    message = "{problem}"
    problem: str


class Settings(BaseSettings):
    """All settings of a service."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, env_prefix=PREFIX, env_nested_delimiter="__")

    program: Path | None = Field(default=None, description="the program's file; `vernier up PROGRAM.py` sets it")
    programs: list[Path] = Field(default=[], description="more programs, which share what means the same")
    workers: int = Field(default=0, ge=0, description="dataflow workers = tasks an epoch; 0: one a core")
    state: State = State()
    kafka: Kafka = Kafka()
    sources: dict[str, Source] = {}
    sinks: dict[str, Sink] = Field(default={}, description="by view, or by a name of their own")
    publish: Publish = Publish()
    epoch: Epoch = Epoch()
    spark: Spark = Spark()
    exchange: Exchange = Exchange()
    http: Http = Http()
    sql: Sql = Sql()
    log: Log = Log()
    otel: Otel = Otel()
    worker_memory_mb: int | None = Field(
        default=None, ge=128, description="bound of the memory that a worker keeps between epochs; null: none"
    )
    worker_memory_max_mb: int | None = Field(
        default=None,
        ge=256,
        description="memory that a worker may take within an epoch; null: its share of what machine or container have",
    )
    max_message_bytes: int = Field(default=8 << 20, ge=1024, description="longer messages are dead letters")
    max_decoded_bytes: int = Field(
        default=MOST_BYTES, ge=1024, description="Arrow messages and bodies that are longer when decoded are refused"
    )
    diff_range: int = Field(
        default=DIFF_RANGE,
        ge=1,
        le=2**62,
        description="updates of more copies, or of less than its negative, are refused",
    )

    @field_validator("workers")
    @classmethod
    def _count_cores(cls, value: int) -> int:
        return value or usable_cores()

    @model_validator(mode="after")
    def _password_once(self) -> Settings:
        if self.kafka.sasl_password is not None and self.kafka.sasl_password_file is not None:
            raise ValueError("kafka.sasl_password and kafka.sasl_password_file are both set; keep one")
        return self

    @model_validator(mode="after")
    def _brokers_outlive_a_standby(self) -> Settings:
        if self.state.standby and self.kafka.embedded:
            raise ValueError(
                "state.standby and kafka.embedded are both set; an embedded broker ends with its service, so give both"
                " services the address of brokers of their own (kafka.bootstrap)"
            )
        return self

    def with_workers(self, workers: int) -> Settings:
        """The same settings with another number of workers."""
        return self.model_copy(update={"workers": workers})

    # --- what follows from them ---------------------------------------------------------------------------------------

    def source(self, name: str) -> Source:
        """A source's settings; the defaults if there are none."""
        return self.sources.get(name, Source())

    def begins(self, name: str) -> bool:
        """Whether a source begins with a snapshot."""
        return self.source(name).snapshot is not None

    def topic(self, name: str) -> str:
        """The topic that a source is read from."""
        return self.source(name).topic or name

    @property
    def memory_bytes(self) -> int | None:
        """The memory limit of a worker between epochs; None for no limit."""
        return None if self.worker_memory_mb is None else self.worker_memory_mb << 20

    @property
    def shares(self) -> Shares:
        """How the memory of this machine or container is divided among the processes."""
        heap = self.kafka.heap_mb
        return divide(
            usable_bytes(),
            self.workers,
            broker=self.kafka.embedded,
            driver_heap=None if self.spark.driver_memory is None else java_bytes(self.spark.driver_memory),
            broker_heap=None if heap is None else heap << 20,
        )

    @property
    def most_bytes(self) -> int | None:
        """The memory limit of a worker within an epoch; None if the worker's own machine decides."""
        if self.worker_memory_max_mb is not None:
            return self.worker_memory_max_mb << 20
        if not (self.spark.master or "local").startswith("local"):
            return None
        share = self.shares.worker
        if self.memory_bytes is None:
            return share
        # An epoch's own needs come on top of the memory that is kept between epochs.
        return min(share, max(2 * self.memory_bytes, self.memory_bytes + (512 << 20)))

    @property
    def spill_folder(self) -> str | None:
        """Where workers with a memory limit spill to: under the state directory, else the state's cache, else a
        temporary folder.
        """
        if self.worker_memory_mb is None:
            return None
        folder = self.state.place.folder or self.state.cache or Path(tempfile.gettempdir()) / "vernier-spill"
        return str(folder / "spill")

    def check_sources(self, known: Iterable[str]) -> None:
        """Raises BadSettings for settings of a source that no program has, because they would have no effect,
        unnoticed.
        """
        names = list(known)
        for name in self.sources:
            if name not in names:
                near = difflib.get_close_matches(name, names, 1)
                hint = f"; did you mean sources.{near[0]}?" if near else ""
                there = ", ".join(names)
                raise BadSettings(
                    problem=f"sources.{name}: no program of this service has a source of this name "
                    f"(the sources are {there}){hint}"
                )

    def registry(self, name: str) -> Registry | None:
        """Where a source's schema registry is."""
        from vernier.service.ingest.formats.registry import Registry

        mine = self.source(name)
        if mine.registry is None:
            return None
        return Registry(mine.registry, None if mine.registry_auth_file is None else str(mine.registry_auth_file))

    def ingestion(self, app: App, partitions: Mapping[str, int]) -> IngestionConfig:
        """The configuration of ingestion for a program's sources. partitions: the number of partitions
        of each topic.
        """
        from vernier.service.ingest.config import IngestionConfig, SourceConfig

        late: Literal["reject", "advance"] = "advance" if app.on_late == "advance" else "reject"
        sources = {}
        for name in app.sources:
            mine = self.source(name)
            sources[name] = carried(
                SourceConfig,
                mine,
                topic=self.topic(name),
                lateness_ns=None if mine.lateness is None else nanoseconds(mine.lateness),
                max_ahead_ns=None if mine.max_ahead is None else nanoseconds(mine.max_ahead),
                on_late=mine.on_late or late,
                schemas=_schemas(name, mine),
                key=tuple(mine.key or ()),
                registry=self.registry(name),
            )
        beats = heartbeat_topic(app.name)
        return carried(IngestionConfig, self, sources=sources, partitions=dict(partitions), heartbeat_topic=beats)

    @property
    def publishes(self) -> bool:
        """Whether any view is written anywhere."""
        return self.publish.views != "none" or any(one.to != "kafka" for one in self.sinks.values())

    @property
    def upserts(self) -> dict[str, tuple[str, ...]]:
        """The key columns of the sources that take upserts."""
        return {name: tuple(source.key) for name, source in self.sources.items() if source.key}

    @property
    def log_directory(self) -> Path:
        """The directory of the processes' logs."""
        return self.log.directory or self.state.beside / "logs"

    @property
    def scratch_root(self) -> Path:
        """The parent of the scratch folders of all runs (service/files/scratch.py)."""
        if self.state.scratch is not None:
            return self.state.scratch
        folder = self.state.place.folder
        return self.state.beside / "scratch" if folder is None else folder.with_name(f"{folder.name}.scratch")

    @property
    def broker_data(self) -> Path:
        """Where an embedded broker keeps its log."""
        return self.kafka.data or self.state.beside / "kafka"

    def kafka_client(self) -> dict[str, Any]:
        """Keyword arguments for clients of the kafka package."""
        from vernier.service.config.kafka_net import NetClient  # settings are also read where no broker is asked

        kafka = self.kafka
        wanted: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap.split(","), "kafka_client": NetClient}
        if kafka.security_protocol == "PLAINTEXT":
            return wanted
        wanted["security_protocol"] = kafka.security_protocol
        if kafka.ssl_cafile is not None:
            wanted["ssl_cafile"] = str(kafka.ssl_cafile)
        if kafka.security_protocol.startswith("SASL"):
            wanted["sasl_mechanism"] = kafka.sasl_mechanism
            wanted["sasl_plain_username"] = kafka.sasl_username
            wanted["sasl_plain_password"] = self.password()
        return wanted

    def password(self) -> str | None:
        """The Kafka password, from the environment or its file. Raises BadSettings if the file cannot be read."""
        kafka = self.kafka
        if kafka.sasl_password is not None:
            return kafka.sasl_password.get_secret_value()
        if kafka.sasl_password_file is None:
            return None
        try:
            return kafka.sasl_password_file.read_text("utf-8").strip()
        except OSError as error:
            raise BadSettings(problem=f"kafka.sasl_password_file: {error.strerror}: {error.filename}") from error


def _check_schema(source: Source, number: int | None, text: str) -> None:
    """Raises ValueError if a schema cannot be used."""
    if source.format != "protobuf":
        from vernier.service.ingest.formats.avro import read_schema

        read_schema(text)
        return
    from vernier.service.ingest.formats.descriptors import by_name, main_file

    if number is None or source.message is not None:
        by_name(text, source.message)
    else:
        main_file(text)


def _schemas(name: str, source: Source) -> Schemas:
    """A source's schemas, all checked to be valid. Raises BadSettings."""
    what = "Protobuf descriptor" if source.format == "protobuf" else "Avro schema"
    try:
        schemas = source.schema_texts
        for number, text in schemas:
            _check_schema(source, number, text)
    except (OSError, ValueError) as error:
        raise BadSettings(problem=f"sources.{name}: its {what} cannot be used: {error}") from error
    return schemas


def heartbeat_topic(app: str) -> str:
    """The topic to which a service writes its own heartbeats, so that time advances without input."""
    return f"{app}.heartbeat"
