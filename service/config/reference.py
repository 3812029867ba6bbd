"""The reference of all settings: each key with its type, default and meaning, derived from the schema.

`vernier config` shows it on a terminal, and docs/settings.md is generated from it (tests/docs/test_reference.py
compares).
"""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from vernier.service.config.section import section_of
from vernier.service.config.settings import BY_NAME, Settings

NAME = "NAME"
"""Placeholder in a key for the name of a source or of a view."""


@dataclass(frozen=True)
class Setting:
    """One key. kind: its type as users write it; default: as in YAML, "" for a key without one."""

    key: str
    kind: str
    default: str
    description: str

    @property
    def section(self) -> str:
        """The part of the key before the last dot."""
        return self.key.rpartition(".")[0]

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "VERNIER_" + self.key.upper().replace(".", "__")


def settings_reference() -> list[Setting]:
    """All settings in the order of the schema, top-level ones first."""
    return list(_of(Settings, ""))


def sections() -> dict[str, str]:
    """The description of each section by its key; "" is the top level."""
    found = {"": ""}
    for name, field in Settings.model_fields.items():
        model = BY_NAME.get(name) or section_of(field.annotation)
        if model is not None:
            key = f"{name}.{NAME}" if name in BY_NAME else name
            found[key] = _title(model)
            for below, inner in model.model_fields.items():
                if (part := section_of(inner.annotation)) is not None:
                    found[f"{key}.{below}"] = _title(part)
    return found


def _title(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0]


def found(key: str) -> tuple[list[Setting], str]:
    """The settings that a key means (itself, or all of a section), and, if there are none, a hint with the nearest key.

    The name of a source or of a view matches NAME: `sources.edges.format` finds `sources.NAME.format`.
    """
    parts = key.split(".")
    if parts[0] in BY_NAME and len(parts) > 1:
        parts[1] = NAME
    plain = ".".join(parts)
    everything = settings_reference()
    mine = [one for one in everything if one.key == plain or one.key.startswith(plain + ".")]
    if mine:
        return mine, ""
    keys = [one.key for one in everything]
    near = difflib.get_close_matches(plain, [*keys, *sections()], 1) or [k for k in keys if k.endswith("." + parts[-1])]
    return [], f"; did you mean {near[0]}?" if near else ""


def _of(model: type[BaseModel], above: str) -> Iterator[Setting]:
    below = []
    for name, field in model.model_fields.items():
        part = BY_NAME.get(name) if not above else None
        inner = part or section_of(field.annotation)
        if inner is not None:
            below.append((f"{above}{name}.{NAME}." if part is not None else f"{above}{name}.", inner))
        else:
            yield Setting(f"{above}{name}", _kind(field), _default(field), field.description or "")
    for prefix, inner in below:
        yield from _of(inner, prefix)


def _kind(field: FieldInfo) -> str:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    limits = [(sign, getattr(one, name, None)) for one in field.metadata for name, sign in signs.items()]
    return " ".join([_spelled(field.annotation), *(f"{sign} {bound}" for sign, bound in limits if bound is not None)])


def _spelled(kind: Any) -> str:
    """A type as users write it in YAML."""
    origin = get_origin(kind)
    if origin is Literal:
        return " | ".join(str(value) for value in get_args(kind))
    if origin in (Union, types.UnionType):
        return " | ".join("null" if part is type(None) else _spelled(part) for part in get_args(kind))
    if origin in (list, tuple, set, frozenset):
        return "list of " + _spelled(get_args(kind)[0])
    if origin in (dict, typing.Mapping):
        return "mapping"
    if origin is not None:
        return _spelled(get_args(kind)[0])
    known = {str: "text", int: "integer", float: "number", bool: "true | false", Path: "path", SecretStr: "secret"}
    return known.get(kind, getattr(kind, "__name__", str(kind)))


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined and field.default_factory is None:
        return ""
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
