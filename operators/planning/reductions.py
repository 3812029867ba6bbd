"""Plans reductions: each reads one arrangement and emits one or more rows a key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vernier.operators.group_functions.aggregates import Aggregates
from vernier.operators.group_functions.aggregations import (
    INCREMENTAL,
    LINEAR,
    Item,
    compared_texts,
    copies,
    is_accumulable,
    kernel_rows,
    null_flags,
    present,
    vector_layout,
    vector_rows,
)
from vernier.operators.group_functions.logic import LogicSpec
from vernier.operators.group_functions.ordered import DenseRank, OrderedSpec, TopK
from vernier.operators.group_functions.running import RunningExtreme
from vernier.operators.group_functions.sessions import Sessions
from vernier.operators.language.collection.reductions import CopiesNode, ExistsNode, ReduceNode, ThresholdNode
from vernier.operators.language.expr.expression import Expr, col
from vernier.operators.language.plan import logical
from vernier.operators.language.plan.aggregation import Aggregation
from vernier.operators.language.plan.node import Node
from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.arrangements import (
    arrange,
    arrange_words,
    arranged_print,
    arranged_trace,
    keep,
    picked,
    reduced_trace,
)
from vernier.operators.planning.chains import chain
from vernier.operators.planning.choices import Choices, choices, ranked_column, ranks_of
from vernier.operators.planning.dense_ranks import as_row_numbers
from vernier.operators.planning.distinct_counts import SHARED, as_count, as_sums, counts_distinct
from vernier.operators.planning.ends import (
    MOST,
    directed,
    ends_of_extreme,
    ends_of_order,
    ordered_first,
    stretches_of,
    surroundings_of,
)
from vernier.operators.planning.group_parts import as_parts, has_parts
from vernier.operators.planning.in_order import in_order_of
from vernier.operators.planning.ops import ArrangeOp
from vernier.operators.planning.plan import ArrangementPlan
from vernier.operators.planning.reduction_ops import (
    AccumulableReduceOp,
    AccumulateOp,
    BatchedReduceOp,
    ChosenOp,
    ExtremesOp,
    OrderedReduceOp,
    Ranks,
    ReduceOp,
    ReductionOp,
    SessionsOp,
    Stretches,
    Surroundings,
    TopOp,
)
from vernier.operators.planning.session_ends import as_starts
from vernier.operators.planning.sharing import identity
from vernier.operators.planning.stages import Compute, Words

if TYPE_CHECKING:
    from vernier.operators.planning.planner import Planner


def _add(planner: Planner, op: ReductionOp, print_: str) -> int:
    """Add a reduction, or return the existing one with the same meaning. A reduction that looks its earlier output up
    keeps it in a trace."""
    memo = ("reduction", op.scope, print_)
    if memo not in planner.memo:
        planner.memo[memo] = planner.add(op, print_)
        for state in op.traces:
            planner.arrangements[state] = ArrangementPlan(state, f"{op.name} state", op.key_width, 1, 0)
        if op.looks_up:
            keep(planner, op)
    return planner.memo[memo]


def reduce(
    planner: Planner,
    node: Node,
    arranged: int,
    key: RowType,
    aggregations: tuple[Words, ...],
    name: str,
    compared: Words = (),
    print_: str | None = None,
) -> int:
    """The reduction of an arrangement by `key`; its output rows are the node's rows. compared: see ReduceOp; print_:
    its fingerprint, if that does not follow from the arrangement."""
    print_ = print_ or planner.hash("reduce", planner.prints[arranged], key.to_json(), aggregations)
    scope, width = planner.scope(node.scope), node.schema.width
    total = planner.scopes[scope].depth == 0
    op: ReductionOp
    if total and is_accumulable(aggregations):
        # An accumulable reduce reads a number of each key instead of all its rows. A key that is the whole row has
        # none.
        state = _lanes(print_) if planner.ops[arranged].width > key.width else None
        op = AccumulableReduceOp(
            len(planner.ops), scope, width, name,
            input=arranged, key=key, total=total, trace=None, aggregations=aggregations, state=state,
        )  # fmt: skip
    else:
        op = ReduceOp(
            len(planner.ops), scope, width, name,
            input=arranged, key=key, total=total, trace=None, aggregations=aggregations, compared=compared,
        )  # fmt: skip
        op.covers = op.of_one_val and planner.scopes[scope].depth == 1
        if total and not compared:
            op.reads = ends_of_extreme(aggregations, planner.ops[arranged].width - key.width)
    return _add(planner, op, print_)


def _lanes(print_: str) -> str:
    """The trace of the numbers of a reduction's keys."""
    return f"lanes-{print_[:16]}"


