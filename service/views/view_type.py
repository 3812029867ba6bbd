"""The type of a view's rows as a manifest describes it, with a fingerprint that says whose rows continue whose."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import xxhash

from vernier.operators.language.types.schema import RowType
from vernier.service.views.view import View
from vernier.storage.state.manifest import ViewEntry


@dataclass(frozen=True, slots=True, eq=False)
class ViewType:
    """The type of a view's rows.

    schema: columns in the program's order; stored: columns in the order of the words, key columns first. meaning: a
    fingerprint that changes with the view's definition and when the view is rebuilt from nothing. Rows continue earlier
    ones only if both have the same meaning.
    """

    name: str
    schema: RowType
    key: tuple[str, ...]
    stored: RowType
    meaning: str

    @staticmethod
    def of(name: str, entry: ViewEntry) -> ViewType:
        """The type of a view in a manifest."""
        schema = RowType.from_json(entry.schema)
        said = [entry.trace, entry.schema, entry.key, *([entry.began] if entry.began else [])]
        meaning = xxhash.xxh3_64_hexdigest(msgspec.json.encode(said))
        return ViewType(name, schema, tuple(entry.key), View.stored_type(schema, entry.key), meaning)
