"""Logs: what processes of a service tell while running, as text or as one JSON object a line."""

from __future__ import annotations

import datetime
import logging
import sys
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

FIELDS = "vernier_fields"
"""The attribute of a log record that has its values by name."""

_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_NOISY = ("aiobotocore", "botocore", "kafka", "opentelemetry", "py4j", "numba")


class JsonLines(logging.Formatter):
    """`{"at", "level", "logger", "message", …}` and the record's own values; an exception is one text."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="microseconds")
        values: Mapping[str, Any] = getattr(record, FIELDS, {})
        line: dict[str, Any] = {"at": at, "level": record.levelname.lower(), "logger": record.name}
        line |= values or {"message": record.getMessage()}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def begin(level: str, form: Literal["text", "json"]) -> None:
    """Tell on standard error from now on, without what libraries say to each other."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for noisy in _NOISY:
        logging.getLogger(noisy).setLevel(logging.CRITICAL)


def values(logger: logging.Logger, fields: Mapping[str, Any]) -> None:
    """One line of values: `name=value …` as text, with those of a mapping behind its name; an object as JSON."""
    said = []
    for name, value in fields.items():
        if isinstance(value, Mapping):
            said += [f"{name}.{inner}={_short(number)}" for inner, number in value.items()]
        else:
            said.append(f"{name}={_short(value)}")
    logger.info(" ".join(said), extra={FIELDS: fields})


def _short(value: object) -> str:
    return f"{value:.0f}" if isinstance(value, float) else str(value)
