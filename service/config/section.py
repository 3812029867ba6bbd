"""What the sections of the settings have in common: their base model, and how a duration is written."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict

from vernier.operators.errors import ProgramError
from vernier.operators.language.types.duration import nanoseconds

_MS = 1_000_000


def milliseconds(text: object) -> object:
    """Parse a duration setting: a number is milliseconds, a text has a unit."""
    if isinstance(text, str):
        if text.strip().isdecimal():
            return int(text)
        try:
            return -(-nanoseconds(text) // _MS)
        except ProgramError as error:
            raise ValueError(str(error)) from error
    return text


class Section(BaseModel):
    """A section of the settings. Unknown keys are refused, and values never change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def section_of(kind: Any) -> type[BaseModel] | None:
    """The section that an annotation means, also where the section may be left out (`Section | None`)."""
    kinds = [one for one in get_args(kind) if one is not type(None)]
    if len(kinds) == 1 and type(None) in get_args(kind):
        kind = kinds[0]
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
