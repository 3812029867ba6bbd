"""Known programs in the oracle's plan language. Inputs: `edges` (src, dst) and `roots` (node).

The same programs in the product's own language are in tests/properties/programs.py.
"""

from __future__ import annotations

from tests.oracle.plan import (
    Aggregate,
    Distinct,
    Filter,
    Group,
    Join,
    Negate,
    Node,
    Project,
    Source,
    Union,
    columns,
    fixpoint,
    without,
)

EDGES = Source("edges")
ROOTS = Source("roots")


def flipped(edges: Node) -> Node:
    """Every edge the other way round."""
    return Project(edges, columns(1, 0))


def nodes_of(edges: Node) -> Node:
    """Each end of an edge, once."""
    return Distinct(Union((Project(edges, columns(0)), Project(edges, columns(1)))))


def step(nodes: Node, edges: Node) -> Node:
    """Where the edges lead from these nodes, as often as there are ways."""
    return Join(nodes, edges, columns(0), columns(0), lambda _, edge: (edge[1],))


def induced(edges: Node, nodes: Node) -> Node:
    """The edges with both ends among these nodes."""
    from_them = Join(edges, nodes, columns(0), columns(0), lambda edge, _: edge)
    return Join(from_them, nodes, columns(1), columns(0), lambda edge, _: edge)


def reach(roots: Node = ROOTS, edges: Node = EDGES) -> Node:
    """Nodes that a path leads to from a root."""
    return fixpoint((roots,), lambda seen: (Distinct(Union((roots, step(seen, edges)))),))[0]


def bfs(roots: Node = ROOTS, edges: Node = EDGES) -> Node:
    """(node, number of edges on the shortest path from a root)."""
    start = Project(roots, lambda root: (root[0], 0))

    def body(near: Node) -> tuple[Node]:
        further = Join(near, edges, columns(0), columns(0), lambda one, edge: (edge[1], one[1] + 1))
        return (Group(Union((start, further)), columns(0), (Aggregate("min", lambda row: row[1]),)),)

    return fixpoint((start,), body)[0]


def distances() -> Node:
    """(distance,) of every node, so the multiplicity is the number of nodes at that distance."""
    return Project(bfs(), columns(1))


def histogram() -> Node:
    """(distance, nodes at that distance)."""
    return Group(bfs(), columns(1), (Aggregate("count"),))


def labels(edges: Node, nodes: Node) -> Node:
    """(node, least node that a path of `edges` leads from), for all of `nodes`."""
    start = Project(nodes, lambda node: (node[0], node[0]))

    def body(known: Node) -> tuple[Node]:
        passed = Join(known, edges, columns(0), columns(0), lambda one, edge: (edge[1], one[1]))
        return (Group(Union((start, passed)), columns(0), (Aggregate("min", lambda row: row[1]),)),)

    return fixpoint((start,), body)[0]


def agreeing(edges: Node, known: Node) -> Node:
    """The edges whose two ends have the same label."""
    tail = Join(edges, known, columns(0), columns(0), lambda edge, one: (*edge, one[1]))
    both = Join(tail, known, columns(1), columns(0), lambda edge, one: (*edge, one[1]))
    return Project(Filter(both, lambda row: row[2] == row[3]), columns(0, 1))


def strong_edges(edges: Node = EDGES) -> Node:
    """The edges inside strongly connected components: two levels of loops, the outer one only ever removes."""
    edges = Distinct(edges)
    nodes = nodes_of(edges)

    def body(left: Node) -> tuple[Node]:
        forward = agreeing(left, labels(left, nodes))
        back = flipped(forward)
        return (flipped(agreeing(back, labels(back, nodes))),)

    return fixpoint((edges,), body)[0]


def components(edges: Node = EDGES) -> Node:
    """(node, least node of its strongly connected component) for every end of an edge."""
    return labels(strong_edges(edges), nodes_of(Distinct(edges)))


