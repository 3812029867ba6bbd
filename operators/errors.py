"""Errors of a user's program: raised while the program is built, naming the user's line, or while its expressions
run."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Self

from vernier.operators.location import NOWHERE, Location, here
from vernier.storage.errors import CallerError


class ProgramError(CallerError):
    """A program cannot be built. `problem` says what was found and what was expected, `where` is the user's line."""

    problem: str
    where: Location = NOWHERE

    def __post_init__(self) -> None:
        if self.where is NOWHERE:
            self.where = here()
        super().__post_init__()

    def describe(self) -> str:
        if self.where is NOWHERE:
            return self.problem
        source = f" [{self.where.text}]" if self.where.text else ""
        return f"{self.where}: {self.problem}{source}"


class UnknownColumn(ProgramError):
    """A column that the collection does not have."""

    @classmethod
    def of(cls, name: str, columns: Sequence[str], what: str = "the collection") -> Self:
        """The error for `name`, with the nearest of `columns`."""
        return cls(problem=f"no column {name!r} in {what}{meant(name, columns)} (it has {listed(columns)})")


class UnknownName(ProgramError, AttributeError):
    """A method or function that does not exist. Also an AttributeError, so that hasattr and copy keep working."""


class WrongType(ProgramError):
    """Types that do not fit together, or an argument of the wrong kind."""


class WrongArguments(ProgramError, TypeError):
    """A call with arguments that the method does not take. Also a TypeError, as Python's own error is."""


class NameClash(ProgramError):
    """Two columns, sources or views would have the same name."""


class BadLoop(ProgramError):
    """A fixpoint whose parameters, variables or returned value do not fit a loop."""


class ArithmeticOverflow(CallerError):
    """An integer result does not fit 64 bits. Results never wrap around."""

    message = "integer overflow in {expression}: {sample} does not fit 64 bits; cast to Float64 or filter such rows out"
    expression: str
    sample: str


class DecimalOverflow(CallerError):
    """A decimal result has more digits than its type. Results are never truncated or replaced by null."""

    message = "decimal overflow in {expression}: {sample} does not fit {type}; cast to a wider type first"
    expression: str
    sample: str
    type: str


class BadValue(CallerError):
    """Values that do not fit the type of their column."""

    message = "column {column}: {problem}"
    column: str
    problem: str


def meant(name: str, known: Iterable[str]) -> str:
    """The hint "; did you mean 'x'?" for the known name nearest to `name`, or ""."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    if not near:
        lowered = {candidate.lower().replace("_", ""): candidate for candidate in known}
        near = [lowered[key] for key in [name.lower().replace("_", "")] if key in lowered]
    return f"; did you mean {near[0]!r}?" if near else ""


def listed(names: Iterable[str]) -> str:
    """Names in the form that messages show: "a, b, c"."""
    return ", ".join(names)