def build_distinct(planner: Planner, node: logical.DistinctNode) -> int:
    """Each present row once: a reduction whose key is the whole row."""
    arranged = arrange(planner, node.input, node.scope, tuple(range(node.schema.width)), ())
    return reduce(planner, node, arranged, node.schema, (present(),), "distinct")


def build_threshold(planner: Planner, node: ThresholdNode) -> int:
    """Each row with at least `copies` copies, once."""
    arranged = arrange(planner, node.input, node.scope, tuple(range(node.schema.width)), ())
    return reduce(planner, node, arranged, node.schema, (present(node.copies),), f"threshold {node.copies}")


def build_copies(planner: Planner, node: CopiesNode) -> int:
    """The rows whose multiplicity is positive, with that multiplicity."""
    arranged = arrange(planner, node.input, node.scope, tuple(range(node.schema.width)), ())
    return reduce(planner, node, arranged, node.schema, (copies(),), "present copies")


def build_present(planner: Planner, node: logical.PresentNode) -> int:
    """Each key that has a present row. Without negative multiplicities the reduction need not distinguish the rows of a
    key. With them it does, and it then uses the same arrangement as a join by this key."""
    row = node.input.schema
    key = tuple(int(w) for w in row.index(node.keys))
    val = () if node.input.is_positive else tuple(w for w in range(row.width) if w not in key)
    arranged = arrange(planner, node.input, node.scope, key, val)
    name = f"present {', '.join(node.keys)}"
    return reduce(planner, node, arranged, node.schema, (present(),), name)


def build_exists(planner: Planner, node: ExistsNode) -> int:
    """Each key with a row, and whether one is present: a reduction of the whole rows of a key, outside loops."""
    row = node.input.schema
    key = tuple(int(w) for w in row.index(node.keys))
    val = tuple(w for w in range(row.width) if w not in key)
    arranged = arrange(planner, node.input, node.scope, key, val)
    return reduce(planner, node, arranged, row.take(node.keys), (), f"exists {', '.join(node.keys)}")


