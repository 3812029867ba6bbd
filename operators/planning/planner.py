"""From what a program means (logical.py) to what workers run (plan.py).

- Chains of row-wise steps fuse into one `LinearOp`; a projection of plain columns on a join or below an arrangement
  costs nothing, it only chooses words.
- Equal structure is built once: operators are found again by the fingerprint of what they compute, so every join and
  reduction that wants the same collection by the same key shares one arrangement, inside loops and out.
- Rows move between workers only where they must: each operator knows by which words' hash its rows are placed, and an
  arrangement whose input is placed right needs no exchange. A loop's variable takes the placement of its feedback.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import xxhash

from operators.failures import TraceNamedTwice
from operators.kernels.reducing import COUNT, DISTINCT, MAX, MIN, SUM
from operators.language import logical
from operators.language.app import App, ViewDecl
from operators.language.expr import Expr, col
from operators.planning.placement import capture, place, plain_words
from operators.planning.plan import (
    ArrangementPlan,
    ArrangeOp,
    Compute,
    EnterOp,
    InputOp,
    JoinOp,
    Keep,
    LeaveOp,
    LinearOp,
    LoopOp,
    Negated,
    Op,
    Plan,
    ReduceOp,
    Scope,
    Stage,
    Take,
    UnionOp,
    VariableOp,
    ViewOp,
    ViewPlan,
    Words,
)

_KINDS = {"count": COUNT, "sum": SUM, "min": MIN, "max": MAX}
FORMAT = 1
"""Counts changes to the meaning of traces; part of every fingerprint, so that old state is not read as new."""


def compile_app(app: App) -> Plan:
    """The plan of a program. Deterministic: the same program gives the same ids, names and fingerprints everywhere."""
    planner = _Planner(app)
    return planner.compile()


class _Planner:
    def __init__(self, app: App) -> None:
        self.app = app
        self.ops: list[Op] = []
        self.scopes: list[Scope] = [Scope(0, None, 0)]
        self.scope_of: dict[logical.Scope, int] = {}
        self.memo: dict[tuple[object, ...], int] = {}
        self.loops: dict[str, int] = {}
        self.scope_prints: list[str] = [""]
        self.variables: dict[tuple[logical.Scope, int], int] = {}
        self.prints: dict[int, str] = {}
        self.arrangements: dict[str, ArrangementPlan] = {}
        self.uses = _count_uses([view.node for view in app.views.values()])

    def compile(self) -> Plan:
        views: dict[str, ViewPlan] = {}
        for name in self.app.sources:
            self._build(self.app.sources[name])
        for name, view in self.app.views.items():
            views[name] = self._view(name, view)
        place(self.ops)
        capture(self.ops, self.scopes)
        parts = [(op.trace, op.width) for op in self.ops if isinstance(op, (ArrangeOp, ReduceOp))]
        described = repr((FORMAT, sorted(views), sorted(self.app.sources), parts))
        return Plan(
            app=self.app.name,
            retain_ns=self.app.retain_ns,
            fingerprint=xxhash.xxh3_128_hexdigest(described.encode()),
            sources={name: source.schema for name, source in self.app.sources.items()},
            views=views,
            ops=self.ops,
            scopes=self.scopes,
            arrangements=self.arrangements,
        )

    # --- building -----------------------------------------------------------------------------------------------------

    def _scope(self, scope: logical.Scope) -> int:
        return 0 if scope.depth == 0 else self.scope_of[scope]

    def _add(self, op: Op, print_: str) -> int:
        if isinstance(op, (ArrangeOp, ReduceOp)) and any(other.trace == op.trace for other in self._keepers()):
            raise TraceNamedTwice(trace=op.trace, operator=op.name)
        self.ops.append(op)
        self.scopes[op.scope].ops.append(op.id)
        self.prints[op.id] = print_
        return op.id

    def _keepers(self) -> list[ArrangeOp | ReduceOp]:
        return [op for op in self.ops if isinstance(op, (ArrangeOp, ReduceOp))]

    def _hash(self, *parts: object) -> str:
        return xxhash.xxh3_128_hexdigest(repr((FORMAT, *parts)).encode())

    def _build(self, node: logical.Node) -> int:
        """The operator that gives the rows of `node`, in the node's own scope."""
        key = ("node", *_identity(node))
        if key not in self.memo:
            self.memo[key] = self._make(node)
        return self.memo[key]

    def _make(self, node: logical.Node) -> int:
        match node:
            case logical.Source():
                op = InputOp(len(self.ops), 0, node.schema.width, node.name, source=node.name)
                return self._add(op, self._hash("source", node.name, node.schema.to_json()))
            case logical.Project() | logical.Filter() | logical.Negate():
                return self._linear(node)
            case logical.Union():
                inputs = tuple(self._into(child, node.scope) for child in node.inputs)
                prints = [self.prints[i] for i in inputs]
                op_ = UnionOp(len(self.ops), self._scope(node.scope), node.schema.width, "union", inputs=inputs)
                return self._add(op_, self._hash("union", prints))
            case logical.Distinct():
                width = node.schema.width
                arranged = self._arrange(node.input, node.scope, tuple(range(width)), ())
                return self._reduce(node, arranged, width, ((DISTINCT, -1, -1, -1, -1),), 0, "distinct")
            case logical.Aggregate():
                return self._aggregate(node)
            case logical.Join():
                return self._join(node, None)
            case logical.Variable():
                return self.variables[(node.loop.scope, node.index)]
            case logical.LoopResult():
                loop = self._loop(node.loop)
                leaves = self.ops[loop]
                assert isinstance(leaves, LoopOp)
                return leaves.leaves[node.index]
            case _:
                raise TypeError(f"no operator for {type(node).__name__}")

    def _into(self, node: logical.Node, scope: logical.Scope) -> int:
        """The operator that gives the rows of `node` in an inner `scope`: entered once per loop boundary."""
        if node.scope is scope:
            return self._build(node)
        assert scope.parent is not None
        outer = self._into(node, scope.parent)
        key = ("enter", outer, scope)
        if key not in self.memo:
            op = EnterOp(len(self.ops), self._scope(scope), self.ops[outer].width, "enter", input=outer)
            self.memo[key] = self._add(op, self._hash("enter", self.prints[outer]))
        return self.memo[key]

    def _linear(self, node: logical.Project | logical.Filter | logical.Negate) -> int:
        child = node.input
        stages: list[Stage]
        if isinstance(node, logical.Project):
            words = plain_words(node.exprs, child.schema)
            if words is not None and isinstance(child, logical.Join) and self.uses[_identity(child)] == 1:
                return self._join(child, words)
            exprs = tuple(expr for _, expr in node.exprs)
            stages = [Take(words) if words is not None else Compute(exprs, child.schema, node.schema.width)]
        elif isinstance(node, logical.Filter):
            stages = [Keep(node.predicate, child.schema)]
        else:
            stages = [Negated()]
        below = self._build(child)
        base = self.ops[below]
        if isinstance(base, LinearOp) and self.uses[_identity(child)] == 1:
            below, stages = base.input, _fuse([*base.stages, *stages])
            self._drop(base)
        op = LinearOp(
            len(self.ops), self._scope(node.scope), node.schema.width, _chain_name(stages), below, tuple(stages)
        )
        return self._add(op, self._hash("linear", self.prints[below], [_stage_key(stage) for stage in stages]))

    def _drop(self, op: Op) -> None:
        """Forget the newest operator, which its only user has taken over."""
        if self.ops[-1] is op:
            self.ops.pop()
            self.scopes[op.scope].ops.pop()

    def _arrange(self, node: logical.Node, scope: logical.Scope, key: Words, val: Words) -> int:
        """The arrangement of `node` by words `key`, carrying words `val`, in the node's own scope."""
        below = self._build(node)
        base = self.ops[below]
        # The output of a reduction is arranged by its key already.
        if isinstance(base, ReduceOp) and key == tuple(range(base.key_width)):
            if val == tuple(range(base.key_width, base.width)):
                return below
        if isinstance(base, LinearOp) and all(isinstance(stage, Take) for stage in base.stages):
            take = _fuse(list(base.stages))[0]
            assert isinstance(take, Take)
            below, key, val = base.input, tuple(take.words[w] for w in key), tuple(take.words[w] for w in val)
            if self.uses[_identity(node)] == 1:
                self._drop(base)
        memo = ("arrange", below, key, val)
        if memo not in self.memo:
            print_ = self._hash("arrange", self.prints[below], key, val)
            source = self.ops[below]
            label = f"{source.name} by {_positions(key)}" if key else f"{source.name} (all)"
            scope_id = source.scope
            op = ArrangeOp(
                len(self.ops), scope_id, len(key) + len(val), label, below, key, val, f"arrange-{print_[:16]}"
            )
            self.arrangements[op.trace] = ArrangementPlan(
                op.trace, label, len(key), len(val), self.scopes[scope_id].depth, False
            )
            self.memo[memo] = self._add(op, print_)
        return self.memo[memo]

    def _reduce(
        self,
        node: logical.Node,
        arranged: int,
        key_width: int,
        aggregations: tuple[tuple[int, int, int, int, int], ...],
        out_width: int,
        name: str,
    ) -> int:
        print_ = self._hash("reduce", self.prints[arranged], key_width, aggregations)
        scope = self._scope(node.scope)
        op = ReduceOp(
            len(self.ops),
            scope,
            key_width + out_width,
            name,
            arranged,
            key_width,
            aggregations,
            f"reduce-{print_[:16]}",
        )
        self.arrangements[op.trace] = ArrangementPlan(
            op.trace, f"{name} output", key_width, out_width, self.scopes[scope].depth, False
        )
        return self._add(op, print_)

    def _aggregate(self, node: logical.Aggregate) -> int:
        """group_by().agg(): the key words and the distinct words that the aggregates look at."""
        row = node.input.schema
        exprs = [agg.expr for _, agg in node.aggs if agg.expr is not None]
        below: logical.Node = node.input
        columns = [expr.column for expr in exprs]
        names: dict[int, str] = {i: name for i, name in enumerate(columns) if name is not None}
        if len(names) < len(exprs):
            # Computed arguments become columns of a projection first.
            kept = node.keys if self._is_positive(below) else row.names
            wanted: list[tuple[str, Expr]] = [(name, col(name)) for name in kept]
            for i, expr in enumerate(exprs):
                names[i] = f"argument {i}"
                wanted.append((names[i], expr))
            below = logical.Project(input=node.input, exprs=tuple(wanted), where=node.where)
            row = below.schema
            self.uses[_identity(below)] = 1
        key = tuple(int(w) for w in row.index(node.keys))
        used = [int(w) for name in names.values() for w in row.index([name])]
        # A group exists while any of its rows does. Without negative multiplicities the words looked at tell that.
        rest = [] if self._is_positive(below) else [w for w in range(row.width) if w not in key]
        val = tuple(dict.fromkeys([*rest, *used]))
        aggregations = []
        out = 0
        which = 0
        for name, agg in node.aggs:
            field = node.schema.field(name)
            word, flag = -1, -1
            if agg.expr is not None:
                column = names[which]
                which += 1
                nullable = row.field(column).nullable
                first = val.index(row.field(column).offset)
                flag = first if nullable else -1
                word = first + int(nullable)
            out_flag = out if field.nullable else -1
            aggregations.append((_KINDS[agg.kind], word, flag, out + int(field.nullable), out_flag))
            out += field.words
        arranged = self._arrange(below, node.scope, key, val)
        label = f"group by {', '.join(node.keys)}"
        return self._reduce(node, arranged, len(key), tuple(aggregations), out, label)

    def _is_positive(self, node: logical.Node) -> bool:
        """Whether the structure rules out negative multiplicities: all stems from distincts and aggregates."""
        if isinstance(node, (logical.Distinct, logical.Aggregate)):
            return True
        if isinstance(node, (logical.Source, logical.Negate, logical.Variable)):
            return False
        below = node.loop.bodies if isinstance(node, logical.LoopResult) else node.inputs
        return all(self._is_positive(child) for child in below)

    def _join(self, node: logical.Join, project: Words | None) -> int:
        sides = []
        layouts: list[dict[int, tuple[int, int]]] = []
        for side, (child, on) in enumerate(((node.left, node.left_on), (node.right, node.right_on))):
            key = tuple(int(w) for w in child.schema.index(on))
            val = tuple(w for w in range(child.schema.width) if w not in key)
            sides.append(self._arrange(child, child.scope, key, val))
            layout = {w: (0, i) for i, w in enumerate(key)}
            layout |= {w: (1 + side, i) for i, w in enumerate(val)}
            layouts.append(layout)
        columns: list[tuple[int, int]] = []
        if node.merged:
            columns += [layouts[0][int(w)] for w in node.left.schema.index(node.left_on)]
        for side, (child, on) in enumerate(((node.left, node.left_on), (node.right, node.right_on))):
            for field in child.schema.fields:
                if not (node.merged and field.name in on):
                    columns += [layouts[side][w] for w in range(field.offset, field.offset + field.words)]
        if project is not None:
            columns = [columns[w] for w in project]
        prints = [self.prints[side] for side in sides]
        memo = ("join", *sides, tuple(columns), node.scope)
        if memo not in self.memo:
            label = "join on " + ", ".join(
                a if a == b else f"{a} = {b}" for a, b in zip(node.left_on, node.right_on, strict=True)
            )
            op = JoinOp(len(self.ops), self._scope(node.scope), len(columns), label, sides[0], sides[1], tuple(columns))
            self.memo[memo] = self._add(op, self._hash("join", prints, columns))
        return self.memo[memo]

    def _loop(self, loop: logical.Loop) -> int:
        bound = tuple(scope for scope in reversed(loop.scope.chain()[1:]) if scope.depth > 0)
        outer_scope = loop.scope.parent
        assert outer_scope is not None
        outer = self._scope(outer_scope)
        # A loop inside another one means what it does there: its print holds the print of the loop around it.
        print_ = self._hash("loop", loop.digest(bound), self.scope_prints[outer])
        if print_ in self.loops:
            return self.loops[print_]
        inner = Scope(len(self.scopes), outer, self.scopes[outer].depth + 1)
        self.scopes.append(inner)
        self.scope_prints.append(print_)
        self.scope_of[loop.scope] = inner.id
        initials = [self._into(initial, outer_scope) for initial in loop.initials]
        variables = []
        for index, initial in enumerate(initials):
            width = loop.initials[index].schema.width
            op = VariableOp(len(self.ops), inner.id, width, loop.variables[index], -1, initial)
            variables.append(op)
            self.variables[(loop.scope, index)] = self._add(op, self._hash("variable", print_, index))
        bodies = [self._into(body, loop.scope) for body in loop.bodies]
        loop_op = LoopOp(
            len(self.ops), outer, 0, loop.name, inner.id, loop.name, loop.max_rounds, loop.on_limit == "truncate"
        )
        loop_op.variables = [op.id for op in variables]
        self.loops[print_] = self._add(loop_op, print_)
        for variable, body in zip(variables, bodies, strict=True):
            variable.loop = loop_op.id
            variable.feedback = body
            leave = LeaveOp(len(self.ops), outer, variable.width, loop.name, loop_op.id, body)
            loop_op.leaves.append(self._add(leave, self._hash("leave", print_, variable.name, self.prints[body])))
        return loop_op.id

    def _view(self, name: str, view: ViewDecl) -> ViewPlan:
        row = view.node.schema
        key = tuple(int(w) for w in row.index(view.key))
        val = tuple(w for w in range(row.width) if w not in key)
        below = self._build(view.node)
        print_ = self._hash("view", name, self.prints[below], key)
        trace = f"view-{name}"
        arranged = ArrangeOp(len(self.ops), 0, row.width, f"view {name}", below, key, val, trace)
        self.arrangements[trace] = ArrangementPlan(trace, f"view {name}", len(key), len(val), 0, True)
        self._add(arranged, print_)
        op = ViewOp(len(self.ops), 0, row.width, name, arranged.id, name, trace)
        self._add(op, print_)
        order = (*key, *val)
        return ViewPlan(name, row, tuple(view.key), trace, tuple(order.index(w) for w in range(row.width)))


