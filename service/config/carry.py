"""Carries settings into the structures of the rooms that use them, by name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def carried(kind: type[T], given: object, **own: Any) -> T:
    """An instance of a dataclass. Its fields are `own`, and otherwise the attributes of `given` of the same names;
    fields that neither has keep their defaults."""
    names = (one.name for one in fields(kind) if one.init and one.name not in own)  # type: ignore[arg-type]
    return kind(**{name: getattr(given, name) for name in names if hasattr(given, name)}, **own)
