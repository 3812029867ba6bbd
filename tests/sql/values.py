"""Random expressions in Spark's SQL, by type: values, conditions, aggregates.

Every value is determined, and the same in Spark and here: divisors are constants, texts are never cast to numbers
unless they are numbers, doubles are sums of quarters, and variances are rounded.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.sql.histories import TEXTS

KINDS = ("int", "int", "decimal", "text", "date", "double", "bool", "instant")
TYPES = {
    "int": "BIGINT",
    "decimal": "DECIMAL(10, 2)",
    "text": "STRING",
    "date": "DATE",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "instant": "TIMESTAMP",
}


class Scope:
    """Columns that expressions can name: (text, type)."""

    def __init__(self, columns: Sequence[tuple[str, str]]) -> None:
        self.columns = list(columns)

    def of(self, kind: str) -> list[str]:
        """The columns of a type."""
        return [text for text, own in self.columns if own == kind]


class Values:
    """Makes expressions. Two of one seed make the same."""

    def __init__(self, seed: object) -> None:
        self.choose = random.Random(str(seed))

    def chance(self, share: float) -> bool:
        """True for this share of the calls."""
        return self.choose.random() < share

    # --- conditions ---------------------------------------------------------------------------------------------------

    def test(self, scope: Scope, depth: int) -> str:
        """A condition over the columns."""
        present = [kind for kind in dict.fromkeys(KINDS) if scope.of(kind)] or ["int"]
        kind = self.choose.choice(present)
        value = self.value(scope, kind, depth)
        match self.choose.randint(0, 7):
            case 0:
                return f"{value} IS {self.choose.choice(('', 'NOT '))}NULL"
            case 1 if kind in ("int", "text", "date", "decimal"):
                some = ", ".join(self.constant(kind) for _ in range(2))
                null = ", NULL" if self.chance(0.2) else ""
                return f"{value} {self.choose.choice(('', 'NOT '))}IN ({some}{null})"
            case 2 if kind != "bool":
                return f"{value} BETWEEN {self.constant(kind)} AND {self.value(scope, kind, 0)}"
            case 3 if kind == "text":
                word = self.choose.choice(("LIKE", "LIKE", "NOT LIKE", "ILIKE"))
                return f"{value} {word} {self.choose.choice(_PATTERNS)}"
            case 4 if depth:
                return f"NOT ({self.test(scope, 0)})"
            case 5 if kind == "bool":
                return f"({value}) IS {self.choose.choice(('', 'NOT '))}{self.choose.choice(('TRUE', 'FALSE'))}"
            case 6 if kind != "bool":
                word = self.choose.choice(("IS DISTINCT FROM", "IS NOT DISTINCT FROM"))
                return f"{value} {word} {self.value(scope, kind, 0)}"
        if kind == "bool":
            return value
        others = [one for one in scope.of(kind) if one != value] or [self.constant(kind)]
        return f"{value} {self.comparison()} {self.choose.choice(others)}"

    def comparison(self) -> str:
        """A sign that compares."""
        return self.choose.choice(("=", "<>", "<", "<=", ">", ">="))

    def equality(self, one: Scope, two: Scope) -> str:
        """A condition that two columns are equal."""
        kinds = [kind for kind in ("int", "text", "date", "bool") if one.of(kind) and two.of(kind)]
        if not kinds:
            return f"{self.value(one, 'int', 0)} = {self.value(two, 'int', 0)}"
        kind = self.choose.choice(kinds[:2])
        sign = "<=>" if self.chance(0.1) else "="
        return f"{self.choose.choice(one.of(kind))} {sign} {self.choose.choice(two.of(kind))}"

    # --- values -------------------------------------------------------------------------------------------------------

    def value(self, scope: Scope, kind: str, depth: int) -> str:
        """A value of a type."""
        columns = scope.of(kind)
        chance = self.choose.random()
        if columns and (chance < 0.5 or (not depth and chance < 0.8)):
            return self.choose.choice(columns)
        if (not columns and chance < 0.3) or chance > 0.97:
            return self.constant(kind)
        one, two = (self._part(scope, kind, depth) for _ in range(2))
        if self.chance(0.12):
            return f"{self.choose.choice(('coalesce', 'coalesce', 'nvl', 'ifnull'))}({one}, {two})"
        if self.chance(0.12):
            return f"CASE WHEN {self.test(scope, 0)} THEN {one} ELSE {two} END"
        if self.chance(0.04):
            return f"if({self.test(scope, 0)}, {one}, {two})"
        if self.chance(0.05):
            return f"nullif({one}, {two})"
        if self.chance(0.05):
            return self.choose.choice(_NESTED).format(one=one, two=two)
        form = self.choose.choice(FORMS[kind])
        other = {name: self._part(scope, name, 0) for name in dict.fromkeys(KINDS) if "{" + name + "}" in form}
        return form.format(one=one, two=two, n=self.choose.randint(1, 4), **other)

    def _part(self, scope: Scope, kind: str, depth: int) -> str:
        if depth:
            return f"({self.value(scope, kind, depth - 1)})"
        columns = scope.of(kind)
        return self.choose.choice(columns) if columns and self.chance(0.9) else self.constant(kind)

    def constant(self, kind: str) -> str:
        """A constant of a type."""
        if self.chance(0.04):
            return f"CAST(NULL AS {TYPES[kind]})"
        match kind:
            case "int":
                return str(self.choose.randint(0, 4))
            case "decimal":
                return f"CAST({self.choose.randint(0, 600) / 100:.2f} AS DECIMAL(10, 2))"
            case "text":
                return f"'{self.choose.choice(TEXTS)}'"
            case "date":
                return f"DATE '2024-0{self.choose.randint(1, 3)}-{self.choose.randint(10, 28)}'"
            case "double":
                return f"CAST({self.choose.randint(-8, 8) / 4} AS DOUBLE)"
            case "bool":
                return self.choose.choice(("true", "false"))
        return f"TIMESTAMP '2024-01-01 00:00:{self.choose.randint(10, 59)}'"

    # --- aggregates ---------------------------------------------------------------------------------------------------

    def aggregate(self, scope: Scope, kind: str, *, distinct: bool = True, lists: bool = False) -> str:
        """An aggregate whose value has a type. distinct: whether DISTINCT may stand in it; lists: whether it may
        collect a list."""
        where = f" FILTER (WHERE {self.test(scope, 0)})" if self.chance(0.15) else ""

        def of(function: str, name: str, after: str = "") -> str:
            once = "DISTINCT " if distinct and self.chance(0.2) else ""
            return f"{function}({once}{self.value(scope, name, 0)}){after}{where}"

        choice = self.choose.randint(0, 9)
        any_kind = self.choose.choice([own for _, own in scope.columns] or ["int"])
        match kind, choice:
            case "int", 0 | 1:
                return f"count(*){where}"
            case "int", 2 | 3:
                return of("count", any_kind)
            case "int", 4 | 5:
                return of("sum", "int")
            case "int", 6 if distinct:
                once = self.choose.choice(("", "DISTINCT "))
                return f"count({once}{self.value(scope, any_kind, 0)}, {self.value(scope, 'int', 0)}){where}"
            case "int", 7:
                return f"count_if({self.test(scope, 0)})"
            case "int", 8 if lists:
                function = self.choose.choice(("collect_set", "collect_list"))
                return f"size({function}({self.value(scope, self.choose.choice(('int', 'text')), 0)}){where})"
            case "decimal", 0 | 1 | 2:
                return f"CAST({of('sum', 'decimal')} AS DECIMAL(30, 6))"
            case "decimal", 3:
                return f"CAST({of('avg', 'decimal')} AS DECIMAL(30, 6))"
            case "double", 0 | 1:
                return of("avg", "int")
            case "double", 2:
                return of(self.choose.choice(("avg", "sum")), "double")
            case "double", 3 | 4:
                function = self.choose.choice(("stddev_pop", "var_samp", "stddev", "var_pop"))
                return f"round({of(function, self.choose.choice(('int', 'double')))}, 6)"
            case "double", 5 if distinct:
                share = self.choose.choice(("0.25", "0.5", "1"))
                order = self.value(scope, self.choose.choice(("int", "double")), 0)
                return f"CAST(percentile_disc({share}) WITHIN GROUP (ORDER BY {order}){where} AS DOUBLE)"
            case "bool", 0 | 1 | 2 | 3:
                return f"{self.choose.choice(('bool_and', 'bool_or', 'every', 'some'))}({self.test(scope, 0)}){where}"
            case "bool", 4 if lists:
                return f"array_contains(collect_set({self.value(scope, 'text', 0)}){where}, 'a')"
        return of(self.choose.choice(("min", "max")), kind)


_PATTERNS = ("'%a%'", "'b%'", "'_'", "'%b'", "'C_b'", r"'b\\_%'", "''", "'%'", "'é%'")
_NESTED = (
    "array({one}, {two})[0]",
    "element_at(array({one}, {two}), 2)",
    "named_struct('x', {one}, 'y', {two}).y",
    "struct({one} AS x, {two} AS y).x",
)
FORMS: dict[str, tuple[str, ...]] = {
    "int": (
        "{one} + {two}",
        "{one} - {two}",
        "{one} * {n}",
        "{one} % {n}",
        "{one} div {n}",
        "pmod({one}, {n})",
        "-{one}",
        "abs({one})",
        "round({one})",
        "length({text})",
        "char_length({text})",
        "year({date})",
        "quarter({date})",
        "month({date})",
        "day({date})",
        "dayofyear({date})",
        "weekofyear({date})",
        "dayofweek({date})",
        "weekday({date})",
        "extract(WEEK FROM {date})",
        "datediff({date}, DATE '2024-02-01')",
        "hour({instant})",
        "minute({instant})",
        "second({instant})",
        "unix_seconds({instant}) % 100",
        "unix_millis({instant}) % 1000",
        "unix_micros({instant}) % 1000",
        "CAST({instant} AS BIGINT) % 60",
        "greatest({one}, {two}, {n})",
        "least({one}, {two})",
        "CAST({decimal} AS BIGINT)",
        "CAST({double} AS BIGINT)",
        "floor({double})",
        "ceil({double})",
        "CAST(floor({decimal}) AS BIGINT)",
        "CAST({bool} AS INT)",
        "CAST(CAST({one} AS STRING) AS BIGINT)",
        "instr({text}, 'b')",
        "locate('a', {text})",
        "size(split({text}, 'b'))",
        "size(array({one}, {two}))",
        "CASE {one} WHEN {n} THEN {two} WHEN 0 THEN -1 END",
    ),
    "decimal": (
        "{one} + {two}",
        "{one} - {two}",
        "{one} * {n}",
        "CAST({one} / {n} AS DECIMAL(20, 4))",
        "CAST({one} % {n} AS DECIMAL(12, 3))",
        "{one} + {int}",
        "round({one}, 1)",
        "round({one}, 0)",
        "ceil({one})",
        "abs({one})",
        "CAST({int} AS DECIMAL(12, 2))",
        "CAST({double} AS DECIMAL(14, 4))",
        "CAST({one} * {two} AS DECIMAL(24, 5))",
        "greatest({one}, {two})",
        "-{one}",
    ),
    "text": (
        "concat({one}, {two})",
        "{one} || {two}",
        "concat_ws('-', {one}, {two})",
        "upper({one})",
        "lower({one})",
        "initcap({one})",
        "substring({one}, {n}, 2)",
        "substring({one}, -2)",
        "left({one}, {n})",
        "trim({one})",
        "ltrim('b', {one})",
        "rtrim({one})",
        "trim(BOTH 'a' FROM {one})",
        "concat({one}, '-', CAST({int} AS STRING))",
        "replace({one}, 'a', 'xy')",
        "lpad({one}, 3, '.')",
        "rpad({one}, {n}, 'xy')",
        "repeat({one}, 2)",
        "CAST({date} AS STRING)",
        "CAST({bool} AS STRING)",
        "CAST({decimal} AS STRING)",
        "CAST({instant} AS STRING)",
        "reverse({one})",
        "regexp_replace({one}, '[ab]+', '<$0>')",
        "regexp_replace({one}, '(.)b', '$1')",
        "regexp_extract({one}, '([A-Za-z])(.)', 2)",
        "split({one}, 'a')[0]",
    ),
    "date": (
        "{one} + {n}",
        "date_sub({one}, {n})",
        "CAST({instant} AS DATE)",
        "greatest({one}, {two})",
        "trunc({one}, 'MM')",
        "trunc({one}, 'WEEK')",
        "date_add({one}, CAST(length({text}) AS INT))",
        "CAST(CAST({one} AS STRING) AS DATE)",
        "{one} - INTERVAL {n} DAYS",
    ),
    "double": (
        "{one} + {two}",
        "{one} * {n}",
        "{one} / {n}",
        "CAST({int} AS DOUBLE)",
        "-{one}",
        "abs({one})",
        "floor({one}) + 0.5D",
        "CAST({decimal} AS DOUBLE)",
        "sqrt(abs({one}))",
        "sign({one})",
        "round({one}, 1)",
        "{int} / {n}",
        "pow({one}, 2)",
        "{one} % 1.5D",
    ),
    "bool": (
        "{one} AND {two}",
        "{one} OR {two}",
        "NOT {one}",
        "{int} > {n}",
        "{text} = 'a'",
        "startswith({text}, 'a')",
        "endswith({text}, 'b')",
        "contains({text}, 'b')",
        "{text} RLIKE '^[a-c]'",
        "{text} RLIKE '(?i)AB?$'",
        "{date} IS NULL",
        "{one} <=> {two}",
        "array_contains(array({int}, {n}), 2)",
        "isnan({double})",
        "{decimal} > {double}",
    ),
    "instant": (
        "{one} + INTERVAL {n} SECONDS",
        "date_trunc('MINUTE', {one})",
        "date_trunc('HOUR', {one})",
        "date_trunc('QUARTER', {one})",
        "CAST({date} AS TIMESTAMP)",
        "{one} - INTERVAL {n} DAYS",
        "{one} + INTERVAL '0 00:00:00.5' DAY TO SECOND",
        "least({one}, {two})",
        "timestamp_millis(unix_millis({one}))",
        "timestamp_micros(unix_micros({one}) + {n})",
        "CAST({int} % 1000 AS TIMESTAMP)",
    ),
}
