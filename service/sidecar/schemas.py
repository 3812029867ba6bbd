"""The OpenAPI models and examples of answers. Answers are encoded by msgspec and never pass through these models."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field

Responses = dict[int | str, dict[str, Any]]
Time = Field(description="Data time in nanoseconds since 1970, a decimal string", examples=["1767225600000000000"])
Frontier = list[str] | None
"""The times that may still come; empty if everything is final, null if unknown."""


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
    """A page of rows; `next_cursor` requests the next page of the same answer, null at the end."""

    next_cursor: str | None = Field(examples=[None])


class KeysBody(RowsBody):
    """Rows of many keys, in the order of the keys; `missing` lists the keys that have none."""

    missing: list[Any] = Field(examples=[[3]])


class ReadBody(BaseModel):
    """Several views at one data time."""

    as_of: str = Time
    frontier: str = Time
    stale_ms: int = Field(examples=[120])
    views: dict[str, PageBody]


class ColumnBody(BaseModel):
    """A column of an answer, with its type in SQL."""

    name: str = Field(examples=["n"])
    type: str = Field(examples=["BIGINT"])


class SqlBody(BaseModel):
    """The answer to a question in SQL, all of it as of one data time."""

    as_of: str = Time
    since: str = Time
    frontier: str = Time
    stale_ms: int = Field(description="Age of the newest committed epoch", examples=[120])
    columns: list[ColumnBody]
    rows: list[dict[str, Any]] = Field(examples=[[{"n": 812}]])


class ViewBody(BaseModel):
    """A view: columns, key, number of distinct rows, and the readable data times: since <= as_of < frontier.

    Before the first epoch it has no rows, and both times are null.
    """

    name: str = Field(examples=["reach"])
    columns: list[dict[str, str]] = Field(examples=[[{"name": "node", "type": "Int64"}]])
    key: list[str] = Field(examples=[["node"]])
    rows: int = Field(examples=[812])
    since: str | None = Time
    frontier: str | None = Time


class ViewsBody(BaseModel):
    """All views. The epoch is 0 before the first one is committed."""

    views: list[ViewBody]
    damaged: dict[str, str] = Field(
        description="Views that cannot be read, with the damaged file and the way out", examples=[{}]
    )
    app: str = Field(examples=["demo"])
    epoch: int = Field(examples=[128])
    stale_ms: int | None = Field(examples=[120])
    change: str | None = Field(
        default=None, description="How far a change of programs is, if one is under way", examples=[None]
    )


def answer(model: type[BaseModel], description: str = "") -> Responses:
    """A successful answer, with an example made of its members' examples."""
    about = description or (model.__doc__ or "").partition("\n")[0]
    return {200: {"model": model, "description": about, "content": {"application/json": {"example": example(model)}}}}


