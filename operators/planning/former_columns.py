"""The present columns of a source as expressions of those that it had: what a change of columns means for rows."""

from __future__ import annotations

from vernier.operators.language.expr.expression import Cast, Column, Expr, Literal, Nullability, as_expr
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.options import ABSENT
from vernier.operators.language.types.scalars import Int64, Type, spell
from vernier.operators.language.types.schema import Field, RowType


def adapted_columns(source: str, former: RowType, present: RowType) -> dict[str, Expr] | str:
    """For each present column of a source an expression of the former ones; or why there is none, with the way out."""
    old = {name: was for was, name in present.earlier_names.items() if was in former}
    found: dict[str, Expr] = {}
    for field in present.fields:
        was = field.name if field.name in former else old.get(field.name)
        made = _new(field, source, present) if was is None else _changed(former.field(was), field, source)
        if isinstance(made, str):
            return made
        found[field.name] = made
    return found


def described(former: RowType, present: RowType) -> str:
    """How the columns of a source differ, for people: `+ note String | None; - kind Int64; spent was paid`."""
    names = {name: was for was, name in present.earlier_names.items() if was in former}
    said, used = [], set()
    for field in present.fields:
        was = field.name if field.name in former else names.get(field.name)
        if was is None:
            said.append(f"+ {field.name} {spell(field.type, field.nullable)}")
            continue
        used.add(was)
        one = former.field(was)
        before, now = spell(one.type, one.nullable), spell(field.type, field.nullable)
        if was != field.name or before != now:
            said.append(f"{field.name} {now} was {was} {before}" if was != field.name else f"{was} {before} → {now}")
    said += [f"- {one.name} {spell(one.type, one.nullable)}" for one in former.fields if one.name not in used]
    return "; ".join(said) or "another order"


def _new(field: Field, source: str, present: RowType) -> Expr | str:
    value = present.defaults(field.name)
    if value is ABSENT:
        spelled = spell(field.type, field.nullable)
        return (
            f"column {field.name} of source {source} is new, and the rows that are there have no value for it; write "
            f"`{field.name}: {spelled} | None`, `= vn.column(default=…)` or, if it had another name, "
            "`= vn.column(was=…)` behind it"
        )
    if value is None:
        return Nullability(Cast(Literal(None, None), field.type), True)
    literal = as_expr(value)
    return literal if isinstance(literal, Literal) and literal.type == field.type else Cast(literal, field.type)


def _changed(was: Field, field: Field, source: str) -> Expr | str:
    before, now = spell(was.type, was.nullable), spell(field.type, field.nullable)
    made: Expr = Column(was.name)
    if was.type != field.type:
        if not _widens(was.type, field.type):
            return (
                f"column {field.name} of source {source} was {before} and is {now}, and not every value of the one is "
                "one of the other; give the new column another name, with `| None` or a default, and convert in the "
                "program"
            )
        made = Cast(made, field.type)
    if was.nullable and not field.nullable:
        return (
            f"column {field.name} of source {source} was {before} and is {now}, but there may be rows with null; keep "
            "`| None`, and filter in the program"
        )
    return made if was.nullable == field.nullable else Nullability(made, True)


def _widens(before: Type, now: Type) -> bool:
    """Whether a value of a type is one of another type, too. An Int64 that a Decimal has no digits for raises when its
    row is read."""
    if not isinstance(now, Decimal):
        return False
    if isinstance(before, Int64):
        return True
    more = isinstance(before, Decimal) and now.scale >= before.scale
    return more and now.precision - now.scale >= before.precision - before.scale  # type: ignore[attr-defined]
