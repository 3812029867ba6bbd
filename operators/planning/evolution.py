"""Evolution: what a state that was built with other columns of its sources is good for.

The way of the data: the columns that a source had, and those that it has, give an expression for each present column
(`Adapt`): the former column, a cast of it, or a constant. These expressions move through the logical nodes towards the
views: a filter that reads only former columns is a filter of the former rows, so a count behind it is the former count.
Where they come out unchanged, a trace of the former program has the same rows as one of the present program, and is
renamed. Where they do not, its rows are adapted when others are filled (engine/migrate.py).

Invariant: for each node with a form in former columns, the present rows are `Adapt` of that form's rows, at every time.
A node without one (a loop, a table function that reads a column that is new) is computed anew from rows below it.

Cost: of planning, one more compilation, once for each change of columns; of a trace that is renamed, nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from vernier.operators.errors import ProgramError
from vernier.operators.language.collection.app import App, ViewDecl
from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import Expr
from vernier.operators.language.plan.node import Node, walk
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.adapted import NONE, Adapt, Evolution, Kept
from vernier.operators.planning.arrangements import arranged_print, arranged_trace, names_of
from vernier.operators.planning.former_columns import adapted_columns
from vernier.operators.planning.former_nodes import Form, forms
from vernier.operators.planning.op import Op
from vernier.operators.planning.ops import ArrangeOp, InputOp, UpsertOp
from vernier.operators.planning.sharing import identity
from vernier.operators.planning.stages import Words

if TYPE_CHECKING:
    from vernier.operators.planning.planner import Planner

_PRINT = 16


def evolve(planner: Planner, former: Mapping[str, RowType]) -> Evolution:
    """What a state is good for whose sources had the columns `former`, for the plan that `planner` has compiled."""
    changed = {
        name: row
        for name, row in former.items()
        if name in planner.app.sources and planner.app.sources[name].schema != row
    }
    if not changed:
        return NONE
    columns, refused = {}, {}
    for name, row in changed.items():
        found = adapted_columns(name, row, planner.app.sources[name].schema)
        if isinstance(found, str):
            refused[name] = found
        else:
            columns[name] = found
    roots = [*(view.node for view in planner.app.views.values()), *planner.app.required]
    known = forms(
        [*planner.app.sources.values(), *roots], {name: (changed[name], own) for name, own in columns.items()}
    )
    try:
        other = _former_planner(planner, columns, changed, known)
    except ProgramError:
        return Evolution(refused=refused)
    return _compared(planner, other, known, columns, changed, refused)


def _former_planner(
    planner: Planner,
    columns: Mapping[str, Mapping[str, Expr]],
    changed: Mapping[str, RowType],
    known: Mapping[int, Form],
) -> Planner:
    """The planner of the program that has the former forms of all views, compiled."""
    app = App(planner.app.name, retain=planner.app.retain_ns, on_late=planner.app.on_late)
    for name, source in planner.app.sources.items():
        form = known.get(id(source))
        app.sources[name] = source if form is None or name not in columns else form.node  # type: ignore[assignment]
    app.kept_sources = dict(planner.app.kept_sources)
    for name, view in planner.app.views.items():
        form = known.get(id(view.node))
        if form is None:
            continue
        keys = [form.columns[one].column for one in view.key]
        if all(key is not None for key in keys):
            app.views[name] = ViewDecl(name, form.node, tuple(map(str, keys)), view.where)
        else:
            app.required.append(form.node)
    below = [node for view in planner.app.views.values() for node in walk([view.node])]
    users = {id(one): node for node in below for one in node.dependencies}
    for node in below:
        form, user = known.get(id(node)), users.get(id(node))
        if form is not None and user is not None and id(user) not in known:
            app.required.append(form.node)
    upserts = {name: _former_key(key, columns.get(name)) for name, key in planner.upserts.items()}
    other = type(planner)(app, keep_sources=planner.keep_sources, upserts=upserts, push=planner.push)
    other.compile()
    return other


def _former_key(key: Sequence[str], columns: Mapping[str, Expr] | None) -> Sequence[str]:
    if columns is None:
        return key
    return [columns[name].column or name for name in key]


def _compared(
    planner: Planner,
    other: Planner,
    known: Mapping[int, Form],
    columns: Mapping[str, Mapping[str, Expr]],
    changed: Mapping[str, RowType],
    refused: Mapping[str, str],
) -> Evolution:
    """Compare the operators of the present and the former program."""
    supplies = {identity(node): op for node, op in _alive(other)}
    former: dict[int, tuple[Op, Adapt]] = {}
    for node, op in _alive(planner):
        form = known.get(id(node))
        found = None if form is None else supplies.get(identity(form.node))
        if form is None or found is None:
            continue
        former[op.id] = found, Adapt(form.node.schema, tuple(form.columns.items()))
    inputs = {op.source: op for op in other.ops if isinstance(op, InputOp)}
    for op in planner.ops:
        if isinstance(op, InputOp) and op.source in columns and op.source in inputs:
            former[op.id] = inputs[op.source], Adapt(changed[op.source], tuple(columns[op.source].items()))
    same: dict[str, str] = {}
    arranged: dict[str, list[Kept]] = {}
    for op_id, (was, adapt) in former.items():
        now = planner.ops[op_id]
        if adapt.same and type(now) is type(was):
            same |= dict(zip(now.traces, was.traces, strict=False)) | dict(zip(now.queues, was.queues, strict=False))
    for op in planner.ops:
        if isinstance(op, ArrangeOp) and op.input in former:
            _arranged(planner, other, op, *former[op.input], same, arranged)
    same = {name: old for name, old in same.items() if name != old and _shape(planner, name) == _shape(other, old)}
    prints = {
        op_id: (other.prints[was.id][:_PRINT], adapt)
        for op_id, (was, adapt) in former.items()
        if not (isinstance(was, InputOp) and was.source in planner.upserts)
    }
    return Evolution(same, arranged, prints, refused)


def _alive(planner: Planner) -> Iterator[tuple[Node, Op]]:
    """The nodes whose operators are in the plan; others were fused with those above them."""
    return ((node, op) for node, op in planner.made if op.id < len(planner.ops) and planner.ops[op.id] is op)


def _arranged(
    planner: Planner,
    other: Planner,
    op: ArrangeOp,
    was: Op,
    adapt: Adapt,
    same: dict[str, str],
    arranged: dict[str, list[Kept]],
) -> None:
    """Note the arrangements of the former operator `was` whose rows make those of the arrangement `op`."""
    sources = adapt.sources
    key, val = ([sources[word] for word in part] for part in (op.key, op.val))
    row = _row(planner, op, adapt)
    for one in other.ops:
        if (
            not isinstance(one, ArrangeOp)
            or one.input != was.id
            or isinstance(one, UpsertOp) != isinstance(op, UpsertOp)
        ):
            continue
        alike = _shape(planner, op.trace) == _shape(other, one.trace)
        if alike and list(one.key) == key and list(one.val) == val and _view(op) == _view(one):
            same[op.trace] = one.trace
        elif row is not None:
            _note(arranged, op, one.trace, (*one.key, *one.val), adapt.only(row))
    if row is None or isinstance(op, UpsertOp) or -1 in key:
        return
    # Arrangements that the former forms of the present views do not need, but the former program may have had.
    plain = tuple(word for word in val if word >= 0)
    rest = tuple(word for word in range(adapt.former.width) if word not in key)
    for kept in dict.fromkeys((plain, rest)):
        trace = arranged_trace(arranged_print(other, was.id, tuple(key), kept))
        _note(arranged, op, trace, (*key, *kept), adapt.only(row))


def _view(op: ArrangeOp) -> str | None:
    """The name of the view that an arrangement is of."""
    return op.name if op.trace.startswith("view-") else None


def _row(planner: Planner, op: ArrangeOp, adapt: Adapt) -> list[str] | None:
    """The columns that an arrangement's rows consist of, in order; None if it has parts of columns."""
    made = [bind(expr, adapt.former) for _, expr in adapt.exprs]
    present = RowType((name, one.type, one.nullable) for (name, _), one in zip(adapt.exprs, made, strict=True))
    names = names_of(present, (*op.key, *op.val))
    return names if tuple(int(word) for word in present.index(names)) == (*op.key, *op.val) else None


def _note(arranged: dict[str, list[Kept]], op: ArrangeOp, trace: str, order: Words, adapt: Adapt) -> None:
    """Note that a trace with the former words `order` makes the rows of `op`, if it has all columns for that."""
    here = [f.name for f in adapt.former.fields if set(range(f.offset, f.offset + f.words)) <= set(order)]
    if not adapt.needs <= set(here):
        return
    row = adapt.former.take(here)
    words = tuple(order.index(int(word)) for word in adapt.former.index(here))
    arranged.setdefault(op.trace, []).append(Kept(trace, words, adapt.reading(row)))


def _shape(planner: Planner, name: str) -> tuple[int, ...] | None:
    """The widths of a trace or queue."""
    shape, queue = planner.arrangements.get(name), planner.queues.get(name)
    if shape is not None:
        return shape.key_width, shape.val_width, shape.depth, int(shape.retained)
    return None if queue is None else (queue.width, queue.depth)
