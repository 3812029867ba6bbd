"""Reads the text of a question without running it: one SELECT, the views that it names, the time after AS OF.

DuckDB's own parser finds all of this, so the check sees the same tree that will run. What a question may not have is
refused here, by name and place: other statements, table functions besides those listed, samples, and functions whose
result depends on more than the data (the clock, random numbers, settings), because two questions with one data time
must agree. DuckDB's settings (database.py) are a second fence: they forbid files, network and changes of settings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb

from vernier.service.ask.errors import BadSql, SqlRefused
from vernier.service.ask.frames import Name

TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "repeat_row", "json_each", "json_tree"})
"""Table functions that compute from their arguments alone."""
_CLOCK_WORDS = frozenset({"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"})
"""Functions without parentheses, which the parser takes for columns."""
_ALSO_VARYING = frozenset({"ago", "age", "current_setting", "getvariable", "nextval", "currval"})
"""Functions that do although DuckDB's catalogue may not say so; age with two arguments is fine."""
_TOKEN = re.compile(rb"'(?:[^']|'')*'|[\w.]+|.", re.DOTALL)
_HARMLESS = frozenset({"error", "vector_type"})
_REFERENCES = frozenset({"BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EXPRESSION_LIST", "EMPTY"})
_NOWHERE = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Question:
    """A question that may run. sql: without AS OF; as_of: the time after AS OF, as written."""

    sql: str
    as_of: str | None
    names: list[Name]


def varying(connection: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """The functions whose result depends on more than their arguments."""
    found = connection.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability <> 'CONSISTENT'"
    ).fetchall()
    return (frozenset(name for (name,) in found) | _ALSO_VARYING) - _HARMLESS


def place(text: str, offset: int | None) -> tuple[int | None, int | None]:
    """The line and column of an offset in bytes; (None, None) if it is unknown."""
    if offset is None or not 0 <= offset < _NOWHERE:
        return None, None
    before = text.encode()[:offset].decode("utf-8", "replace")
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def read(connection: duckdb.DuckDBPyConnection, text: str, refused: frozenset[str]) -> Question:
    """Parse a question. refused: names of functions. Raises BadSql, SqlRefused, and DuckDB's parser errors."""
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
    names = _Walk(sql, refused).names_of(tree["statements"])
    return Question(sql, as_of, names)


class _Walk:
    """Goes through a parse tree, collects the tables and refuses what may not be there."""

    def __init__(self, sql: str, refused: frozenset[str]) -> None:
        self._sql, self._refused = sql, refused

    def names_of(self, statements: list[dict[str, Any]]) -> list[Name]:
        """The tables, each name once. Raises SqlRefused."""
        local, tables = set[str](), dict[str, int | None]()
        for node in _nodes(statements):
            for entry in (node.get("cte_map") or {}).get("map", ()):
                local.add(entry["key"].casefold())
            if node.get("type") == "RECURSIVE_CTE_NODE" and node.get("cte_name"):
                local.add(node["cte_name"].casefold())
            self._check(node)
            if node.get("type") == "BASE_TABLE" and "table_name" in node:
                path = [part for part in (node["catalog_name"], node["schema_name"]) if part]
                path = [] if path in (["main"], ["memory", "main"]) else path
                tables.setdefault(".".join([*path, node["table_name"]]), node.get("query_location"))
        return [Name(name, *place(self._sql, at), name.casefold() in local) for name, at in tables.items()]

    def _check(self, node: dict[str, Any]) -> None:
        kind, at = node.get("type"), node.get("query_location")
        if node.get("sample"):
            raise self._refusal("a sample differs from run to run", at)
        if node.get("at_clause"):
            raise self._refusal("AT is not supported; AS OF at the end sets the time of all views", at)
        if kind == "SHOW_REF":
            raise self._refusal("only SELECT is answered; /v1/views describes the views", at)
        if kind == "TABLE_FUNCTION":
            function = node["function"].get("function_name", "").casefold()
            if function not in TABLE_FUNCTIONS:
                known = ", ".join(sorted(TABLE_FUNCTIONS))
                raise self._refusal(f"table function {function} is not allowed; there are {known}", at)
        elif node.get("class") == "FUNCTION" or node.get("class") == "WINDOW":
            name = node.get("function_name", "").casefold()
            if name in self._refused and not (
                name == "age" and len(node.get("arguments") or node.get("children") or ()) == 2
            ):
                raise self._clock(f"{name}()", at)
        elif node.get("class") == "COLUMN_REF":
            names = node.get("column_names", ())
            if len(names) == 1 and names[0].casefold() in _CLOCK_WORDS:
                raise self._clock(names[0].casefold(), at)
        elif "sample" in node and "alias" in node and kind not in _REFERENCES:
            raise self._refusal(f"{kind} is not supported", at)

    def _clock(self, name: str, at: int | None) -> SqlRefused:
        problem = f"{name} depends on more than the data, so answers of one time would differ"
        return self._refusal(f"{problem}; data_time() is the time of the answer", at)

    def _refusal(self, problem: str, at: int | None) -> SqlRefused:
        line, column = place(self._sql, at)
        return SqlRefused(problem=problem, line=line, column=column)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """All objects of a parse tree. Iterative, because a hostile tree may be deep."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(reversed(node))


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
