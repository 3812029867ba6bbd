"""Names that programs give to collections with `.named(...)`, for people: plans, errors, metrics, the console.

They are kept beside the nodes, not in them, so that equal structure is one operator whatever its name.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from vernier.operators.language.plan.node import Node

_names: WeakKeyDictionary[Node, str] = WeakKeyDictionary()


def give_name(node: Node, name: str) -> None:
    """Give a collection this name; the newest name counts."""
    _names[node] = name


def name_of(node: Node) -> str | None:
    """The name that the program gave a collection, or None."""
    return _names.get(node)
