"""The row types that a source had before its columns changed, as manifests and jobs carry them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vernier.operators.language.types.schema import RowType
from vernier.storage.state.manifest import Manifest

Columns = Sequence[Sequence[str]]
"""A row type as JSON: [[name, type], …]."""
MOST = 16
"""Row types that are remembered: messages that were written for older ones are refused."""


def former_columns(newest: Manifest | None, sources: Mapping[str, RowType]) -> dict[str, list[Columns]]:
    """For each source that had other columns in the commit or before it, those, the newest last."""
    found: dict[str, list[Columns]] = {}
    for name, row in sources.items():
        entry = None if newest is None else newest.sources.get(name)
        if entry is None:
            continue
        known: list[Columns] = [*entry.earlier, *([entry.columns] if entry.columns else [])]
        differing = [one for one in known if one != row.to_json()]
        if differing:
            found[name] = differing[-MOST:]
    return found


def with_former(sources: Mapping[str, RowType], former: Mapping[str, Sequence[Columns]]) -> dict[str, RowType]:
    """The row types of sources, with those that they had before."""
    return {
        name: row.after([RowType.from_json(one) for one in former[name]]) if name in former else row
        for name, row in sources.items()
    }
