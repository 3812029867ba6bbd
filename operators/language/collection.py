"""Collections: what a program composes. Each method checks its arguments, and returns a new collection.

A collection is a multiset of rows that changes over time. Methods are named as Spark's DataFrame has them, in
snake_case; they build nodes of the logical plan (operators/language/logical.py) and compute nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from operators.errors import (
    NameClash,
    NotInThisRelease,
    ProgramError,
    UnknownName,
    WrongType,
    listed,
    meant,
)
from operators.language.evaluate import bind
from operators.language.expr import Column, Expr, ExprLike, Literal, Nullability, as_expr, named
from operators.language.logical import Aggregate, Aggregation, Distinct, Filter, Join, Negate, Node, Project, Union
from operators.language.names import JOINS_LATER, no_method
from operators.language.schema import RowType, check_name
from operators.language.types import Float64, Int64

_ALL = "_all"
"""The constant key of an aggregate over all rows; no program can name it."""


class Collection:
    """A multiset of rows that changes over time. Collections come from App.source and from methods of others."""

    def __init__(self, node: Node) -> None:
        self.node = node

    @property
    def schema(self) -> RowType:
        """The columns with their types."""
        return self.node.schema

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return self.node.schema.names

    def select(self, *columns: str | Expr, **named_columns: str | ExprLike) -> "Collection":
        """One row for each row: the given columns and values, in order. Text names a column; multiplicities stay."""
        pairs = named(columns, named_columns, "select")
        if not pairs:
            raise ProgramError(problem=f"select needs at least one column (there are {listed(self.columns)})")
        return self._project(pairs)

    def with_columns(self, *columns: Expr, **named_columns: str | ExprLike) -> "Collection":
        """All columns, with the given ones added behind them or, where the name exists, put in their place."""
        new = dict(named(columns, named_columns, "with_columns"))
        kept = [(name, new.pop(name, Column(name))) for name in self.columns]
        return self._project([*kept, *new.items()])

    def rename(self, mapping: Mapping[str, str] | None = None, /, **names: str) -> "Collection":
        """Rename columns: `rename(old="new")` or `rename({"old": "new"})`; the order stays."""
        if mapping is not None and not isinstance(mapping, Mapping):
            raise WrongType(problem='rename takes rename(old="new") or rename({"old": "new"})')
        changes = {**(mapping or {}), **names}
        for old, new in changes.items():
            self.schema.field(old)
            if not isinstance(new, str):
                raise WrongType(problem=f"the new name of column {old!r} must be text, not {new!r}")
        return self._project([(changes.get(name, name), Column(name)) for name in self.columns])

    def drop(self, *columns: str | Expr) -> "Collection":
        """All columns but these; rows that become equal stay as many as they were."""
        dropped = [self.schema.field(_text(name, "drop")).name for name in columns]
        return self._project([(name, Column(name)) for name in self.columns if name not in dropped])

    def cast(self, mapping: Mapping[str, Any] | None = None, /, **types: Any) -> "Collection":
        """Convert columns (see Expr.cast): `cast(a=vn.Float64)`; with `a=vn.Int64 | None` it may hold nulls."""
        changes = {**(mapping or {}), **types}
        for name in changes:
            self.schema.field(name)
        exprs = [(name, Column(name).cast(changes[name]) if name in changes else Column(name)) for name in self.columns]
        return self._project(exprs)

    def filter(self, *conditions: ExprLike) -> "Collection":
        """The rows for which all conditions are true (not false, not null)."""
        if not conditions:
            raise ProgramError(problem='filter needs a condition: .filter(col("a") > 1)')
        result = self
        for condition in conditions:
            if isinstance(condition, str):
                raise WrongType(problem=f"filter takes an expression, not text; did you mean col({condition!r})?")
            result = Collection(Filter(result.node, as_expr(condition)))
        return result

    def union(self, *others: "Collection") -> "Collection":
        """All rows of all collections; multiplicities add up. Columns go by name; their types must be equal."""
        return union(self, *others)

    def negate(self) -> "Collection":
        """All rows with negated multiplicities: `a.union(b.negate())` subtracts."""
        return Collection(Negate(self.node))

    def distinct(self) -> "Collection":
        """Each row that is present (multiplicity above 0) exactly once."""
        return Collection(Distinct(self.node))

    def join(
        self,
        other: "Collection",
        on: str | Sequence[str] | None = None,
        *,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        how: str = "inner",
        where: ExprLike = None,
    ) -> "Collection":
        """Pairs of rows whose keys are equal; multiplicities multiply, null keys match nothing.

        With `on` the key columns come first and once, then the other columns of the left and of the right side; with
        left_on and right_on all columns of the left side, then all of the right. `where` is a further condition on
        the pair. Raises NameClash when both sides have another column of one name, WrongType when key types differ.
        """
        _collection(other, "join")
        if how != "inner":
            if how in JOINS_LATER:
                raise NotInThisRelease(problem=f"how={how!r} is not in this release; it has how='inner' alone")
            raise WrongType(
                problem=f"join knows no how={how!r}{meant(str(how), ('inner', *JOINS_LATER))}; it has 'inner'"
            )
        left_keys, right_keys = _join_keys(on, left_on, right_on)
        self._check_columns(left_keys, "the left side of the join")
        other._check_columns(right_keys, "the right side of the join")
        if on is None and left_keys == right_keys:
            raise NameClash(
                problem=f"both keys are named {listed(left_keys)}; write on={list(left_keys)} and they come once"
            )
        node: Node = Join(
            _without_nulls(self.node, left_keys), _without_nulls(other.node, right_keys), left_keys, right_keys
        )
        if where is not None:
            node = Filter(node, as_expr(where))
        return Collection(node)

    def group_by(self, *keys: str | Expr, **named_keys: str | ExprLike) -> "Grouped":
        """Group rows by columns or named values, for `.agg(...)`; nulls are one group. Without keys: all rows."""
        pairs = named(keys, named_keys, "group_by")
        for name, expr in pairs:
            check_name(name, "a key of group_by")
            bind(expr, self.schema)
        return Grouped(self, pairs)

    def _project(self, pairs: list[tuple[str, Expr]]) -> "Collection":
        for name, _ in pairs:
            check_name(name, "a column")
        return Collection(Project(self.node, tuple(pairs)))

    def _check_columns(self, names: Iterable[str], what: str) -> None:
        for name in names:
            self.schema.field(name, what)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise no_method(name, METHODS, self.columns)

    def __getitem__(self, name: object) -> NoReturn:
        raise UnknownName(problem=f"collections have no [...]; for the column write col({name!r})")

    def __iter__(self) -> NoReturn:
        raise WrongType(
            problem="a collection changes over time and cannot be iterated over; make it a view and read that"
        )

    def __repr__(self) -> str:
        return f"Collection{self.schema}"


METHODS = tuple(name for name, value in vars(Collection).items() if callable(value) and not name.startswith("_"))
"""The names of a collection's methods."""


