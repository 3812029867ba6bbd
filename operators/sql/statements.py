"""The statements of a SQL program: where each begins, what it declares, and the text of its query.

sqlglot's tokenizer for Spark's dialect finds strings, comments and quoted names; the few statements that are not
Spark's own (CREATE TABLE without a format, MATERIALIZED VIEW, WITH (...)) are read from its tokens here. A query is
never rewritten: its text goes to Catalyst as it stands in the file, so Catalyst's positions are positions in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from vernier.operators.errors import ProgramError, meant
from vernier.operators.location import Location
from vernier.operators.sql.columns import Column, column_of


@dataclass(frozen=True)
class Source:
    """The text of a SQL program or query. first: the line of the file at which the text begins."""

    text: str
    file: str
    first: int = 1

    def at(self, offset: int) -> Location:
        """The location of a character."""
        before = self.text[:offset]
        row = before.count("\n")
        lines = self.text.split("\n")
        return Location(self.file, self.first + row, lines[row].strip(), offset - before.rfind("\n"))


@dataclass(frozen=True)
class Query:
    """A piece of the source's text, a query, which begins at `start` and ends before `stop`."""

    source: Source
    start: int
    stop: int

    @property
    def text(self) -> str:
        """The query as it is written."""
        return self.source.text[self.start : self.stop]

    def at(self, line: int, column: int) -> Location:
        """The location of a line and a column of the query, both counted from 1."""
        lines = self.text.split("\n")[: line - 1]
        return self.source.at(min(self.start + sum(len(one) + 1 for one in lines) + column - 1, self.stop))


@dataclass(frozen=True)
class CreateTable:
    """A source. options: how it is fed."""

    name: str
    columns: tuple[Column, ...]
    options: Mapping[str, str]
    where: Location


@dataclass(frozen=True)
class CreateView:
    """A named query; `served`: whether readers see it. columns: other names for its columns."""

    name: str
    served: bool
    query: Query
    columns: tuple[str, ...]
    options: Mapping[str, str]
    where: Location


@dataclass(frozen=True)
class Setting:
    """SET name = value: a property of the whole program."""

    name: str
    value: str
    where: Location


Statement = CreateTable | CreateView | Setting

VIEW_OPTIONS = ("key", "retain")
TABLE_OPTIONS = ("topic", "format", "clock", "key", "retain")
SETTINGS = ("name", "retain", "on_late")
_FORMS = "CREATE TABLE, CREATE VIEW, CREATE MATERIALIZED VIEW and SET"
_INSTEAD: Mapping[str, str] = {
    "INSERT": "rows come from a source's topic or `vernier send`, not from statements",
    "UPDATE": "send an update to the source: the old row with diff -1 and the new one with diff 1",
    "DELETE": "send the row to its source with diff -1",
    "MERGE": "rows come from a source's topic or `vernier send`, not from statements",
    "SELECT": "name the query: CREATE MATERIALIZED VIEW result AS SELECT …",
    "WITH": "name the query: CREATE MATERIALIZED VIEW result AS WITH …",
    "DROP": "remove the statement that creates it; `vernier up --check` says what a changed program keeps",
    "ALTER": "change the statement that creates it; `vernier up --check` says what a changed program keeps",
}


