"""The settings: one schema (model.py), read from YAML, overridden by the environment, overridden by flags, then frozen.

    defaults  <  --config FILE  <  VERNIER_KAFKA__BOOTSTRAP=…  <  --set kafka.bootstrap=…

An unknown key is refused, with the nearest known key as a hint. Secrets come from the environment or from files only,
and no output shows them. Each value's origin is remembered (`Loaded.origins`).
"""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource

from vernier.service.config import redaction
from vernier.service.config.model import PREFIX, BadSettings, Settings, heartbeat_topic
from vernier.service.config.section import Section, section_of
from vernier.service.config.streams import RENAMED, Sink, Source

__all__ = ["BY_NAME", "ELSEWHERE", "PREFIX", "BadSettings", "Loaded", "Settings", "heartbeat_topic", "load", "masked"]

_log = logging.getLogger("vernier.settings")
ELSEWHERE = frozenset(
    {"VERNIER_JARS_DIR", "VERNIER_IVY_SETTINGS", "VERNIER_RECORD_CLASSES"}
    | {"VERNIER_TOKEN", "VERNIER_TOKEN_FILE", "VERNIER_CAFILE"}
)
"""Environment variables of set-up and of clients, which are not settings of a service."""

_TEXTS = ("bootstrap", "topic", "host", "discard_after")
"""Keys whose flag values are taken literally; YAML would turn some of them into numbers or dates."""

BY_NAME: dict[str, type[Section]] = {"sources": Source, "sinks": Sink}
"""The settings that hold one section per name of a source or view of the program."""


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
        _log.warning("the setting %s was renamed to %s; use the new name", old, new)
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
        raise BadSettings(problem=f"{path} is not valid YAML: {said}") from error
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
            return f"unknown setting {'.'.join(path[: depth + 1])}{_meant(part, fields, path[:depth])}"
        model = section_of(fields[part].annotation)
        if model is None and depth + 1 < len(path) and part in BY_NAME:
            if len(path) > depth + 2:
                return _unknown_in(BY_NAME[part], path[: depth + 2], path[depth + 2 :])
            return None
    return None


def _unknown_in(model: type[BaseModel], above: list[str], path: list[str]) -> str | None:
    if path[0] in model.model_fields or (model is Source and path[0] in RENAMED):
        return None
    return f"unknown setting {'.'.join([*above, path[0]])}{_meant(path[0], model.model_fields, above)}"


def _meant(name: str, known: Mapping[str, object], above: list[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    if close:
        return f"; did you mean {'.'.join([*above, close[0]])}?"
    return f" (known: {', '.join(sorted(known))})"


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
            model = (section_of(found.annotation) if found is not None else None) or BY_NAME.get(path[0], Source)
        return f"{where}unknown setting {key}{_meant(path[-1], model.model_fields, path[:-1])}"
    said = error["msg"][:1].lower() + error["msg"][1:]
    hidden = key in _secrets() or isinstance(error["input"], (dict, BaseModel))
    shown = "" if hidden else f", got {error['input']!r}"
    return f"{where}{key}: {said}{shown}" if key else f"{where}{said}"


def _secrets() -> set[str]:
    """The dotted keys of all secrets."""
    found = set()
    for section, about in Settings.model_fields.items():
        model = section_of(about.annotation)
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
