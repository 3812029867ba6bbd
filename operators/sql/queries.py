"""Queries as collections: a planner plans the text, translate.py makes the collection, and loops are built around both.

`WITH MUTUALLY RECURSIVE` is not Spark's. Its bindings become the variables of one fixpoint, all empty at first; each
body is planned as a query of its own with the bindings as leaves, and sees the new rows of the bindings above it, as in
Materialize. A block in brackets is built first, and the query around it reads its result as a leaf. Whether a binding
has nulls is found out: its columns begin as NOT NULL, and the block is built again with those nullable that turned out
to be.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from vernier.operators.errors import ProgramError, WrongType
from vernier.operators.language.collection.collection import Collection
from vernier.operators.language.collection.fixpoint import DEFAULT_ROUNDS, fixpoint
from vernier.operators.language.expr.expression import Column as Value
from vernier.operators.language.expr.expression import Expr
from vernier.operators.language.plan.constants import ConstantNode
from vernier.operators.language.types.schema import RowType, check_name
from vernier.operators.location import Location, located
from vernier.operators.sql.columns import Column
from vernier.operators.sql.expressions import Expressions, converted, nullable
from vernier.operators.sql.refusals import NOW, UNSTEADY, Refused, refuse, unsteady
from vernier.operators.sql.relations import picked
from vernier.operators.sql.statements import Query, Source, Tokens, read_columns
from vernier.operators.sql.translate import Translation


@dataclass(frozen=True)
class Leaf:
    """A collection that queries can name, with its columns as Spark sees them. key: columns in which no two rows agree,
    None if there are none or they are not known; relies: the tables on whose declared keys that depends."""

    collection: Collection
    columns: tuple[Column, ...]
    key: tuple[str, ...] | None = None
    relies: frozenset[str] = frozenset()

    @property
    def spark(self) -> dict[str, Any]:
        """The schema in Spark's JSON."""
        fields = [
            {"name": one.name, "type": one.spark, "nullable": one.nullable, "metadata": {}} for one in self.columns
        ]
        return {"type": "struct", "fields": fields}


class Plan(Protocol):
    """Plans the text of a query over leaves (schemas in Spark's JSON, by name). See service/sql/catalyst.py."""

    def __call__(self, text: str, leaves: Mapping[str, Any]) -> Mapping[str, Any]: ...


Names = Mapping[str, Leaf]


