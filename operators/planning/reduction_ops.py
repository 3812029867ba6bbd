"""Reductions of the physical plan: each reads an arrangement and emits rows by its key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vernier.operators.group_functions.logic import LogicSpec
from vernier.operators.kernels.aggregating import FLAG, KIND, MAX, MIN, OUT_FLAG, PRESENT, WORD
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.combined import gates_of
from vernier.operators.planning.in_order import InOrder
from vernier.operators.planning.op import KeyedOp, Op, exchange_facts
from vernier.operators.planning.stages import Words, texts_among


@dataclass(frozen=True)
class Ends:
    """The part of a group that determines its first `most` copies (kernels/ends.py). Vals are read from the end, by
    their first `down` words in descending order and otherwise in ascending order, and all of those that have the first
    `whole` words of the last one. flag: a word of the val that is 0 where a row does not count, or -1."""

    down: int
    whole: int
    most: int
    flag: int = -1


@dataclass(frozen=True)
class Surroundings:
    """The part of a group on which the output of changed rows depends (kernels/surroundings.py): `reach` copies, at
    least one, on either side, and all vals that share their first `whole` words."""

    whole: int
    reach: int


@dataclass(frozen=True)
class Stretches:
    """The part of a group from a changed row on until what comes before the next row is as before
    (kernels/stretches.py). whole: vals that share these words are read together; down: they are ordered from the last
    to the first; column, words, flag: the column of the val whose sum counts (its first word, how many it has, and its
    null flag or -1); column -1: copies count."""

    whole: int
    down: bool
    column: int = -1
    words: int = 1
    flag: int = -1

    @property
    def summed(self) -> tuple[int, int, int]:
        """The column as storage/trace/prefix_index.py takes it."""
        return self.column, self.words, self.flag


@dataclass(frozen=True)
class Ranks:
    """The part of a group on which quantiles of its first column depend (kernels/ranks.py). flag: 0 if that column has
    a null flag, or -1; shares: those of the quantiles, ascending."""

    flag: int
    shares: tuple[float, ...]
    summed: ClassVar[tuple[int, int, int]] = (-1, 1, -1)
    """Copies alone, as storage/trace/prefix_index.py takes it."""


Reads = Ends | Surroundings | Stretches | Ranks
"""The part of a group that a reduction reads."""


@dataclass
class ReductionOp(KeyedOp):
    """A reduction: reads an arrangement by `key` and emits key words, then val words. total: its earlier output follows
    from its input, so the operator need not look it up. trace: where its output is kept, by key, either for the
    operator itself or for readers of that arrangement; None if neither needs it. reads: which part of a group it reads,
    if time is total and its output depends on no more; None if it reads whole groups."""

    key: RowType
    total: bool
    trace: str | None
    reads: Reads | None = field(default=None, init=False)

    kind = "reduce"
    takes_names = True
    named_by_kind = True

    @property
    def rows_read(self) -> Words:
        return ()

    @property
    def arrangement(self) -> str | None:
        return self.trace

    @property
    def consolidates(self) -> bool:
        return True

    @property
    def looks_up(self) -> bool:
        """Whether it looks its earlier output up in a trace."""
        return not self.total

    @property
    def key_width(self) -> int:
        return self.key.width

    def facts(self) -> dict[str, Any]:
        read = {} if self.reads is None else {"reads": type(self.reads).__name__.lower()}
        return {"form": "total" if self.total else "general", "keeps_output": self.trace is not None} | read


@dataclass
class ReduceOp(ReductionOp):
    """Aggregates that the kernel updates change by change. aggregations: rows of kernels/aggregating.py; compared: the
    positions in the val of the texts whose least or greatest value is wanted. covers: whether it needs no earlier
    output because it keeps covers of its keys while a slice runs (kernels/covers.py)."""

    aggregations: tuple[Words, ...]
    compared: Words
    covers: bool = field(default=False, init=False)

    @property
    def looks_up(self) -> bool:
        return super().looks_up and not self.covers

    @property
    def of_one_val(self) -> bool:
        """Whether one val decides the output of a key: there is one aggregation, which reads one val at a time, in the
        order of vals. That is PRESENT, or MIN or MAX of a val that cannot be null."""
        if len(self.aggregations) != 1 or self.compared:
            return False
        (rule,) = self.aggregations
        if rule[KIND] == PRESENT:
            return True
        return rule[WORD] == 0 and rule[FLAG] < 0 and rule[OUT_FLAG] < 0 and rule[KIND] in (MIN, MAX)


@dataclass
class AccumulableReduceOp(ReductionOp):
    """Accumulable reduce: counts of an arrangement's rows where time is total. aggregations: one COUNT row if the key
    is the whole row, else a PRESENT row or none (kernels/aggregating.py); state: the trace that holds how many rows of
    each key exist; None if the key is the whole row, because such a key needs no numbers of its own."""

    aggregations: tuple[Words, ...]
    state: str | None

    @property
    def traces(self) -> tuple[str, ...]:
        return super().traces if self.state is None else (*super().traces, self.state)

    @property
    def trace_texts(self) -> dict[str, Words]:
        return super().trace_texts | ({} if self.state is None else {self.state: self.key.text_words})

    def facts(self) -> dict[str, Any]:
        return super().facts() | ({} if self.state is None else {"state": self.state})


@dataclass
class StatefulReductionOp(ReductionOp):
    """A reduction with a trace of its own by key, `state`, beside that of its output."""

    state: str = field(kw_only=True)

    @property
    def traces(self) -> tuple[str, ...]:
        return (*super().traces, self.state)

    @property
    def trace_texts(self) -> dict[str, Words]:
        return super().trace_texts | {self.state: self.key.text_words}

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"state": self.state}


@dataclass
class AccumulateOp(StatefulReductionOp):
    """Counts, sums and means where time is total, kept as one vector a key (kernels/accumulating.py). Its input is any
    operator, whose words `words` are the key and `val` are the words that the aggregations read. aggregations: rows of
    kernels/aggregating.py; state: the trace of the vectors; slots, page, length: how vectors are laid out
    (`vector_layout` of group_functions/aggregations.py); exchange: rows must be sent to the worker that owns their
    key; sums_first: the rows of a key and time are added up before."""

    words: Words
    val: Words
    aggregations: tuple[Words, ...]
    slots: Words
    page: int
    length: int
    exchange: bool = True
    sums_first: bool = field(default=False, init=False)

    @property
    def rows_read(self) -> Words:
        return self.inputs

    def copies_input(self, ops: Sequence[Op]) -> bool:
        return True

    def settle_exchange(self, ops: Sequence[Op]) -> None:
        self.exchange = ops[self.input].part != self.words
        texts = texts_among((*self.words, *self.val), ops[self.input].texts)
        gates = gates_of(self.aggregations, len(self.words), len(self.val), texts)
        self.sums_first = self.exchange and gates is not None

    def facts(self) -> dict[str, Any]:
        return super().facts() | exchange_facts(self.exchange, self.sums_first)


@dataclass
class BatchedReduceOp(ReductionOp):
    """Reduce with a logic: applies a `LogicSpec` to the rows of each key. val: the arrangement's columns after the
    key's; order: the words of what the logic makes in the order of the output, if that is another one."""

    val: RowType
    spec: LogicSpec
    order: Words = ()

    def facts(self) -> dict[str, Any]:
        return super().facts() | ({"calls": "group"} if self.spec.by_group else {})


