"""Names that users of other systems try, with the name that Vernier has instead.

The public API has one spelling, snake_case. For a Spark or camel-case name the error says "did you mean"; for any other
name it suggests the nearest name that exists.
"""

from collections.abc import Iterable

from vernier.operators.errors import ProgramError, UnknownName, listed, meant
from vernier.operators.language.expr.expression_names import function_hint
from vernier.operators.language.expr.methods import Methods

JOIN_SPELLINGS = {
    "outer": "full",
    "fullouter": "full",
    "full_outer": "full",
    "leftouter": "left",
    "left_outer": "left",
    "rightouter": "right",
    "right_outer": "right",
    "leftsemi": "semi",
    "left_semi": "semi",
    "leftanti": "anti",
    "left_anti": "anti",
}

METHOD_SPELLINGS = {
    "where": "filter",
    "withColumn": "with_columns",
    "withColumns": "with_columns",
    "with_column": "with_columns",
    "assign": "with_columns",
    "withColumnRenamed": "rename",
    "withColumnsRenamed": "rename",
    "groupBy": "group_by",
    "groupby": "group_by",
    "unionAll": "union",
    "unionByName": "union",
    "concat": "union",
    "dropDuplicates": "distinct",
    "drop_duplicates": "distinct",
    "unique": "distinct",
    "map": "select",
    "flatMap": "flat_map",
    "expand": "flat_map",
    "arrange": "arrange_by",
    "temporal_filter": "valid_between",
    "project": "select",
    "tumble": "window",
    "hop": "window",
    "session": "window",
    "session_window": "window",
    "innerJoin": "join",
    "asof_join": "as_of_join",
    "join_asof": "as_of_join",
    "merge_asof": "as_of_join",
    "exceptAll": "except_all",
    "subtract": "except_all",
    "minus": "except_all",
    "merge": "join",
}
_ORDER = "collections have no order; order rows when you read the view; top_k, rank, lag and others take by="
_FIRST = 'the first rows of an order are .top_k(10, by="column")'
METHODS_ELSEWHERE = {
    "agg": 'aggregates follow group_by: .group_by("key").agg(n=vn.count())',
    "count": "a count is an aggregate: .group_by(...).agg(n=vn.count())",
    "sum": 'a sum is an aggregate: .group_by(...).agg(total=vn.sum("column"))',
    "min": 'a minimum is an aggregate: .group_by(...).agg(low=vn.min("column"))',
    "max": 'a maximum is an aggregate: .group_by(...).agg(high=vn.max("column"))',
    "collect": "a program only builds the query; read the answer through a view: app.view(name, collection, key=[...])",
    "show": "a program only builds the query; read the answer through a view: app.view(name, collection, key=[...])",
    "order_by": _ORDER,
    "orderBy": _ORDER,
    "sort": _ORDER,
    "limit": _FIRST,
    "head": _FIRST,
    "take": _FIRST,
    "first": _FIRST,
    "over": 'windows of rows are methods: .rank(by="column", within="key"), row_number, lag, lead, running_sum',
    "dropna": 'nulls are filtered: .filter(col("a").is_not_null())',
    "fillna": 'nulls are replaced: .with_columns(a=vn.coalesce(col("a"), 0))',
    "crossJoin": "all pairs are those of one key: give both sides a constant column and join on it",
    "cross_join": "all pairs are those of one key: give both sides a constant column and join on it",
    "cumsum": 'sums along an order are .running_sum("column", by="column")',
    "shift": 'values of rows before and behind are .lag("column", by="column") and .lead(...)',
    "resample": 'times are cut into windows by .window("column", tumble="1m")',
    "fixpoint": "loops are functions: decorate the body with @vn.fixpoint",
}
FUNCTION_SPELLINGS = {
    "column": "col",
    "literal": "lit",
    "mean": "avg",
    "average": "avg",
    "sum_": "sum",
    "min_": "min",
    "max_": "max",
    "Int": "Int64",
    "Integer": "Int64",
    "Long": "Int64",
    "LongType": "Int64",
    "IntegerType": "Int64",
    "Float": "Float64",
    "Double": "Float64",
    "DoubleType": "Float64",
    "Boolean": "Bool",
    "BooleanType": "Bool",
    "DateType": "Date",
    "Timestamp": "TimestampNs",
    "TimestampType": "TimestampNs",
    "Str": "String",
    "StringType": "String",
}


def no_method(name: str, known: Iterable[str], columns: Iterable[str]) -> ProgramError:
    """The error for an attribute that a collection does not have: a method of another system, a column, or a typing
    error."""
    if name in METHODS_ELSEWHERE:
        return UnknownName(problem=f"a collection has no method {name!r}; {METHODS_ELSEWHERE[name]}")
    if name in METHOD_SPELLINGS:
        return UnknownName(problem=f"a collection has no method {name!r}; did you mean {METHOD_SPELLINGS[name]!r}?")
    if name in set(columns):
        return UnknownName(problem=f"a collection has no attribute {name!r}; for the column write col({name!r})")
    return UnknownName(
        problem=f"a collection has no method {name!r}{meant(name, known)} (it has {listed(sorted(known))})"
    )


def no_function(name: str, known: Iterable[str], methods: Iterable[str]) -> ProgramError:
    """The error for a name that the module `vernier` does not have; `methods`: the methods of collections."""
    if name in set(methods):
        return UnknownName(problem=f"vernier has no {name!r}; it is a method of collections: rows.{name}(...)")
    hint = function_hint(name, dir(Methods))
    if hint:
        return UnknownName(problem=f"vernier has no {name!r}{hint}")
    if name in FUNCTION_SPELLINGS:
        return UnknownName(problem=f"vernier has no {name!r}; did you mean {FUNCTION_SPELLINGS[name]!r}?")
    return UnknownName(problem=f"vernier has no {name!r}{meant(name, known)}")
