"""Reads the text of a question without running it: one SELECT, the views that it names, the time after AS OF.

DuckDB's own parser finds all of this, so the check sees the same tree that will run. What a question may not have is
refused here, by name and place: other statements, table functions besides those listed, samples, and functions besides
those of functions.py, because two questions with one data time must agree. A name of a table is a common table
expression where one is in scope, else a view; with a schema in front it is never a common table expression. DuckDB's
settings (database.py) are a second fence: they forbid files, network and changes of settings.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import duckdb

from vernier.operators.errors import meant
from vernier.service.ask import functions
from vernier.service.ask.errors import BadSql, SqlRefused
from vernier.service.ask.frames import Name
from vernier.service.ask.names import folded

TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "repeat_row", "json_each", "json_tree"})
"""Table functions that compute from their arguments alone."""
_CLOCK_WORDS = frozenset({"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"})
"""Functions without parentheses, which the parser takes for columns."""
_TOKEN = re.compile(rb"'(?:[^']|'')*'|[\w.]+|.", re.DOTALL)
_REFERENCES = frozenset({"BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EXPRESSION_LIST", "EMPTY", "PIVOT"})
_QUERIES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE"})
_OWN_SCHEMA = "main"
"""The schema of the views."""
_NOWHERE = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Question:
    """A question that may run. sql: without AS OF; as_of: the time after AS OF, as written."""

    sql: str
    as_of: str | None
    names: list[Name]


def catalogue(connection: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """All functions of DuckDB, folded."""
    found = connection.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()
    return frozenset(folded(name) for (name,) in found)


def place(text: str, offset: int | None) -> tuple[int | None, int | None]:
    """The line and column of an offset in bytes; (None, None) if it is unknown."""
    if offset is None or not 0 <= offset < _NOWHERE:
        return None, None
    before = text.encode()[:offset].decode("utf-8", "replace")
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def read(connection: duckdb.DuckDBPyConnection, text: str, existing: frozenset[str]) -> Question:
    """Parse a question. existing: the functions of DuckDB, folded. Raises BadSql, SqlRefused, and DuckDB's parser
    errors."""
    sql, as_of = _cut_time(text)
    statements = connection.extract_statements(sql)
    if not statements:
        raise BadSql(problem="there is no statement; write a SELECT")
    if len(statements) > 1:
        raise SqlRefused(problem=f"there are {len(statements)} statements; send one SELECT at a time")
    if statements[0].type != duckdb.StatementType.SELECT:
        name = statements[0].type.name
        problem = (
            "PIVOT needs its values: PIVOT … IN (…)" if name == "MULTI" else f"only SELECT is answered, not {name}"
        )
        raise SqlRefused(problem=problem)
    [(serialized,)] = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    tree = json.loads(serialized)
    if tree["error"]:
        raise SqlRefused(problem=f"this SELECT cannot be checked: {tree['error_message']}")
    names = _Walk(sql, existing).names_of(tree["statements"])
    return Question(sql, as_of, names)


class _Scope:
    """The common table expressions that a place in the text can name. outer: those of the queries around it; names:
    those of one WITH, in its order; the place sees the first `before` of them."""

    __slots__ = ("_before", "_names", "_outer")

    def __init__(self, outer: _Scope | None, names: dict[str, int], before: int) -> None:
        self._outer, self._names, self._before = outer, names, before

    def __contains__(self, name: str) -> bool:
        scope: _Scope | None = self
        while scope is not None:
            if scope._names.get(name, scope._before) < scope._before:
                return True
            scope = scope._outer
        return False


class _Walk:
    """Goes through a parse tree, collects the tables and refuses what may not be there."""

    def __init__(self, sql: str, existing: frozenset[str]) -> None:
        self._sql, self._existing = sql, existing

    def names_of(self, statements: list[dict[str, Any]]) -> list[Name]:
        """The tables that are no common table expressions, each name once. Raises SqlRefused, BadSql."""
        tables = dict[tuple[str, bool], int | None]()
        # Iterative, because a hostile tree may be deep.
        waiting: list[tuple[Any, _Scope]] = [(statements, _Scope(None, {}, 0))]
        while waiting:
            node, scope = waiting.pop()
            if isinstance(node, list):
                waiting.extend((part, scope) for part in reversed(node))
            elif isinstance(node, dict):
                self._check(node)
                if node.get("type") == "BASE_TABLE" and "table_name" in node:
                    path = [part for part in (node["catalog_name"], node["schema_name"]) if part]
                    if path or folded(node["table_name"]) not in scope:
                        qualified = [folded(part) for part in path] not in ([], [_OWN_SCHEMA])
                        name = ".".join([*path, node["table_name"]]) if qualified else node["table_name"]
                        tables.setdefault((name, qualified), node.get("query_location"))
                waiting.extend(_inside(node, scope))
        return [Name(name, *place(self._sql, at), qualified) for (name, qualified), at in tables.items()]

    def _check(self, node: dict[str, Any]) -> None:
        kind, at = node.get("type"), node.get("query_location")
        if node.get("sample"):
            raise self._refusal("a sample differs from run to run", at)
        if node.get("at_clause"):
            raise self._refusal("AT is not supported; AS OF at the end sets the time of all views", at)
        if kind == "SHOW_REF":
            raise self._refusal("only SELECT is answered; /v1/views describes the views", at)
        if kind == "TABLE_FUNCTION":
            function = folded(node["function"].get("function_name", ""))
            if function not in TABLE_FUNCTIONS:
                known = ", ".join(sorted(TABLE_FUNCTIONS))
                raise self._refusal(f"table function {function} is not allowed; there are {known}", at)
        elif node.get("class") == "FUNCTION" or node.get("class") == "WINDOW":
            self._check_function(node, at)
        elif "cte_map" in node:
            if kind not in _QUERIES:
                raise self._refusal(f"{kind} is not supported", at)
        elif node.get("class") == "COLUMN_REF":
            names = node.get("column_names", ())
            if len(names) == 1 and folded(names[0]) in _CLOCK_WORDS:
                raise self._clock(folded(names[0]), at)
        elif "sample" in node and "alias" in node and kind not in _REFERENCES:
            raise self._refusal(f"{kind} is not supported", at)

    def _check_function(self, node: dict[str, Any], at: int | None) -> None:
        name, called = folded(node["function_name"]), node["function_name"]
        path = [folded(part) for part in (node.get("catalog"), node.get("schema")) if part]
        if functions.allowed(name, len(node.get("arguments") or node.get("children") or ())) and (
            name not in functions.REPLACED or path in ([], [_OWN_SCHEMA])
        ):
            return
        if name in self._existing:
            raise self._clock(f"{called}()", at)
        line, column = place(self._sql, at)
        problem = f"scalar Function with name {called} does not exist{meant(name, sorted(functions.ALLOWED))}"
        raise BadSql(problem=problem, line=line, column=column)

    def _clock(self, name: str, at: int | None) -> SqlRefused:
        problem = f"{name} is not known to depend on the data alone, so answers of one time could differ"
        return self._refusal(f"{problem}; data_time() is the time of the answer", at)

    def _refusal(self, problem: str, at: int | None) -> SqlRefused:
        line, column = place(self._sql, at)
        return SqlRefused(problem=problem, line=line, column=column)


def _inside(node: dict[str, Any], scope: _Scope) -> list[tuple[Any, _Scope]]:
    """The parts of a node, the last one first, each with what it can name: a common table expression sees those before
    it, the recursive part of one sees itself, and all the rest of a query sees all of its own."""
    entries = (node.get("cte_map") or {}).get("map", ())
    names = {folded(entry["key"]): i for i, entry in enumerate(entries)}
    whole = _Scope(scope, names, len(names)) if names else scope
    own = _Scope(whole, {folded(node["cte_name"]): 0}, 1) if node.get("type") == "RECURSIVE_CTE_NODE" else whole
    parts = [(entry["value"], _Scope(scope, names, i)) for i, entry in enumerate(entries)]
    parts += [(part, own if key == "right" else whole) for key, part in node.items() if key != "cte_map"]
    return parts[::-1]


def _cut_time(text: str) -> tuple[str, str | None]:
    """The text without the clause AS OF at its end, and the time there: a number, or a string with or without
    TIMESTAMP in front. Raises BadSql for the clause in another place."""
    data = text.encode()
    found = duckdb.tokenize(text)
    # Releases differ in whether comments are tokens, so only what matters is cut out of the text: words and literals.
    parts = ((start, _TOKEN.match(data, start)) for start, kind in found if kind != duckdb.token_type.comment)
    tokens = [(start, part[0].decode("utf-8", "replace")) for start, part in parts if part]
    while tokens and tokens[-1][1] == ";":
        tokens.pop()
    words = [word for _, word in tokens]
    for i in range(len(words) - 2):
        if [word.upper() for word in words[i : i + 2]] != ["AS", "OF"] or not _starts_time(words[i + 2 :]):
            continue
        rest = words[i + 2 :]
        given = rest[1:] if rest[0].upper() == "TIMESTAMP" else rest
        literal = "".join(given)
        if len(given) > 2 or (len(given) == 2 and given[0] not in "+-"):
            line, column = place(text, tokens[i][0])
            raise BadSql(problem="AS OF TIME stands once, at the end of the question", line=line, column=column)
        time = literal[1:-1].replace("''", "'") if literal.startswith("'") else literal
        return data[: tokens[i][0]].decode(), time
    return text, None


def _starts_time(words: list[str]) -> bool:
    first, second = words[0], words[1] if len(words) > 1 else ""
    if first.upper() == "TIMESTAMP" or first in ("+", "-"):
        first = second
    return first.startswith("'") or first[:1].isdigit()
