"""Methods that move rows in time. They are linear, and fuse with other row-wise operators.

Updates with a time in the future wait in a durable temporal buffer until that time.
"""

from vernier.operators.errors import BadLoop, WrongType
from vernier.operators.language.collection.rows import C
from vernier.operators.language.expr.columns import as_column
from vernier.operators.language.expr.expression import ExprLike
from vernier.operators.language.plan.linear_nodes import ExpandNode, LaterNode
from vernier.operators.language.plan.node import ROOT
from vernier.operators.language.plan.tables import ValidBetween
from vernier.operators.language.types.duration import nanoseconds


def valid_between(self: C, from_: str | ExprLike = None, to: str | ExprLike = None) -> C:
    """Each row from `from_` (or its own time, if that is later) until `to`, which is exclusive.

    Both are TimestampNs or Int64 nanoseconds of data time; text names a column. The retraction happens at exactly
    its nanosecond, without any input at that time. Null (and no argument) means the beginning of time for `from_`
    and its end for `to`. A row whose `to` is not after its `from_` never appears. This is a temporal filter.
    Cost: two updates per update; future updates are kept on disk, not only in memory.
    """
    return self._of(ExpandNode(self.node, ValidBetween(as_column(from_), as_column(to))))


def coarsen(self: C, step: str | int) -> C:
    """The same changes at fewer times: each time is rounded up to a multiple of `step` ("1ms", or nanoseconds).

    Operators downstream never see changes that cancel within a step.
    """
    return self._of(LaterNode(self.node, _step(step, "coarsen"), False))


def delay(self: C, by: str | int) -> C:
    """Every change `by` later ("5m", or nanoseconds). Not inside a fixpoint, whose rounds cannot be moved in data
    time."""
    if self.node.scope is not ROOT:
        raise BadLoop(
            problem=f"delay inside the body of fixpoint {self.node.scope.name!r}: a loop is taken to its limit at "
            "each data time by itself; delay what goes into the loop, or what it returns"
        )
    return self._of(LaterNode(self.node, _step(by, "delay"), True))


def _step(step: str | int, what: str) -> int:
    ns = nanoseconds(step, f"the argument of {what}")
    if ns == 0:
        raise WrongType(problem=f"{what} needs a duration above 0, not {step!r}")
    return ns
