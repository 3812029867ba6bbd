"""Which app a collection belongs to: the one that declared the sources it comes from.

Views name their app; a check or a probe on a collection does not, and is found through this.
"""

from __future__ import annotations

from typing import Protocol
from weakref import WeakKeyDictionary, ref

from vernier.operators.errors import ProgramError
from vernier.operators.language.plan.logical import Node, Source, walk


class Owner(Protocol):
    """What an app takes besides views: collections that must be computed though no view needs them."""

    def require(self, node: Node) -> None:
        """Compute this collection, too."""


_owners: WeakKeyDictionary[Source, ref[Owner]] = WeakKeyDictionary()


def own(source: Source, owner: Owner) -> None:
    """Say which app has declared a source."""
    _owners[source] = ref(owner)


def owner_of(node: Node, what: str) -> Owner:
    """The app that the collection's sources are of; raises ProgramError, naming the method `what`, without any."""
    for below in walk([node]):
        held = _owners.get(below) if isinstance(below, Source) else None
        owner = None if held is None else held()
        if owner is not None:
            return owner
    raise ProgramError(problem=f"{what} needs a collection that comes of an app's sources")