class Grouped:
    """A collection with its grouping keys; `.agg(...)` makes a collection of it again."""

    def __init__(self, collection: Collection, keys: list[tuple[str, Expr]]) -> None:
        self._collection, self._keys = collection, keys

    def agg(self, *unnamed: object, **aggregates: Aggregation) -> Collection:
        """One row for each group: its keys, then the named aggregates, e.g. `.agg(n=vn.count(), low=vn.min("price"))`.

        A group exists while any of its rows has a multiplicity other than 0 (a sum of 0 is a row).
        """
        if unnamed or not aggregates:
            raise ProgramError(problem="agg takes named aggregates: .agg(n=vn.count())")
        for name, aggregate in aggregates.items():
            check_name(name, "an aggregate")
            if not isinstance(aggregate, Aggregation):
                raise WrongType(problem=f"{name} must be an aggregate such as vn.count(), not {aggregate!r}")
        node = self._collection.node
        pairs = self._keys or [(_ALL, Literal(0, Int64()))]
        if any(expr.column != name for name, expr in pairs):
            # Computed keys stand beside the columns: aggregates see the columns, and rows that differ stay different.
            hidden = [(name if expr.column == name else f"key {name}", expr) for name, expr in pairs]
            kept = [(name, Column(name)) for name in node.schema.names]
            node = Project(node, (*(pair for pair in hidden if pair[0] not in node.schema.names), *kept))
        else:
            hidden = pairs
        names = tuple(name for name, _ in hidden)
        lowered = {name: part for name, agg in aggregates.items() for name, part in _parts(name, agg, node.schema)}
        for name in lowered:
            if name in names or name in dict(self._keys):
                raise NameClash(problem=f"{name!r} is a key and an aggregate; give one of them another name")
        grouped = Aggregate(node, names, tuple(lowered.items()))
        shown = [(name, key) for (name, _), (key, _) in zip(self._keys, hidden)]
        outputs = [
            *((name, Column(key)) for name, key in shown),
            *((name, _whole(name, agg)) for name, agg in aggregates.items()),
        ]
        if tuple(name for name, _ in outputs) == grouped.schema.names:
            return Collection(grouped)
        return Collection(Project(grouped, tuple(outputs)))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        hint = f".agg(n=vn.{name}(...))" if name in ("count", "sum", "min", "max", "avg") else ".agg(n=vn.count())"
        raise UnknownName(problem=f"a grouped collection has no {name!r}; its one method is agg: {hint}")


