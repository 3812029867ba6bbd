"""Errors over HTTP: RFC 9457 problem+json, with one status and one stable code for each family of errors."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from vernier.operators.errors import meant
from vernier.service.ask.errors import (
    AnswerTooLarge,
    BadSql,
    NegativeMultiplicity,
    QueryFailed,
    QueryMemory,
    QueryTimeout,
    SqlOff,
    SqlRefused,
    TooManyQueries,
    TooManyRows,
)
from vernier.service.sidecar.encoding import TooLarge
from vernier.service.sidecar.writes.parse import BadSubmission, BodyTooLarge
from vernier.service.views.deadline import TooSlow
from vernier.service.views.view import Compacted, NotYetFinal, UnknownView
from vernier.storage.blob.segment import damaged_file
from vernier.storage.errors import CallerError, Damaged, StorageError, VernierError

MEDIA_TYPE = "application/problem+json"


class UnknownSource(CallerError):
    """There is no source of that name."""

    message = "there is no source {source!r}{hint}"
    source: str
    hint: str


class UnknownParameter(CallerError):
    """A request has a query parameter that its route does not know. Ignoring it would hide the mistake."""

    message = "{route} has no query parameter {parameter!r}{hint}"
    route: str
    parameter: str
    hint: str


class BadParameter(CallerError):
    """A query parameter that can be read in two ways, or in none."""

    message = "the query parameter {parameter!r} {problem}"
    parameter: str
    problem: str


def check_parameters(request: Request) -> None:
    """Refuse query parameters that the route does not have, that come twice but have one value, or that are not UTF-8.
    Raises UnknownParameter, with the nearest name, and BadParameter.
    """
    if not request.url.query:
        return
    route = request.scope["route"]
    fields = {field.alias: field for field in route.dependant.query_params}
    for name, value in request.query_params.items():
        if name not in fields:
            listed = f"; it has {', '.join(fields)}" if fields else "; it has none"
            raise UnknownParameter(route=route.path, parameter=name, hint=meant(name, list(fields)) or listed)
        times = len(request.query_params.getlist(name))
        if times > 1 and "list" not in str(fields[name].field_info.annotation):
            raise BadParameter(parameter=name, problem=f"was given {times} times, but has one value")
        if "\ufffd" in value and not _is_text(request.scope["query_string"]):
            raise BadParameter(parameter=name, problem="is not UTF-8")


def _is_text(query: bytes) -> bool:
    try:
        unquote_to_bytes(query).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class NoEpoch(StorageError):
    """No epoch was committed yet."""

    message = "no epoch has been committed in {path} yet; start the service, or wait until its first epoch is done"
    path: str


class Unreadable(StorageError):
    """A state exists, but none of its epochs can be read."""

    message = "the state cannot be read: {problem}; run `vernier state verify` for details"
    problem: str


class Problem(VernierError):
    """An error answer for which there is no class of its own: status, code, detail, and further members."""

    status: int
    kind: str
    detail: str
    extra: dict[str, Any]
    headers: dict[str, str]

    def describe(self) -> str:
        return self.detail

    @classmethod
    def of(cls, status: int, kind: str, detail: str, *, headers: dict[str, str] | None = None, **extra: Any) -> Problem:
        """Create the problem in one call."""
        return cls(status=status, kind=kind, detail=detail, extra=extra, headers=headers or {})


def problem_response(
    status: int, code: str, detail: str, extra: dict[str, Any] | None = None, headers: dict[str, str] | None = None
) -> Response:
    """A problem+json answer."""
    body = {
        "type": f"urn:vernier:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        **(extra or {}),
    }
    return Response(msgspec.json.encode(body), status, headers, MEDIA_TYPE)


def about_damage(error: Damaged) -> str:
    """What is damaged, and how to repair it."""
    return f"{error}; restore {damaged_file(error)} from a copy of the state: see docs/state.md, Damage"


def of_error(error: VernierError) -> Response:
    """The answer to a VernierError; times are decimal strings."""
    match error:
        case Problem():
            return problem_response(error.status, error.kind, error.detail, error.extra, error.headers)
        case Compacted():
            extra = {"view": error.view, "as_of": str(error.as_of), "since": str(error.since)}
            return problem_response(410, error.code, str(error), extra)
        case NotYetFinal():
            extra = {"view": error.view, "as_of": str(error.as_of), "frontier": str(error.frontier)}
            return problem_response(409, error.code, str(error), extra)
        case UnknownView():
            return problem_response(404, error.code, str(error), {"view": error.view})
        case UnknownSource():
            return problem_response(404, error.code, str(error), {"source": error.source})
        case BadSql() | SqlRefused() | QueryFailed():
            status = 422 if isinstance(error, QueryFailed) else 400
            return problem_response(status, error.code, str(error), {"line": error.line, "column": error.column})
        case NegativeMultiplicity():
            return problem_response(409, error.code, str(error), {"view": error.view, "as_of": str(error.as_of)})
        case SqlOff():
            return problem_response(409, error.code, str(error))
        case TooManyQueries():
            return problem_response(429, error.code, str(error), headers={"retry-after": "1"})
        case BadSubmission():
            return problem_response(422, error.code, str(error), {error.unit: error.number})
        case TooSlow() | QueryTimeout():
            return problem_response(503, error.code, str(error), headers={"retry-after": "1"})
        case TooLarge() | BodyTooLarge() | AnswerTooLarge() | TooManyRows() | QueryMemory():
            return problem_response(413, error.code, str(error))
        case UnknownParameter() | BadParameter():
            return problem_response(400, error.code, str(error), {"parameter": error.parameter})
        case Damaged():
            extra = {"file": damaged_file(error)}
            return problem_response(503, error.code, about_damage(error), extra, {"retry-after": "5"})
        case CallerError():
            return problem_response(400, error.code, str(error))
        case StorageError():
            return problem_response(503, error.code, str(error), headers={"retry-after": "1"})
        case _:
            return problem_response(500, error.code, str(error))


def install(app: FastAPI) -> None:
    """Turn every error of the app into a problem answer."""

    @app.exception_handler(VernierError)
    async def of_vernier(_: Request, error: VernierError) -> Response:
        return of_error(error)

    @app.exception_handler(RequestValidationError)
    async def of_validation(_: Request, error: RequestValidationError) -> Response:
        errors = [{"in": [str(part) for part in one["loc"]], "problem": one["msg"]} for one in error.errors()]
        detail = "; ".join(f"{'.'.join(one['in'])}: {one['problem']}" for one in errors)
        return problem_response(422, "invalid_request", detail, {"errors": errors})

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> Response:
        code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
        detail = f"{request.method} {request.url.path}: {error.detail}"
        return problem_response(error.status_code, code, detail, headers=dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def of_anything(request: Request, error: Exception) -> Response:
        return problem_response(500, "internal_error", f"{request.method} {request.url.path}: {type(error).__name__}")
