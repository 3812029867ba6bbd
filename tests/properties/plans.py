"""Random plans as data, each built twice: in the oracle's language and in the product's.

Every collection has two integer columns a and b, so that any step fits any other. Values that are computed are kept
small by filters, which both sides apply; loops are cut after a few rounds, so every plan has an answer whether its
loops settle or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from hypothesis import strategies as st

import vernier as vn
from tests.oracle import plan as oracle
from tests.properties.group_variants import GROUPED
from tests.properties.join_variants import JOINED
from tests.properties.linear_variants import LINEAR
from tests.properties.order_variants import ORDERED
from tests.properties.time_variants import TIMED
from tests.properties.variants import HIGH, LOW, Family, Variant
from vernier import col

N = TypeVar("N")
SOURCES = ("s0", "s1")
FAMILIES: dict[str, Family] = {
    "linear": LINEAR,
    "joined": JOINED,
    "grouped": GROUPED,
    "ordered": ORDERED,
    "timed": TIMED,
}
"""Further operators, by the family that they are drawn from."""


@dataclass(frozen=True)
class Step:
    """One operator: `kind` says which of its variants, `inputs` count from the oldest known collection."""

    operator: str
    kind: str
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class LoopStep:
    """A fixpoint: its body knows all that the scope outside knows, then its variables, then its own steps."""

    initials: tuple[int, ...]
    body: tuple[Step | LoopStep, ...]
    results: tuple[int, ...]
    distinct: bool
    rounds: int
    truncate: bool
    counted: bool = False
    """Whether the rounds of each variable are collections, too."""

    @property
    def made(self) -> int:
        """How many collections it makes."""
        return (1 + self.counted) * len(self.initials)


Steps = tuple[Step | LoopStep, ...]


@dataclass(frozen=True)
class Limit:
    """How far a loop goes, whether it ends there or fails, and whether its rounds follow its results."""

    rounds: int
    truncate: bool
    counted: bool


class Language(Protocol[N]):
    """What a plan is built with."""

    def source(self, name: str) -> N: ...
    def select(self, node: N, kind: str) -> N: ...
    def filter(self, node: N, kind: str) -> N: ...
    def union(self, nodes: Sequence[N]) -> N: ...
    def negate(self, node: N) -> N: ...
    def distinct(self, node: N) -> N: ...
    def join(self, left: N, right: N, kind: str) -> N: ...
    def group(self, node: N, kind: str) -> N: ...
    def apply(self, variant: Variant, nodes: Sequence[N]) -> N: ...
    def loop(self, initials: Sequence[N], body: Callable[[Sequence[N]], Sequence[N]], limit: Limit) -> Sequence[N]: ...


def build(steps: Steps, language: Language[N], known: Sequence[N] | None = None) -> list[N]:
    """All collections of the plan: the sources (or `known`) and then what each step makes; a loop makes several."""
    nodes = [language.source(name) for name in SOURCES] if known is None else list(known)
    for step in steps:
        if isinstance(step, LoopStep):
            nodes.extend(build_loop(step, language, nodes))
            continue
        inputs = [nodes[index] for index in step.inputs]
        match step.operator:
            case "select":
                nodes.append(language.filter(language.select(inputs[0], step.kind), "small"))
            case "filter":
                nodes.append(language.filter(inputs[0], step.kind))
            case "union":
                nodes.append(language.union(inputs))
            case "negate":
                nodes.append(language.negate(inputs[0]))
            case "distinct":
                nodes.append(language.distinct(inputs[0]))
            case "join":
                nodes.append(language.join(inputs[0], inputs[1], step.kind))
            case "without":
                common = language.join(inputs[0], language.distinct(inputs[1]), "both")
                nodes.append(language.union((inputs[0], language.negate(common))))
            case "group":
                nodes.append(language.filter(language.group(inputs[0], step.kind), "small"))
            case family:
                nodes.append(language.apply(FAMILIES[family][step.kind], inputs))
    return nodes


def build_loop(step: LoopStep, language: Language[N], outside: Sequence[N]) -> Sequence[N]:
    """The results of a loop, one for each variable, and then the rounds of each variable if they are counted."""

    def body(variables: Sequence[N]) -> Sequence[N]:
        nodes = build(step.body, language, [*outside, *variables])
        chosen = [nodes[index] for index in step.results]
        return [language.distinct(node) for node in chosen] if step.distinct else chosen

    return language.loop(
        [outside[index] for index in step.initials], body, Limit(step.rounds, step.truncate, step.counted)
    )


# --- the variants of operators: what the oracle does, and what a program writes ---------------------------------------

SELECTS: dict[str, tuple[Callable[[int, int], oracle.Row], dict[str, vn.Expr]]] = {
    "swap": (lambda a, b: (b, a), {"a": col("b"), "b": col("a")}),
    "same": (lambda a, b: (a, a), {"a": col("a"), "b": col("a")}),
    "one": (lambda a, b: (b, 1), {"a": col("b"), "b": vn.lit(1)}),
    "next": (lambda a, b: (a, b + 1), {"a": col("a"), "b": col("b") + 1}),
    "difference": (lambda a, b: (a, a - b), {"a": col("a"), "b": col("a") - col("b")}),
}
FILTERS: dict[str, tuple[Callable[[int, int], bool], vn.Expr]] = {
    "small": (lambda a, b: LOW <= b <= HIGH, (col("b") >= LOW) & (col("b") <= HIGH)),
    "rising": (lambda a, b: a < b, col("a") < col("b")),
    "unequal": (lambda a, b: a != b, col("a") != col("b")),
    "zero": (lambda a, b: a == 0, col("a") == 0),
    "large": (lambda a, b: b > 1, col("b") > 1),
}
JOINS = {
    "chain": (("b",), ("a",), ("a", "d")),
    "fork": (("a",), ("a",), ("b", "d")),
    "meet": (("b",), ("b",), ("a", "c")),
    "semi": (("a",), ("b",), ("a", "b")),
    "both": (("a", "b"), ("a", "b"), ("a", "b")),
    "crossed": (("a", "b"), ("b", "a"), ("a", "d")),
}
"""Keys of the left and of the right, and the output in the columns of left (a, b) and right (then c, d)."""
GROUPS: dict[str, tuple[dict[str, str], dict[str, tuple[oracle.Kind, str | None]], tuple[str, str]]] = {
    "count": ({"a": "a"}, {"n": ("count", None)}, ("a", "n")),
    "sum": ({"a": "a"}, {"n": ("sum", "b")}, ("a", "n")),
    "min": ({"a": "a"}, {"n": ("min", "b")}, ("a", "n")),
    "max": ({"a": "a"}, {"n": ("max", "b")}, ("a", "n")),
    "ends": ({"a": "a"}, {"n": ("min", "b"), "m": ("max", "b")}, ("n", "m")),
    "several": ({"b": "b"}, {"n": ("count", None), "m": ("sum", "a"), "k": ("max", "a")}, ("k", "n")),
    "copies": ({"a": "a", "b": "b"}, {"n": ("count", None)}, ("b", "n")),
    "renamed": ({"key": "b"}, {"n": ("sum", "b"), "m": ("count", "a")}, ("key", "m")),
    "shadowing": ({"b": "a"}, {"n": ("count", None)}, ("b", "n")),
    "total": ({}, {"n": ("count", None), "m": ("min", "a")}, ("m", "n")),
}
"""Keys by their new names, aggregates by name, and the two columns that are kept."""


class InOracle:
    """Plans in the oracle's language."""

    def source(self, name: str) -> oracle.Node:
        return oracle.Source(name)

    def select(self, node: oracle.Node, kind: str) -> oracle.Node:
        fn = SELECTS[kind][0]
        return oracle.Project(node, lambda row: fn(*row))

    def filter(self, node: oracle.Node, kind: str) -> oracle.Node:
        fn = FILTERS[kind][0]
        return oracle.Filter(node, lambda row: fn(*row))

    def union(self, nodes: Sequence[oracle.Node]) -> oracle.Node:
        return oracle.Union(tuple(nodes))

    def negate(self, node: oracle.Node) -> oracle.Node:
        return oracle.Negate(node)

    def distinct(self, node: oracle.Node) -> oracle.Node:
        return oracle.Distinct(node)

    def join(self, left: oracle.Node, right: oracle.Node, kind: str) -> oracle.Node:
        left_on, right_on, output = JOINS[kind]
        place = {"a": 0, "b": 1, "c": 2, "d": 3}
        take = oracle.columns(*(place[name] for name in output))
        keys = [oracle.columns(*(place[name] for name in names)) for names in (left_on, right_on)]
        return oracle.Join(left, right, keys[0], keys[1], lambda one, two: take(one + two))

    def group(self, node: oracle.Node, kind: str) -> oracle.Node:
        keys, aggregates, output = GROUPS[kind]
        place = {"a": 0, "b": 1}
        made = [oracle.Aggregate(one, oracle.item(place[name]) if name else None) for one, name in aggregates.values()]
        names = [*keys, *aggregates]
        grouped = oracle.Group(node, oracle.columns(*(place[key] for key in keys.values())), tuple(made))
        return oracle.Project(grouped, oracle.columns(*(names.index(name) for name in output)))

    def apply(self, variant: Variant, nodes: Sequence[oracle.Node]) -> oracle.Node:
        return variant.oracle(*nodes)

    def loop(
        self,
        initials: Sequence[oracle.Node],
        body: Callable[[Sequence[oracle.Node]], Sequence[oracle.Node]],
        limit: Limit,
    ) -> Sequence[oracle.Node]:
        found = oracle.fixpoint(
            initials, lambda *variables: body(variables), max_rounds=limit.rounds, truncate=limit.truncate
        )
        rounds = [oracle.LoopRounds(one.loop, one.index) for one in found if limit.counted]
        return [*found, *(oracle.Project(one, lambda row: (row[0], row[1] % 7)) for one in rounds)]


