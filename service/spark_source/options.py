"""The options of a read or a write, checked: `spark.read.format("vernier").option(...)`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vernier.operators.errors import meant
from vernier.service.client.client import URL, Client, connect
from vernier.service.codec.instants import parse_instant
from vernier.storage.errors import CallerError

_SIDECAR = ("url", "token", "token_file", "cafile")
READS = (
    *("view", "state", *_SIDECAR, "as_of", "changes", "since", "until", "snapshot"),
    *("columns", "where", "pushdown", "diff", "partitions", "max_changes"),
)
WRITES = ("source", *_SIDECAR)
_SPARKS_OWN = ("path", "checkpointlocation", "queryname")
"""Options that Spark hands on to every data source."""


class BadOption(CallerError):
    """An option of the data source is unknown, missing or malformed."""

    message = "option {option}: {problem}"
    option: str
    problem: str


@dataclass(frozen=True)
class Sidecar:
    """A sidecar and the credentials for it."""

    url: str
    token: str | None = None
    token_file: str | None = None
    cafile: str | None = None

    def client(self) -> Client:
        """A client of it. The token is that of the options, else of the file, else of VERNIER_TOKEN."""
        token = self.token
        if token is None and self.token_file is not None:
            try:
                token = Path(self.token_file).read_text("utf-8").strip()
            except OSError as error:
                raise BadOption(option="token_file", problem=f"{error.strerror}: {self.token_file}") from error
        return connect(self.url, token=token or os.environ.get("VERNIER_TOKEN"), cafile=self.cafile)


@dataclass(frozen=True)
class Wanted:
    """What a read asks for.

    state: a state directory or its URI; None to read from the sidecar. as_of: the data time of the rows; None: the
    newest final one. since, until: read the changes of this interval instead of rows. diff: multiplicities as the
    column `_diff` instead of repeated rows. snapshot: whether a stream begins with the view's rows.
    """

    view: str
    sidecar: Sidecar
    state: str | None = None
    as_of: int | None = None
    changes: bool = False
    since: int | None = None
    until: int | None = None
    columns: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    pushdown: bool = False
    diff: bool = False
    partitions: int | None = None
    snapshot: bool = True
    max_changes: int = 1_000_000

    @staticmethod
    def of(options: Mapping[str, str]) -> Wanted:
        """Parse the options of a read. Raises BadOption."""
        given = _known(options, READS)
        if not given.get("view"):
            raise BadOption(option="view", problem="is missing; it names the view to read")
        if "state" in given and "url" in given:
            raise BadOption(option="url", problem="goes with no state; give one of them, where to read from")
        times = {name: _instant(given, name) for name in ("as_of", "since", "until")}
        changes = _flag(given, "changes", (times["since"], times["until"]) != (None, None))
        if times["as_of"] is not None and changes:
            problem = "asks for rows; changes, since and until ask for changes; give one of them"
            raise BadOption(option="as_of", problem=problem)
        return Wanted(
            given["view"],
            _sidecar(given),
            given.get("state"),
            **times,
            changes=changes,
            columns=tuple(one.strip() for one in given.get("columns", "").split(",") if one.strip()),
            where=_conditions(given.get("where", "")),
            pushdown=_flag(given, "pushdown", False),
            diff=_flag(given, "diff", False),
            partitions=_count(given, "partitions"),
            snapshot=_flag(given, "snapshot", times["since"] is None),
            max_changes=_count(given, "max_changes") or 1_000_000,
        )


@dataclass(frozen=True)
class Target:
    """Where a write goes: a source, through a sidecar."""

    source: str
    sidecar: Sidecar

    @staticmethod
    def of(options: Mapping[str, str]) -> Target:
        """Parse the options of a write. Raises BadOption."""
        given = _known(options, WRITES)
        if not given.get("source"):
            raise BadOption(option="source", problem="is missing; it names the source to write to")
        return Target(given["source"], _sidecar(given))


def _known(options: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    given = {name.lower(): value for name, value in options.items() if name.lower() not in _SPARKS_OWN}
    for name in given:
        if name not in names:
            listed = f"; there are {', '.join(names)}"
            raise BadOption(option=name, problem=f"is unknown{meant(name, names) or listed}")
    return given


def _sidecar(given: Mapping[str, str]) -> Sidecar:
    return Sidecar(given.get("url", URL), given.get("token"), given.get("token_file"), given.get("cafile"))


def _instant(given: Mapping[str, str], name: str) -> int | None:
    if name not in given:
        return None
    try:
        return parse_instant(given[name])
    except CallerError as error:
        raise BadOption(option=name, problem=str(error)) from error


def _conditions(text: str) -> tuple[str, ...]:
    """One condition, or a JSON array of several."""
    if not text.startswith("["):
        return (text,) if text else ()
    try:
        return tuple(msgspec.json.decode(text, type=list[str]))
    except msgspec.DecodeError as error:
        raise BadOption(option="where", problem=f"is no JSON array of conditions: {error}") from error


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise BadOption(option=name, problem=f"is {text!r}; write true or false")
    return text == "true"


def _count(given: Mapping[str, str], name: str) -> int | None:
    if name not in given:
        return None
    if not given[name].isdecimal() or not int(given[name]):
        raise BadOption(option=name, problem=f"is {given[name]!r}; write a number of at least 1")
    return int(given[name])
