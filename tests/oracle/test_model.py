"""The oracle against answers found by hand and by networkx."""

from __future__ import annotations

import random

import networkx as nx
import pytest

from tests.oracle import programs
from tests.oracle.model import Change, Collection, NotSettled, accumulate, changes, consolidate, evaluate
from tests.oracle.plan import (
    Aggregate,
    Distinct,
    Filter,
    Group,
    Join,
    Negate,
    Node,
    Project,
    Row,
    Source,
    Union,
    columns,
    fixpoint,
    item,
    without,
)

A, B = Source("a"), Source("b")


def test_project_adds_up_rows_that_become_equal() -> None:
    assert evaluate(Project(A, columns(0)), {"a": {(1, 2): 2, (1, 3): -2, (4, 4): 3}}) == {(4,): 3}


def test_filter_and_negate_keep_multiplicities() -> None:
    assert evaluate(Negate(Filter(A, lambda row: row[0] > 1)), {"a": {(1,): 5, (2,): 3, (3,): -1}}) == {
        (2,): -3,
        (3,): 1,
    }


def test_union_adds_multiplicities_and_drops_zeros() -> None:
    assert evaluate(Union((A, B, B)), {"a": {(1,): 2, (2,): 1}, "b": {(1,): -1}}) == {(2,): 1}


def test_distinct_sees_only_present_rows() -> None:
    assert evaluate(Distinct(A), {"a": {(1,): 7, (2,): -7}}) == {(1,): 1}


def test_join_multiplies_and_nulls_match_nothing() -> None:
    pairs = Join(A, B, columns(0), columns(0), lambda one, two: (one[0], one[1], two[1]))
    left, right = {(1, 5): 2, (2, 5): 3, (None, 5): 1}, {(1, 6): -3, (1, 7): 1, (3, 6): 1, (None, 6): 1}
    assert evaluate(pairs, {"a": left, "b": right}) == {(1, 5, 6): -6, (1, 5, 7): 2}


def test_a_group_of_counts_and_sums_exists_while_its_vector_is_not_zero() -> None:
    value = item(1)
    both = Group(A, columns(0), (Aggregate("count"), Aggregate("sum", value)))
    cancelled = {(1, 4): 1, (1, 2): -2, (1, 0): 1}
    assert evaluate(both, {"a": cancelled}) == {}
    assert evaluate(both, {"a": {(1, 0): 1}}) == {(1, 1, 0): 1}
    assert evaluate(both, {"a": {(1, 4): 1, (1, 3): -1}}) == {(1, 0, 1): 1}
    beside = Group(A, columns(0), (Aggregate("count"), Aggregate("max", value, True)))
    assert evaluate(beside, {"a": cancelled}) == {(1, 0, 4): 1}


def test_a_sum_in_a_vector_is_null_while_the_number_and_the_sum_of_its_values_are_zero() -> None:
    both = Group(A, columns(0), (Aggregate("count"), Aggregate("sum", item(1), True)))
    assert evaluate(both, {"a": {(1, None): 1}}) == {(1, 1, None): 1}
    assert evaluate(both, {"a": {(1, None): 1, (1, 0): 2, (1, 3): -2}}) == {(1, 1, -6): 1}
    assert evaluate(both, {"a": {(1, None): 1, (1, 0): 1}}) == {(1, 2, 0): 1}
    assert evaluate(both, {"a": {(1, 4): -3}}) == {(1, -3, -12): 1}
    assert evaluate(both, {"a": {}}) == {}


def test_min_and_max_see_only_present_rows() -> None:
    def ends(nullable: bool) -> Node:
        return Group(A, columns(0), tuple(Aggregate(kind, item(1), nullable) for kind in ("min", "max")))

    assert evaluate(ends(False), {"a": {(1, 4): 1, (1, 2): -1, (1, 5): 2, (1, 9): -1}}) == {(1, 4, 5): 1}
    assert evaluate(ends(True), {"a": {(1, 4): -1}}) == {(1, None, None): 1}
    assert evaluate(ends(False), {"a": {(1, 4): -1}}) == {}


def test_nulls_are_not_counted_summed_or_compared() -> None:
    every = (Aggregate("count"), *(Aggregate(kind, item(1), nullable=True) for kind in ("count", "sum", "min")))
    assert evaluate(Group(A, columns(0), every), {"a": {(1, None): 2, (1, 3): 1}}) == {(1, 3, 1, 3, 3): 1}
    assert evaluate(Group(A, columns(0), every), {"a": {(1, None): 2}}) == {(1, 2, 0, None, None): 1}


