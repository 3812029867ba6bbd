"""A change of programs under way, written by the driver and read by the sidecar. The file only informs."""

from __future__ import annotations

import msgspec

from vernier.service.status.status_file import StatusFile
from vernier.storage.blob.blob import Blob


class ProgramChange(msgspec.Struct, frozen=True, kw_only=True):
    """Other programs that the service is about to run. views: those that are new or mean something else. rows, taken:
    the rows to read for what is new, and those read so far. since_ns: when it began."""

    programs: list[str]
    views: list[str]
    rows: int = 0
    taken: int = 0
    since_ns: int = 0

    def describe(self) -> str:
        """A one-line description for people."""
        if not self.rows:
            return f"the programs change with one of the next epochs ({', '.join(self.views) or 'no new views'})"
        share = min(100, 100 * self.taken // self.rows)
        names = ", ".join(self.views) or "arrangements"
        return f"filling {names}: {self.taken:,} of {self.rows:,} rows ({share} %)"


FILE = StatusFile("change.json", ProgramChange)


def described(state: Blob) -> str | None:
    """The change under way, in a line; None if there is none."""
    found = FILE.read(state)
    return None if found is None else found.describe()
