"""The errors of update files, and the choice of the source that an update is for."""

from collections.abc import Mapping

from vernier.operators.errors import listed, meant
from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.rejects import Refusal, shown
from vernier.storage.errors import CallerError

COLUMNS = ("input", "data", "time", "diff")
"""The members of an update."""

Sources = Mapping[str, RowType]


class BadUpdate(CallerError):
    """A line or row of an update file is not an update of the program."""

    message = "{file}, {unit} {number}: {problem}"
    file: str
    unit: str
    number: int
    problem: str


class BadUpdateFile(CallerError):
    """A file cannot be read as an update file."""

    message = "{file}: {problem}"
    file: str
    problem: str


def source_of(given: object, sources: Sources) -> str:
    """The source that an update names. Raises Refusal."""
    if given is None and len(sources) == 1:
        return next(iter(sources))
    if given is None:
        raise Refusal("unknown_source", f"the update names no input (the program's inputs are {listed(sources)})")
    if not isinstance(given, str):
        raise Refusal("decode", f"input is {shown(given)}, but it should be the name of a source")
    if given not in sources:
        hint = meant(given, sources)
        raise Refusal(
            "unknown_source", f"unknown input {shown(given)}{hint} (the program's inputs are {listed(sources)})"
        )
    return given