def test_without_removes_whole_rows() -> None:
    assert evaluate(without(A, B), {"a": {(1,): 2, (2,): 1}, "b": {(1,): 3, (2,): -1}}) == {(2,): 1}


def test_changes_at_every_input_time() -> None:
    updates = {"a": [((1,), 5, 1), ((1,), 5, 1), ((1,), 9, -2), ((2,), 9, 1), ((2,), 9, -1), ((3,), 7, -1)]}
    assert changes(Distinct(A), updates) == [((1,), 5, 1), ((1,), 9, -1)]
    assert consolidate(updates["a"]) == [((1,), 5, 2), ((3,), 7, -1), ((1,), 9, -2)]


def test_distances_of_the_worked_table() -> None:
    """The graph of "High resolution, high throughput": (0,3) at 0, (0,2) at 5, (2,3) at 10, (0,3) away at 11.
    The root is at distance 0 since it came."""
    edges = [((0, 3), 0, 1), ((0, 2), 5, 1), ((2, 3), 10, 1), ((0, 3), 11, -1)]
    found = changes(programs.distances(), {"roots": [((0,), 0, 1)], "edges": edges})
    assert found == [((0,), 0, 1), ((1,), 0, 1), ((1,), 5, 1), ((1,), 11, -1), ((2,), 11, 1)]


def test_a_loop_starts_from_its_initial_value_at_every_time() -> None:
    """What is kept goes round the cycle 1 2; from the previous answer it would stay when the root goes."""
    (kept,) = fixpoint(
        (A,), lambda x: (Distinct(Union((x, Join(x, B, columns(0), columns(0), lambda _, e: (e[1],))))),)
    )
    updates: dict[str, list[Change]] = {"a": [((1,), 0, 1), ((1,), 4, -1)], "b": [((1, 2), 0, 1), ((2, 1), 0, 1)]}
    assert changes(kept, updates) == [((1,), 0, 1), ((2,), 0, 1), ((1,), 4, -1), ((2,), 4, -1)]


def test_the_initial_value_is_not_added_to_later_rounds() -> None:
    (empty,) = fixpoint((A,), lambda x: (Filter(x, lambda _: False),))
    assert evaluate(empty, {"a": {(1,): 1}}) == {}


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_rounds_are_counted_from_the_initial_value(rounds: int) -> None:
    path = {(node, node + 1): 1 for node in range(10)}
    assert evaluate(programs.walks(rounds), {"roots": {(0,): 1}, "edges": path}) == {(rounds,): 1}


def test_a_loop_that_does_not_settle_is_an_error() -> None:
    (turning,) = fixpoint((A,), lambda x: (without(B, x),), max_rounds=6)
    with pytest.raises(NotSettled, match="round 6"):
        evaluate(turning, {"a": {(1,): 1}, "b": {(1,): 1}})
    (settles,) = fixpoint((A,), lambda x: (Distinct(Union((x, B))),), max_rounds=2)
    assert evaluate(settles, {"b": {(1,): 1}}) == {(1,): 1}
    (not_yet_known,) = fixpoint((A,), lambda x: (Distinct(Union((x, B))),), max_rounds=1)
    with pytest.raises(NotSettled):
        evaluate(not_yet_known, {"b": {(1,): 1}})


def test_variables_step_together() -> None:
    first, second = fixpoint((A, B), lambda x, y: (y, x), max_rounds=3, truncate=True)
    values: dict[str, Collection] = {"a": {(1,): 1}, "b": {(2,): 1}}
    assert (evaluate(first, values), evaluate(second, values)) == ({(2,): 1}, {(1,): 1})


def test_an_inner_loop_starts_afresh_at_every_outer_round() -> None:
    """Inside, nodes are collected from one start; outside, the start walks on. Carrying them over would keep 0."""

    def walk(start: Node) -> tuple[Node]:
        inside = programs.reach(start, B)
        return (Filter(programs.step(inside, B), lambda row: row[0] <= 2),)

    (found,) = fixpoint((A,), walk, max_rounds=2, truncate=True)
    path = {(node, node + 1): 1 for node in range(4)}
    assert evaluate(found, {"a": {(0,): 1}, "b": path}) == {(2,): 1}


