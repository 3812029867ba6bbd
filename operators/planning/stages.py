"""Stages: the row-wise steps that a linear operator, or the output of a join, runs as a chain."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import Expr
from vernier.operators.language.plan.tables import TableFunction
from vernier.operators.language.types.schema import RowType

Words = tuple[int, ...]


class Stage(ABC):
    """One row-wise step of a chain."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What explanations call the step."""

    @property
    def waits(self) -> bool:
        """Whether updates may leave the stage at a later time than they came at."""
        return False

    @property
    def remembers_ns(self) -> int | None:
        """For how long its output still depends on when a row came. After that, only the rows matter. None: for
        ever."""
        return 0

    @property
    def picks(self) -> Words | None:
        """The words that it keeps of each row, if it does nothing else."""
        return None

    @property
    def by_row(self) -> bool:
        """Whether it calls a function of the program once for each row."""
        return False

    def width_after(self, width: int) -> int:
        """The words of a row behind the stage, where rows have `width` words before it."""
        return width

    @abstractmethod
    def carry(self, part: Words | None) -> Words | None:
        """Where the words that place rows on workers stand behind the stage; None if they are lost."""


@dataclass(frozen=True)
class Take(Stage):
    """Keep the words at these positions, in this order."""

    words: Words

    def carry(self, part: Words | None) -> Words | None:
        return _found(part, self.words)

    def width_after(self, width: int) -> int:
        return len(self.words)

    @property
    def picks(self) -> Words | None:
        return self.words

    @property
    def name(self) -> str:
        return "select"


@dataclass(frozen=True)
class Keep(Stage):
    """Keep the rows for which the predicate is true (not false, not null)."""

    predicate: Expr
    schema: RowType

    def carry(self, part: Words | None) -> Words | None:
        return part

    @property
    def name(self) -> str:
        return "filter"


@dataclass(frozen=True)
class Compute(Stage):
    """Build new rows from expressions."""

    exprs: tuple[Expr, ...]
    schema: RowType
    width: int

    def carry(self, part: Words | None) -> Words | None:
        source: list[int] = []
        for expr in self.exprs:
            words = plain_words((("", expr),), self.schema)
            source += words if words is not None else [-1] * _width_of(expr, self.schema)
        return _found(part, source)

    def width_after(self, width: int) -> int:
        return self.width

    @property
    def name(self) -> str:
        return "compute"


@dataclass(frozen=True)
class Negated(Stage):
    """Multiply diffs by -1."""

    def carry(self, part: Words | None) -> Words | None:
        return part

    @property
    def name(self) -> str:
        return "negate"


@dataclass(frozen=True)
class Expand(Stage):
    """Turn each row into any number of rows, each with a factor for its diff and a time at which it becomes valid.
    schema: the type of the input rows."""

    table: TableFunction
    schema: RowType
    width: int

    @property
    def waits(self) -> bool:
        return self.table.waits

    @property
    def by_row(self) -> bool:
        return self.table.by_row

    @property
    def remembers_ns(self) -> int | None:
        return None if self.table.shifts else 0

    def carry(self, part: Words | None) -> Words | None:
        return _found(part, self.table.source_words(self.schema))

    def width_after(self, width: int) -> int:
        return self.width

    @property
    def name(self) -> str:
        return self.table.name


@dataclass(frozen=True)
class Move(Stage):
    """Move updates to a later time: rounded up to a multiple of `ns` or, if `delay` is set, later by `ns`."""

    ns: int
    delay: bool

    @property
    def remembers_ns(self) -> int:
        return self.ns

    @property
    def waits(self) -> bool:
        return True

    def carry(self, part: Words | None) -> Words | None:
        return part

    @property
    def name(self) -> str:
        return "delay" if self.delay else "coarsen"


def fuse(stages: list[Stage]) -> list[Stage]:
    """Combine neighbouring selections of words."""
    out: list[Stage] = []
    for stage in stages:
        last = out[-1] if out else None
        if stage.picks is not None and last is not None and last.picks is not None:
            out[-1] = Take(tuple(last.picks[w] for w in stage.picks))
        else:
            out.append(stage)
    return out


def chain_name(stages: Sequence[Stage]) -> str:
    """What explanations call a chain."""
    return " → ".join(stage.name for stage in stages)


def carry_all(stages: Sequence[Stage], part: Words | None) -> Words | None:
    """Where the words that place rows stand behind a chain."""
    for stage in stages:
        part = stage.carry(part)
    return part


def plain_words(exprs: Sequence[tuple[str, Expr]], row: RowType) -> Words | None:
    """The words that a projection picks when all its expressions are columns."""
    words: list[int] = []
    for _, expr in exprs:
        column = expr.column
        if column is None:
            return None
        words += [int(w) for w in row.index([column])]
    return tuple(words)


def _found(part: Words | None, source: Sequence[int]) -> Words | None:
    """The places of `part` among the words that a stage keeps, in `source`'s order; None if one is not kept."""
    kept = list(source)
    return tuple(kept.index(word) for word in part) if part is not None and set(part) <= set(kept) else None


def _width_of(expr: Expr, row: RowType) -> int:
    bound = bind(expr, row)
    return bound.type.words + int(bound.nullable)


def texts_among(words: Words, texts: Words) -> Words:
    """The positions of texts in rows that pick `words` from other rows, whose texts begin at `texts`."""
    return tuple(i for i, word in enumerate(words) if word in texts)


def call_facts(stages: Sequence[Stage]) -> dict[str, Any]:
    """What explanations say of functions of the program that a chain calls once for each row."""
    return {"calls": "row"} if any(stage.by_row for stage in stages) else {}
