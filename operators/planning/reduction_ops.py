"""Reductions of the physical plan: each reads an arrangement and emits rows by its key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vernier.operators.group_functions.logic import LogicSpec
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.op import KeyedOp, Op
from vernier.operators.planning.stages import Words


@dataclass
class ReductionOp(KeyedOp):
    """A reduction: reads an arrangement by `key` and emits key words, then val words. total: its earlier output follows
    from its input, so the operator need not look it up. trace: where its output is kept, by key, either for the
    operator itself or for readers of that arrangement; None if neither needs it."""

    key: RowType
    total: bool
    trace: str | None

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
    def key_width(self) -> int:
        return self.key.width

    def facts(self) -> dict[str, Any]:
        return {"form": "total" if self.total else "general", "keeps_output": self.trace is not None}


@dataclass
class ReduceOp(ReductionOp):
    """Aggregates that the kernel updates change by change. aggregations: rows of kernels/aggregating.py; compared: the
    positions in the val of the texts whose least or greatest value is wanted."""

    aggregations: tuple[Words, ...]
    compared: Words


@dataclass
class AccumulableReduceOp(ReductionOp):
    """Accumulable reduce: counts of an arrangement's rows where time is total. aggregations: one COUNT row if the key
    is the whole row, else a PRESENT row or none (kernels/aggregating.py); state: the trace that holds how many rows of
    each key exist; None if the key is the whole row, because such a key needs no numbers of its own."""

    aggregations: tuple[Words, ...]
    state: str | None

    @property
    def traces(self) -> tuple[str, ...]:
        return tuple(name for name in (self.trace, self.state) if name is not None)

    @property
    def trace_texts(self) -> dict[str, Words]:
        return super().trace_texts | ({} if self.state is None else {self.state: self.key.text_words})

    def facts(self) -> dict[str, Any]:
        return super().facts() | ({} if self.state is None else {"state": self.state})


@dataclass
class AccumulateOp(ReductionOp):
    """Counts, sums and means where time is total, kept as one vector a key (kernels/accumulating.py). Its input is any
    operator, whose words `words` are the key and `val` are the words that the aggregations read. aggregations: rows of
    kernels/aggregating.py; state: the trace of the vectors; slots, page, length: how vectors are laid out
    (`vector_layout` of group_functions/aggregations.py); exchange: rows must be sent to the worker that owns their
    key."""

    words: Words
    val: Words
    aggregations: tuple[Words, ...]
    state: str
    slots: Words
    page: int
    length: int
    exchange: bool = True

    @property
    def rows_read(self) -> Words:
        return self.inputs

    @property
    def traces(self) -> tuple[str, ...]:
        return tuple(name for name in (self.trace, self.state) if name is not None)

    @property
    def trace_texts(self) -> dict[str, Words]:
        return super().trace_texts | {self.state: self.key.text_words}

    def copies_input(self, ops: Sequence[Op]) -> bool:
        return True

    def settle_exchange(self, ops: Sequence[Op]) -> None:
        self.exchange = ops[self.input].part != self.words

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"state": self.state, "exchange": self.exchange}


@dataclass
class BatchedReduceOp(ReductionOp):
    """Reduce with a logic: applies a `LogicSpec` to the rows of each key. val: the arrangement's columns after the
    key's."""

    val: RowType
    spec: LogicSpec