@dataclass
class OrderedReduceOp(BatchedReduceOp):
    """Reduce with a function along ordered rows, which one kernel computes where parts of groups are read."""

    along: InOrder = field(kw_only=True)


@dataclass
class TopOp(ReductionOp):
    """The first `most` copies of each group, where time is total. val: words of the arrangement's vals; by: the words
    of the order among them, flips: -1 for those in descending order, else 0; words: those of a val in the order of the
    output; compared: the words of the val at which texts begin."""

    val: int
    by: Words
    flips: Words
    most: int
    words: Words
    compared: Words


@dataclass
class ChosenOp(ReductionOp):
    """Quantiles, modes and their like, where time is total. columns, items: see kernels/chosen.py; compared: the words
    of the val at which texts begin."""

    columns: tuple[Words, ...]
    items: tuple[Words, ...]
    compared: Words


@dataclass
class SessionsOp(StatefulReductionOp):
    """Rows with the starts of their sessions, where time is total. val: words of the arrangement's vals; flag: whether
    a null flag is before the value, with which vals begin; gap, most: how far apart the values of a session may be, and
    the greatest one; on: the column with the values, for messages; words: the words of the output, in its order, `val`
    being the start; state: the trace of all starts."""

    val: int
    flag: bool
    gap: int
    most: int
    on: str
    words: Words


@dataclass
class ExtremesOp(StatefulReductionOp):
    """Rows with running least or greatest values, where time is total. val: words of the arrangement's vals; down: the
    order of the rows is that of descending vals; column, words, flag: the column whose values are compared (its first
    word, how many it has, and its null flag or -1); greatest: whether the greatest value is wanted; order: the words of
    the output, in its order, the extreme being `val`, `val` + 1, …; state: the trace of all records, texts_at the words
    of its rows at which texts begin."""

    val: int
    down: bool
    column: int
    words: int
    flag: int
    greatest: bool
    order: Words
    texts_at: Words

    @property
    def trace_texts(self) -> dict[str, Words]:
        return super().trace_texts | {self.state: self.texts_at}