class Queries:
    """Builds queries with the plans of a planner. relied: the tables on whose declared keys their rows depend."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._blocks = 0
        self.relied: set[str] = set()

    def leaf(self, query: Query, names: Names, columns: Sequence[str] = ()) -> Leaf:
        """The collection of a query, with its columns. names: what it may name, in lower case; columns: other names
        for its columns. Raises ProgramError with line and column."""
        with located(query.source.at(query.start)):
            tokens = Tokens.of(Source(query.source.text[: query.stop], query.source.file, query.source.first))
            tokens.place = next((i for i, one in enumerate(tokens.tokens) if one.start >= query.start), tokens.end)
            if _at_block(tokens):
                return self._block(tokens, tokens.end, query, names, columns)
            text, names = self._without_blocks(tokens, query, names)
            return self._query(query, text, tokens, names, columns)

    def _query(self, query: Query, text: str, tokens: Tokens, names: Names, columns: Sequence[str]) -> Leaf:
        words = {str(one.text).lower() for one in tokens.tokens[tokens.place :]}
        used = {name: leaf for name, leaf in names.items() if name in words or name in text.lower()}
        used = {name: leaf for name, leaf in used.items() if re.search(rf"\b{re.escape(name)}\b", text.lower())}
        found = self._plan(text, {name: leaf.spark for name, leaf in used.items()})
        if "error" in found:
            said = _SAID.get(str(found["condition"])) or _lowered(str(found["error"]))
            if _has_asof_join(tokens):
                said = _ASOF
            raise ProgramError(problem=said, where=query.at(found["line"], found["column"]))
        try:
            _check_escapes(tokens)
            for kind in found["analysed"]:
                if kind in UNSTEADY:
                    raise unsteady(_spelled(kind, words))
            for name in found.get("tries", ()):
                raise refuse(
                    f"{name}() is null where a number does not fit, which cannot be maintained; write CASE WHEN with "
                    "the range of what fits",
                    name,
                )
            if columns and len(columns) != len(found["output"]):
                raise Refused(problem=f"the view has {len(columns)} names for {len(found['output'])} columns")
            output = [
                {**one, "name": columns[at] if columns else one["name"]} for at, one in enumerate(found["output"])
            ]
            _check_names(output)
            leaves = {name: leaf.collection for name, leaf in used.items()}
            translation = Translation(leaves, {name: leaf.key for name, leaf in used.items()})
            collection = translation.collection(found["plan"], output)
        except Refused as error:
            place = _place(error, tokens)
            problem = error.problem if place or not error.only_planned else error.only_planned
            raise Refused(problem=problem, where=place or query.source.at(query.start), words=error.words) from error
        kinds = {field.name: field for field in collection.schema.fields}
        shown = tuple(
            Column(str(one["name"]), one["type"], kinds[str(one["name"])].type, kinds[str(one["name"])].nullable)
            for one in output
        )
        self.relied |= _tables(used, translation.relied)
        return Leaf(collection, shown, translation.key, _tables(used, translation.key_relies))

    def _without_blocks(self, tokens: Tokens, query: Query, names: Names) -> tuple[str, Names]:
        """The text with the blocks in brackets replaced by names of leaves, at the same length; and these leaves."""
        text, found = query.text, dict(names)
        first = tokens.place
        while tokens.place < tokens.end:
            if not _at_block(tokens):
                tokens.place += 1
                continue
            opening = tokens.place - 1
            if opening < first or tokens.tokens[opening].token_type.name != "L_PAREN":
                tokens.fail("WITH MUTUALLY RECURSIVE begins a query: put it first, or into brackets")
            closing = tokens.closing(opening)
            start, stop = tokens.start_of(tokens.place), tokens.start_of(closing)
            self._blocks += 1
            name = f"block_{self._blocks}"
            found[name] = self._block(tokens, closing, Query(query.source, start, stop), names, ())
            old = query.source.text[start:stop]
            new = f"SELECT * FROM {name} "
            blank = re.sub(r"[^\n]", " ", old[len(new) :]) if len(new) < len(old) else ""
            at = start - query.start
            text = text[:at] + new + blank + text[at + len(old) :]
            tokens.place = closing
        tokens.place = first
        return text, found

    def _block(self, tokens: Tokens, end: int, query: Query, names: Names, columns: Sequence[str]) -> Leaf:
        """The result of a WITH MUTUALLY RECURSIVE that ends before the token at `end`."""
        where = tokens.source.at(tokens.offset)
        tokens.need("WITH", "MUTUALLY", "RECURSIVE")
        rounds, on_limit = _limit(tokens)
        bindings: list[tuple[str, tuple[Column, ...], Query]] = []
        while True:
            name = tokens.name("the name of a binding")
            if name.lower() in (one for one, _, _ in bindings):
                tokens.place -= 1
                tokens.fail(f"the binding {name!r} is declared twice")
            if tokens.word() != "(":
                tokens.fail(f"the binding {name!r} declares its columns: {name} (column BIGINT, …) AS (SELECT …)")
            declared = read_columns(tokens)
            tokens.need("AS")
            if tokens.word() != "(":
                tokens.fail(f"the body of {name!r} is in brackets: AS (SELECT …)")
            closing = tokens.closing(tokens.place)
            body = Query(tokens.source, tokens.start_of(tokens.place + 1), tokens.start_of(closing))
            bindings.append((name.lower(), declared, body))
            tokens.place = closing + 1
            if not tokens.skip(","):
                break
        if tokens.place >= end:
            tokens.fail("a query follows the bindings: SELECT … FROM one of them")
        rest = Query(tokens.source, tokens.offset, query.stop)
        results = self._loop(bindings, rest, names, rounds, on_limit, where)
        return self.leaf(rest, {**names, **results}, columns)

    def _loop(
        self,
        bindings: list[tuple[str, tuple[Column, ...], Query]],
        rest: Query,
        names: Names,
        rounds: int,
        on_limit: str,
        where: Location,
    ) -> dict[str, Leaf]:
        kept = _variables(bindings, rest)
        plain = {name: tuple(replace(one, nullable=False) for one in columns) for name, columns, _ in bindings}
        shapes = {name: plain[name] for name in kept}
        while True:
            nullable: dict[str, tuple[Column, ...]] = {}

            def body(
                *variables: Collection,
                shapes: Mapping[str, tuple[Column, ...]] = shapes,
                nullable: dict[str, tuple[Column, ...]] = nullable,
            ) -> tuple[Collection, ...]:
                own = dict(zip(kept, variables, strict=True))
                inside = {name: Leaf(one, shapes[name]) for name, one in own.items()}
                made: list[Collection] = []
                for name, declared, query in bindings:
                    found = self.leaf(query, {**names, **inside})
                    collection = _conformed(found, declared, shapes.get(name, plain[name]), query, name)
                    nullable[name] = tuple(
                        replace(one, nullable=field.nullable)
                        for one, field in zip(declared, collection.schema.fields, strict=True)
                    )
                    if name not in own:
                        inside[name] = Leaf(collection, nullable[name])
                        continue
                    if any(f.nullable and not one.nullable for f, one in zip(collection.schema.fields, shapes[name])):
                        made.append(own[name])  # this try only finds out where nulls are
                        continue
                    made.append(collection)
                    inside[name] = Leaf(collection, shapes[name])
                return tuple(made)

            body.__name__ = ", ".join(kept)
            parameters = ", ".join(f"v{i}" for i in range(len(kept)))
            call = eval(f"lambda {parameters}: body({parameters})", {"body": body})
            call.__name__ = body.__name__
            starts = [Collection(ConstantNode(_row(shapes[name]), ())) for name in kept]
            with located(where):
                found: Any = fixpoint(max_rounds=rounds, on_limit=on_limit)(call)(*starts)
            merged = {
                name: tuple(
                    replace(one, nullable=one.nullable or new.nullable)
                    for one, new in zip(columns, nullable[name], strict=True)
                )
                for name, columns in shapes.items()
            }
            if merged == shapes:
                results = found if isinstance(found, tuple) else (found,)
                return {name: Leaf(one, shapes[name]) for name, one in zip(kept, results, strict=True)}
            shapes = merged


def _tables(leaves: Names, relied: Iterable[str]) -> frozenset[str]:
    """The tables on whose declared keys the keys of these leaves depend."""
    return frozenset(table for name in relied for table in leaves[name].relies)


def _variables(bindings: Sequence[tuple[str, tuple[Column, ...], Query]], rest: Query) -> list[str]:
    """The bindings that a round reads from the one before, because their own body or an earlier one names them, and
    those that the query names. The others are the same at the limit without being the loop's variables."""

    def named(name: str, query: Query) -> bool:
        return re.search(rf"\b{re.escape(name)}\b", query.text.lower()) is not None

    found = [
        name
        for at, (name, _, _) in enumerate(bindings)
        if named(name, rest) or any(named(name, query) for _, _, query in bindings[: at + 1])
    ]
    return found or [name for name, _, _ in bindings]


