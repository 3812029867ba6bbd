"""What a place that views are written to has to do: the one interface of Kafka, Parquet, Delta, SQL and webhook sinks.

A target is asked for its positions, and given the steps that follow them. Its invariant: a position is durable if and
only if everything before it is, as readers of the target see it. How it keeps that is its own affair: one transaction
(Kafka, SQL, Delta), a log entry that names the files (Parquet), or messages that are the same again (webhook).
`positions` also ends whatever an earlier process left half done, and fences that process, so exactly one writer goes
on. A new kind of target is a file here, its line in targets.py, and its name in the settings (CONTRIBUTING.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from vernier.service.sinks.history import Step
from vernier.service.sinks.outgoing import NotOneRow
from vernier.service.sinks.position import Position
from vernier.storage.errors import CallerError, StorageError

Steps = Sequence[Step]


class TargetFailed(StorageError):
    """A target cannot be written to now. The publisher tries again."""

    message = "{place}: {problem}"
    place: str
    problem: str


class TargetTaken(CallerError):
    """Another publisher writes to the same target."""

    message = "another publisher has taken over {place}; end that service, or give this sink another place"
    place: str


class CannotContinue(CallerError):
    """The changes that follow a target's position are no longer kept."""

    message = (
        "the changes of view {view} from {frontier} on are no longer kept, or the view was redefined, and {place} "
        "cannot replace what it has; give the sink another place, which begins with the view's rows"
    )
    view: str
    frontier: int
    place: str


class Target(Protocol):
    """A place for the changes of one or several sinks, by the sinks' names. For one thread.

    problems: the sinks that cannot be written until something is corrected, with the reason.
    """

    problems: dict[str, str]

    def positions(self) -> Mapping[str, Position]:
        """The durable positions. The first call, and the first after a failure, takes the target over: it fences other
        writers and ends what they left half done. Raises the target's own errors.
        """
        ...

    def write(self, steps: Mapping[str, Steps]) -> int:
        """Make the steps and the positions after them durable; returns the number of messages, files or statements'
        rows. After an error nothing is known until `positions` is called. Raises TargetTaken and the target's own
        errors.
        """
        ...

    def close(self) -> None:
        """Close connections. What was being written is ended or undone by the next `positions`."""
        ...


class Destination(Protocol):
    """A target of one sink, which `Alone` makes a Target of."""

    def position(self) -> Position | None: ...
    def write(self, steps: Steps) -> Position: ...
    def close(self) -> None: ...


class Alone:
    """A target that is the place of one sink."""

    def __init__(self, name: str, place: Destination) -> None:
        self.problems: dict[str, str] = {}
        self._name, self._place = name, place
        self._open = False
        self._position: Position | None = None

    def positions(self) -> Mapping[str, Position]:
        """The place's position, read at the first call and after failures."""
        if not self._open:
            self._position = self._place.position()
            self._open = True
        return {} if self._position is None else {self._name: self._position}

    def write(self, steps: Mapping[str, Steps]) -> int:
        """Write the sink's steps. A place that cannot hold them, or that another publisher has taken over, is a problem
        of this sink alone.
        """
        before = 0 if self._position is None else sum(self._position.messages.values())
        try:
            self._position = self._place.write(steps[self._name])
        except (CannotContinue, NotOneRow, TargetTaken) as error:
            self.problems[self._name] = str(error)
            return 0
        except BaseException:
            self.close()
            raise
        return sum(self._position.messages.values()) - before

    def close(self) -> None:
        """Close the place; the next `positions` opens it again."""
        self._open = False
        self._place.close()
