"""What a schema says about a column besides its type: the value that older rows have in it, and its earlier names."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from vernier.operators.errors import WrongType


class _Absent:
    def __repr__(self) -> str:
        return "…"


ABSENT: Final[Any] = _Absent()
"""Stands for a default that was not given."""
_LONGEST = 15
_VALUES = (bool, int, float, str, decimal.Decimal, datetime.date)


@dataclass(frozen=True)
class Option:
    """The options of a column. default: the value of rows that do not have it, ABSENT for none; was: its earlier
    names, the newest first."""

    default: Any = ABSENT
    was: tuple[str, ...] = ()

    @property
    def plain(self) -> Any:
        """The default as messages in JSON have it."""
        value = self.default
        if isinstance(value, datetime.datetime):
            return value.isoformat() if value.tzinfo else f"{value.isoformat()}Z"
        if isinstance(value, datetime.date):
            return value.isoformat()
        return str(value) if isinstance(value, decimal.Decimal) else value

    def to_json(self) -> dict[str, Any]:
        """The options as JSON."""
        said: dict[str, Any] = {} if self.default is ABSENT else {"default": self.plain}
        return said | ({"was": list(self.was)} if self.was else {})


def column(*, default: Any = ABSENT, was: str | Sequence[str] = ()) -> Any:
    """How a column of a source relates to messages and rows that were there before it:

        class Use(vn.Schema):
            account: vn.Int64 = vn.column(was="acct")
            kind: vn.Int64 = vn.column(default=0)

    default: what messages and rows without the column have in it; a column with `| None` has null there and takes no
    default. Text may have up to 15 bytes. was: the name, or names, that the column had earlier; messages may still use
    them. Raises WrongType.
    """
    if default is not ABSENT:
        if not isinstance(default, _VALUES):
            raise WrongType(
                problem=f"{default!r} cannot be a column's default; give a number, a text, a Bool, a date or a time, "
                "or make the column nullable"
            )
        if isinstance(default, str) and len(default.encode()) > _LONGEST:
            raise WrongType(problem=f"the default {default!r} has more than {_LONGEST} bytes; give a shorter text")
    names = (was,) if isinstance(was, str) else tuple(was)
    if default is ABSENT and not names:
        raise WrongType(problem="vn.column() says nothing; give it default= or was=, or leave it out")
    if not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise WrongType(problem=f"was= takes the earlier name of the column, not {was!r}")
    return Option(default, names)
