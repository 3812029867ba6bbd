"""Programs that look at other times than the present, on `edges` (src, dst) and `roots` (node) with small times."""

from __future__ import annotations

from tests.oracle.plan import (
    Aggregate,
    Between,
    Coarsen,
    Contents,
    Delay,
    Distinct,
    Expand,
    Feedback,
    Group,
    Join,
    Negate,
    Node,
    PerKey,
    Row,
    Union,
    columns,
    fixpoint,
    item,
)
from tests.oracle.programs import EDGES, ROOTS, step


def start(row: Row) -> int:
    """When a row becomes valid."""
    return 3 * int(row[0])


def end(row: Row) -> int:
    """When it ends, for some rows before it starts."""
    return 3 * int(row[0]) + 5 * int(row[-1]) - 4


def valid() -> Node:
    """How many edges out of a node are valid."""
    return Group(Between(EDGES, start, end), columns(0), (Aggregate("count"),))


def copies() -> Node:
    """Nodes as often as their edges' ends say, some of them less than not at all."""
    return Expand(EDGES, lambda edge: [((edge[0],), edge[1] - 2), ((edge[1],), 1)])


def passing() -> Node:
    """Reachability where a node is only there for some time of the day; the loop's body waits for it."""

    def body(seen: Node) -> tuple[Node]:
        return (
            Distinct(Union((ROOTS, Between(step(seen, EDGES), lambda row: 4 * row[0], lambda row: 4 * row[0] + 9)))),
        )

    return fixpoint((ROOTS,), body)[0]


def slowly() -> Node:
    """Reachability where each step is seen at the next multiple of 4: a loop that looks at that of earlier times."""
    return fixpoint((ROOTS,), lambda seen: (Distinct(Union((ROOTS, Coarsen(step(seen, EDGES), 4)))),))[0]


def turning() -> Node:
    """Loops inside one another, both cut, with times moved in both."""

    def outer(one: Node) -> tuple[Node]:
        def inner(two: Node) -> tuple[Node]:
            return (Distinct(Union((Negate(Coarsen(two, 3)), one, step(two, EDGES)))),)

        (turned,) = fixpoint((one,), inner, max_rounds=3, truncate=True)
        valid_now = Between(step(turned, EDGES), lambda row: 2 * row[0], lambda row: 2 * row[0] + 11)
        return (Distinct(Union((ROOTS, Negate(turned), valid_now))),)

    return fixpoint((Distinct(ROOTS),), outer, max_rounds=3, truncate=True)[0]


def recent() -> Node:
    """Nodes with as many edges as came in the last 5: what is there less what was."""
    return Group(Union((EDGES, Negate(Delay(EDGES, 5)))), columns(0), (Aggregate("count"),))


def rounded() -> Node:
    """Edges that meet edges as they were a while ago, seen at multiples of 4."""
    return Coarsen(Join(EDGES, Delay(EDGES, 3), columns(1), columns(0), lambda one, two: (one[0], two[1])), 4)


def latest(delay: int = 3) -> Node:
    """A self-compacting program: the greatest edge of each node, its input less what was not the greatest a while ago.

    For edges that only come: when some go, what is retracted can differ from one moment to the next for ever.
    """
    retracted = Feedback(delay)
    kept = Union((EDGES, Negate(retracted)))
    results = Group(kept, columns(0), (Aggregate("max", item(1)),))
    retracted.define(Union((EDGES, Negate(results))))
    return results


def echo(delay: int = 3) -> Node:
    """Edges that wander on: each comes back a while later with its ends moved, until it falls off the end."""
    back = Feedback(delay)
    both = Union((EDGES, back))
    back.define(Expand(both, lambda edge: [((edge[1], edge[0] + 2), 1)] if edge[0] < 5 else []))
    return both


def fading(delay: int = 4) -> Node:
    """Edges less the distinct edges of a while ago, which are what is fed back."""
    back = Feedback(delay)
    back.define(Distinct(EDGES))
    return Group(Union((EDGES, Negate(back))), columns(0), (Aggregate("count"), Aggregate("sum", item(1))))


def per_source(take: int = 2) -> Node:
    """The two least edges of each node, each as often as it is there: a rule about whole groups in a loop."""

    def least(rows: Contents) -> list[tuple[Row, int]]:
        present = sorted(row for row, count in rows.items() if count > 0 for _ in range(count))
        return [((row[1],), 1) for row in present[:take]]

    chosen = PerKey(EDGES, columns(0), least)

    def body(seen: Node) -> tuple[Node]:
        moves = PerKey(Join(seen, chosen, columns(0), columns(0), lambda _, edge: edge), columns(0), least)
        return (Distinct(Union((ROOTS, Join(moves, moves, columns(0), columns(0), lambda one, _: (one[1],))))),)

    return fixpoint((ROOTS,), body)[0]