class Pair(vn.Schema):
    """What every source of a random plan holds."""

    a: vn.Int64
    b: vn.Int64


class InVernier:
    """Plans as a program writes them."""

    def __init__(self, retain: str | int = "10m") -> None:
        self.app = vn.App("random", retain=retain)

    def source(self, name: str) -> vn.Collection:
        return self.app.source(name, Pair)

    def select(self, node: vn.Collection, kind: str) -> vn.Collection:
        return node.select(**SELECTS[kind][1])

    def filter(self, node: vn.Collection, kind: str) -> vn.Collection:
        return node.filter(FILTERS[kind][1])

    def union(self, nodes: Sequence[vn.Collection]) -> vn.Collection:
        return vn.union(*nodes)

    def negate(self, node: vn.Collection) -> vn.Collection:
        return node.negate()

    def distinct(self, node: vn.Collection) -> vn.Collection:
        return node.distinct()

    def join(self, left: vn.Collection, right: vn.Collection, kind: str) -> vn.Collection:
        left_on, right_on, output = JOINS[kind]
        if left_on == right_on == ("a",):
            joined = left.join(right.select("a", d=col("b")), on="a")
        else:
            renamed = {"a": "c", "b": "d"}
            other = right.select(c=col("a"), d=col("b"))
            joined = left.join(other, left_on=list(left_on), right_on=[renamed[name] for name in right_on])
        return joined.select(a=col(output[0]), b=col(output[1]))

    def group(self, node: vn.Collection, kind: str) -> vn.Collection:
        keys, aggregates, output = GROUPS[kind]
        functions = {"count": vn.count, "sum": vn.sum, "min": vn.min, "max": vn.max}
        made = {name: functions[one](col(of)) if of else vn.count() for name, (one, of) in aggregates.items()}
        plain = [key for key, of in keys.items() if key == of]
        named = {key: col(of) for key, of in keys.items() if key != of}
        return node.group_by(*plain, **named).agg(**made).select(a=col(output[0]), b=col(output[1]))

    def apply(self, variant: Variant, nodes: Sequence[vn.Collection]) -> vn.Collection:
        return variant.product(*nodes)

    def loop(
        self,
        initials: Sequence[vn.Collection],
        body: Callable[[Sequence[vn.Collection]], Sequence[vn.Collection]],
        limit: Limit,
    ) -> Sequence[vn.Collection]:
        found = self._limits(initials, body, limit)
        counts = [one.rounds().select(a=col("round"), b=col("changed") % 7) for one in found if limit.counted]
        return [*found, *counts]

    def _limits(
        self,
        initials: Sequence[vn.Collection],
        body: Callable[[Sequence[vn.Collection]], Sequence[vn.Collection]],
        limit: Limit,
    ) -> Sequence[vn.Collection]:
        limited = vn.fixpoint(max_rounds=limit.rounds, on_limit="truncate" if limit.truncate else "error")
        if len(initials) == 1:

            @limited
            def one(x: vn.Collection) -> vn.Collection:
                return body([x])[0]

            return [one(initials[0])]

        @limited
        def two(x: vn.Collection, y: vn.Collection) -> tuple[vn.Collection, ...]:
            return tuple(body([x, y]))

        return list(two(*initials))