@dataclass
class Tokens:
    """The tokens of a source, with a place among them. tokens: of sqlglot, with offsets `start` and `end`."""

    source: Source
    tokens: list[Any]
    place: int = 0
    end: int = field(init=False)

    def __post_init__(self) -> None:
        self.end = len(self.tokens)

    @staticmethod
    def of(source: Source) -> Tokens:
        """The tokens of a text. Raises ProgramError for a text or comment that does not end."""
        from sqlglot.dialects import Spark  # takes 0.1 s, and Python programs need none of it
        from sqlglot.errors import TokenError

        try:
            return Tokens(source, list(Spark().tokenize(source.text)))
        except TokenError as error:
            start = source.text.rfind("/*") if "/*" in source.text else max(source.text.rfind("'"), 0)
            raise ProgramError(
                problem=f"a text, a quoted name or a comment does not end ({str(error).splitlines()[0]}); close it",
                where=source.at(start),
            ) from error

    @property
    def done(self) -> bool:
        """Whether no token is left."""
        return self.place >= self.end

    @property
    def offset(self) -> int:
        """Where the next token begins; the end of the text if none is left."""
        return self.start_of(self.place)

    def start_of(self, place: int) -> int:
        """Where a token begins."""
        return self.tokens[place].start if place < len(self.tokens) else len(self.source.text.rstrip())

    def after(self, place: int) -> int:
        """The offset behind a token."""
        return int(self.tokens[place].end) + 1

    def word(self, ahead: int = 0) -> str:
        """The next word or sign in upper case; "" for texts and quoted names, and at the end."""
        at = self.place + ahead
        if at >= self.end:
            return ""
        token = self.tokens[at]
        quoted = token.token_type.name in ("STRING", "IDENTIFIER")
        return "" if quoted else str(token.text).upper()

    def skip(self, *words: str) -> bool:
        """Pass these words, if they come next."""
        if all(self.word(i) == word for i, word in enumerate(words)):
            self.place += len(words)
            return True
        return False

    def need(self, *words: str) -> None:
        """Pass these words. Raises ProgramError when something else comes next."""
        if not self.skip(*words):
            self.fail(f"expected {' '.join(words)}, found {self.found()}")

    def found(self) -> str:
        """The next token as messages show it."""
        if self.done:
            return "the end of the statement"
        token = self.tokens[self.place]
        return repr(self.source.text[token.start : token.end + 1])

    def name(self, what: str) -> str:
        """Pass a name, plain or in backquotes. Raises ProgramError when something else comes next."""
        if not self.done:
            token = self.tokens[self.place]
            text = str(token.text)
            if token.token_type.name == "IDENTIFIER" or (token.token_type.name != "STRING" and text.isidentifier()):
                self.place += 1
                return text
        return self.fail(f"expected {what}, found {self.found()}")

    def closing(self, opening: int) -> int:
        """The place of the bracket that closes the one at `opening`. Raises ProgramError when there is none."""
        depth = 0
        for at in range(opening, self.end):
            sign = self.tokens[at].token_type.name
            depth += (sign == "L_PAREN") - (sign == "R_PAREN")
            if depth == 0:
                return at
        return self.fail("this bracket is not closed", opening)

    def fail(self, problem: str, place: int | None = None) -> NoReturn:
        """Raise ProgramError at a token: by default the next one."""
        raise ProgramError(problem=problem, where=self.source.at(self.start_of(self.place if place is None else place)))


def read_statements(source: Source) -> list[Statement]:
    """The statements of a program, in order. Raises ProgramError with line and column."""
    tokens = Tokens.of(source)
    last, found = len(tokens.tokens), []
    while tokens.place < last:
        stops = (i for i in range(tokens.place, last) if tokens.tokens[i].token_type.name == "SEMICOLON")
        tokens.end = next(stops, last)
        if not tokens.done:
            found.append(_statement(tokens))
            if not tokens.done:
                tokens.fail(f"unexpected {tokens.found()}; statements end with a semicolon")
        tokens.place, tokens.end = tokens.end + 1, last
    return found


def _statement(tokens: Tokens) -> Statement:
    where, word = tokens.source.at(tokens.offset), tokens.word()
    if tokens.skip("SET"):
        return _setting(tokens, where)
    if not tokens.skip("CREATE"):
        instead = _INSTEAD.get(word)
        hint = f"; {instead}" if instead else ""
        tokens.fail(f"a program has {_FORMS}, not {word or tokens.found()}{hint}")
    if tokens.word() == "OR" and tokens.word(1) == "REPLACE":
        tokens.fail("a program creates each name once: leave out OR REPLACE")
    if tokens.word() in ("TEMP", "TEMPORARY", "GLOBAL", "EXTERNAL"):
        tokens.fail(f"leave out {tokens.word()}: every CREATE VIEW is a name of this program alone")
    if tokens.skip("TABLE") or tokens.skip("SOURCE"):
        return _table(tokens, where)
    served = tokens.skip("MATERIALIZED")
    if tokens.skip("VIEW"):
        return _view(tokens, served, where)
    return tokens.fail(f"a program has {_FORMS}, not CREATE {tokens.word() or tokens.found()}")


def _setting(tokens: Tokens, where: Location) -> Setting:
    name = tokens.name("the name of a setting").lower()
    if name not in SETTINGS:
        tokens.fail(f"a program has no setting {name!r}{meant(name, SETTINGS)} (it has {', '.join(SETTINGS)})")
    tokens.need("=")
    return Setting(name, _value(tokens), where)


def _value(tokens: Tokens) -> str:
    if tokens.done or tokens.word() in (",", ")", "("):
        tokens.fail(f"expected a value, found {tokens.found()}")
    tokens.place += 1
    return str(tokens.tokens[tokens.place - 1].text)