def union(first: Collection, *others: Collection) -> Collection:
    """All rows of all collections; multiplicities add up. Columns go by name; their types must be equal."""
    everything = (first, *others)
    for collection in everything:
        _collection(collection, "union")
    if not others:
        return first
    fields = [
        (f.name, f.type, f.nullable or any(f.name in c.schema and c.schema.field(f.name).nullable for c in others))
        for f in first.schema.fields
    ]
    target = RowType(fields)
    return Collection(Union(tuple(conform(collection.node, target, "the union") for collection in everything)))


def conform(node: Node, target: RowType, what: str) -> Node:
    """The collection with exactly the columns of `target`: reordered by name, non-null columns made nullable.

    Raises WrongType, naming `what`, when columns are missing, too many, of another type, or nullable where `target`
    is not.
    """
    found = node.schema
    if found == target:
        return node
    if set(found.names) != set(target.names):
        raise WrongType(problem=f"{what} needs the columns {target}, but one side has {found}")
    exprs: list[tuple[str, Expr]] = []
    for want in target.fields:
        have = found.field(want.name)
        if have.type != want.type or (have.nullable and not want.nullable):
            raise WrongType(problem=f"{what} needs the columns {target}, but one side has {found}; cast {want.name!r}")
        same = have.nullable == want.nullable
        exprs.append((want.name, Column(want.name) if same else Nullability(Column(want.name), True)))
    return Project(node, tuple(exprs))


def _parts(name: str, agg: Aggregation, row: RowType) -> list[tuple[str, Aggregation]]:
    """The aggregates that the plan computes for one of the program's: avg is a sum and a count."""
    if agg.kind != "avg" or agg.expr is None:
        return [(name, agg)]
    bound = bind(agg.expr, row)
    if bound.type == Float64():
        raise NotInThisRelease(problem=f"avg of Float64 ({bound}) is not in this release; it has avg of Int64")
    return [(f"_sum_{name}", Aggregation("sum", agg.expr)), (f"_count_{name}", Aggregation("count", agg.expr))]


def _whole(name: str, agg: Aggregation) -> Expr:
    return Column(f"_sum_{name}") / Column(f"_count_{name}") if agg.kind == "avg" else Column(name)


def _join_keys(on: object, left_on: object, right_on: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if (on is None) == (left_on is None and right_on is None):
        raise ProgramError(problem='join needs its keys: either on="column", or left_on="a", right_on="b"')
    left = _key_names(on if on is not None else left_on, "join")
    right = _key_names(on if on is not None else right_on, "join")
    if len(left) != len(right):
        raise ProgramError(
            problem=f"join pairs left_on ({listed(left)}) with right_on ({listed(right)}): as many on each side"
        )
    return left, right


def _key_names(keys: object, what: str) -> tuple[str, ...]:
    names = tuple(keys) if isinstance(keys, (tuple, list)) else () if keys is None else (keys,)
    texts = tuple(_text(name, what) for name in names)
    if not texts or len(set(texts)) < len(texts):
        raise ProgramError(problem=f"{what} needs at least one key, each once, but has ({listed(texts)})")
    return texts


def _text(name: object, what: str) -> str:
    if isinstance(name, Column):
        return name.name
    if not isinstance(name, str):
        raise WrongType(
            problem=f"{what} takes names of columns, not {name!r}; compute the value with with_columns first"
        )
    return name


def _collection(value: object, what: str) -> None:
    if not isinstance(value, Collection):
        raise WrongType(problem=f"{what} takes collections, not {value!r}")


def _without_nulls(node: Node, keys: Sequence[str]) -> Node:
    """The rows whose key columns are not null, and those columns without their null words: null equals nothing."""
    nullable = [name for name in keys if node.schema.field(name).nullable]
    for name in nullable:
        node = Filter(node, Column(name).is_not_null())
    if not nullable:
        return node
    exprs = [
        (name, Nullability(Column(name), False) if name in nullable else Column(name)) for name in node.schema.names
    ]
    return Project(node, tuple(exprs))