def build_aggregate(planner: Planner, node: logical.AggregateNode, meaning: str | None = None) -> int:
    """group_by().agg(): arranges the key's columns and the columns that the aggregates read. If one aggregate cannot be
    updated change by change and needs the whole group, all aggregates of the node are computed from whole groups.

    meaning: the fingerprint of a node that this one replaces."""
    below, row, columns = _arguments(planner, node)
    used = [name for part in columns for name in part]
    # A group exists while any of its rows does. Without negative multiplicities the aggregated columns are enough to
    # know.
    rest = [] if below.is_positive else [name for name in row.names if name not in node.keys]
    key, val = row.take(node.keys), row.take(list(dict.fromkeys([*rest, *used])))
    items = []
    for (name, agg), part in zip(node.aggs, columns, strict=True):
        if agg.kind in Aggregation.hidden:
            items.append(Item(name, agg.kind, part, Int64(), False, agg.option))
            continue
        field = node.schema.field(name)
        items.append(Item(name, agg.kind, part, field.type, field.nullable, agg.option))
    if items and node.scope.depth == 0 and all(item.kind in LINEAR for item in items):
        return accumulate(planner, node, below, key, val, items, meaning)
    if counts_distinct(node, below, items):
        planner.uses[identity(below)] += 1
        at, by, kept, before, trace = _arranged_before(planner, below, key, val, ())
        planner.remember(trace, "", at, by, kept, ())
        print_ = _wave_print(planner, before, key, val, Aggregates(tuple(items)))
        if len(items) > 1:
            return build_aggregate(planner, as_sums(planner, node, below, items), print_)
        return build_aggregate(planner, as_count(planner, node, below, items[0]), print_)
    if has_parts(node, below, items, val):
        planner.uses[identity(below)] += 1
        _, _, _, before, _ = _arranged_before(planner, below, key, val, ())
        if all(item.kind in INCREMENTAL for item in items):
            print_ = planner.hash("reduce", before, key.to_json(), kernel_rows(items, val))
        else:
            print_ = _wave_print(planner, before, key, val, Aggregates(tuple(items)))
        return build_aggregate(planner, as_parts(planner, node, below, items), print_)
    label = _label(node)
    if node.scope.depth == 0 and len(items) == 1 and items[0].kind in ("min", "max"):
        first = () if compared_texts(items, val) else items[0].columns
        arranged, moved, before = _moved(planner, below, key, val, first)
        print_ = planner.hash("reduce", before, key.to_json(), kernel_rows(items, val))
        rows, compared = kernel_rows(items, moved), compared_texts(items, moved)
        return reduce(planner, node, arranged, key, rows, label, compared, print_)
    spec, found = Aggregates(tuple(items)), choices(items, val) if node.scope.depth == 0 else None
    column = ranked_column(items, val) if found is not None else None
    if found is not None and column is not None:
        arranged, moved, before = _moved(planner, below, key, val, [column])
        # The same columns in another order: what there were choices for has some again.
        found, print_ = choices(items, moved), _wave_print(planner, before, key, val, spec)
        assert found is not None
        return _chosen(planner, node, arranged, key, val, found, print_, ranks_of(items, moved, column))
    words = tuple(int(w) for w in row.index(key.names)), tuple(int(w) for w in row.index(val.names))
    arranged = arrange(planner, below, node.scope, *words)
    if all(item.kind in INCREMENTAL for item in items):
        return reduce(planner, node, arranged, key, kernel_rows(items, val), label, compared_texts(items, val))
    if found is not None:
        print_ = _wave_print(planner, planner.prints[arranged], key, val, spec)
        return _chosen(planner, node, arranged, key, val, found, print_)
    return reduce_groups(planner, node, arranged, key, val, spec, label)


def _chosen(
    planner: Planner,
    node: logical.AggregateNode,
    arranged: int,
    key: RowType,
    val: RowType,
    found: Choices,
    print_: str,
    reads: Ranks | None = None,
) -> int:
    """What ranks choose from groups. reads: the part of a group that this depends on, None for all of it."""
    op = ChosenOp(
        len(planner.ops), planner.scope(node.scope), node.schema.width, _label(node),
        input=arranged, key=key, total=True, trace=None, columns=found[0], items=found[1], compared=val.text_words,
    )  # fmt: skip
    op.reads = reads
    return _add(planner, op, print_)


def _label(node: logical.AggregateNode) -> str:
    return f"group by {', '.join(node.keys)}"


def accumulate(
    planner: Planner,
    node: logical.AggregateNode,
    below: Node,
    key: RowType,
    val: RowType,
    items: Sequence[Item],
    meaning: str | None = None,
) -> int:
    """A group of linear aggregates outside loops: one vector a key, or an arrangement of the keys if their copies are
    the only count. val: the columns that earlier versions kept for it; they name what the reduction computes."""
    read, aggregations = vector_rows(items, below.schema, 1 + key.width)
    counts_only = len(aggregations) == 1 and not read
    at, words, both, arranged, trace = _arranged_before(planner, below, key, val, read)
    kept, read = both[: val.width], both[val.width :]
    print_ = meaning or planner.hash("reduce", arranged, key.to_json(), kernel_rows(items, val))
    if meaning is None:
        flags = tuple(read[flag - 1 - key.width] for flag in null_flags(aggregations))
        planner.remember(trace, _lanes(print_), at, words, kept, flags)
    memo = ("reduction", planner.scope(node.scope), print_)
    if memo in planner.memo:
        return planner.memo[memo]
    common = (planner.scope(node.scope), node.schema.width, _label(node))
    op: ReductionOp
    if counts_only:
        source = arrange_words(planner, at, words, (), node.keys)
        op = AccumulableReduceOp(
            len(planner.ops), *common,
            input=source, key=key, total=True, trace=None, aggregations=aggregations, state=None,
        )  # fmt: skip
    else:
        slots, page, length = vector_layout(aggregations)
        state = f"vectors-{print_[:16]}"
        op = AccumulateOp(
            len(planner.ops), *common,
            input=at, key=key, total=True, trace=None, words=words, val=read, aggregations=aggregations, state=state,
            slots=slots, page=page, length=length,
        )  # fmt: skip
        width = page if length == page else 1 + page
        planner.arrangements[state] = ArrangementPlan(state, f"{op.name} state", key.width, width, 0)
    planner.memo[memo] = planner.add(op, print_)
    return planner.memo[memo]


