"""Adapted rows: those that a state holds of a source that had other columns, as rows of the present columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from vernier.operators.language.expr.evaluate import bind, project
from vernier.operators.language.expr.expression import Expr
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.stages import Words, plain_words
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import Ints


@dataclass(frozen=True)
class Adapt:
    """How rows of a former row type become present rows: the columns `exprs` of the former ones, in order."""

    former: RowType
    exprs: tuple[tuple[str, Expr], ...]

    @cached_property
    def words(self) -> Words | None:
        """The former words that make a present row, if it needs nothing else."""
        return plain_words(self.exprs, self.former)

    @property
    def same(self) -> bool:
        """Whether the words of both rows are the same."""
        return self.words == tuple(range(self.former.width))

    @cached_property
    def sources(self) -> Words:
        """For each word of a present row the former word that it repeats, -1 if it is computed."""
        found: list[int] = []
        for name, expr in self.exprs:
            plain = plain_words(((name, expr),), self.former)
            bound = bind(expr, self.former)
            found += plain if plain is not None else [-1] * (bound.type.words + int(bound.nullable))
        return tuple(found)

    def only(self, names: Sequence[str]) -> Adapt:
        """The present columns of these names."""
        known = dict(self.exprs)
        return Adapt(self.former, tuple((name, known[name]) for name in names))

    def reading(self, row: RowType) -> Adapt:
        """The same from rows that have only some of the former columns."""
        return Adapt(row, self.exprs)

    @cached_property
    def needs(self) -> frozenset[str]:
        """The former columns that it reads."""
        return frozenset(name for _, expr in self.exprs for name in expr.columns())

    def rows(self, words: Ints, heap: Heap) -> Ints:
        """The present rows of former ones. Raises DecimalOverflow for a number that does not fit."""
        made: Ints = np.ascontiguousarray(project([expr for _, expr in self.exprs], self.former)(words, heap))
        return made


@dataclass(frozen=True)
class Kept:
    """A trace of the former program whose rows make those of a present one. words: the positions, in its rows, of those
    that `adapt` reads."""

    trace: str
    words: Words
    adapt: Adapt


@dataclass(frozen=True)
class Evolution:
    """What is known of a state with other columns. same: for traces and queues of the plan, those of the state with the
    same rows. arranged: for traces of the plan, those of the state whose rows make theirs. prints: for operators, the
    fingerprint of their form in former columns, and how its rows become theirs. refused: sources whose columns changed
    in a way that rows cannot follow, and why."""

    same: Mapping[str, str] = field(default_factory=dict)
    arranged: Mapping[str, Sequence[Kept]] = field(default_factory=dict)
    prints: Mapping[int, tuple[str, Adapt]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


NONE = Evolution()