def core(k: int, roots: Node = ROOTS, edges: Node = EDGES) -> Node:
    """What is left when nodes with fewer than k edges among reachable nodes are removed, again and again."""
    edges = Distinct(edges)

    def body(left: Node) -> tuple[Node]:
        inside = induced(edges, left)
        start = Join(Distinct(roots), left, columns(0), columns(0), lambda root, _: root)
        reached = reach(start, inside)
        among = induced(inside, reached)
        ends = Union((among, flipped(among)))
        degrees = Group(ends, columns(0), (Aggregate("count"),))
        return (Project(Filter(degrees, lambda row: row[1] >= k), columns(0)),)

    return fixpoint((nodes_of(edges),), body)[0]


def strong_core(edges: Node = EDGES) -> Node:
    """Three levels: edges of strong components, less those into nodes that fewer than two of them enter, to the end."""

    def body(left: Node) -> tuple[Node]:
        strong = strong_edges(left)
        entered = Group(strong, columns(1), (Aggregate("count"),))
        often = Project(Filter(entered, lambda row: row[1] >= 2), columns(0))
        return (Join(strong, often, columns(1), columns(0), lambda edge, _: edge),)

    return fixpoint((Distinct(edges),), body)[0]


def even_odd(roots: Node = ROOTS, edges: Node = EDGES) -> tuple[Node, Node]:
    """Nodes at the end of some walk of an even, and of an odd, number of edges from a root."""
    nothing = Filter(roots, lambda _: False)

    def body(even: Node, odd: Node) -> tuple[Node, Node]:
        return Distinct(Union((roots, step(odd, edges)))), Distinct(step(even, edges))

    even, odd = fixpoint((roots, nothing), body)
    return even, odd


def fed_by_cycles(edges: Node = EDGES) -> Node:
    """Nodes with arbitrarily long walks into them: start with all, keep those that a kept one leads to."""
    edges = Distinct(edges)
    return fixpoint((nodes_of(edges),), lambda left: (Distinct(step(left, edges)),))[0]


def downhill(edges: Node = EDGES) -> Node:
    """The edges that lead from a lower to a higher node, so there is no cycle."""
    return Filter(edges, lambda edge: edge[0] < edge[1])


def winning(edges: Node = EDGES) -> Node:
    """Nodes from which some edge leads to a node that is not winning: not monotone, settles since there is no cycle."""
    moves = Distinct(downhill(edges))

    def body(won: Node) -> tuple[Node]:
        lost = without(nodes_of(moves), won)
        return (Distinct(Join(lost, moves, columns(0), columns(1), lambda _, move: (move[0],))),)

    return fixpoint((nodes_of(moves),), body)[0]


def winning_in(rounds: int, edges: Node = EDGES) -> Node:
    """The same game on all edges, so it may go round for ever: what holds after this many rounds."""
    moves = Distinct(edges)

    def body(won: Node) -> tuple[Node]:
        lost = without(nodes_of(moves), won)
        return (Distinct(Join(lost, moves, columns(0), columns(1), lambda _, move: (move[0],))),)

    return fixpoint((nodes_of(moves),), body, max_rounds=rounds, truncate=True)[0]


def walks(rounds: int, roots: Node = ROOTS, edges: Node = EDGES) -> Node:
    """The ends of all walks of exactly this many edges, as often as there are such walks. Nothing makes it settle."""
    return fixpoint((roots,), lambda ends: (step(ends, edges),), max_rounds=rounds, truncate=True)[0]


def flips(outer: int, inner: int, roots: Node = ROOTS, edges: Node = EDGES) -> Node:
    """Two nested loops that both turn everything round: neither settles, both are cut."""
    nodes = nodes_of(edges)

    def turn(one: Node) -> tuple[Node]:
        def back(two: Node) -> tuple[Node]:
            return (without(Union((nodes, step(one, edges))), step(two, edges)),)

        (turned,) = fixpoint((one,), back, max_rounds=inner, truncate=True)
        return (Distinct(Union((Negate(turned), nodes, step(one, edges)))),)

    return fixpoint((Distinct(roots),), turn, max_rounds=outer, truncate=True)[0]


def siblings(edges: Node = EDGES) -> Node:
    """(a, b) for every two edges from one node to a and to b: a collection joined with itself."""
    return Join(edges, edges, columns(0), columns(0), lambda one, two: (one[1], two[1]))
