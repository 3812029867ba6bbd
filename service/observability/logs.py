"""Configures the logs of the service's processes: text, or one JSON object per line."""

from __future__ import annotations

import datetime
import logging
import sys
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

FIELDS = "vernier_fields"
"""The attribute of a log record that holds its values by name."""

_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_NOISY = ("aiobotocore", "botocore", "kafka", "opentelemetry", "py4j", "numba")


class JsonLines(logging.Formatter):
    """Formats `{"at", "level", "logger", "message", …}` with the record's own values; an exception is one text."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="microseconds")
        values: Mapping[str, Any] = getattr(record, FIELDS, {})
        line: dict[str, Any] = {"at": at, "level": record.levelname.lower(), "logger": record.name}
        line |= values or {"message": record.getMessage()}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def begin(level: str, form: Literal["text", "json"]) -> None:
    """Log to standard error from now on; libraries log only critical messages."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for noisy in _NOISY:
        logging.getLogger(noisy).setLevel(logging.CRITICAL)


def values(logger: logging.Logger, fields: Mapping[str, Any]) -> None:
    """Log one line of values: as text `name=value …`, with the entries of a mapping as `name.key=value`; as JSON an
    object.
    """
    said = []
    for name, value in fields.items():
        if isinstance(value, Mapping):
            said += [f"{name}.{inner}={_short(number)}" for inner, number in value.items()]
        else:
            said.append(f"{name}={_short(value)}")
    logger.info(" ".join(said), extra={FIELDS: fields})


def _short(value: object) -> str:
    return f"{value:.0f}" if isinstance(value, float) else str(value)
