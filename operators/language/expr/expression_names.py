"""Names that users of other systems try on expressions, and functions that are methods here, with their names in
Vernier."""

from collections.abc import Iterable

from vernier.operators.errors import UnknownName, meant

_SPELLINGS = {
    "isNull": "is_null",
    "isnull": "is_null",
    "isNotNull": "is_not_null",
    "isnotnull": "is_not_null",
    "notnull": "is_not_null",
    "isin": "is_in",
    "isNaN": "is_nan",
    "isnan": "is_nan",
    "eqNullSafe": "eq_null_safe",
    "astype": "cast",
    "try_cast": "cast",
    "name": "alias",
    "label": "alias",
    "getField": "field",
    "getItem": "get",
    "element_at": "get",
    "array_contains": "contains",
    "size": "length",
    "len": "length",
    "char_length": "length",
    "array_size": "length",
    "substring": "substr",
    "slice": "substr",
    "starts_with": "startswith",
    "ends_with": "endswith",
    "strip": "trim",
    "lstrip": "ltrim",
    "rstrip": "rtrim",
    "title": "initcap",
    "regexp_like": "rlike",
    "regexp": "rlike",
    "match": "rlike",
    "power": "pow",
    "ceiling": "ceil",
    "signum": "sign",
    "log": "ln",
    "dayofmonth": "day",
    "dayofweek": "day_of_week",
    "dayofyear": "day_of_year",
    "weekofyear": "week",
    "week_of_year": "week",
    "trunc": "date_trunc",
    "locate": "instr",
    "position": "instr",
    "find": "instr",
}
_ELSEWHERE = {
    "otherwise": "otherwise follows when: when(condition, value).otherwise(other)",
    "when": "conditions begin with the function: when(condition, value).otherwise(other)",
    "over": "windows are methods of collections: .rank(by=..., within=[...]), .running_sum(...), .lag(...)",
    "fill_null": "write vn.coalesce(x, value)",
    "fillna": "write vn.coalesce(x, value)",
    "ilike": "write x.lower().like(...)",
    "concat": "write a + b, or vn.concat(a, b, ...)",
    "and_": "write a & b",
    "or_": "write a | b",
    "not_": "write ~a",
    "sum": 'aggregates are functions: .group_by("key").agg(total=vn.sum("column"))',
    "mean": 'aggregates are functions: .group_by("key").agg(mean=vn.avg("column"))',
    "avg": 'aggregates are functions: .group_by("key").agg(mean=vn.avg("column"))',
    "min": 'aggregates are functions: .group_by("key").agg(x=vn.min("column")); of several values: vn.least(a, b)',
    "max": 'aggregates are functions: .group_by("key").agg(x=vn.max("column")); of several values: vn.greatest(a, b)',
    "count": 'aggregates are functions: .group_by("key").agg(n=vn.count())',
    "explode": 'explode is a method of collections: rows.explode("column")',
    "str": "methods for text are the expression's own: x.upper(), x.contains(...)",
    "dt": "methods for dates are the expression's own: x.year(), x.date_trunc(...)",
}
_FUNCTIONS = {
    "nvl": "coalesce",
    "ifnull": "coalesce",
    "named_struct": "struct",
    "xxhash64": "hash",
    "expr": "col",
}
"""Functions of Spark, with our names for them."""


def no_expression_method(name: str, known: Iterable[str]) -> UnknownName:
    """The error for an attribute that an expression does not have."""
    if name in _ELSEWHERE:
        return UnknownName(problem=f"an expression has no {name!r}; {_ELSEWHERE[name]}")
    hint = f"; did you mean {_SPELLINGS[name]!r}?" if name in _SPELLINGS else meant(name, known)
    return UnknownName(problem=f"an expression has no {name!r}{hint}")


def function_hint(name: str, methods: Iterable[str]) -> str:
    """A hint for a name that `vernier` does not have: that it is a method, or has another name. Otherwise ""."""
    if name in _FUNCTIONS:
        return f"; did you mean {_FUNCTIONS[name]!r}?"
    method = _SPELLINGS.get(name, name)
    if method in set(methods):
        return f'; {method} is a method of expressions: col("x").{method}()'
    return ""
