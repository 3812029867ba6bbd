"""Random queries in Spark's SQL, by a seed.

A query is made from the outside in: its shape (rows, groups, windows, set operations, first rows, a name for a part,
recursion), then what it reads (tables, subqueries, joins, pivots, lists), then its expressions, by type (values.py,
overs.py). Every answer is determined: places and LIMIT are ordered by all columns. So what differs from Spark is an
error of one of both.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.sql.histories import COLUMNS
from tests.sql.overs import Overs
from tests.sql.values import Scope


@dataclass(frozen=True)
class Made:
    """A query, with the types of its columns c0, c1 and so on."""

    text: str
    types: tuple[str, ...]


class Generator(Overs):
    """Makes queries. Two generators of one seed make the same."""

    def __init__(self, seed: object) -> None:
        super().__init__(seed)
        self._aliases = 0

    def query(self) -> str:
        """One query."""
        self._aliases = 0
        return self._query(2).text

    # --- shapes -------------------------------------------------------------------------------------------------------

    def _query(self, depth: int, types: tuple[str, ...] = ()) -> Made:
        shapes = [self._rows, self._rows, self._groups, self._groups, self._timed]
        if depth:
            shapes += [self._combined, self._windowed, self._windowed, self._first, self._with]
        if depth == 2:
            shapes += [self._recursive]
        return self.choose.choice(shapes)(depth, types)

    def _rows(self, depth: int, types: tuple[str, ...]) -> Made:
        text, scope = self._from(depth)
        types = types or self._some_types(scope)
        outputs = ", ".join(f"{self._output(scope, kind, depth)} AS c{at}" for at, kind in enumerate(types))
        once = "DISTINCT " if self.chance(0.15) else ""
        return Made(f"SELECT {once}{outputs} FROM {text}{self._where(scope, depth)}", types)

    def _output(self, scope: Scope, kind: str, depth: int) -> str:
        """A value of SELECT, which may be a subquery."""
        if depth and self.chance(0.1):
            if kind == "bool":
                return f"({self._subquery_test(scope)})"
            inner, own = self._from(0)
            chance = self.choose.random()
            if chance < 0.2:
                column = self.value(own, kind, 0)
                return f"(SELECT {column} AS x FROM {inner} ORDER BY x{self.choose.choice(('', ' DESC'))} LIMIT 1)"
            where = f" WHERE {self.equality(own, scope)}" if chance < 0.8 else self._where(own, 0)
            return f"(SELECT {self.aggregate(own, kind)} FROM {inner}{where})"
        return self.value(scope, kind, depth)

    def _groups(self, depth: int, types: tuple[str, ...]) -> Made:
        text, scope = self._from(depth)
        where = self._where(scope, depth)
        keys: list[tuple[str, str]] = []
        for _ in range(self.choose.choice((0, 1, 1, 1, 2))):
            kind = self.choose.choice(("int", "text", "date", "bool", "decimal"))
            key = self.value(scope, kind, 0)
            if any(letter.isalpha() for letter in key.replace("NULL", "").split("'")[0]) and key not in dict(keys):
                keys.append((key, kind))
        inner = Scope(keys)
        outputs, found = [], []
        wanted = types or tuple(
            self.choose.choice(("int", "int", "decimal", "text", "double", "bool"))
            for _ in range(self.choose.randint(1, 3))
        )
        names = ", ".join(key for key, _ in keys)
        forms = ("{}", "{}", "{}", "{}", "ROLLUP ({})", "CUBE ({})", "GROUPING SETS (({}), ())")
        form = self.choose.choice((*forms, "GROUPING SETS ((), ({}), (" + keys[-1][0] + "))") if keys else forms)
        for at, kind in enumerate(wanted):
            plain = inner.of(kind)
            if keys and kind == "int" and form != "{}" and self.chance(0.2):
                value = f"grouping({self.choose.choice(keys)[0]})"
            elif plain and self.chance(0.5):
                value = self.choose.choice(plain)
            else:
                value = self.aggregate(scope, kind, lists=bool(keys))
                if self.chance(0.1) and kind == "int":
                    value = f"{value} + {self.aggregate(scope, kind)}"
            outputs.append(f"{value} AS c{at}")
            found.append(kind)
        grouping = " GROUP BY " + form.format(names) if keys else ""
        having = ""
        if keys and self.chance(0.25):
            having = f" HAVING {self.aggregate(scope, 'int')} {self.comparison()} {self.choose.randint(0, 3)}"
        return Made(f"SELECT {', '.join(outputs)} FROM {text}{where}{grouping}{having}", tuple(found))

    def _timed(self, depth: int, types: tuple[str, ...]) -> Made:
        """Groups by windows of time."""
        alias = self._alias()
        text, scope = f"a {alias}", Scope([(f"{alias}.{name}", kind) for name, kind in COLUMNS["a"]])
        if depth and self.chance(0.3):
            right, more = self._item(0)
            text = f"{text} LEFT JOIN {right} ON {self.equality(scope, Scope(more))}"
            scope = Scope([*scope.columns, *more])
        when = f"{alias}.ts"
        lengths = self.choose.choice(("'10 seconds'", "'1 minute'", "'30 seconds', '10 seconds'", "'7 seconds'"))
        name, window = "window", f"window({when}, {lengths})"
        if self.chance(0.4):
            name, window = "session_window", f"session_window({when}, '{self.choose.randint(2, 12)} seconds')"
        keys = [(f"{alias}.{self.choose.choice(('i', 'j'))}", "int")] if self.chance(0.5) else []
        wanted = types or ("instant", *(self.choose.choice(("int", "int", "decimal", "text")) for _ in range(2)))
        outputs = []
        for at, kind in enumerate(wanted):
            if kind == "instant" and self.chance(0.8):
                value = f"{name}.{self.choose.choice(('start', 'end'))}"
            elif kind == "int" and keys and self.chance(0.3):
                value = keys[0][0]
            else:
                value = self.aggregate(scope, kind, distinct=name == "window")
            outputs.append(f"{value} AS c{at}")
        grouping = ", ".join([window, *(key for key, _ in keys)])
        return Made(
            f"SELECT {', '.join(outputs)} FROM {text}{self._where(scope, 0)} GROUP BY {grouping}", tuple(wanted)
        )

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
        values = ", ".join(f"{self.value(scope, kind, 0)} AS {name}" for name, kind in columns)
        rows = Scope(columns)
        window = self.window(rows)
        outputs = [
            f"{self.over(rows, kind, window) if self.chance(0.7) else self.value(rows, kind, 0)} AS c{at}"
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
        skipped = f" OFFSET {self.choose.randint(1, 2)}" if self.chance(0.3) else ""
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
        outputs = ", ".join(f"{self.value(scope, kind, 0)} AS c{at}" for at, kind in enumerate(wanted))
        condition = f"{one}.c0 {self.choose.choice(('=', '<=>'))} {two}.c0"
        how = self.choose.choice(("JOIN", "LEFT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"))
        if "SEMI" in how or "ANTI" in how:
            scope = Scope([(text, kind) for text, kind in scope.columns if text.startswith(f"{one}.")])
            outputs = ", ".join(f"{self.value(scope, kind, 0)} AS c{at}" for at, kind in enumerate(wanted))
        return Made(
            f"WITH {name} AS ({shared.text}) SELECT {outputs} FROM {name} {one} {how} {name} {two} ON {condition}",
            wanted,
        )

    def _recursive(self, depth: int, types: tuple[str, ...]) -> Made:
        """A few rounds of WITH RECURSIVE, by itself or along a table."""
        text, scope = self._from(0)
        start = f"SELECT CAST(0 AS BIGINT) AS n, CAST({self.value(scope, 'int', 0)} AS BIGINT) AS x FROM {text}"
        rounds = self.choose.randint(1, 3)
        step = f"SELECT n + 1, x + 1 FROM r WHERE n < {rounds}"
        if self.chance(0.6):
            alias = self._alias()
            step = f"SELECT r.n + 1, {alias}.j FROM r JOIN c {alias} ON r.x = {alias}.i WHERE r.n < {rounds}"
        rows = Scope([("n", "int"), ("x", "int")])
        wanted = types or ("int", "int")
        recursive = f"WITH RECURSIVE r (n, x) AS ({start}{self._where(scope, 0)} UNION ALL {step})"
        if self.chance(0.5):
            outputs = ", ".join(f"{self.aggregate(rows, kind)} AS c{at}" for at, kind in enumerate(wanted))
            return Made(f"{recursive} SELECT {outputs} FROM r GROUP BY {self.choose.choice(('n', 'x'))}", wanted)
        outputs = ", ".join(f"{self.value(rows, kind, 1)} AS c{at}" for at, kind in enumerate(wanted))
        return Made(f"{recursive} SELECT {outputs} FROM r", wanted)

    # --- what a query reads -------------------------------------------------------------------------------------------

    def _from(self, depth: int) -> tuple[str, Scope]:
        text, columns = self._item(depth)
        for _ in range(self.choose.choice((0, 0, 1, 1, 2) if depth else (0, 0, 1))):
            chance = self.choose.random()
            if chance < 0.1:
                exploded, more = self._exploded(Scope(columns))
                text, columns = f"{text} LATERAL VIEW {exploded}", [*columns, *more]
                break
            if chance < 0.18:
                lateral, more = self._lateral(Scope(columns))
                text, columns = f"{text} {lateral}", [*columns, *more]
                continue
            right, more = self._item(max(depth - 1, 0))
            how = self.choose.choice(("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"))
            scope = Scope(columns)
            if self.chance(0.06):
                text = f"{text} CROSS JOIN {right}"
                columns = [*columns, *more]
                continue
            shared = [name for name in ("i", "s") if all(_has_once(side, name) for side in (columns, more))]
            if shared and self.chance(0.1):
                text = f"{text} {how} {right} USING ({', '.join(shared[: self.choose.randint(1, 2)])})"
                columns = columns if how in ("SEMI JOIN", "ANTI JOIN") else [*columns, *more]
                continue
            condition = self.equality(scope, Scope(more))
            if self.chance(0.3):
                condition += f" AND {self.test(Scope([*columns, *more]), 0)}"
            elif self.chance(0.1) and how in ("JOIN", "LEFT JOIN"):
                condition = self.test(Scope([*columns, *more]), 0)
            text = f"{text} {how} {right} ON {condition}"
            columns = columns if how in ("SEMI JOIN", "ANTI JOIN") else [*columns, *more]
        return text, Scope(columns)

    def _exploded(self, scope: Scope) -> tuple[str, list[tuple[str, str]]]:
        alias, kind = self._alias(), self.choose.choice(("int", "text", "date"))
        left, right = (self.value(scope, kind, 0) for _ in range(2))
        values = f"array({left}, {right})"
        if kind == "text" and self.chance(0.5):
            values = f"split({left}, '{self.choose.choice(('a', 'b', '[ab]', '_|-'))}')"
        outer = self.choose.choice(("", "OUTER "))
        if self.chance(0.3):
            return f"{outer}posexplode({values}) {alias} AS p, x", [(f"{alias}.p", "int"), (f"{alias}.x", kind)]
        return f"{outer}explode({values}) {alias} AS x", [(f"{alias}.x", kind)]

    def _lateral(self, scope: Scope) -> tuple[str, list[tuple[str, str]]]:
        alias, kind = self._alias(), self.choose.choice(("int", "int", "text", "decimal"))
        inner, own = self._from(0)
        value = self.aggregate(own, kind) if self.chance(0.6) else self.value(own, kind, 0)
        how = self.choose.choice(("JOIN", "LEFT JOIN"))
        where = f" WHERE {self.equality(own, scope)}"
        return f"{how} LATERAL (SELECT {value} AS x FROM {inner}{where}) {alias} ON true", [(f"{alias}.x", kind)]

    def _item(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        alias = self._alias()
        chance = self.choose.random()
        if depth and chance < 0.25:
            made = self._query(depth - 1)
            return f"({made.text}) {alias}", [(f"{alias}.c{at}", kind) for at, kind in enumerate(made.types)]
        if depth and chance < 0.3:
            return self._pivot(alias)
        if chance > 0.96:
            return f"(VALUES (1, 'a'), (2, 'b'), (NULL, 'a')) {alias} (n, t)", [
                (f"{alias}.n", "int"),
                (f"{alias}.t", "text"),
            ]
        if chance > 0.94:
            return f"range({self.choose.randint(0, 1)}, 4) {alias} (n)", [(f"{alias}.n", "int")]
        table = self.choose.choice(tuple(COLUMNS))
        return f"{table} {alias}", [(f"{alias}.{name}", kind) for name, kind in COLUMNS[table]]

    def _pivot(self, alias: str) -> tuple[str, list[tuple[str, str]]]:
        text, scope = self._from(0)
        kind = self.choose.choice(("int", "text", "bool"))
        result = self.choose.choice(("int", "decimal", "text"))
        key = self.choose.choice(("int", "text", "date"))
        inner = [("g", key), ("p", kind), ("v", result), ("w", "int")]
        outputs = ", ".join(f"{self.value(scope, own, 0)} AS {name}" for name, own in inner)
        rows = Scope([("v", result), ("w", "int")])
        values = {"int": ("1", "2"), "text": ("'a'", "'ab'"), "bool": ("true", "false")}[kind]
        named = ", ".join(f"{value} AS p{at}" for at, value in enumerate(values))
        pivot = f"{self.aggregate(rows, result, distinct=False)} AS m"
        columns = [("g", key), ("p0", result), ("p1", result)]
        if self.chance(0.3):
            pivot += ", count(*) AS n"
            columns = [("g", key), ("p0_m", result), ("p0_n", "int"), ("p1_m", result), ("p1_n", "int")]
        read = f"(SELECT g, p, v, w FROM (SELECT {outputs} FROM {text}{self._where(scope, 0)}))"
        shown = ", ".join(name for name, _ in columns)
        return f"(SELECT {shown} FROM {read} PIVOT ({pivot} FOR p IN ({named}))) {alias}", [
            (f"{alias}.{name}", own) for name, own in columns
        ]

    def _where(self, scope: Scope, depth: int) -> str:
        return f" WHERE {self._condition(scope, depth)}" if self.chance(0.6) else ""

    def _condition(self, scope: Scope, depth: int) -> str:
        chance = self.choose.random()
        if depth and chance < 0.35:
            return self._subquery_test(scope)
        if depth and chance < 0.45:
            return f"({self._subquery_test(scope)} OR {self.test(scope, 0)})"
        if chance < 0.6:
            word = self.choose.choice(("AND", "OR"))
            return f"({self.test(scope, 1)} {word} {self.test(scope, 0)})"
        return self.test(scope, 1)

    def _subquery_test(self, scope: Scope) -> str:
        inner, own = self._from(0)
        match self.choose.randint(0, 5):
            case 0 | 1:
                kind = self.choose.choice(("int", "text"))
                word = self.choose.choice(("IN", "NOT IN"))
                where = self._where(own, 0)
                if self.chance(0.3):
                    where = f" WHERE {self.equality(own, scope)}"
                value = self.value(own, kind, 0)
                return f"{self.value(scope, kind, 0)} {word} (SELECT {value} FROM {inner}{where})"
            case 2 | 3:
                word = self.choose.choice(("EXISTS", "NOT EXISTS"))
                extra = f" AND {self.test(own, 0)}" if self.chance(0.5) else ""
                if self.chance(0.2):
                    extra += f" AND {self.value(own, 'int', 0)} < {self.value(scope, 'int', 0)}"
                return f"{word} (SELECT 1 FROM {inner} WHERE {self.equality(own, scope)}{extra})"
            case 4:
                kinds = [self.choose.choice(("int", "text", "bool")) for _ in range(2)]
                one, two = (", ".join(self.value(side, kind, 0) for kind in kinds) for side in (scope, own))
                word = self.choose.choice(("IN", "NOT IN"))
                return f"({one}) {word} (SELECT {two} FROM {inner}{self._where(own, 0)})"
        where = f" WHERE {self.equality(own, scope)}" if self.chance(0.5) else ""
        value = self.aggregate(own, "int")
        return f"{self.value(scope, 'int', 0)} {self.comparison()} (SELECT {value} FROM {inner}{where})"

    # --- small things -------------------------------------------------------------------------------------------------

    def _some_types(self, scope: Scope) -> tuple[str, ...]:
        present = [kind for _, kind in scope.columns] or ["int"]
        return tuple(self.choose.choice(present) for _ in range(self.choose.randint(1, 3)))

    def _alias(self) -> str:
        self._aliases += 1
        return f"q{self._aliases}"


def _has_once(columns: list[tuple[str, str]], name: str) -> bool:
    """Whether one column has this name, and it is a table's."""
    return [text.split(".")[-1] for text, _ in columns].count(name) == 1
