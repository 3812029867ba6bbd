"""What OpenAPI says about answers: models and examples. Answers are encoded by msgspec and never pass through these."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

Time = Field(description="Data time in nanoseconds since 1970, a decimal string", examples=["1767225600000000000"])


class ProblemBody(BaseModel):
    """RFC 9457: what went wrong. `code` is stable."""

    model_config = ConfigDict(extra="allow")
    type: str = Field(examples=["urn:vernier:problem:compacted"])
    title: str = Field(examples=["Gone"])
    status: int = Field(examples=[410])
    code: str = Field(examples=["compacted"])
    detail: str


class RowsBody(BaseModel):
    """Rows of a view as of a data time. A row whose multiplicity is not 1 carries it as `_diff`."""

    view: str = Field(examples=["reach"])
    as_of: str = Time
    since: str = Time
    frontier: str = Time
    stale_ms: int = Field(description="Age of the newest committed epoch", examples=[120])
    rows: list[dict[str, Any]] = Field(examples=[[{"node": 1}, {"node": 2}]])


class PageBody(RowsBody):
    """A page of rows; `next_cursor` asks for the next one of the same answer, null at the end."""

    next_cursor: str | None


class KeysBody(RowsBody):
    """Rows of many keys, in the order of the keys; `missing` are the keys that have none."""

    missing: list[Any]


class ReadBody(BaseModel):
    """Several views at one data time."""

    as_of: str = Time
    frontier: str = Time
    stale_ms: int
    views: dict[str, PageBody]


class ViewBody(BaseModel):
    """A view: its columns, key, distinct rows, and the data times it can be asked for: since <= as_of < frontier."""

    name: str = Field(examples=["reach"])
    columns: list[dict[str, str]] = Field(examples=[[{"name": "node", "type": "Int64"}]])
    key: list[str] = Field(examples=[["node"]])
    rows: int = Field(examples=[812])
    since: str = Time
    frontier: str = Time


class ViewsBody(BaseModel):
    """All views."""

    views: list[ViewBody]
    stale_ms: int


def _problem(detail: str) -> dict[str, Any]:
    schema = {"schema": {"$ref": "#/components/schemas/ProblemBody"}}
    return {"description": detail, "content": {"application/problem+json": schema}}


_PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: _problem("A parameter cannot be understood"),
    404: _problem("There is no such view (`unknown_view`)"),
    409: _problem("`as_of` may still change (`not_yet_final`)"),
    410: _problem("The time lies before the history window (`compacted`)"),
    422: _problem("A parameter has the wrong form (`invalid_request`)"),
    503: _problem("No epoch has been committed yet (`no_epoch`)"),
}


def _with(ok: dict[str, Any], *others: int) -> dict[int | str, dict[str, Any]]:
    more = {406: "No acceptable format (`not_acceptable`)", 413: "Too many keys (`too_many_keys`)"}
    return {200: ok, **_PROBLEMS, **{status: _problem(more[status]) for status in others}}


_TEXT = {"schema": {"type": "string"}}
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_STREAM = {
    "description": "Events `snapshot`, `updates`, `progress` and `error`; the id of an event is the frontier behind it",
    "content": {"text/event-stream": _TEXT, "application/x-ndjson": _TEXT},
}

rows = _with(
    {
        "model": PageBody,
        "description": "A page of rows",
        "content": {"application/x-ndjson": _TEXT, "text/csv": _TEXT, "application/vnd.apache.arrow.stream": _BINARY},
    },
    406,
)
rows_of_key = _with({"model": RowsBody, "description": "The rows of the key; none when it has none"})
rows_of_keys = _with({"model": KeysBody, "description": "The rows of the keys"}, 413)
read = _with({"model": ReadBody, "description": "The first page of each view, all as of one time"})
changes = _with(_STREAM, 406) | {204: {"description": "The subscriber has everything up to `until`"}}
views: dict[int | str, dict[str, Any]] = {200: {"model": ViewsBody, "description": "All views"}, 503: _PROBLEMS[503]}
plain: dict[int | str, dict[str, Any]] = {422: _PROBLEMS[422], 503: _PROBLEMS[503]}
models = (ProblemBody,)
