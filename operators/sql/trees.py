"""Catalyst's plans as data: trees of nodes and expressions, read from the JSON in which Spark writes them.

Spark writes a tree as the list of its nodes in preorder, each with its class, its number of children and its fields. A
field that is an expression, or a list of them, holds such lists in turn.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True, eq=False)
class Tree:
    """A node of a plan or of an expression. kind: its class without the package."""

    kind: str
    fields: dict[str, Any]
    children: tuple[Tree, ...]

    @property
    def one(self) -> Tree:
        """The only child."""
        (child,) = self.children
        return child

    def tree(self, name: str) -> Tree:
        """The expression in a field."""
        return tree_of(self.fields[name])

    def trees(self, name: str) -> tuple[Tree, ...]:
        """The expressions in a field that has a list of them."""
        return tuple(tree_of(one) for one in self.fields[name])

    @cached_property
    def id(self) -> int:
        """The number by which other expressions refer to this one (of attributes, aliases and the like)."""
        return int(self.fields["exprId"]["id"])

    @cached_property
    def name(self) -> str:
        """The name of an attribute or alias."""
        return str(self.fields["name"])

    @cached_property
    def form(self) -> str:
        """A text that is equal for equal expressions."""
        if self.kind == "AttributeReference":
            return f"#{self.id}"
        if self.kind == "AggregateExpression":
            skipped: tuple[str, ...] = ("resultId",)
        else:
            skipped = ("qualifier", "origin")
        own = {name: value for name, value in self.fields.items() if name not in skipped}
        return json.dumps([self.kind, own, *(child.form for child in self.children)], sort_keys=True)

    def walk(self) -> Iterator[Tree]:
        """This node and all below it, without those in fields."""
        yield self
        for child in self.children:
            yield from child.walk()

    def unknown(self, known: Container[str]) -> Iterator[Tree]:
        """The nodes that walk() gives, without those that have known forms and without what is below these."""
        if not known or self.form not in known:
            yield self
            for child in self.children:
                yield from child.unknown(known)


def tree_of(nodes: Sequence[dict[str, Any]]) -> Tree:
    """The tree of a list of nodes in preorder."""
    waiting = iter(nodes)

    def read() -> Tree:
        node = next(waiting)
        fields = {name: value for name, value in node.items() if name not in ("class", "num-children")}
        children = tuple(read() for _ in range(node["num-children"]))
        return Tree(str(node["class"]).rstrip("$").rsplit(".", 1)[-1].rsplit("$", 1)[-1], fields, children)

    return read()


def with_calls(plan: Any) -> Any:
    """A plan whose calls of Python functions, which is how plans have data_time(), are in the expressions.

    Spark optimizes subqueries by itself, and gives calls in them a node of their own and their results a name."""
    calls: dict[int, list[dict[str, Any]]] = {}
    for node in nodes_in(plan):
        if _is_batch(node):
            for names, call in zip(node["resultAttrs"], node["udfs"], strict=True):
                calls[int(names[0]["exprId"]["id"])] = call
    return _inlined(plan, calls) if calls else plan


def nodes_in(plan: Any) -> Iterator[dict[str, Any]]:
    """All nodes of a plan in JSON, also those in fields."""
    if isinstance(plan, list):
        for one in plan:
            yield from nodes_in(one)
    elif isinstance(plan, dict):
        if "class" in plan:
            yield plan
        for one in plan.values():
            yield from nodes_in(one)


def _is_batch(node: dict[str, Any]) -> bool:
    return str(node.get("class", "")).endswith(".BatchEvalPython")


def _inlined(plan: Any, calls: dict[int, list[dict[str, Any]]]) -> Any:
    if isinstance(plan, dict):
        return {name: _inlined(value, calls) for name, value in plan.items()}
    if not isinstance(plan, list):
        return plan
    # Nodes are in preorder, so a node that has one child goes by leaving it out, and a leaf may become a tree.
    found: list[Any] = []
    for one in plan:
        node = one if isinstance(one, dict) else {}
        if _is_batch(node):
            continue
        at = int(node["exprId"]["id"]) if str(node.get("class", "")).endswith(".AttributeReference") else None
        found += calls[at] if at in calls else [_inlined(one, calls)]
    return found


def is_row_number(tree: Tree) -> bool:
    """Whether an expression is row_number() over a window."""
    return tree.kind == "WindowExpression" and tree.children[0].kind == "RowNumber"


def compact(plan: Any) -> Any:
    """A plan without what nothing reads: Java's ids, positions and empty fields. It is what a cache keeps."""
    if isinstance(plan, list):
        return [compact(one) for one in plan]
    if isinstance(plan, dict):
        return {name: compact(value) for name, value in plan.items() if name not in _UNREAD and value is not None}
    return plan


_UNREAD = frozenset({"jvmId", "rdd", "session", "stream", "originStats", "originConstraints", "qualifier", "metadata"})