def _row(columns: Sequence[Column]) -> RowType:
    return RowType((one.name, one.type, one.nullable) for one in columns)


def _conformed(found: Leaf, declared: Sequence[Column], shape: Sequence[Column], query: Query, name: str) -> Collection:
    """The rows of a body under the names of its binding's columns, in their types."""
    at = query.source.at(query.start)
    if len(found.columns) != len(declared):
        raise ProgramError(
            problem=f"the binding {name!r} declares {len(declared)} columns, and its query has {len(found.columns)}",
            where=at,
        )
    node = found.collection.node
    scope = Expressions(node.schema, {})
    pairs: list[tuple[str, Expr]] = []
    for own, want, now in zip(found.columns, declared, shape, strict=True):
        if own.type != want.type and {own.type.name, want.type.name} - {"Int64", "Decimal", "Float64"}:
            raise ProgramError(
                problem=f"the column {want.name!r} of the binding {name!r} is {want.type}, but its query gives "
                f"{own.type}; cast it",
                where=at,
            )
        value = converted(scope, Value(own.name), want.type)
        pairs.append((want.name, nullable(value) if now.nullable and not own.nullable else value))
    made = picked(node, pairs)
    return found.collection if made is node else Collection(made)


_SAID = {
    "UNION_NOT_SUPPORTED_IN_RECURSIVE_CTE": "WITH RECURSIVE takes UNION ALL; for UNION, which ends on cycles, write "
    "WITH MUTUALLY RECURSIVE",
}
"""What to say in place of Spark's message, by its condition."""