def _identity(node: logical.Node) -> tuple[object, ...]:
    """Equal for nodes of one scope that mean the same."""
    bound = tuple(scope for scope in reversed(node.scope.chain()) if scope.depth > 0)
    return (node.scope, node.digest(bound))


def _fuse(stages: list[Stage]) -> list[Stage]:
    """Neighbouring picks of words become one."""
    out: list[Stage] = []
    for stage in stages:
        last = out[-1] if out else None
        if isinstance(stage, Take) and isinstance(last, Take):
            out[-1] = Take(tuple(last.words[w] for w in stage.words))
        else:
            out.append(stage)
    return out


def _stage_key(stage: Stage) -> object:
    match stage:
        case Take():
            return ("take", stage.words)
        case Keep():
            return ("keep", stage.predicate.key(), stage.schema.to_json())
        case Compute():
            return ("compute", [expr.key() for expr in stage.exprs], stage.schema.to_json())
        case _:
            return ("negate",)


def _chain_name(stages: Sequence[Stage]) -> str:
    names = {Take: "select", Keep: "filter", Compute: "compute", Negated: "negate"}
    return " → ".join(names[type(stage)] for stage in stages)


def _positions(words: Words) -> str:
    return ",".join(map(str, words))


def _count_uses(roots: Sequence[logical.Node]) -> Counter[object]:
    """How many nodes use each structure; one used once can be fused into its user."""
    uses: Counter[object] = Counter()
    seen: set[object] = set()
    for root in roots:
        uses[_identity(root)] += 1
    for node in logical.walk(list(roots)):
        identity = _identity(node)
        if identity in seen:
            continue
        seen.add(identity)
        below = [*node.inputs]
        if isinstance(node, logical.LoopResult):
            below = [*node.loop.initials, *node.loop.bodies]
        for child in below:
            uses[_identity(child)] += 1
    return uses