def _arranged_before(
    planner: Planner, below: Node, key: RowType, val: RowType, read: Words
) -> tuple[int, Words, Words, str, str]:
    """How earlier versions arranged the input of a group. Returns the operator below all projections of plain columns;
    the words of its rows that are the key; those of `val` and of `read`; the arrangement's fingerprint; its trace."""
    row = below.schema
    words, kept = (tuple(int(w) for w in row.index(part.names)) for part in (key, val))
    at, words, both = picked(planner, below, planner.build(below), words, (*kept, *read))
    base, kept = planner.ops[at], both[: len(kept)]
    if base.arranged_by(words, kept):
        print_ = planner.prints[at]
        return at, words, both, print_, base.arrangement or reduced_trace(print_)
    print_ = arranged_print(planner, at, words, kept)
    return at, words, both, print_, arranged_trace(print_)


def _arguments(planner: Planner, node: logical.AggregateNode) -> tuple[Node, RowType, list[tuple[str, ...]]]:
    """The input with every aggregate argument as a column, its row type, and the columns of each aggregate."""
    row = node.input.schema
    args = [agg.args for _, agg in node.aggs]
    if all(expr.column is not None for part in args for expr in part):
        return node.input, row, [tuple(str(expr.column) for expr in part) for part in args]
    # Computed arguments become columns of a projection first.
    kept = node.keys if node.input.is_positive else row.names
    wanted: dict[str, Expr] = {name: col(name) for name in kept}
    columns = []
    for part in args:
        names = []
        for expr in part:
            name = expr.column or f"argument {len(wanted)}"
            wanted[name] = expr
            names.append(name)
        columns.append(tuple(names))
    below = logical.ProjectNode(input=node.input, exprs=tuple(wanted.items()), where=node.where)
    planner.uses[identity(below)] = 1
    return below, below.schema, columns


def reduce_groups(
    planner: Planner, node: Node, arranged: int, key: RowType, val: RowType, spec: LogicSpec, name: str
) -> int:
    """Reduce with a logic, on an arrangement of columns `val` by `key`. Its output is kept in a trace inside loops, and
    outside them if the logic is not steady, because then the earlier output cannot be computed again."""
    print_ = _wave_print(planner, planner.prints[arranged], key, val, spec)
    scope, width = planner.scope(node.scope), node.schema.width
    total = spec.steady and planner.scopes[scope].depth == 0
    op = BatchedReduceOp(
        len(planner.ops), scope, width, name, input=arranged, key=key, total=total, trace=None, val=val, spec=spec
    )
    return _add(planner, op, print_)


def _wave_print(planner: Planner, arranged: str, key: RowType, val: RowType, spec: LogicSpec) -> str:
    """The fingerprint of a reduction with a logic of the arrangement with this fingerprint."""
    return planner.hash("wave", arranged, key.to_json(), val.to_json(), spec.name, spec.key())