# --- drawing plans ----------------------------------------------------------------------------------------------------


PLAIN = ("select", "filter", "union", "negate", "distinct", "join", "join", "without", "group", "group")


def places(known: int) -> st.SearchStrategy[int]:
    """One of the collections known so far, the newest as likely as all others together."""
    return st.one_of(st.just(known - 1), st.integers(0, known - 1))


@st.composite
def plain_steps(draw: st.DrawFn, known: int, inside: bool = False) -> Step:
    """One operator on collections that are known; `inside` a loop or not."""
    operator = draw(st.sampled_from((*PLAIN, *FAMILIES, *FAMILIES)))
    place = places(known)
    if operator in FAMILIES:
        return draw(family_steps(operator, known, inside))
    match operator:
        case "select":
            return Step(operator, draw(st.sampled_from(sorted(SELECTS))), (draw(place),))
        case "filter":
            return Step(operator, draw(st.sampled_from(sorted(FILTERS))), (draw(place),))
        case "union":
            return Step(operator, "", tuple(draw(st.lists(place, min_size=2, max_size=3))))
        case "join":
            return Step(operator, draw(st.sampled_from(sorted(JOINS))), (draw(place), draw(place)))
        case "without":
            return Step(operator, "", (draw(place), draw(place)))
        case "group":
            return Step(operator, draw(st.sampled_from(sorted(GROUPS))), (draw(place),))
    return Step(operator, "", (draw(place),))


