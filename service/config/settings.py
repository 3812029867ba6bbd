"""The settings: one schema, read from YAML, overridden by the environment, overridden by flags, then frozen.

    defaults  <  --config FILE  <  VERNIER_KAFKA__BOOTSTRAP=…  <  --set kafka.bootstrap=…

An unknown key is refused, with the nearest known key as a hint. Secrets come from the environment or from files only,
and no output shows them. Each value's origin is remembered (`Loaded.origins`).
"""

from __future__ import annotations

import difflib
import logging
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import yaml
from pydantic import BaseModel, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from vernier.operators.language.types.duration import nanoseconds
from vernier.service.config import redaction
from vernier.service.config.cpus import usable_cores
from vernier.service.config.memory_shares import Shares, divide
from vernier.service.config.sections import (
    RENAMED,
    Epoch,
    Exchange,
    Http,
    Kafka,
    Log,
    Otel,
    Publish,
    Section,
    Sink,
    Source,
    Spark,
    State,
    java_bytes,
)
from vernier.service.ingest.bounds import DIFF_RANGE, MOST_BYTES
from vernier.storage.errors import CallerError
from vernier.storage.memory import usable_bytes

if TYPE_CHECKING:  # importing the engine is left to the processes that need it
    from vernier.operators.language.collection.app import App
    from vernier.service.ingest.config import DoorConfig
    from vernier.service.ingest.formats.avro import Schemas

_log = logging.getLogger("vernier.settings")
PREFIX = "VERNIER_"
ELSEWHERE = frozenset(
    {"VERNIER_JARS_DIR", "VERNIER_IVY_SETTINGS", "VERNIER_RECORD_CLASSES"}
    | {"VERNIER_TOKEN", "VERNIER_TOKEN_FILE", "VERNIER_CAFILE"}
)
"""Environment variables of set-up and of clients, which are not settings of a service."""

_TEXTS = ("bootstrap", "topic", "host", "discard_after")
"""Keys whose flag values are taken literally; YAML would turn some of them into numbers or dates."""

BY_NAME: dict[str, type[Section]] = {"sources": Source, "sinks": Sink}
"""The settings that hold one section per name of a source or view of the program."""


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
    sinks: dict[str, Sink] = Field(default={}, description="by view")
    publish: Publish = Publish()
    epoch: Epoch = Epoch()
    spark: Spark = Spark()
    exchange: Exchange = Exchange()
    http: Http = Http()
    log: Log = Log()
    otel: Otel = Otel()
    worker_memory_mb: int | None = Field(
        default=None, ge=128, description="resident memory that a worker keeps to between epochs; null: as it comes"
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

    # --- what follows from them ---------------------------------------------------------------------------------------

    def source(self, name: str) -> Source:
        """A source's settings; the defaults if there are none."""
        return self.sources.get(name, Source())

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
                    problem=f"sources.{name}: no program of this service has that source (they have {there}){hint}"
                )

    def door(self, app: App, partitions: Mapping[str, int]) -> DoorConfig:
        """The configuration of ingestion for a program's sources. partitions: the number of partitions
        of each topic.
        """
        from vernier.service.ingest.config import DoorConfig, SourceConfig

        sources = {}
        late: Literal["reject", "advance"] = "advance" if app.on_late == "advance" else "reject"
        for name in app.sources:
            mine = self.source(name)
            sources[name] = SourceConfig(
                topic=self.topic(name),
                format=mine.format,
                clock=mine.clock,
                lateness_ns=None if mine.lateness is None else nanoseconds(mine.lateness),
                max_ahead_ns=None if mine.max_ahead is None else nanoseconds(mine.max_ahead),
                idle_timeout_ms=mine.idle_timeout_ms,
                on_late=mine.on_late or late,
                rounding=mine.rounding,
                records=mine.records,
                schemas=_schemas(name, mine),
                key=tuple(mine.key or ()),
            )
        return DoorConfig(
            sources,
            partitions=dict(partitions),
            heartbeat_topic=heartbeat_topic(app.name),
            max_message_bytes=self.max_message_bytes,
            max_decoded_bytes=self.max_decoded_bytes,
            diff_range=self.diff_range,
        )

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
        kafka = self.kafka
        wanted: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap.split(",")}
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


