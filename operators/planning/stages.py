"""Stages: the row-wise steps that one linear operator runs as a chain."""

from __future__ import annotations

from collections.abc import Sequence

from vernier.operators.planning.plan import Compute, Expand, Keep, Move, Negated, Stage, Take


def fuse(stages: list[Stage]) -> list[Stage]:
    """Merge neighbouring `Take` stages into one."""
    out: list[Stage] = []
    for stage in stages:
        last = out[-1] if out else None
        if isinstance(stage, Take) and isinstance(last, Take):
            out[-1] = Take(tuple(last.words[w] for w in stage.words))
        else:
            out.append(stage)
    return out


def waits(stage: Stage) -> bool:
    """Whether updates may leave the stage at a later time than the one they arrived with."""
    return isinstance(stage, Move) or (isinstance(stage, Expand) and stage.table.waits)


def chain_name(stages: Sequence[Stage]) -> str:
    return " → ".join(_name(stage) for stage in stages)


def _name(stage: Stage) -> str:
    match stage:
        case Take():
            return "select"
        case Keep():
            return "filter"
        case Compute():
            return "compute"
        case Expand():
            return stage.table.name
        case Move():
            return "delay" if stage.delay else "coarsen"
        case Negated():
            return "negate"
