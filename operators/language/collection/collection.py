"""Collections: what a program composes. Each method checks its arguments and returns a new collection.

A collection is a multiset of rows that changes over time. Methods have the names of Spark's DataFrame methods, in
snake_case. They build nodes of the logical plan (operators/language/plan/logical.py) and compute nothing. Each family
of methods has its own file: linear.py, grouping.py, joins.py, ordering.py, windows.py, timejoins.py, prefix.py.
"""

from vernier.operators.language.collection.lookup import Lookups
from vernier.operators.language.collection.prefix import Prefixes
from vernier.operators.language.collection.rows import check_collection
from vernier.operators.language.collection.structure import Structure


class Collection(Prefixes, Lookups, Structure):
    """A multiset of rows that changes over time. Collections come from App.source and from methods of other
    collections."""


def union(first: Collection, *others: Collection) -> Collection:
    """All rows of all collections; multiplicities add up. Columns are matched by name; their types must be equal."""
    check_collection(first, "union")
    return first.union(*others)