@st.composite
def family_steps(draw: st.DrawFn, family: str, known: int, inside: bool = False) -> Step:
    """One operator of a family; only those that may be there `inside` a loop."""
    variants = FAMILIES[family]
    kind = draw(st.sampled_from(sorted(name for name, one in variants.items() if one.loops or not inside)))
    return Step(family, kind, tuple(draw(places(known)) for _ in range(variants[kind].arity)))


@st.composite
def step_lists(draw: st.DrawFn, known: int, most: int, loops: int, cut: bool = True, inside: bool = False) -> Steps:
    """Up to `most` steps in a row, with loops up to `loops` deep inside one another; `cut`: all end at their limit."""
    steps: list[Step | LoopStep] = []
    for _ in range(draw(st.integers(1, most))):
        step: Step | LoopStep = (
            draw(loop_steps(known, loops, cut)) if loops and draw(st.booleans()) else draw(plain_steps(known, inside))
        )
        known += step.made if isinstance(step, LoopStep) else 1
        steps.append(step)
    return tuple(steps)


@st.composite
def loop_steps(draw: st.DrawFn, known: int, loops: int, cut: bool = True) -> LoopStep:
    """A loop of one or two variables."""
    initials = tuple(draw(st.lists(places(known), min_size=1, max_size=2)))
    inside = known + len(initials)
    body = draw(step_lists(inside, 3, loops - 1, cut, True))
    made = sum(step.made if isinstance(step, LoopStep) else 1 for step in body)
    results = tuple(draw(places(inside + made)) for _ in initials)
    distinct = draw(st.sampled_from((True, True, True, False)))
    rounds = draw(st.integers(1, 5))
    truncate, counted = cut or draw(st.booleans()), draw(st.booleans())
    return LoopStep(initials, body, results, distinct, rounds, truncate, counted)


def plans(most: int = 5, loops: int = 0) -> st.SearchStrategy[Steps]:
    """Plans on the sources s0 and s1."""
    return step_lists(len(SOURCES), most, loops)
