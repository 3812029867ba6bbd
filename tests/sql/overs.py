"""Random window functions in Spark's SQL.

Copies of a row have one order in each window, and any order across windows. So the functions of a query that depend on
the places of rows share one window, ordered by all columns; functions of the values of the order may have any window.
"""

from __future__ import annotations

from tests.sql.values import Scope, Values

_LOW = ("UNBOUNDED PRECEDING", "2 PRECEDING", "1 PRECEDING", "CURRENT ROW", "1 FOLLOWING")
_HIGH = ("1 PRECEDING", "CURRENT ROW", "1 FOLLOWING", "2 FOLLOWING", "UNBOUNDED FOLLOWING")
_PLACES = {
    word: at for at, word in enumerate(("UNBOUNDED PRECEDING", "2 PRECEDING", "1 PRECEDING", "CURRENT ROW", *_HIGH[2:]))
}


class Overs(Values):
    """Makes window functions over rows."""

    def window(self, rows: Scope) -> tuple[str, str]:
        """PARTITION BY and ORDER BY all columns, for the functions of places of one query."""
        names = [name for name, _ in rows.columns]
        self.choose.shuffle(names)
        ways = ("", " DESC", " NULLS LAST", " DESC NULLS FIRST")
        by = ", ".join(name + self.choose.choice(ways) for name in names)
        return (f"PARTITION BY {self.choose.choice(names)}" if self.chance(0.7) else "", by)

    def over(self, rows: Scope, kind: str, window: tuple[str, str]) -> str:
        """A window function of a type."""
        within, by = window
        own = rows.of(kind)
        makers = [self._of_partition, self._of_distances]
        if kind == "int":
            makers += [self._ranked, self._ranked]
        if own:
            makers += [self._shifted, self._placed, self._of_peers]
        if kind in ("int", "decimal", "double"):
            makers += [self._of_rows, self._of_rows, self._running]
        return self.choose.choice(makers)(rows, kind, within, by)

    def _another(self, rows: Scope) -> str:
        """PARTITION BY of a window of its own."""
        names = [name for name, _ in rows.columns]
        return f"PARTITION BY {self.choose.choice(names)}" if self.chance(0.5) else ""

    def _ranked(self, rows: Scope, kind: str, within: str, by: str) -> str:
        if self.chance(0.3):
            return f"row_number() OVER ({within} ORDER BY {by})"
        name = self.choose.choice(rows.columns)[0]
        rank = self.choose.choice(("rank()", "dense_rank()"))
        return f"{rank} OVER ({self._another(rows)} ORDER BY {name}{self.choose.choice(('', ' DESC'))})"

    def _shifted(self, rows: Scope, kind: str, within: str, by: str) -> str:
        default = f", {self.constant(kind)}" if self.chance(0.2) else ""
        step = self.choose.choice((1, 1, 2, -1))
        value = self.choose.choice(rows.of(kind))
        return f"{self.choose.choice(('lag', 'lead'))}({value}, {step}{default}) OVER ({within} ORDER BY {by})"

    def _value_of(self, kind: str, value: str) -> str:
        number = f", {self.choose.randint(1, 3)})"
        return self.choose.choice((f"first_value({value})", f"last_value({value})", f"nth_value({value}{number}"))

    def _frame(self) -> str:
        while True:
            low, high = self.choose.choice(_LOW), self.choose.choice(_HIGH)
            if _PLACES[low] <= _PLACES[high]:
                return f"ROWS BETWEEN {low} AND {high}"

    def _placed(self, rows: Scope, kind: str, within: str, by: str) -> str:
        value = self._value_of(kind, self.choose.choice(rows.of(kind)))
        return f"{value} OVER ({within} ORDER BY {by} {self._frame()})"

    def _of_peers(self, rows: Scope, kind: str, within: str, by: str) -> str:
        """A value of the order, which peers share, at an end of a frame of peers."""
        name = self.choose.choice(rows.of(kind))
        frames = ("", " RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", " RANGE CURRENT ROW")
        order = f"{name}{self.choose.choice(('', ' DESC'))}"
        return f"{self._value_of(kind, name)} OVER ({self._another(rows)} ORDER BY {order}{self.choose.choice(frames)})"

    def _of_rows(self, rows: Scope, kind: str, within: str, by: str) -> str:
        """Any aggregate over places between two offsets, and the simple ones to an end."""
        frame = self._frame()
        if "UNBOUNDED" not in frame:
            value = self.aggregate(rows, kind, distinct=False, lists="CURRENT" in frame)
            return _spread_over(value, f"({within} ORDER BY {by} {frame})")
        if kind == "double":
            frame = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        return self._simple(rows, kind, f"({within} ORDER BY {by} {frame})")

    def _running(self, rows: Scope, kind: str, within: str, by: str) -> str:
        """Up to the row's peers, as ORDER BY means by itself, or from them on."""
        after = " RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING" if kind != "double" and self.chance(0.3) else ""
        name = self.choose.choice(rows.columns)[0]
        return self._simple(rows, kind, f"({self._another(rows)} ORDER BY {name}{after})")

    def _simple(self, rows: Scope, kind: str, window: str) -> str:
        own = self.value(rows, kind, 0)
        match kind:
            case "int":
                any_name = self.choose.choice(rows.columns)[0]
                values = (f"sum({own})", f"min({own})", f"max({own})", f"count({any_name})", "count(*)")
                return f"CAST({self.choose.choice(values)} OVER {window} AS BIGINT)"
            case "decimal":
                value = f"{self.choose.choice(('sum', 'min', 'max'))}({own})"
                return f"CAST({value} OVER {window} AS DECIMAL(30, 6))"
        value = self.choose.choice((f"sum({own})", f"avg({own})", f"avg({self.value(rows, 'int', 0)})"))
        return f"{value} OVER {window}"

    def _of_distances(self, rows: Scope, kind: str, within: str, by: str) -> str:
        """RANGE with offsets: rows whose values are near."""
        units = {"int": "{}", "decimal": "{}", "date": "INTERVAL {} DAYS", "instant": "INTERVAL {}0 SECONDS"}
        orders = [(name, own) for name, own in rows.columns if own in units]
        if not orders:
            return self._of_partition(rows, kind, within, by)
        name, own = self.choose.choice(orders)
        low, high = sorted(self.choose.randint(-2, 2) for _ in range(2))
        ends = []
        for end in (low, high):
            word = "FOLLOWING" if end > 0 else "PRECEDING"
            ends.append("CURRENT ROW" if end == 0 else f"{units[own].format(abs(end))} {word}")
        frame = f"RANGE BETWEEN {ends[0]} AND {ends[1]}"
        window = f"({self._another(rows)} ORDER BY {name}{self.choose.choice(('', ' DESC'))} {frame})"
        if own == kind and self.chance(0.4):
            return f"{self.choose.choice(('first_value', 'last_value'))}({name}) OVER {window}"
        return _spread_over(self.aggregate(rows, kind, distinct=False, lists=low <= 0 <= high), window)

    def _of_partition(self, rows: Scope, kind: str, within: str, by: str) -> str:
        window = self._another(rows)
        return _spread_over(self.aggregate(rows, kind, distinct=False, lists=bool(window)), f"({window})")


def _spread_over(value: str, window: str) -> str:
    """An aggregate with OVER behind its call, inside of the functions that are around it."""
    inside = value
    for before, after in (("CAST(", " AS"), ("round(", ", 6)"), ("size(", ")"), ("array_contains(", ", 'a')")):
        if value.startswith(before):
            at = len(value) - 1 if before == "size(" else value.rindex(after)
            return f"{before}{value[len(before) : at]} OVER {window}{value[at:]}"
    return f"{inside} OVER {window}"
