"""Random queries in Spark's SQL, and random tables that change over time, both by a seed.

A query is made from the outside in: its shape (rows, groups, windows, set operations, first rows), then what it reads
(tables, subqueries, joins), then its expressions, by type. Every answer is determined: windows and LIMIT are ordered by
all columns, divisors are constants, texts are never cast to numbers, doubles are sums of quarters. So what differs from
Spark is an error of one of both.
"""

from __future__ import annotations

import datetime
import decimal
import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.oracle.model import Change, Collection

TABLES = """
CREATE TABLE a (i BIGINT, j BIGINT NOT NULL, d DECIMAL(10, 2), s STRING, day DATE, f DOUBLE, b BOOLEAN, ts TIMESTAMP);
CREATE TABLE c (i BIGINT, j BIGINT NOT NULL, d DECIMAL(6, 3), s STRING NOT NULL, day DATE);
CREATE TABLE e (i INT, s STRING, b BOOLEAN NOT NULL);
"""
Columns = tuple[tuple[str, str], ...]
COLUMNS: dict[str, Columns] = {
    "a": (
        ("i", "int"),
        ("j", "int"),
        ("d", "decimal"),
        ("s", "text"),
        ("day", "date"),
        ("f", "double"),
        ("b", "bool"),
        ("ts", "instant"),
    ),
    "c": (("i", "int"), ("j", "int"), ("d", "decimal"), ("s", "text"), ("day", "date")),
    "e": (("i", "int"), ("s", "text"), ("b", "bool")),
}
LAST = 40
_TEXTS = ("", "a", "b", "ab", "Cab", "b_%", "é")
_KINDS = ("int", "int", "decimal", "text", "date", "double", "bool", "instant")


@dataclass(frozen=True)
class Made:
    """A query, with the types of its columns c0, c1 and so on."""

    text: str
    types: tuple[str, ...]


class Scope:
    """Columns that expressions can name: (text, type)."""

    def __init__(self, columns: Sequence[tuple[str, str]]) -> None:
        self.columns = list(columns)

    def of(self, kind: str) -> list[str]:
        """The columns of a type."""
        return [text for text, own in self.columns if own == kind]