def _schemas(name: str, source: Source) -> Schemas:
    """A source's Avro schemas, all checked to be valid. Raises BadSettings."""
    from vernier.service.ingest.formats.avro import read_schema

    try:
        schemas = source.schema_texts
        for _, text in schemas:
            read_schema(text)
    except (OSError, ValueError) as error:
        raise BadSettings(problem=f"sources.{name}: its Avro schema cannot be used: {error}") from error
    return schemas


def heartbeat_topic(app: str) -> str:
    """The topic to which a service writes its own heartbeats, so that time advances without input."""
    return f"{app}.heartbeat"


@dataclass(frozen=True)
class Loaded:
    """Settings, and the origin of each value by dotted key ("default" is not listed)."""

    settings: Settings
    origins: Mapping[str, str]

    def lines(self) -> Iterator[str]:
        """Yield `key = value  # origin` for every key, with secrets masked."""
        flat = dict(_flatten(masked(self.settings)))
        width = max(len(f"{key} = {_shown(value)}") for key, value in flat.items())
        for key, value in flat.items():
            origin = next((self.origins[k] for k in _prefixes(key) if k in self.origins), "default")
            yield f"{f'{key} = {_shown(value)}':<{min(width, 72)}}  # {origin}"


def masked(settings: Settings) -> dict[str, Any]:
    """The settings as JSON types, with every secret that is set replaced by asterisks."""
    shown: Any = redaction.masked(settings.model_dump(mode="json"))
    return dict(shown)


