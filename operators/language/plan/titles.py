"""Names that programs give to collections with `.named(...)`, for people: plans, errors, metrics, the console.

They are kept beside the nodes, not in them: equal structure is one operator whatever it is called.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from vernier.operators.language.plan.logical import Node

_names: WeakKeyDictionary[Node, str] = WeakKeyDictionary()


def give_name(node: Node, name: str) -> None:
    """Call a collection so; the newest name counts."""
    _names[node] = name


def name_of(node: Node) -> str | None:
    """What the program calls a collection, if anything."""
    return _names.get(node)
