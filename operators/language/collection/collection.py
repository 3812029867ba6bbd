"""Collections: what a program composes. Each method checks its arguments and returns a new collection.

A collection is a multiset of rows that changes over time. Methods have the names of Spark's DataFrame methods, in
snake_case. They build nodes of the logical plan (operators/language/plan) and compute nothing. Each family
of methods is a module of functions beside this file, and `Collection` lists them all.
"""

from vernier.operators.language.collection import (
    grouping,
    joins,
    linear,
    lookup,
    ordering,
    prefix,
    structure,
    temporal,
    timejoins,
    windows,
)
from vernier.operators.language.collection.rows import Rows, check_collection
from vernier.operators.language.expr.arguments import checked_methods


@checked_methods
class Collection(Rows):
    """A multiset of rows that changes over time. Collections come from App.source and from methods of other
    collections."""

    arrange_by = structure.arrange_by
    named = structure.named
    consolidate = structure.consolidate
    inspect = structure.inspect
    assert_empty = structure.assert_empty
    probe = structure.probe
    iterate = structure.iterate
    rounds = structure.rounds

    valid_between = temporal.valid_between
    coarsen = temporal.coarsen
    delay = temporal.delay

    select = linear.select
    with_columns = linear.with_columns
    rename = linear.rename
    drop = linear.drop
    cast = linear.cast
    filter = linear.filter
    flat_map = linear.flat_map
    explode = linear.explode
    join_function = linear.join_function
    map_diff = linear.map_diff
    union = linear.union
    negate = linear.negate

    distinct = grouping.distinct
    threshold = grouping.threshold
    group_by = grouping.group_by
    reduce = grouping.reduce

    join = joins.join
    except_all = joins.except_all
    intersect = joins.intersect
    lookup = lookup.lookup

    top_k = ordering.top_k
    rank = ordering.rank
    dense_rank = ordering.dense_rank
    row_number = ordering.row_number
    lag = ordering.lag
    lead = ordering.lead
    running_sum = ordering.running_sum
    running_min = ordering.running_min
    running_max = ordering.running_max

    window = windows.window

    as_of_join = timejoins.as_of_join
    interval_join = timejoins.interval_join

    prefix_sum = prefix.prefix_sum


def union(first: Collection, *others: Collection) -> Collection:
    """All rows of all collections; multiplicities add up. Columns are matched by name; their types must be equal."""
    check_collection(first, "union")
    return first.union(*others)
