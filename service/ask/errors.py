"""What is wrong with a question in SQL. `code` is the code of the HTTP answer; docs/ask.md lists them."""

from __future__ import annotations

from vernier.storage.errors import CallerError


class _Placed(CallerError):
    """line, column: where in the question, both from 1; None if unknown."""

    problem: str
    line: int | None = None
    column: int | None = None

    def describe(self) -> str:
        return self.problem if self.line is None else f"line {self.line}, column {self.column}: {self.problem}"


class BadSql(_Placed):
    """The question is no SQL, or names a column or function that does not exist, or types do not fit."""


class SqlRefused(_Placed):
    """A statement, a function or a clause that a question may not have."""


class QueryFailed(_Placed):
    """The question is well-formed and failed while it ran."""


class TooManyRows(CallerError):
    """The answer has more rows than one answer may have."""

    message = "the answer has more than {limit} rows (http.max_rows); add LIMIT, a WHERE or an aggregate"
    limit: int


class AnswerTooLarge(CallerError):
    """The answer has more bytes than one answer may have."""

    code = "response_too_large"
    message = (
        "the answer is longer than the {limit} bytes of http.max_response_bytes; select fewer columns, or add LIMIT"
    )
    limit: int


class QueryMemory(CallerError):
    """The views of the question, or the question itself, need more memory than a worker may use."""

    message = "the question needs more than the {mb} MB of sql.memory_mb; filter or aggregate earlier, or raise it"
    mb: int


class QueryTimeout(CallerError):
    """The question took longer than the limit."""

    message = (
        "the question was cancelled after {ms} ms (http.query_ms); ask for less: a WHERE, an aggregate, no cross join"
    )
    ms: int


class TooManyQueries(CallerError):
    """Too many questions wait for a worker."""

    message = "{waiting} questions wait already; try again, or raise sql.workers, which is {workers}"
    waiting: int
    workers: int


class SqlOff(CallerError):
    """The settings allow no questions in SQL."""

    message = "this sidecar answers no SQL (sql.workers is 0)"


class NegativeMultiplicity(CallerError):
    """A view has a row less than zero times, which no table of SQL can hold."""

    message = (
        "view {view} has rows of negative multiplicity at {as_of}, which SQL cannot count; "
        "read it at /v1/views/{view}, or serve a distinct() of it"
    )
    view: str
    as_of: int


class Abandoned(CallerError):
    """The sidecar could not send the rows of a view; it knows why."""

    message = "the rows of a view were not sent"


LEAVES: dict[str, type[CallerError]] = {
    one.__name__: one
    for one in (BadSql, SqlRefused, QueryFailed, TooManyRows, AnswerTooLarge, QueryMemory, QueryTimeout, Abandoned)
}
"""The errors that a worker sends, by name."""
