"""A numba pass that gives the names of one array in a kernel a single name.

numba counts references to an array for each name that it has: the argument names of an inlined function, and each
version of a name that is assigned again in a branch or a loop. Most of this counting is in inner loops and is not
optimized away; it took a third of the time of a slice. Therefore, before a kernel becomes machine code, names of arrays
that are copies of each other become one name, if none of them is assigned while another one's array is still needed. A
register allocator does the same (Chaitin's coalescing).

Importing this module is enough: functions of our kernel packages get the pass; numba's own and others do not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numba.core.analysis
import numba.core.ir
import numba.core.ir_utils
import numba.core.typed_passes
import numba.core.untyped_passes
from numba.core import compiler, types
from numba.core.compiler_machinery import FunctionPass, register_pass

# numba has no type information for these
analysis: Any = numba.core.analysis
ir: Any = numba.core.ir
ir_utils: Any = numba.core.ir_utils

OURS = ("vernier.storage.kernels.", "vernier.operators.kernels.", "vernier.service.kernels.")
"""The packages whose kernels get the pass."""


def merged_names(blocks: Mapping[int, Any], kinds: Mapping[str, Any]) -> dict[str, str]:
    """The names to replace, each with its replacement.

    blocks: numba's IR after type inference; kinds: the type of each name that may be replaced; its replacement has the
    same type. O(statements x names that live at once).
    """
    apart, copies = _interference(blocks, kinds)
    chosen: dict[str, str] = {}

    def name_of(name: str) -> str:
        while name in chosen:
            name = chosen[name]
        return name

    for target, source in copies:
        one, other = name_of(source), name_of(target)
        if one == other or kinds[one] != kinds[other] or one in apart[other]:
            continue
        chosen[other] = one
        for name in apart.pop(other):
            apart[name].discard(other)
            apart[name].add(one)
            apart[one].add(name)
    return {name: name_of(name) for name in chosen}


def _interference(
    blocks: Mapping[int, Any], kinds: Mapping[str, Any]
) -> tuple[dict[str, set[str]], list[tuple[str, str]]]:
    """(For each name, those that are live while it is assigned a value other than theirs; all copies `target =
    source`)."""
    graph = analysis.compute_cfg_from_blocks(blocks)
    used = analysis.compute_use_defs(blocks)
    needed = analysis.compute_live_map(graph, blocks, used.usemap, used.defmap)
    origin = _origins(blocks)
    apart: dict[str, set[str]] = defaultdict(set)
    copies = []
    for label, block in blocks.items():
        live = {name for after, _ in graph.successors(label) for name in needed[after] if name in kinds}
        for statement in reversed(block.body):
            source = None
            if isinstance(statement, ir.Assign):
                target = statement.target.name
                if isinstance(statement.value, ir.Var):
                    source = statement.value.name
                live.discard(target)
                if target in kinds:
                    for name in live:
                        if name != source and origin.get(name, name) != origin.get(target, target):
                            apart[target].add(name)
                            apart[name].add(target)
                    if source in kinds:
                        copies.append((target, source))
            live.update(name for name in _read(statement) if name in kinds)
    return apart, copies


def _origins(blocks: Mapping[int, Any]) -> dict[str, str]:
    """For each name that is assigned once, as a copy of a name that is also assigned once: the name at the start of the
    chain. Because a name is assigned before it is read, names with the same start never refer to different arrays, even
    if neither is a copy of the other."""
    assigned: Counter[str] = Counter()
    sources = {}
    for block in blocks.values():
        for statement in block.find_insts(ir.Assign):
            assigned[statement.target.name] += 1
            if isinstance(statement.value, ir.Var):
                sources[statement.target.name] = statement.value.name
    once = {name: source for name, source in sources.items() if assigned[name] == assigned[source] == 1}
    origins = {}
    for name in once:
        origin = name
        while origin in once:
            origin = once[origin]
        origins[name] = origin
    return origins


def _read(statement: Any) -> Iterable[str]:
    """The names whose values a statement needs."""
    if not isinstance(statement, ir.Assign):
        return [variable.name for variable in statement.list_vars()]
    value = statement.value
    if isinstance(value, ir.Var):
        return [value.name]
    return [variable.name for variable in value.list_vars()] if isinstance(value, ir.Inst) else []


@register_pass(mutates_CFG=False, analysis_only=False)  # type: ignore[no-untyped-call,unused-ignore]
class OneName(FunctionPass):  # type: ignore[misc,unused-ignore]
    """Merges the names of a kernel's arrays."""

    _name = "one_name"

    def __init__(self) -> None:
        # numba requires a constructor
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]

    def run_pass(self, state: Any) -> bool:
        """Returns whether anything has changed."""
        if not state.func_id.modname.startswith(OURS):
            return False
        kinds = {name: kind for name, kind in state.typemap.items() if isinstance(kind, types.Array)}
        blocks = state.func_ir.blocks
        names = merged_names(blocks, kinds)
        if not names:
            return False
        _rename(blocks, names)
        state.func_ir._definitions = ir_utils.build_definitions(blocks)
        return True


def _rename(blocks: Mapping[int, Any], names: Mapping[str, str]) -> None:
    """Replace names, and drop statements that then copy an array to itself."""
    one: Any = next(iter(blocks.values()))
    variables = {name: ir.Var(one.scope, chosen, one.loc) for name, chosen in names.items()}
    ir_utils.replace_vars(blocks, variables)
    for block in blocks.values():
        block.body = [statement for statement in block.body if not _to_itself(statement)]


def _to_itself(statement: Any) -> bool:
    value = getattr(statement, "value", None)
    return isinstance(statement, ir.Assign) and isinstance(value, ir.Var) and value.name == statement.target.name


_lowering = compiler.DefaultPassBuilder.define_nopython_lowering_pipeline


def _with_one_name(state: Any, name: str = "nopython_lowering") -> Any:
    passes = _lowering(state, name)  # type: ignore[no-untyped-call,unused-ignore]
    passes.passes.insert(0, (OneName, "one name for an array"))
    passes.finalize()
    return passes


compiler.DefaultPassBuilder.define_nopython_lowering_pipeline = staticmethod(_with_one_name)


def _of_others_alone(kind: Any) -> None:
    """Exclude kernels from a pass that never changes them but takes time to find that out."""
    run_pass = kind.run_pass

    def run_elsewhere(self: Any, state: Any) -> bool:
        return not state.func_id.modname.startswith(OURS) and bool(run_pass(self, state))

    kind.run_pass = run_elsewhere


# Closures and comprehensions; expressions of whole arrays.
_of_others_alone(numba.core.untyped_passes.InlineClosureLikes)
_of_others_alone(numba.core.typed_passes.NopythonRewrites)
