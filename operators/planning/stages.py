"""Stages: the row-wise steps that one linear operator runs as a chain."""

from __future__ import annotations

from collections.abc import Sequence

from operators.planning.plan import Compute, Keep, Negated, Stage, Take


def fuse(stages: list[Stage]) -> list[Stage]:
    """Neighbouring picks of words become one."""
    out: list[Stage] = []
    for stage in stages:
        last = out[-1] if out else None
        if isinstance(stage, Take) and isinstance(last, Take):
            out[-1] = Take(tuple(last.words[w] for w in stage.words))
        else:
            out.append(stage)
    return out


def stage_key(stage: Stage) -> object:
    match stage:
        case Take():
            return ("take", stage.words)
        case Keep():
            return ("keep", stage.predicate.key(), stage.schema.to_json())
        case Compute():
            return ("compute", [expr.key() for expr in stage.exprs], stage.schema.to_json())
        case _:
            return ("negate",)


def chain_name(stages: Sequence[Stage]) -> str:
    names = {Take: "select", Keep: "filter", Compute: "compute", Negated: "negate"}
    return " → ".join(names[type(stage)] for stage in stages)