def _moved(planner: Planner, below: Node, key: RowType, val: RowType, first: Sequence[str]) -> tuple[int, RowType, str]:
    """An arrangement by `key` whose vals begin with the columns `first`. Returns it, the columns of its vals, and the
    fingerprint of the arrangement in which earlier versions kept these rows, in the order of `val`."""
    moved = ordered_first(first, val)
    wanted = tuple(int(w) for w in below.schema.index(moved.names))
    at, words, both, before, trace = _arranged_before(planner, below, key, val, wanted)
    kept, wanted = both[: val.width], both[val.width :]
    arranged = arrange_words(planner, at, words, wanted, key.names)
    source = planner.ops[arranged]
    if wanted != kept and isinstance(source, ArrangeOp):
        source.former = trace, (*range(key.width), *(key.width + kept.index(word) for word in wanted))
    return arranged, moved, before


def build_top(planner: Planner, node: ReduceNode, spec: TopK) -> int:
    """The first copies of groups: an arrangement whose vals begin with the columns of the order, and a reduction that
    reads its ends."""
    key, val = node.key_row, node.val_row
    ends = ends_of_order(spec.by, ordered_first([name for name, _ in spec.by], val), spec.count)
    first = () if ends is None else [name for name, _ in spec.by]
    arranged, moved, before = _moved(planner, node.input, key, val, first)
    print_ = _wave_print(planner, before, key, val, spec)
    by, flips = list[int](), list[int]()
    for name, descending in spec.by:
        field = moved.field(name)
        by += range(field.offset, field.offset + field.words)
        flips += [-1 if descending else 0] * field.words
    op = TopOp(
        len(planner.ops), planner.scope(node.scope), node.schema.width, spec.title,
        input=arranged, key=key, total=True, trace=None, val=val.width, by=tuple(by), flips=tuple(flips),
        most=spec.count, words=tuple(int(w) for w in moved.index(val.names)), compared=moved.text_words,
    )  # fmt: skip
    op.reads = ends
    return _add(planner, op, print_)


def build_sessions(planner: Planner, node: ReduceNode, spec: Sessions) -> int:
    """The starts of sessions: an arrangement whose vals begin with the values that make them, and a reduction that
    follows them with a trace of all starts."""
    key, val = node.key_row, node.val_row
    arranged, moved, before = _moved(planner, node.input, key, val, [spec.on])
    print_ = _wave_print(planner, before, key, val, spec)
    field, made = moved.field(spec.on), spec.schema(key, moved)
    op = SessionsOp(
        len(planner.ops), planner.scope(node.scope), node.schema.width, spec.title,
        input=arranged, key=key, total=True, trace=None, val=moved.width, flag=field.nullable, gap=spec.gap,
        most=spec.latest(val), on=spec.on, words=tuple(int(w) for w in made.index(spec.schema(key, val).names)),
        state=f"starts-{print_[:16]}",
    )  # fmt: skip
    return _add(planner, op, print_)


def build_session_ends(planner: Planner, node: ReduceNode, spec: Sessions) -> int:
    """The rows with their sessions' starts and ends, in the order of the node's columns."""
    key, val = node.key_row, node.val_row
    planner.uses[identity(node.input)] += SHARED
    at, by, kept, before, trace = _arranged_before(planner, node.input, key, val, ())
    planner.remember(trace, "", at, by, kept, ())
    joined, stages = as_starts(planner, node, spec)
    print_ = _wave_print(planner, before, key, val, spec)
    return chain(planner, planner.build(joined), stages, node.schema.width, 0, print_, alone=False)


def build_extremes(planner: Planner, node: ReduceNode, spec: RunningExtreme) -> int:
    """Running least or greatest values: an arrangement whose vals begin with the columns of the order, and a reduction
    that follows them with a trace of the records."""
    key, val = node.key_row, node.val_row
    arranged, moved, before = _moved(planner, node.input, key, val, [name for name, _ in spec.by])
    print_ = _wave_print(planner, before, key, val, spec)
    field, made = moved.field(spec.column), spec.schema(key, moved)
    state = f"records-{print_[:16]}"
    op = ExtremesOp(
        len(planner.ops), planner.scope(node.scope), node.schema.width, spec.title,
        input=arranged, key=key, total=True, trace=None, val=moved.width, down=spec.by[0][1],
        column=field.value_offset, words=field.type.words, flag=field.offset if field.nullable else -1,
        greatest=spec.greatest, order=tuple(int(w) for w in made.index(spec.schema(key, val).names)), state=state,
        texts_at=(*key.text_words, *(key.width + word for word in moved.text_words)),
    )  # fmt: skip
    at = _add(planner, op, print_)
    planner.arrangements[state] = ArrangementPlan(state, f"{op.name} state", key.width, moved.width, 0)
    return at