def _at_block(tokens: Tokens) -> bool:
    return (tokens.word(), tokens.word(1), tokens.word(2)) == ("WITH", "MUTUALLY", "RECURSIVE")


def _limit(tokens: Tokens) -> tuple[int, str]:
    """The limit of rounds in (RETURN AT RECURSION LIMIT n), and what happens there."""
    if not tokens.skip("("):
        return DEFAULT_ROUNDS, "error"
    on_limit = "truncate" if tokens.skip("RETURN", "AT") else "error"
    tokens.skip("ERROR", "AT")
    if not tokens.skip("RECURSION", "LIMIT"):
        tokens.fail("write (RETURN AT RECURSION LIMIT n) or (ERROR AT RECURSION LIMIT n)")
    tokens.skip("=")
    number = tokens.word()
    if not number.isdigit() or int(number) < 1:
        tokens.fail("a recursion limit is a number from 1 on")
    tokens.place += 1
    tokens.need(")")
    return int(number), on_limit


def _has_asof_join(tokens: Tokens) -> bool:
    """Whether ASOF stands before JOIN, where Spark sees a mistake or another name of the table before it."""
    words = [str(one.text).upper() for one in tokens.tokens[tokens.place :]]
    return ("ASOF", "JOIN") in itertools.pairwise(words)


_ASOF = (
    "there is no ASOF JOIN; join by the equal columns and the order (r.since <= t.ts), and keep what has "
    "row_number() OVER (PARTITION BY t.id ORDER BY r.since DESC) = 1"
)


def _check_escapes(tokens: Tokens) -> None:
    """Plans do not say which character escapes in a LIKE."""
    for one, two in zip(tokens.tokens[tokens.place :], tokens.tokens[tokens.place + 1 :]):
        if one.text.upper() == "ESCAPE" and two.token_type.name == "STRING":
            raise refuse("LIKE has the escape character \\ here; leave out ESCAPE", "escape")


def _check_names(output: Sequence[Mapping[str, Any]]) -> None:
    seen: set[str] = set()
    for at, one in enumerate(output, 1):
        name = str(one["name"])
        try:
            check_name(name, "a view")
        except WrongType as error:
            if not name.isidentifier():
                raise Refused(problem=f"column {at} of the query has no name ({name}); write AS and a name") from error
            raise Refused(
                problem=f"column {at} of the query cannot be named {name}, which is a word of Python's own or begins "
                "with an underscore; write AS and another name",
                words=(name.lower(),),
            ) from error
        if name.lower() in seen:
            raise Refused(
                problem=f"two columns of the query are named {name!r}; rename one with AS", words=(name.lower(),)
            )
        seen.add(name.lower())
        if one["type"] == "void":
            raise Refused(
                problem=f"column {name} of the query is NULL of no type; write CAST(NULL AS BIGINT) AS {name}, "
                "or another type",
                words=(name.lower(), "null"),
            )


def _place(error: Refused, tokens: Tokens) -> Location | None:
    """Where the query has one of the refusal's words."""
    for word in error.words:
        for token in tokens.tokens[tokens.place :]:
            if str(token.text).lower().replace("_", "") == word:
                return tokens.source.at(token.start)
    return None


def _spelled(kind: str, words: set[str]) -> str:
    """The name by which the query calls a function of this class."""
    if UNSTEADY[kind] in NOW:
        return next((name for name in NOW if name in words), UNSTEADY[kind])
    return UNSTEADY[kind]


def _lowered(text: str) -> str:
    """A message as ours are: its first letter small, unless it begins a word in capitals."""
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text