def _options(tokens: Tokens, known: tuple[str, ...], what: str) -> dict[str, str]:
    if not (tokens.word() == "WITH" and tokens.word(1) == "("):
        return {}
    tokens.need("WITH", "(")
    found: dict[str, str] = {}
    while True:
        name = tokens.name("the name of an option").lower()
        if name not in known:
            tokens.place -= 1
            tokens.fail(f"{what} has no option {name!r}{meant(name, known)} (it has {', '.join(known)})")
        if name in found:
            tokens.place -= 1
            tokens.fail(f"the option {name!r} is given twice; leave one out")
        tokens.need("=")
        found[name] = _value(tokens)
        if not tokens.skip(","):
            tokens.need(")")
            return found


def _table(tokens: Tokens, where: Location) -> CreateTable:
    if tokens.word() == "IF":
        tokens.fail("a program creates each name once: leave out IF NOT EXISTS")
    name = tokens.name("the name of the table")
    if tokens.word() != "(":
        tokens.fail("a table is a source and declares its columns: CREATE TABLE name (column BIGINT NOT NULL, …)")
    columns = read_columns(tokens)
    if tokens.word() in ("USING", "PARTITIONED", "LOCATION", "TBLPROPERTIES", "CLUSTERED"):
        tokens.fail(f"{tokens.word()} is for tables that Spark stores; a source has WITH (topic = …, format = …)")
    if tokens.word() == "AS":
        tokens.fail("a table is a source; a query is a view: CREATE VIEW or CREATE MATERIALIZED VIEW")
    return CreateTable(name, columns, _options(tokens, TABLE_OPTIONS, "a table"), where)


def read_columns(tokens: Tokens) -> tuple[Column, ...]:
    """Columns in brackets: name, type, and NOT NULL where they have no nulls. Raises ProgramError."""
    last = tokens.closing(tokens.place)
    tokens.place += 1
    found: list[Column] = []
    while tokens.place < last:
        where, name = tokens.source.at(tokens.offset), tokens.name("the name of a column")
        if name.lower() in (column.name.lower() for column in found):
            raise ProgramError(problem=f"the column {name!r} is declared twice", where=where)
        begin, depth = tokens.place, 0
        while tokens.place < last and not (depth == 0 and tokens.word() in (",", "NOT", "NULL")):
            word = tokens.word().split(" ")[0]
            if word in (
                "PRIMARY",
                "DEFAULT",
                "REFERENCES",
                "UNIQUE",
                "CHECK",
                "GENERATED",
                "COMMENT",
            ):
                keyed = word in ("PRIMARY", "UNIQUE")
                instead = "; for the newest row of each key write WITH (format = 'upsert', key = …)" if keyed else ""
                tokens.fail(
                    f"{tokens.word()} is not a property of a source's column; it has a type and NOT NULL{instead}"
                )
            depth += {"(": 1, ")": -1, "<": 1, ">": -1}.get(tokens.word(), 0)
            tokens.place += 1
        if begin == tokens.place:
            tokens.fail(f"the column {name!r} needs a type, such as BIGINT")
        text = tokens.source.text[tokens.start_of(begin) : tokens.after(tokens.place - 1)]
        nullable = not tokens.skip("NOT", "NULL")
        if nullable:
            tokens.skip("NULL")
        found.append(column_of(name, text, nullable, tokens.source.at(tokens.start_of(begin))))
        if tokens.place < last:
            tokens.need(",")
            if tokens.place == last:
                tokens.place -= 1
                tokens.fail("a column follows this comma; leave it out")
    tokens.place = last + 1
    if not found:
        tokens.fail("a table needs at least one column", last)
    return tuple(found)


def _view(tokens: Tokens, served: bool, where: Location) -> CreateView:
    if tokens.word() == "IF":
        tokens.fail("a program creates each name once: leave out IF NOT EXISTS")
    name = tokens.name("the name of the view")
    columns: list[str] = []
    if tokens.skip("("):
        while True:
            columns.append(tokens.name("the name of a column"))
            if not tokens.skip(","):
                tokens.need(")")
                break
    if not served and tokens.word() == "WITH":
        tokens.fail("a view is only a name; WITH (key = …) belongs to CREATE MATERIALIZED VIEW")
    options = _options(tokens, VIEW_OPTIONS, "a materialized view")
    tokens.need("AS")
    if tokens.done:
        tokens.fail("a view needs a query: AS SELECT …")
    query = Query(tokens.source, tokens.offset, tokens.after(tokens.end - 1))
    tokens.place = tokens.end
    return CreateView(name, served, query, tuple(columns), options, where)
