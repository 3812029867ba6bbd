"""The base class of all operators of a running dataflow, and the small types that they share.

Updates are int64 matrices `[row | time | rounds | diff]`. Keyed rows are updates arranged by a key:
`[hash | key | val | time | rounds | diff]`, where the hash of the key decides which worker owns it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.op import Op
from vernier.operators.runtime.budget import Yield
from vernier.operators.runtime.exchange import Round
from vernier.operators.runtime.key_sample import KeySample
from vernier.storage.strings.string_heap import Heap
from vernier.storage.trace.batch import Batch
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import Ints

if TYPE_CHECKING:
    from vernier.operators.runtime.scope import ScopeRun


@dataclass
class Counters:
    """Running totals of one operator on one worker."""

    seconds: float = 0.0
    updates_out: int = 0
    steps: int = 0


@dataclass
class Slice:
    """The interval of data times [lower, upper) that is being processed. Earlier times are read as `fold`, just below
    it. loads: whether it is large, so that what operators emit is released as early as possible."""

    lower: int = 0
    upper: int = 0
    loads: bool = False

    @property
    def fold(self) -> int:
        """The time that stands for all times before the slice."""
        return self.lower - 1


class Operator:
    """One operator on one worker.

    In each step (slice, round) of its scope, `step(now)` reads the output of its inputs in the same step and sets
    `out`: updates `[row | time | rounds | diff]`, all at round `now`, or None. `keyed`, if the operator happens to have
    it, is the same output as keyed rows by the first `keyed_by` words, sorted and consolidated. `given` accounts for
    the output of an operator that can emit more than it reads. `counters` feed the metrics. `sample`: the keys of the
    rows that it sends to their owners, if it does.
    """

    nests = False
    """Whether the operator is a loop, with rounds of its own inside of each step."""

    @property
    def can_agree(self) -> bool:
        """Whether the operator's exchange can also settle the scope's next round (operators/physical/iterate.py)."""
        return False

    def __init__(self, op: Op, scope: ScopeRun) -> None:
        self.op = op
        self.scope = scope
        self.depth = scope.depth
        self.out: Ints | None = None
        self.keyed: Ints | None = None
        self.keyed_by = 0
        self.counters = Counters()
        self.given: Yield | None = None
        self.sample: KeySample | None = None

    def step(self, now: Round) -> None:
        """Do this operator's work at round `now`."""
        raise NotImplementedError

    def active(self) -> bool:
        """Whether the operator had output in the newest step of its scope."""
        return self.out is not None

    def sizes_of(self, rows: int) -> str:
        """Describes an output of so large a step for the error that it needs too much memory."""
        known = None if self.given is None else self.given.sizes
        return f"it emits {rows:,} rows at once" if known is None else f"{known}, {rows:,} rows so far"

    def begin_slice(self) -> None:
        """Called after the slice's interval is set; traces then hold only earlier slices."""

    def release(self) -> None:
        """Release the output of the newest step once all have read it. In a load it is as large as the data loaded."""
        self.out = self.keyed = None
        if self.given is not None:
            self.given.begin()

    def pending(self) -> list[Round]:
        """Rounds for which this operator still holds work. None may be left after a slice."""
        return []


def shown_key(key: RowType, keyed: Ints, heap: Heap) -> str:
    """A key `[hash | key words …]` for display, as RowType.shown_key shows it."""
    return key.shown_key(np.ascontiguousarray(keyed[:, 1 : 1 + key.width]), heap)


class Arranged(Protocol):
    """An operator whose output is kept in a trace, by key."""

    trace: Trace
    key_width: int
    val_width: int
    depth: int
    fresh: Ints | Batch | None
    """Keyed rows that the newest step of its scope added, sorted and consolidated, or the same rows as a trie (a batch
    that stores each key and each val once)."""


@dataclass
class Buckets:
    """Updates that wait for a later round, grouped by round."""

    rows: dict[Round, list[Ints]] = field(default_factory=dict)

    def put(self, at: Round, data: Ints) -> None:
        """Add updates for a round."""
        self.rows.setdefault(at, []).append(data)

    def take(self, at: Round) -> list[Ints]:
        """Remove and return the updates for a round."""
        return self.rows.pop(at, [])