def load(
    config: str | Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """Read settings. config: a YAML file; flags: values by dotted key, None for a flag that was not given.

    Raises BadSettings for a file that cannot be read, unknown keys (with the nearest known one) and wrong types.
    """
    layers: list[tuple[str, dict[str, Any]]] = []
    if config is not None:
        layers.append((str(config), _read_yaml(Path(config))))
    env = dict(os.environ if environment is None else environment)
    layers.append(("", _read_environment(env)))
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    layers.append(("", _nest(given)))
    _refuse_secrets(layers[:-2] + layers[-1:])
    origins: dict[str, str] = {}
    merged: dict[str, Any] = {}
    renamed: dict[tuple[str, str], None] = {}
    for number, (name, layer) in enumerate(layers):
        renamed |= dict.fromkeys(_rename(layer))
        from_flags, from_env = number == len(layers) - 1, number == len(layers) - 2
        for key, _ in _flatten(layer):
            variable = PREFIX + key.upper().replace(".", "__")
            origins[key] = f"--set {key}" if from_flags else variable if from_env else name
        merged = _merge(merged, layer)
    for old, new in renamed:
        _log.warning("the setting %s is called %s now; use the new name", old, new)
    try:
        # `merged` already contains everything, so the model must not read the environment itself.
        settings = _Plain.model_validate(merged)
    except ValidationError as error:
        raise BadSettings(problem="; ".join(_explain(one, origins) for one in error.errors())) from error
    return Loaded(settings, origins)


class _Plain(Settings):
    """Settings that read no source other than the arguments."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use the keyword arguments only."""
        return (init_settings,)


class _Environment(EnvSettingsSource):
    """Reads the given variables instead of those of the process."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        super().__init__(Settings)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): text for name, text in self._given.items()}


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise BadSettings(problem=f"cannot read the settings: {error.strerror}: {path}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        said = " ".join(str(error).split())
        raise BadSettings(problem=f"{path} is no YAML: {said}") from error
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise BadSettings(problem=f"{path} must be a mapping of settings, not {type(found).__name__}")
    return found


def _read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """The values of VERNIER_ variables, nested. Raises BadSettings for a variable that names no setting."""
    mine = {
        name: text for name, text in environment.items() if name.upper().startswith(PREFIX) and name not in ELSEWHERE
    }
    for name in mine:
        path = name[len(PREFIX) :].lower().split("__")
        problem = _unknown(path)
        if problem:
            raise BadSettings(problem=f"{name}: {problem}")
    found: dict[str, Any] = _Environment(mine)()
    return found


def _unknown(path: list[str]) -> str | None:
    """Describe what is wrong with a key's path; None if it is valid."""
    model: type[BaseModel] | None = Settings
    for depth, part in enumerate(path):
        if model is None:
            return None
        fields = model.model_fields
        if part not in fields:
            return f"no setting {'.'.join(path[: depth + 1])}{_meant(part, fields, path[:depth])}"
        model = _model_of(fields[part])
        if model is None and depth + 1 < len(path) and part in BY_NAME:
            if len(path) > depth + 2:
                return _unknown_in(BY_NAME[part], path[: depth + 2], path[depth + 2 :])
            return None
    return None


def _unknown_in(model: type[BaseModel], above: list[str], path: list[str]) -> str | None:
    if path[0] in model.model_fields or (model is Source and path[0] in RENAMED):
        return None
    return f"no setting {'.'.join([*above, path[0]])}{_meant(path[0], model.model_fields, above)}"


def _model_of(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _meant(name: str, known: Mapping[str, object], above: list[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    if close:
        return f"; did you mean {'.'.join([*above, close[0]])}?"
    return f" (there are {', '.join(sorted(known))})"


def _explain(error: Any, origins: Mapping[str, str]) -> str:
    path = [str(part) for part in error["loc"]]
    key = ".".join(path)
    origin = next(
        (origins[k] for k in [*_prefixes(key), *(k for k in origins if k.startswith(f"{key}."))] if k in origins), ""
    )
    where = f"{origin}: " if origin else ""
    if error["type"] == "extra_forbidden":
        model: type[BaseModel] = Settings
        for part in path[:-1]:
            found = model.model_fields.get(part)
            model = (_model_of(found) if found is not None else None) or BY_NAME.get(path[0], Source)
        return f"{where}no setting {key}{_meant(path[-1], model.model_fields, path[:-1])}"
    said = error["msg"][:1].lower() + error["msg"][1:]
    hidden = key in _secrets() or isinstance(error["input"], (dict, BaseModel))
    shown = "" if hidden else f", got {error['input']!r}"
    return f"{where}{key}: {said}{shown}" if key else f"{where}{said}"


def _secrets() -> set[str]:
    """The dotted keys of all secrets."""
    found = set()
    for section, about in Settings.model_fields.items():
        model = _model_of(about)
        for name, field in (model.model_fields if model is not None else {}).items():
            if SecretStr in (field.annotation, *get_args(field.annotation)):
                found.add(f"{section}.{name}")
    return found


def _refuse_secrets(layers: list[tuple[str, dict[str, Any]]]) -> None:
    for name, layer in layers:
        for key in sorted(_secrets()):
            section, _, last = key.partition(".")
            own = layer.get(section)
            if isinstance(own, dict) and own.get(last) is not None:
                variable = PREFIX + key.upper().replace(".", "__")
                problem = (
                    f"{name or 'a flag'}: {key} is a secret; set {variable}, or {key}_file to a file that holds it"
                )
                raise BadSettings(problem=problem)


def _rename(layer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Give settings of sources with an earlier name the present one, in place; yields both names. A layer with both is
    left alone, and then refused."""
    sources = layer.get("sources")
    for name, source in sources.items() if isinstance(sources, dict) else ():
        for old, new in RENAMED.items():
            if isinstance(source, dict) and old in source and new not in source:
                source[new] = source.pop(old)
                yield f"sources.{name}.{old}", f"sources.{name}.{new}"


def _nest(flags: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in flags.items():
        at = nested
        *above, last = key.split(".")
        for part in above:
            at = at.setdefault(part, {})
        at[last] = yaml.safe_load(value) if isinstance(value, str) and last not in _TEXTS else value
    return nested


def _merge(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def _flatten(nested: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in nested.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _prefixes(key: str) -> list[str]:
    """The key, then each section that contains it, innermost first."""
    parts = key.split(".")
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]


def _shown(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