def example(kind: Any) -> Any:
    """An example value for a type of an answer."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {
            name: field.examples[0] if field.examples else example(field.annotation)
            for name, field in kind.model_fields.items()
        }
    of, inner = get_origin(kind), get_args(kind)
    if of is list:
        return [example(inner[0])]
    if of is Literal:
        return inner[0]
    if of is dict:
        return {"name": example(inner[1])}
    plain: dict[Any, Any] = {int: 1, float: 0.25, bool: True, str: "text"}
    if inner and type(None) in inner:
        return example(inner[0])
    return plain.get(kind)


_WHY = {
    400: "A parameter cannot be understood, nor a question in SQL (`bad_sql`), or it asks for what is not allowed "
    "(`sql_refused`)",
    401: "No token, or an unknown one (`token_missing`, `token_unknown`)",
    403: "The token lacks the scope (`scope_missing`), or the request comes from a foreign page "
    "(`foreign_host`, `foreign_origin`)",
    404: "There is no such thing (`unknown_view`, `unknown_source`, `no_plan`)",
    406: "No acceptable format (`not_acceptable`)",
    408: "The body did not arrive in time (`body_too_slow`)",
    409: "Not possible now: `as_of` may still change (`not_yet_final`); the source accepts no updates "
    "(`not_writable`, `ingest_off`); "
    "SQL is off (`sql_off`) or cannot count the rows (`negative_multiplicity`)",
    410: "The time lies before the history window (`compacted`)",
    413: "Too much (`too_many_keys`, `too_many_rows`, `query_memory`, `body_too_large`, `response_too_large`)",
    415: "Not a content type of updates (`unknown_content_type`)",
    422: "A parameter has the wrong form (`invalid_request`), or an update (`bad_update`); a question "
    "failed while it ran (`query_failed`)",
    429: "Too many at once (`too_many_ingests`, `too_many_queries`)",
    503: "Not possible now (`no_epoch`, `unreadable`, `not_ready`, `query_timeout`, `kafka_unavailable`, `no_plan`)",
}


def problems(*statuses: int) -> Responses:
    """Error answers."""
    schema = {"schema": {"$ref": "#/components/schemas/ProblemBody"}}
    return {
        status: {"description": _WHY[status], "content": {"application/problem+json": schema}} for status in statuses
    }


_COMMON = (400, 404, 409, 410, 422, 503)


_TEXT = {"schema": {"type": "string"}}
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_CHANGE = (
    '{"view":"reach","lower":"17","upper":"20","committed":"1767225600000000000",'
    '"changes":[{"row":{"node":4},"time":"17","diff":1}]}'
)
_EVENT: dict[str, Any] = {
    "schema": {
        "description": "One event; `data` is JSON",
        "type": "object",
        "properties": {
            "event": {"enum": ["snapshot", "updates", "progress", "error"]},
            "id": {"type": "string", "pattern": "^-?[0-9]+$"},
            "data": {"type": "string", "contentMediaType": "application/json"},
        },
    }
}
_STREAM: dict[str, Any] = {
    "description": "Events `snapshot`, `updates`, `progress` and `error`; the id of an event is the frontier after it",
    "content": {
        "text/event-stream": _EVENT | {"example": f"event: updates\nid: 20\ndata: {_CHANGE}\n\n"},
        "application/x-ndjson": _TEXT | {"example": '{"event":"updates","id":"20",' + _CHANGE[1:] + "\n"},
    },
}


def _with(found: dict[str, Any], *others: int) -> Responses:
    ok: Responses = {200: found}
    return ok | problems(*others)


def _rows(body: type[BaseModel], description: str, ndjson: str, csv: str) -> dict[str, Any]:
    """Rows in each format that Accept may name, with examples."""
    return {
        "model": body,
        "description": description,
        "content": {
            "application/json": {"example": example(body)},
            "application/x-ndjson": _TEXT | {"example": ndjson},
            "text/csv": _TEXT | {"example": csv},
            "application/vnd.apache.arrow.stream": _BINARY,
        },
    }


rows = _with(_rows(PageBody, "A page of rows", '{"node":1}\n{"node":2}\n', "node\n1\n2\n"), *(*_COMMON, 406, 413))
rows_of_key = answer(RowsBody, "The rows of the key; none when it has none") | problems(*_COMMON, 413)
rows_of_keys = answer(KeysBody) | problems(*_COMMON, 408, 413)
sql = _with(_rows(SqlBody, "The rows of the answer", '{"n":812}\n', "n\n812\n"), *(*_COMMON, 406, 408, 413, 429))
read = answer(ReadBody, "The first page of each view, all as of one time") | problems(*_COMMON, 413)
_UP_TO_DATE: Responses = {204: {"description": "The subscriber has everything up to `until`"}}
changes = _with(_STREAM, *_COMMON, 406) | _UP_TO_DATE
views = answer(ViewsBody) | problems(503)
metrics: Responses = {
    200: {
        "description": "Prometheus text, or OpenMetrics",
        "content": {
            "text/plain": _TEXT | {"example": 'vernier_view_rows{view="reach"} 812.0\n'},
            "application/openmetrics-text": _TEXT,
        },
    }
}
models = (ProblemBody,)
