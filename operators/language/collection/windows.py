"""Windows on columns of the data: tumbling, hopping, sessions. They are columns; group by them to aggregate."""

from typing import cast

from vernier.operators.errors import WrongType
from vernier.operators.group_functions.sessions import Sessions
from vernier.operators.language.collection.ordering import Columns, grouped_by, keys
from vernier.operators.language.collection.rows import C, column_name
from vernier.operators.language.expr.expression import Column, Expr
from vernier.operators.language.plan.buckets import Windows, ordinal
from vernier.operators.language.plan.linear_nodes import ExpandNode
from vernier.operators.language.plan.logical import ProjectNode
from vernier.operators.language.types.duration import nanoseconds
from vernier.operators.language.types.scalars import Date, Type

MOST_WINDOWS = 10_000
"""The most windows that one row may be in; more is refused as a mistake."""


def window(
    self: C,
    on: str | Expr,
    *,
    tumble: str | int | None = None,
    length: str | int | None = None,
    every: str | int | None = None,
    hop: str | int | None = None,
    session: str | int | None = None,
    by: Columns = (),
) -> C:
    """The rows with the window of column `on` that contains them, as window_start and window_end (exclusive).

    tumble="1m": consecutive windows of one minute. length="1m", every="10s": a window of one minute begins every
    ten seconds, so a row appears once for each window that contains it (hop= is an older name of length=). Both
    kinds begin at multiples of the step from 1970-01-01 or 0, and keep multiplicities. session="5m": rows with the
    same key `by`, each at most five minutes after the one before, form one window, from the first row to five
    minutes after the last; only present rows count. Rows whose `on` is null are in no window. The columns have the
    type of `on`: TimestampNs, Int64 (durations are nanoseconds, or plain numbers) or Date (whole days: numbers, or
    "1d"). Cost: tumbling and hopping windows are row-wise; a change of a session costs the rows whose
    session it changes, in loops O(rows of its key).
    """
    field = ordinal(self.schema.field(column_name(on, "window")), "window")
    if length is not None and hop is not None:
        raise WrongType(problem="length= and hop= of window are the same: give length= alone")
    length = hop if length is None else length
    sizes = (("tumble", tumble), ("length", length), ("session", session))
    given = [name for name, value in sizes if value is not None]
    if len(given) != 1 or (every is None) != (length is None):
        raise WrongType(problem='window takes tumble="1m", or length="1m", every="10s", or session="5m", by=["key"]')
    grouped = keys(by, self.schema, "by= of window")
    if grouped and session is None:
        raise WrongType(problem="by= is for sessions; tumbling and hopping windows do not depend on other rows")
    if session is not None:
        if field.name in grouped:
            raise WrongType(problem=f"the session of {field.name!r} cannot have it in by=, too")
        node = grouped_by(self.node, grouped, Sessions(field.name, span(session, field.type, "session")))
        names = (*self.columns, "window_start", "window_end")
        return self._of(ProjectNode(node, tuple((name, Column(name)) for name in names)))
    size = span(tumble if length is None else length, field.type, given[0])
    step = size if every is None else span(every, field.type, "every")
    if step > size or size > MOST_WINDOWS * step:
        raise WrongType(
            problem=f"length={length!r}, every={every!r}: a window begins at least once in its length, "
            f"and a row is in {MOST_WINDOWS} at most"
        )
    return self._of(ExpandNode(self.node, Windows(field.name, size, step)))


def span(length: object, kind: Type, what: str, *, signed: bool = False, zero: bool = False) -> int:
    """A distance between values of a type, in nanoseconds or, for Date, days; "5s" or a number. Raises WrongType.

    It must be above 0; `zero` also permits 0, `signed` permits either sign ("-5s").
    """
    minus = signed and (length < 0 if isinstance(length, int) else str(length).lstrip().startswith("-"))
    plain = -length if minus and isinstance(length, int) else str(length).strip()[1:] if minus else length
    size = nanoseconds(cast(str | int, plain), what)
    if kind == Date() and not isinstance(length, int):
        days, rest = divmod(size, nanoseconds("1d"))
        if rest:
            raise WrongType(problem=f"{what}={length!r}: distances between dates are whole days")
        size = days
    if size == 0 and not zero:
        raise WrongType(problem=f"{what} must be above 0, not {length!r}")
    if size >= 2**62:
        raise WrongType(problem=f"{what}={length!r} is beyond all distances; use less than 2**62")
    return -size if minus else size
