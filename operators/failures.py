"""Errors that can occur while a dataflow runs. Errors of building one are in operators/errors.py."""

from vernier.storage.errors import CallerError, InvariantError


class ExchangeBroken(InvariantError):
    """A worker left while the others waited for it, so the epoch is void."""

    message = (
        "worker {index} of {workers} lost its peers in the middle of an epoch; "
        "the epoch is repeated from the last commit"
    )
    index: int
    workers: int


class LoopDidNotSettle(CallerError):
    """A fixpoint still changed at its last permitted round."""

    message = (
        "loop {loop} did not settle: at round {round} it still changes, for example {sample}; "
        'raise max_rounds, or say on_limit="truncate" to take the round reached '
        "(negative multiplicities in an input can keep a loop from settling: .distinct() it first)"
    )
    loop: str
    round: int
    sample: str


class AggregateOverflow(CallerError):
    """A sum, count or mean of a group does not fit its type."""

    message = "{operator}: an aggregate of the group {key} does not fit its type; cast to Float64 or split the group"
    operator: str
    key: str


class ListTooLong(CallerError):
    """A list of all values of a group would have more values than a list may hold."""

    message = "{aggregate} of the group {key} would have {values} values; a list holds {most} at most"
    aggregate: str
    key: str
    values: int
    most: int


class TooManyCopies(CallerError):
    """A group has more copies than may become one row each."""

    message = (
        "{operator}: {copies} copies in the group {key} would become a row each, but at most {most} may; "
        "combine equal rows with distinct() or group_by() first"
    )
    operator: str
    key: str
    copies: int
    most: int


class MultiplicityOverflow(CallerError):
    """The multiplicity of a row in a group does not fit int64."""

    message = "{operator}: a multiplicity in the group {key} does not fit 64 bits"
    operator: str
    key: str


class JoinOverflow(CallerError):
    """The product of two multiplicities does not fit int64."""

    message = "{operator}: the product of two multiplicities does not fit 64 bits"
    operator: str


class EpochTooLarge(CallerError):
    """An operator would need more memory than the worker may have.

    operator, line: in the program; sizes: what it was working on; more: bytes that it needs on top of the `held` bytes
    of the process, whose limit is `limit`. smaller: whether shorter slices may help; the next attempt then uses them.
    """

    operator: str
    line: str
    sizes: str
    more: int
    held: int
    limit: int
    smaller: bool = False

    def describe(self) -> str:
        """Names the operator, its line, and how much memory it needs."""
        where = f" at {self.line}" if self.line else ""
        return (
            f"{self.operator}{where} needs more memory than its worker may have: {self.sizes}; it would take "
            f"{self.more >> 20:,} MB more, the worker has {self.held >> 20:,} of {self.limit >> 20:,} MB; make the key "
            "more selective, filter or aggregate before it, or give workers more memory (worker_memory_max_mb)"
        )


class MachineFull(CallerError):
    """An operator needs memory that its worker may have, but the machine does not have it."""

    operator: str
    line: str
    sizes: str
    more: int
    held: int

    def describe(self) -> str:
        """Names the operator, its line, and how much memory it needs."""
        where = f" at {self.line}" if self.line else ""
        return (
            f"{self.operator}{where} needs more memory than the machine has left: {self.sizes}; it would take "
            f"{self.more >> 20:,} MB more, the worker has {self.held >> 20:,} MB; free memory, or take another machine"
        )


class UserCodeFailed(CallerError):
    """A function of the program raised, or returned something other than declared, while the dataflow ran.

    operator: the operator that called it; where: the program's line, "file:line"; function: its name; sample: part of
    the input of the call; cause: what went wrong, e.g. "ValueError: ...".
    """

    message = "{operator} at {where}: the function {function} failed: {cause}; its input was, for example, {sample}"
    operator: str
    where: str
    function: str
    sample: str
    cause: str


class SeriesTooLong(CallerError):
    """generate_series would make more rows at once than its limit."""

    message = "generate_series: {problem} makes more than {limit} rows at once; filter such rows out first"
    problem: str
    limit: int


class TimeOverflow(CallerError):
    """An update would be moved past the end of data times."""

    message = "{operator}: an update at {time} cannot move later (step {ns} ns): data times end before 2**63 - 1"
    operator: str
    time: int
    ns: int


class DelayedCycleDidNotSettle(CallerError):
    """Delayed variables kept changing each other for more than max_steps steps, with no change from outside."""

    message = (
        "the delayed variables {variables} did not settle: they still change at {time}, after {steps} steps in which "
        "nothing else did, for example {sample}; raise max_steps, or change the program so that the feedback ends"
    )
    variables: str
    steps: int
    time: int
    sample: str


class HeldTooLate(InvariantError):
    """An operator emitted an update inside the running slice, not after it: the slice is wider than a variable's
    delay."""

    message = "{operator} emitted an update at {time}, inside the running slice, which ends at {upper}"
    operator: str
    time: int
    upper: int


class NotEmpty(CallerError):
    """A collection has rows although the program asserts that it is empty."""

    message = "assert_empty at {where}: there are {name}, for example {sample}"
    name: str
    where: str
    sample: str


class NeedsHistory(CallerError):
    """A plan cannot take over a state, because a new part of it depends on data that no trace keeps any longer."""

    message = (
        "the state cannot be carried over to this program: {what} depends on data that is gone: {why}; start with an "
        "empty state, which reads the sources from their beginning"
    )
    what: str
    why: str


class VisitLeft(InvariantError):
    """An operator still had pending work after its slice: an invariant of the loops is broken."""

    message = "{operator} still has work pending at rounds {rounds} after its slice"
    operator: str
    rounds: str


class RoundRepeated(InvariantError):
    """A loop was about to run a round that it has already passed: an invariant of the loops is broken."""

    message = "loop {loop} was about to run round {round} again; rounds of one run strictly increase"
    loop: str
    round: str


class TraceNamedTwice(InvariantError):
    """Two operators of a plan would keep their state under the same name."""

    message = "two operators would share the trace {trace}, the second is {operator}"
    trace: str
    operator: str
