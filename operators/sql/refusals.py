"""What cannot be maintained, and what to write instead.

A refusal does not know positions, because Catalyst's plans have none. It has the words by which the query's text can be
searched for the place; service/sql does that.
"""

from __future__ import annotations

from vernier.operators.errors import ProgramError


class Refused(ProgramError):
    """A construct that cannot be maintained. words: the words of the query that stand for it, in lower case and without
    underscores."""

    words: tuple[str, ...] = ()
    only_planned: str = ""
    """What to say where the query has none of the words: the name is one of the plan's own."""


def refuse(problem: str, *words: str) -> Refused:
    """The error; raise it."""
    return Refused(problem=problem, words=tuple(word.lower().replace("_", "") for word in words))


UNSTEADY: dict[str, str] = {
    "CurrentTimestamp": "current_timestamp",
    "CurrentTimestampLike": "current_timestamp",
    "Now": "now",
    "CurrentDate": "current_date",
    "CurDateExpressionBuilder": "curdate",
    "CurrentTime": "current_time",
    "LocalTimestamp": "localtimestamp",
    "CurrentBatchTimestamp": "current_timestamp",
    "Rand": "rand",
    "Randn": "randn",
    "RandStr": "randstr",
    "Uniform": "uniform",
    "Uuid": "uuid",
    "Shuffle": "shuffle",
    "MonotonicallyIncreasingID": "monotonically_increasing_id",
    "SparkPartitionID": "spark_partition_id",
    "InputFileName": "input_file_name",
    "CurrentUser": "current_user",
    "Sample": "tablesample",
}
"""Expressions that differ from run to run, by their class, with the name in SQL."""

NOW = ("current_timestamp", "now", "current_date", "localtimestamp", "curdate", "current_time")


def unsteady(name: str) -> Refused:
    """The refusal of a function whose result differs from run to run."""
    if name in NOW:
        instead = "write WHERE data_time() < … for a filter by time, or send the time as a column"
    else:
        instead = "compute it where rows are made and send it as a column"
    return refuse(f"{name}() differs from run to run, so its rows could not be taken back; {instead}", name)


_DISC = "write percentile_disc(0.5) WITHIN GROUP (ORDER BY x), with your own share for 0.5"
_LISTED = "listagg() and string_agg() cannot be maintained; write collect_list(x), a sorted list"
INSTEAD: dict[str, str] = {
    "First": "first() (or any_value()) depends on the order of rows; write min(x), or min_by(x, time)",
    "Last": "last() depends on the order of rows; write max(x), or max_by(x, time)",
    "Percentile": f"median() and percentile() interpolate between rows; {_DISC}",
    "ApproximatePercentile": f"approximate aggregates depend on the order of rows; {_DISC}",
    "HyperLogLogPlusPlus": "approximate aggregates depend on the order of rows; write count(DISTINCT x)",
    "PythonUDF": "data_time() changes at every nanosecond, so it cannot be a value; it stands in WHERE, alone on one "
    "side of <, <=, > or >=",
    "ListAgg": _LISTED,
    "SortOrder": _LISTED,
    "Offset": "OFFSET needs ORDER BY, which says which rows to skip, and LIMIT",
    "ScriptTransformation": "TRANSFORM runs a program; write the step in Python: flat_map in a program with app.sql",
}
"""What to write instead of expressions and nodes that cannot be maintained, by their class."""