def random_graph(seed: int, nodes: int = 7) -> tuple[Collection, Collection, nx.DiGraph]:
    """Some roots, some edges (loops too, some twice) and the same graph for networkx."""
    choose = random.Random(seed)
    edges: dict[Row, int] = {}
    for _ in range(choose.randrange(3 * nodes)):
        edges[choose.randrange(nodes), choose.randrange(nodes)] = choose.choice((1, 1, 2))
    roots: dict[Row, int] = {(choose.randrange(nodes),): 1 for _ in range(choose.randrange(1, 3))}
    graph = nx.DiGraph(list(edges))
    graph.add_nodes_from(root for (root,) in roots)
    return roots, edges, graph


@pytest.mark.parametrize("seed", range(60))
def test_known_programs_against_networkx(seed: int) -> None:
    roots, edges, graph = random_graph(seed)
    sources = {"roots": roots, "edges": edges}
    lengths = nx.multi_source_dijkstra_path_length(graph, {root for (root,) in roots}, weight=None)
    assert evaluate(programs.reach(), sources) == {(node,): 1 for node in lengths}
    assert evaluate(programs.bfs(), sources) == dict.fromkeys(lengths.items(), 1)
    assert evaluate(programs.histogram(), sources) == {
        (length, list(lengths.values()).count(length)): 1 for length in lengths.values()
    }
    ends = {node for edge in edges for node in edge}
    component = {node: min(part) for part in nx.strongly_connected_components(graph) for node in part}
    assert evaluate(programs.components(), sources) == {(node, component[node]): 1 for node in ends}
    assert evaluate(programs.strong_edges(), sources) == {
        (one, two): 1 for one, two in edges if component[one] == component[two]
    }
    cycling = {
        node
        for part in nx.strongly_connected_components(graph)
        for node in part
        if nx.is_directed_acyclic_graph(graph.subgraph(part)) is False
    }
    fed = {node for start in cycling for node in nx.descendants(graph, start) | {start}}
    assert evaluate(programs.fed_by_cycles(), sources) == {(node,): 1 for node in fed}
    walks = accumulate(((root,), count) for (root,), count in roots.items())
    for _ in range(3):
        walks = accumulate(
            ((two,), count * edges[one, two]) for (node,), count in walks.items() for one, two in edges if one == node
        )
    assert evaluate(programs.walks(3), sources) == walks


@pytest.mark.parametrize("seed", range(60))
def test_games_and_parities_against_networkx(seed: int) -> None:
    roots, edges, graph = random_graph(seed)
    sources = {"roots": roots, "edges": edges}
    doubled = nx.DiGraph([((one, parity), (two, 1 - parity)) for one, two in edges for parity in (0, 1)])
    doubled.add_nodes_from((root, 0) for (root,) in roots)
    lengths = nx.multi_source_dijkstra_path_length(doubled, {(root, 0) for (root,) in roots}, weight=None)
    even, odd = programs.even_odd()
    assert evaluate(even, sources) == {(node,): 1 for node, parity in lengths if parity == 0}
    assert evaluate(odd, sources) == {(node,): 1 for node, parity in lengths if parity == 1}
    won: set[int] = set()
    for node in sorted(graph, reverse=True):
        if any(two > node and two not in won for two in graph.successors(node)):
            won.add(node)
    assert evaluate(programs.winning(), sources) == {(node,): 1 for node in won}


@pytest.mark.parametrize("seed", range(60))
def test_cores_against_networkx(seed: int) -> None:
    roots, edges, graph = random_graph(seed)
    sources = {"roots": roots, "edges": edges}
    left = {node for edge in edges for node in edge}
    while True:
        inside = graph.subgraph(left)
        starts = {root for (root,) in roots} & left
        reached = nx.multi_source_dijkstra_path_length(inside, starts, weight=None) if starts else {}
        among = inside.subgraph(reached)
        kept = {node for node in among if among.degree(node) >= 2}
        if kept == left:
            break
        left = kept
    assert evaluate(programs.core(2), sources) == {(node,): 1 for node in left}
    shrinking = nx.DiGraph(list(edges))
    while True:
        part = {node: index for index, one in enumerate(nx.strongly_connected_components(shrinking)) for node in one}
        strong = nx.DiGraph([edge for edge in shrinking.edges if part[edge[0]] == part[edge[1]]])
        after = nx.DiGraph([edge for edge in strong.edges if strong.in_degree(edge[1]) >= 2])
        if set(after.edges) == set(shrinking.edges):
            break
        shrinking = after
    assert evaluate(programs.strong_core(), sources) == dict.fromkeys(shrinking.edges, 1)
