"""Finds the app to which a collection belongs: the one that declared the sources from which it is computed.

Views are declared on their app. Checks and probes are declared on a collection, so their app is found here.
"""

from __future__ import annotations

from typing import Protocol
from weakref import WeakKeyDictionary, ref

from vernier.operators.errors import ProgramError
from vernier.operators.language.plan.logical import SourceNode, sources_below
from vernier.operators.language.plan.node import Node


class Owner(Protocol):
    """The app as this module sees it: it accepts collections that must be computed although no view needs them."""

    def require(self, node: Node) -> None:
        """Compute this collection as well."""


_owners: WeakKeyDictionary[SourceNode, ref[Owner]] = WeakKeyDictionary()


def own(source: SourceNode, owner: Owner) -> None:
    """Record which app has declared a source."""
    _owners[source] = ref(owner)


def owner_of(node: Node, what: str) -> Owner:
    """The app of the collection's sources. Raises ProgramError, naming the method `what`, if there is none."""
    for source in sources_below(node):
        held = _owners.get(source)
        owner = None if held is None else held()
        if owner is not None:
            return owner
    raise ProgramError(problem=f"{what} needs a collection that is computed from an app's sources")
