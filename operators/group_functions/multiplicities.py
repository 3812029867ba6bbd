"""Logic of `threshold(fn)`: a function of the program computes the multiplicities of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from vernier.operators.failures import UserCodeFailed
from vernier.operators.group_functions.logic import Groups, Logic, LogicSpec, Produced
from vernier.operators.language.expr.functions import function_key, function_location, function_name
from vernier.operators.language.expr.running_calls import Call, running
from vernier.operators.language.types.schema import RowType

_SAMPLE = 5
"""How many multiplicities an error shows."""


@dataclass(frozen=True)
class Multiplicities(LogicSpec):
    """Each row with the multiplicity that `function` computes from its old one; the key is the whole row."""

    name: ClassVar[str] = "multiplicities"
    steady: ClassVar[bool] = False
    function: Callable[[Any], Any]

    @property
    def title(self) -> str:
        return f"threshold by {function_name(self.function)}"

    def key(self) -> tuple[Any, ...]:
        return (function_key(self.function),)

    def schema(self, key: RowType, val: RowType) -> RowType:
        return RowType(())

    def compile(self, key: RowType, val: RowType) -> Logic:
        def run(groups: Groups) -> Produced:
            where, name = str(function_location(self.function)), function_name(self.function)
            try:
                with running(Call("threshold", where, name), groups.counts[:_SAMPLE].tolist()):
                    made = np.asarray(self.function(groups.counts.copy()))
                if made.shape != groups.counts.shape or made.dtype.kind not in "iub":
                    problem = f"an array of {made.dtype} with shape {made.shape} for {len(groups)} multiplicities"
                    raise TypeError(f"it returned {problem}; it must return one integer for each")
            except (Exception, SystemExit) as error:
                raise UserCodeFailed(
                    operator="threshold",
                    where=where,
                    function=name,
                    sample=repr(groups.counts[:_SAMPLE].tolist()),
                    cause=f"{type(error).__name__}: {error}",
                ) from error
            kept = made != 0
            return replace(Produced.one(groups.vals, kept), counts=made[kept].astype(np.int64))

        return run