class Generator:
    """Makes queries. Two generators of one seed make the same."""

    def __init__(self, seed: object) -> None:
        self.choose = random.Random(str(seed))
        self._aliases = 0

    def query(self) -> str:
        """One query."""
        self._aliases = 0
        return self._query(2).text

    # --- shapes -------------------------------------------------------------------------------------------------------

    def _query(self, depth: int, types: tuple[str, ...] = ()) -> Made:
        shapes = [self._rows, self._rows, self._groups, self._groups]
        if depth:
            shapes += [self._combined, self._windowed, self._first, self._with]
        return self.choose.choice(shapes)(depth, types)

    def _rows(self, depth: int, types: tuple[str, ...]) -> Made:
        text, scope = self._from(depth)
        types = types or self._some_types(scope)
        outputs = ", ".join(f"{self._value(scope, kind, depth)} AS c{at}" for at, kind in enumerate(types))
        once = "DISTINCT " if self._chance(0.15) else ""
        return Made(f"SELECT {once}{outputs} FROM {text}{self._where(scope, depth)}", types)

    def _groups(self, depth: int, types: tuple[str, ...]) -> Made:
        text, scope = self._from(depth)
        where = self._where(scope, depth)
        keys: list[tuple[str, str]] = []
        for _ in range(self.choose.choice((0, 1, 1, 1, 2))):
            kind = self.choose.choice(("int", "text", "date", "bool"))
            key = self._value(scope, kind, 0)
            if any(letter.isalpha() for letter in key.replace("NULL", "").split("'")[0]) and key not in dict(keys):
                keys.append((key, kind))
        inner = Scope(keys)
        outputs, found = [], []
        wanted = types or tuple(
            self.choose.choice(("int", "int", "decimal", "text", "double")) for _ in range(self.choose.randint(1, 3))
        )
        for at, kind in enumerate(wanted):
            plain = inner.of(kind)
            if plain and self._chance(0.5):
                value = self.choose.choice(plain)
            else:
                value = self._aggregate(scope, kind)
            outputs.append(f"{value} AS c{at}")
            found.append(kind)
        grouping = ""
        if keys:
            names = ", ".join(key for key, _ in keys)
            form = self.choose.choice(("{}", "{}", "{}", "{}", "ROLLUP ({})", "CUBE ({})", "GROUPING SETS (({}), ())"))
            grouping = " GROUP BY " + form.format(names)
        having = ""
        if keys and self._chance(0.25):
            having = f" HAVING {self._aggregate(scope, 'int')} {self._comparison()} {self.choose.randint(0, 3)}"
        return Made(f"SELECT {', '.join(outputs)} FROM {text}{where}{grouping}{having}", tuple(found))

    def _combined(self, depth: int, types: tuple[str, ...]) -> Made:
        one = self._query(depth - 1, types)
        two = self._query(depth - 1, one.types)
        words = ("UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL")
        names = ", ".join(f"c{at}" for at in range(len(one.types)))
        return Made(
            f"SELECT {names} FROM ({one.text}) {self.choose.choice(words)} SELECT {names} FROM ({two.text})", one.types
        )

    def _windowed(self, depth: int, types: tuple[str, ...]) -> Made:
        text, scope = self._from(depth - 1)
        wanted = types or (*self._some_types(scope), "int")
        inner = self._some_types(scope)
        columns = [(f"v{at}", kind) for at, kind in enumerate(inner)]
        values = ", ".join(f"{self._value(scope, kind, 0)} AS {name}" for name, kind in columns)
        rows = Scope(columns)
        names = [name for name, _ in columns]
        self.choose.shuffle(names)
        by = ", ".join(name + self.choose.choice(("", " DESC")) for name in names)
        window = (f"PARTITION BY {self.choose.choice(names)}" if self._chance(0.7) else "", by)
        outputs = [
            f"{self._over(rows, kind, window) if self._chance(0.6) else self._value(rows, kind, 0)} AS c{at}"
            for at, kind in enumerate(wanted)
        ]
        return Made(
            f"SELECT {', '.join(outputs)} FROM (SELECT {values} FROM {text}{self._where(scope, 0)}) {self._alias()}",
            wanted,
        )

    def _first(self, depth: int, types: tuple[str, ...]) -> Made:
        found = self._query(depth - 1, types)
        names = [f"c{at}" for at in range(len(found.types))]
        self.choose.shuffle(names)
        ways = ("", " DESC", " NULLS LAST", " DESC NULLS FIRST")
        order = ", ".join(name + self.choose.choice(ways) for name in names)
        skipped = f" OFFSET {self.choose.randint(1, 2)}" if self._chance(0.3) else ""
        columns = ", ".join(f"c{at}" for at in range(len(names)))
        limit = self.choose.randint(1, 4)
        return Made(
            f"SELECT {columns} FROM (SELECT * FROM ({found.text}) ORDER BY {order} LIMIT {limit}{skipped}) "
            f"{self._alias()}",
            found.types,
        )

    def _with(self, depth: int, types: tuple[str, ...]) -> Made:
        shared = self._query(depth - 1)
        name = self._alias()
        one, two = self._alias(), self._alias()
        scope = Scope([(f"{alias}.c{at}", kind) for alias in (one, two) for at, kind in enumerate(shared.types)])
        wanted = types or self._some_types(scope)
        outputs = ", ".join(f"{self._value(scope, kind, 0)} AS c{at}" for at, kind in enumerate(wanted))
        condition = f"{one}.c0 {self.choose.choice(('=', '<=>'))} {two}.c0"
        how = self.choose.choice(("JOIN", "LEFT JOIN", "FULL JOIN"))
        return Made(
            f"WITH {name} AS ({shared.text}) SELECT {outputs} FROM {name} {one} {how} {name} {two} ON {condition}",
            wanted,
        )

    # --- what a query reads -------------------------------------------------------------------------------------------

    def _from(self, depth: int) -> tuple[str, Scope]:
        text, columns = self._item(depth)
        for _ in range(self.choose.choice((0, 0, 1, 1, 2) if depth else (0, 0, 1))):
            chance = self.choose.random()
            if chance < 0.08:
                alias, kind = self._alias(), self.choose.choice(("int", "text"))
                left, right = (self._value(Scope(columns), kind, 0) for _ in range(2))
                outer = self.choose.choice(("", "OUTER "))
                text = f"{text} LATERAL VIEW {outer}explode(array({left}, {right})) {alias} AS x"
                columns = [*columns, (f"{alias}.x", kind)]
                break
            if chance < 0.14:
                alias = self._alias()
                inner, scope = self._from(0)
                test = self._equality(scope, Scope(columns))
                value = self._aggregate(scope, "int")
                how = self.choose.choice(("JOIN", "LEFT JOIN"))
                text = f"{text} {how} LATERAL (SELECT {value} AS x FROM {inner} WHERE {test}) {alias} ON true"
                columns = [*columns, (f"{alias}.x", "int")]
                continue
            right, more = self._item(max(depth - 1, 0))
            how = self.choose.choice(("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"))
            scope = Scope(columns)
            if self._chance(0.06):
                text = f"{text} CROSS JOIN {right}"
                columns = [*columns, *more]
                continue
            condition = self._equality(scope, Scope(more))
            if self._chance(0.3):
                condition += f" AND {self._test(Scope([*columns, *more]), 0)}"
            elif self._chance(0.1) and how == "JOIN":
                condition = self._test(Scope([*columns, *more]), 0)
            text = f"{text} {how} {right} ON {condition}"
            columns = columns if how in ("SEMI JOIN", "ANTI JOIN") else [*columns, *more]
        return text, Scope(columns)

    def _item(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        alias = self._alias()
        chance = self.choose.random()
        if depth and chance < 0.25:
            made = self._query(depth - 1)
            return f"({made.text}) {alias}", [(f"{alias}.c{at}", kind) for at, kind in enumerate(made.types)]
        if chance > 0.95:
            return f"(VALUES (1, 'a'), (2, 'b'), (NULL, 'a')) {alias} (n, t)", [
                (f"{alias}.n", "int"),
                (f"{alias}.t", "text"),
            ]
        table = self.choose.choice(tuple(COLUMNS))
        return f"{table} {alias}", [(f"{alias}.{name}", kind) for name, kind in COLUMNS[table]]

    def _where(self, scope: Scope, depth: int) -> str:
        return f" WHERE {self._condition(scope, depth)}" if self._chance(0.6) else ""

    # --- conditions ---------------------------------------------------------------------------------------------------

    def _condition(self, scope: Scope, depth: int) -> str:
        chance = self.choose.random()
        if depth and chance < 0.35:
            return self._subquery_test(scope)
        if depth and chance < 0.45:
            return f"({self._subquery_test(scope)} OR {self._test(scope, 0)})"
        if chance < 0.6:
            word = self.choose.choice(("AND", "OR"))
            return f"({self._test(scope, 1)} {word} {self._test(scope, 0)})"
        return self._test(scope, 1)

    def _subquery_test(self, scope: Scope) -> str:
        inner, own = self._from(0)
        match self.choose.randint(0, 4):
            case 0 | 1:
                kind = self.choose.choice(("int", "text"))
                word = self.choose.choice(("IN", "NOT IN"))
                where = self._where(own, 0)
                if self._chance(0.3):
                    where = f" WHERE {self._equality(own, scope)}"
                value = self._value(own, kind, 0)
                return f"{self._value(scope, kind, 0)} {word} (SELECT {value} FROM {inner}{where})"
            case 2 | 3:
                word = self.choose.choice(("EXISTS", "NOT EXISTS"))
                extra = f" AND {self._test(own, 0)}" if self._chance(0.5) else ""
                return f"{word} (SELECT 1 FROM {inner} WHERE {self._equality(own, scope)}{extra})"
        where = f" WHERE {self._equality(own, scope)}" if self._chance(0.5) else ""
        value = self._aggregate(own, "int")
        return f"{self._value(scope, 'int', 0)} {self._comparison()} (SELECT {value} FROM {inner}{where})"

    def _equality(self, one: Scope, two: Scope) -> str:
        kinds = [kind for kind in ("int", "text", "date", "bool") if one.of(kind) and two.of(kind)]
        if not kinds:
            return f"{self._value(one, 'int', 0)} = {self._value(two, 'int', 0)}"
        kind = self.choose.choice(kinds[:2])
        sign = "<=>" if self._chance(0.1) else "="
        return f"{self.choose.choice(one.of(kind))} {sign} {self.choose.choice(two.of(kind))}"

    def _test(self, scope: Scope, depth: int) -> str:
        present = [kind for kind in dict.fromkeys(_KINDS) if scope.of(kind)] or ["int"]
        kind = self.choose.choice(present)
        value = self._value(scope, kind, depth)
        match self.choose.randint(0, 6):
            case 0:
                return f"{value} IS {self.choose.choice(('', 'NOT '))}NULL"
            case 1 if kind in ("int", "text"):
                some = ", ".join(self._constant(kind) for _ in range(2))
                null = ", NULL" if self._chance(0.2) else ""
                return f"{value} {self.choose.choice(('', 'NOT '))}IN ({some}{null})"
            case 2 if kind != "bool":
                return f"{value} BETWEEN {self._constant(kind)} AND {self._value(scope, kind, 0)}"
            case 3 if kind == "text":
                return f"{value} {self.choose.choice(('', 'NOT '))}LIKE {self.choose.choice(_PATTERNS)}"
            case 4 if depth:
                return f"NOT ({self._test(scope, 0)})"
        if kind == "bool":
            return value
        others = [one for one in scope.of(kind) if one != value] or [self._constant(kind)]
        return f"{value} {self._comparison()} {self.choose.choice(others)}"

    def _comparison(self) -> str:
        return self.choose.choice(("=", "<>", "<", "<=", ">", ">="))

    # --- values -------------------------------------------------------------------------------------------------------

    def _value(self, scope: Scope, kind: str, depth: int) -> str:
        columns = scope.of(kind)
        chance = self.choose.random()
        if columns and (chance < 0.6 or (not depth and chance < 0.9)):
            return self.choose.choice(columns)
        if (not columns and chance < 0.3) or chance > 0.97:
            return self._constant(kind)
        one, two = (self._part(scope, kind, depth) for _ in range(2))
        if self._chance(0.12):
            return f"coalesce({one}, {two})"
        if self._chance(0.12):
            return f"CASE WHEN {self._test(scope, 0)} THEN {one} ELSE {two} END"
        if self._chance(0.05):
            return f"nullif({one}, {two})"
        forms = _FORMS[kind]
        form = self.choose.choice(forms)
        other = {name: self._part(scope, name, 0) for name in dict.fromkeys(_KINDS) if "{" + name + "}" in form}
        return form.format(one=one, two=two, n=self.choose.randint(1, 4), **other)

    def _part(self, scope: Scope, kind: str, depth: int) -> str:
        if depth:
            return self._value(scope, kind, depth - 1)
        columns = scope.of(kind)
        return self.choose.choice(columns) if columns and self._chance(0.9) else self._constant(kind)

    def _constant(self, kind: str) -> str:
        if self._chance(0.04):
            return f"CAST(NULL AS {_NAMES[kind]})"
        match kind:
            case "int":
                return str(self.choose.randint(0, 4))
            case "decimal":
                return f"CAST({self.choose.randint(0, 600) / 100:.2f} AS DECIMAL(10, 2))"
            case "text":
                return f"'{self.choose.choice(_TEXTS)}'"
            case "date":
                return f"DATE '2024-0{self.choose.randint(1, 3)}-{self.choose.randint(10, 28)}'"
            case "double":
                return f"CAST({self.choose.randint(-8, 8) / 4} AS DOUBLE)"
            case "bool":
                return self.choose.choice(("true", "false"))
        return f"TIMESTAMP '2024-01-01 00:00:{self.choose.randint(10, 59)}'"

    def _aggregate(self, scope: Scope, kind: str) -> str:
        def value(name: str) -> str:
            return self._value(scope, name, 0)

        where = f" FILTER (WHERE {self._test(scope, 0)})" if self._chance(0.15) else ""
        chance = self.choose.random()
        if kind == "int" and chance < 0.7:
            any_kind = self.choose.choice([own for _, own in scope.columns] or ["int"])
            counted = self.choose.choice(("*", value(any_kind), f"DISTINCT {value(any_kind)}"))
            if chance < 0.35:
                return f"count({counted}){where}"
            return f"sum({'DISTINCT ' if chance > 0.6 else ''}{value('int')}){where}"
        if kind == "decimal" and chance < 0.6:
            return f"CAST(sum({'DISTINCT ' if chance > 0.5 else ''}{value('decimal')}){where} AS DECIMAL(30, 6))"
        if kind == "double" and chance < 0.7:
            function = self.choose.choice(("avg", "avg", "stddev_pop", "var_samp"))
            return f"{function}({value('int')}){where}"
        if kind == "bool" and chance < 0.5:
            return f"{self.choose.choice(('bool_and', 'bool_or'))}({value('bool')}){where}"
        return f"{self.choose.choice(('min', 'max'))}({value(kind)}){where}"

    def _over(self, rows: Scope, kind: str, window: tuple[str, str]) -> str:
        """A window function. window: PARTITION BY and ORDER BY all columns, the same for all functions of a query:
        copies of a row have one order in each window, and any order across windows."""
        names = [name for name, _ in rows.columns]
        within, by = window
        chance = self.choose.random()
        if kind == "int" and chance < 0.5:
            ranks = self.choose.choice(("row_number()", "rank()", "dense_rank()"))
            order = by if ranks == "row_number()" or self._chance(0.5) else self.choose.choice(names)
            return f"{ranks} OVER ({within} ORDER BY {order})"
        if rows.of(kind) and chance < 0.75:
            default = f", {self._constant(kind)}" if self._chance(0.2) else ""
            function = self.choose.choice(("lag", "lead"))
            step = self.choose.randint(1, 2)
            return f"{function}({self.choose.choice(rows.of(kind))}, {step}{default}) OVER ({within} ORDER BY {by})"
        if kind in ("int", "decimal") and rows.of(kind) and chance < 0.9:
            value = f"{self.choose.choice(('sum', 'sum', 'min', 'max'))}({self.choose.choice(rows.of(kind))})"
            value = f"count({self.choose.choice(names)})" if kind == "int" and self._chance(0.4) else value
            value = f"CAST({value} OVER ({within} ORDER BY {self._frame(by, names)}) AS DECIMAL(30, 6))"
            return f"CAST({value} AS BIGINT)" if kind == "int" else value
        return f"{self._plain_aggregate(rows, kind)} OVER ({within})"

    def _frame(self, by: str, names: Sequence[str]) -> str:
        if self._chance(0.4):
            return self.choose.choice(names)
        low = self.choose.choice(("UNBOUNDED PRECEDING", "2 PRECEDING", "1 PRECEDING", "CURRENT ROW"))
        high = self.choose.choice(("CURRENT ROW", "1 FOLLOWING", "2 FOLLOWING", "UNBOUNDED FOLLOWING"))
        return f"{by} ROWS BETWEEN {low} AND {high}"

    def _plain_aggregate(self, rows: Scope, kind: str) -> str:
        if kind == "int" and self._chance(0.5):
            return "count(*)"
        return f"{self.choose.choice(('min', 'max'))}({self._value(rows, kind, 0)})"

    # --- small things -------------------------------------------------------------------------------------------------

    def _some_types(self, scope: Scope) -> tuple[str, ...]:
        present = [kind for _, kind in scope.columns] or ["int"]
        return tuple(self.choose.choice(present) for _ in range(self.choose.randint(1, 3)))

    def _chance(self, share: float) -> bool:
        return self.choose.random() < share

    def _alias(self) -> str:
        self._aliases += 1
        return f"q{self._aliases}"


_PATTERNS = ("'%a%'", "'b%'", "'_'", "'%b'", "'C_b'", r"'b\\_%'", "''")
_NAMES = {
    "int": "BIGINT",
    "decimal": "DECIMAL(10, 2)",
    "text": "STRING",
    "date": "DATE",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "instant": "TIMESTAMP",
}
_FORMS: dict[str, tuple[str, ...]] = {
    "int": (
        "{one} + {two}",
        "{one} - {two}",
        "{one} * {n}",
        "{one} % {n}",
        "{one} div {n}",
        "-{one}",
        "abs({one})",
        "length({text})",
        "year({date})",
        "month({date})",
        "dayofweek({date})",
        "datediff({date}, DATE '2024-02-01')",
        "second({instant})",
        "greatest({one}, {two})",
        "least({one}, {two})",
        "CAST({decimal} AS BIGINT)",
        "CAST({bool} AS INT)",
        "instr({text}, 'b')",
    ),
    "decimal": (
        "{one} + {two}",
        "{one} - {two}",
        "{one} * {n}",
        "CAST({one} / {n} AS DECIMAL(20, 4))",
        "{one} + {int}",
        "round({one}, 1)",
        "abs({one})",
        "CAST({int} AS DECIMAL(12, 2))",
        "CAST({one} * {two} AS DECIMAL(24, 5))",
        "-{one}",
    ),
    "text": (
        "concat({one}, {two})",
        "upper({one})",
        "lower({one})",
        "substring({one}, {n}, 2)",
        "trim({one})",
        "concat({one}, '-', CAST({int} AS STRING))",
        "replace({one}, 'a', 'xy')",
        "lpad({one}, 3, '.')",
        "CAST({date} AS STRING)",
        "CAST({bool} AS STRING)",
        "reverse({one})",
    ),
    "date": (
        "{one} + {n}",
        "date_sub({one}, {n})",
        "CAST({instant} AS DATE)",
        "greatest({one}, {two})",
        "trunc({one}, 'MM')",
        "date_add({one}, CAST(length({text}) AS INT))",
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
    ),
    "bool": (
        "{one} AND {two}",
        "{one} OR {two}",
        "NOT {one}",
        "{int} > {n}",
        "{text} = 'a'",
        "startswith({text}, 'a')",
        "{date} IS NULL",
        "{one} <=> {two}",
    ),
    "instant": (
        "{one} + INTERVAL {n} SECONDS",
        "date_trunc('MINUTE', {one})",
        "CAST({date} AS TIMESTAMP)",
        "{one} - INTERVAL {n} DAYS",
        "least({one}, {two})",
    ),
}


def history(seed: object) -> dict[str, list[Change]]:
    """Rows of the tables at times 1 to LAST that come, come again and go, never below none."""
    choose = random.Random(f"history {seed}")

    def value(kind: str, table: str) -> object:
        match kind:
            case "int":
                return choose.randint(0, 4)
            case "decimal" if table == "c":
                return decimal.Decimal(choose.randint(-3000, 3000)) / 1000
            case "decimal":
                return decimal.Decimal(choose.randint(-300, 600)) / 100
            case "text":
                return choose.choice(_TEXTS)
            case "date":
                return datetime.date(2024, choose.randint(1, 3), choose.choice((1, 15, 28)))
            case "double":
                return choose.randint(-8, 8) / 4
            case "bool":
                return choose.random() < 0.5
        return 1_704_067_200_000_000_000 + choose.randint(0, 90_000_000) * 1000

    found: dict[str, list[Change]] = {}
    for table, columns in COLUMNS.items():
        required = {"a": {"j"}, "c": {"j", "s"}, "e": {"b"}}[table]
        held: Collection = {}
        changes: list[Change] = []
        for time in range(1, LAST):
            there = [one for one, count in held.items() if count]
            if there and (choose.random() < 0.4 or sum(held.values()) > 8):
                row, diff = choose.choice(there), -1
            elif there and choose.random() < 0.2:
                row, diff = choose.choice(there), 1
            else:
                row = tuple(
                    None if name not in required and choose.random() < 0.2 else value(kind, table)
                    for name, kind in columns
                )
                diff = 1
            held[row] = held.get(row, 0) + diff
            changes.append((row, time, diff))
        found[table] = changes
    return found
