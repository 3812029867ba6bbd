"""An operator of the physical plan as data: what it reads, keeps and says of itself, and how its rows are placed on
workers.

The planner makes operators from logical nodes (`operators/language/plan`), a Plan holds them, and every worker builds
what runs from them. Names tell the three apart: `JoinNode` is logical, `JoinOp` is planned, and `Join` (in
`operators/physical`) runs. The families are in ops.py, reduction_ops.py, time_ops.py and loop_ops.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vernier.operators.planning.stages import Words


@dataclass
class Op:
    """An operator. id: its position in the plan; scope: where it runs; width: number of words of its rows; name: for
    display; part: the words whose hash places its rows on workers, or None if that is not known; texts: the words of
    its rows at which a text begins (storage/strings/string_heap.py); line: the program's line, "file:line", for errors;
    titled: whether the program chose the name."""

    id: int
    scope: int
    width: int
    name: str
    part: Words | None = field(default=None, init=False)
    texts: Words = field(default=(), init=False)
    line: str = field(default="", init=False)
    titled: bool = field(default=False, init=False)

    kind: ClassVar[str] = "op"
    """What explanations call operators of this class."""
    takes_names: ClassVar[bool] = False
    """Whether it takes the name that a program gives its rows; sources, variables, loops and views have their own."""
    named_by_kind: ClassVar[bool] = False
    """Whether a name that the program did not give says no more than the kind."""

    @property
    def inputs(self) -> Words:
        """The ids of the operators that feed this one."""
        return ()

    @property
    def rows_read(self) -> Words:
        """Of its inputs, those whose rows it reads; of the others it reads the arrangement alone."""
        return self.inputs

    @property
    def arrangement(self) -> str | None:
        """The trace of its output by key, which other operators may share; None if it keeps none."""
        return None

    @property
    def traces(self) -> tuple[str, ...]:
        """All traces that it keeps."""
        return () if self.arrangement is None else (self.arrangement,)

    @property
    def trace_texts(self) -> dict[str, Words]:
        """For each trace that it keeps, the words of its rows at which a text begins."""
        return {} if self.arrangement is None else {self.arrangement: self.texts}

    @property
    def key_width(self) -> int:
        """How many of its first words are the key by which its output is arranged."""
        return 0

    @property
    def feeds(self) -> int | None:
        """The delayed variable that it sets."""
        return None

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues of held updates that it keeps."""
        return ()

    @property
    def remembers_ns(self) -> int | None:
        """For how long its output still depends on when a row came: 0 if it can be computed from today's rows alone,
        None if it depends on all of the past."""
        return 0

    @property
    def consolidates(self) -> bool:
        """Whether each of its steps emits consolidated rows outside loops, though perhaps not in order."""
        return False

    @property
    def picks(self) -> Words | None:
        """The words of its input's rows that make its own rows, if it does nothing else."""
        return None

    def companions(self, ops: Sequence[Op]) -> Words:
        """Operators besides its inputs that must run for it to run."""
        return ()

    def arranged_by(self, key: Words, val: Words) -> bool:
        """Whether its output is arranged by the words `key`, with the words `val` behind them."""
        return False

    def copies_input(self, ops: Sequence[Op]) -> bool:
        """Whether nothing refers to the rows of its input after the step."""
        return False

    def output_copied(self, ops: Sequence[Op]) -> bool:
        """Whether nothing refers to its own output after the step, since all readers copy it."""
        return all(reader.copies_input(ops) for reader in ops if self.id in reader.inputs)

    def placed(self, ops: Sequence[Op]) -> Words | None:
        """The words by whose hash its rows are placed on workers, once that of its inputs is known; None: unknown."""
        return None

    def settle_exchange(self, ops: Sequence[Op]) -> None:
        """Drop the exchange of an input whose rows are where they must be already."""

    def facts(self) -> dict[str, Any]:
        """What explanations say of it besides what they say of every operator; JSON."""
        return {}


def exchange_facts(exchange: bool, sums_first: bool) -> dict[str, Any]:
    """What explanations say of an exchange. sums_first: rows of one key and time are added up before they are sent."""
    return {"exchange": exchange, **({"sums_first": True} if sums_first else {})}


@dataclass
class FedOp(Op):
    """An operator with one input."""

    input: int

    @property
    def inputs(self) -> Words:
        return (self.input,)


@dataclass
class PassingOp(FedOp):
    """An operator that leaves rows where they are."""

    def placed(self, ops: Sequence[Op]) -> Words | None:
        return ops[self.input].part


@dataclass
class KeyedOp(FedOp):
    """An operator whose output is arranged: rows are key words, then val words."""

    def placed(self, ops: Sequence[Op]) -> Words | None:
        return tuple(range(self.key_width))

    def arranged_by(self, key: Words, val: Words) -> bool:
        width = self.key_width
        return key == tuple(range(width)) and val == tuple(range(width, self.width))
