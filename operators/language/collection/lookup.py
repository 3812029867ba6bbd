"""The method `lookup`: a half join, which reacts to changes of its left side only and never revises earlier results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from vernier.operators.errors import BadLoop, NameClash, listed
from vernier.operators.language.collection.joins import join_keys
from vernier.operators.language.collection.matching import without_nulls
from vernier.operators.language.collection.rows import C, Rows, check_collection
from vernier.operators.language.plan.logical import JoinNode
from vernier.operators.language.plan.node import ROOT, Node, Params
from vernier.operators.language.types.schema import RowType


@dataclass(frozen=True, eq=False)
class HalfJoinNode(Node):
    """Each change of the left side of `pairs`, joined with the right side's rows at the time of the change."""

    kind: ClassVar[str] = "lookup"
    pairs: JoinNode

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.pairs.inputs

    def params(self) -> Params:
        return self.pairs.params()

    def _schema(self) -> RowType:
        return self.pairs.schema


def lookup(
    self: C,
    other: Rows,
    on: str | Sequence[str] | None = None,
    *,
    left_on: str | Sequence[str] | None = None,
    right_on: str | Sequence[str] | None = None,
) -> C:
    """Each change of this collection at time t, joined with what `other` holds at t (a half join); multiplicities
    multiply.

    Later changes of `other` revise nothing: an order keeps the price of its time. A retraction therefore meets what
    `other` holds at the time of the retraction, so use this for collections that only grow. Keys and columns are as
    in `join`. Outside loops only. Cost: `other` is arranged, this collection is not kept, and a change of `other`
    produces no pairs.
    """
    check_collection(other, "lookup")
    left_keys, right_keys = join_keys(on, left_on, right_on, "lookup")
    self._check_columns(left_keys, "the left side of the lookup")
    other._check_columns(right_keys, "the right side of the lookup")
    if on is None and left_keys == right_keys:
        raise NameClash(
            problem=f"both keys are named {listed(left_keys)}; write on={list(left_keys)} and they come once"
        )
    for node in (self.node, other.node):
        if node.scope is not ROOT:
            raise BadLoop(
                problem=f"lookup inside the body of fixpoint {node.scope.name!r}: a loop is taken to its limit at "
                "each data time afresh, but lookup never revises its results; use join"
            )
    pairs = JoinNode(without_nulls(self.node, left_keys), without_nulls(other.node, right_keys), left_keys, right_keys)
    return self._of(HalfJoinNode(pairs))