def build_dense_rank(planner: Planner, node: ReduceNode, spec: DenseRank) -> int:
    """The rows with the numbers of their values, in the order of the node's columns."""
    key, val = node.key_row, node.val_row
    planner.uses[identity(node.input)] += SHARED
    at, by, kept, before, trace = _arranged_before(planner, node.input, key, val, ())
    planner.remember(trace, "", at, by, kept, ())
    joined, print_ = as_row_numbers(planner, node, spec), _wave_print(planner, before, key, val, spec)
    stage = Compute(tuple(col(name) for name in node.schema.names), joined.schema, node.schema.width)
    return chain(planner, planner.build(joined), [stage], node.schema.width, 0, print_, alone=False)


def build_reduce(planner: Planner, node: ReduceNode) -> int:
    """An arrangement by the key, and a reduction that applies the node's logic to it."""
    key, val = node.key_row, node.val_row
    if isinstance(node.spec, TopK) and node.scope.depth == 0 and 0 < node.spec.count <= MOST and val.width:
        return build_top(planner, node, node.spec)
    if isinstance(node.spec, DenseRank) and node.scope.depth == 0:
        return build_dense_rank(planner, node, node.spec)
    if isinstance(node.spec, Sessions) and node.scope.depth == 0:
        return (build_session_ends if node.spec.ends else build_sessions)(planner, node, node.spec)
    if isinstance(node.spec, RunningExtreme) and node.scope.depth == 0 and directed(node.spec, val):
        return build_extremes(planner, node, node.spec)
    found: tuple[list[str], Surroundings | Stretches] | None = None
    if node.scope.depth == 0:
        found = surroundings_of(node.spec, val) or stretches_of(node.spec, val)
    if found is not None:
        first, reads = found
        arranged, moved, before = _moved(planner, node.input, key, val, first)
        print_ = _wave_print(planner, before, key, val, node.spec)
        made = node.spec.schema(key, moved)
        common = len(planner.ops), planner.scope(node.scope), node.schema.width, node.spec.title
        order = tuple(int(w) for w in made.index(node.spec.schema(key, val).names))
        along = in_order_of(node.spec, moved) if isinstance(node.spec, OrderedSpec) else None
        op: BatchedReduceOp
        if along is None:
            op = BatchedReduceOp(
                *common, input=arranged, key=key, total=True, trace=None, val=moved, spec=node.spec, order=order
            )
        else:
            op = OrderedReduceOp(
                *common, input=arranged, key=key, total=True, trace=None, val=moved, spec=node.spec, order=order,
                along=along,
            )  # fmt: skip
        op.reads = reads
        return _add(planner, op, print_)
    return build_whole(planner, node)


def build_whole(planner: Planner, node: ReduceNode) -> int:
    """A reduction that reads whole groups."""
    row, key, val = node.input.schema, node.key_row, node.val_row
    words = tuple(int(w) for w in row.index(key.names)), tuple(int(w) for w in row.index(val.names))
    arranged = arrange(planner, node.input, node.scope, *words)
    return reduce_groups(planner, node, arranged, key, val, node.spec, node.spec.title)


BUILDERS: dict[type[Node], Callable[[Planner, Any], int]] = {
    logical.DistinctNode: build_distinct,
    logical.PresentNode: build_present,
    logical.AggregateNode: build_aggregate,
    ThresholdNode: build_threshold,
    CopiesNode: build_copies,
    ExistsNode: build_exists,
    ReduceNode: build_reduce,
}
