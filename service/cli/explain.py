"""Formats a program's plan for people: text and Mermaid from `plan.explain()`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Plan = Mapping[str, Any]
Op = Mapping[str, Any]

_INDENT = "    "


def as_text(plan: Plan) -> str:
    """The plan as lines: sources, operators with those of a loop indented below it, arrangements, views."""
    counts = ", ".join(_count(plan[f"{noun}s"], noun) for noun in ("source", "view", "operator", "arrangement"))
    lines = [
        f"app {plan['app']}: {counts}",
        "",
        "sources",
        *(f"  {name} ({_columns(schema)})" for name, schema in plan["sources"].items()),
        "",
        "operators (in the order in which they run; times inside a loop are products of data time and rounds)",
        *_scope_lines(plan, 0, "  "),
        "",
        "arrangements (each is kept once, for all its readers)",
        *(line for arrangement in plan["arrangements"] for line in _arrangement_lines(plan, arrangement)),
        "",
        "views",
        *(f"  {name} ({_columns(view['schema'])}) by {', '.join(view['key'])}" for name, view in plan["views"].items()),
    ]
    return "\n".join(lines)


def _count(things: Any, noun: str) -> str:
    return f"{len(things)} {noun}" + ("" if len(things) == 1 else "s")


def _columns(schema: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in schema)


def _scope_lines(plan: Plan, scope: int, indent: str) -> Iterator[str]:
    for op in plan["operators"]:
        if op["scope"] == scope:
            yield f"{indent}{_title(op)}{_inputs(op)}{_remarks(op)}"
            if "inner_scope" in op:
                yield from _scope_lines(plan, op["inner_scope"], indent + _INDENT)


def _title(op: Op) -> str:
    kind, name = op["kind"], op["name"]
    said = name if name.startswith(kind) or kind == "linear" else f"{kind} {name}"
    return f"#{op['id']} {said}"


def _inputs(op: Op) -> str:
    return " ← " + ", ".join(f"#{i}" for i in op["inputs"]) if op["inputs"] else ""


def _remarks(op: Op) -> str:
    remarks = [os.path.basename(op["line"])] if op.get("line") else []
    if op.get("fused", 1) > 1:
        remarks.append(f"{op['fused']} steps fused into one pass")
    if op.get("exchange"):
        summed = ", and adds up those of one key and time first" if op.get("sums_first") else ""
        remarks.append(f"moves rows to the worker of their key{summed}")
    if "calls" in op:
        remarks.append(f"calls a Python function once for each {op['calls']}: not vectorised")
    if "max_rounds" in op:
        remarks.append(f"to its fixed point, at most {op['max_rounds']:,} rounds")
    if op["kind"] in ("reduce", "join", "arrange"):
        remarks.append("time is total" if op["time"] == "total" else "product times")
    if "queue" in op:
        remarks.append("stashes future updates until their time")
    if "feeds" in op:
        remarks.append(f"returns to #{op['feeds']} {op['delay_ns']:,} ns later")
    if not op.get("keeps_output", True):
        remarks.append("keeps no output")
    return f"  [{'; '.join(remarks)}]" if remarks else ""


def _arrangement_lines(plan: Plan, arrangement: Mapping[str, Any]) -> Iterator[str]:
    words = f"key of {_count(range(arrangement['key_words']), 'word')}"
    if arrangement["val_words"]:
        words += f", {_count(range(arrangement['val_words']), 'word')} more"
    kept = "history kept for readers" if arrangement["retained"] else "history folded"
    yield f"  {arrangement['trace']}: {arrangement['label']} ({words}; {kept})"
    readers = [_title(op) for op in plan["operators"] if op["id"] in arrangement["readers"]]
    shared = "shared by" if len(readers) > 1 else "read by"
    yield f"{_INDENT}{shared} {', '.join(readers)}" if readers else f"{_INDENT}read by no operator"


def as_mermaid(plan: Plan) -> str:
    """The plan as a Mermaid flow chart with one box per loop."""
    arranged = {op["id"] for op in plan["operators"] if op["kind"] in ("arrange", "reduce")}
    lines = ["flowchart TD", *_scope_boxes(plan, 0, "  ")]
    for op in plan["operators"]:
        for source in op["inputs"]:
            # A thick arrow marks an exchange: rows move between workers here, or the sums of those of a key and time.
            arrow = "==>" if op.get("exchange") else "-->"
            if op.get("sums_first"):
                arrow = "== sums ==>"
            back = op["kind"] == "variable" and source != op["inputs"][0]
            lines.append(f"  op{source} {'-. next round .->' if back else arrow} op{op['id']}")
        if "feeds" in op:
            lines.append(f"  op{op['id']} -. later .-> op{op['feeds']}")
    lines += [f"  class op{i} arranged" for i in sorted(arranged)]
    lines.append("  classDef arranged stroke-width:3px")
    return "\n".join(lines)


def _scope_boxes(plan: Plan, scope: int, indent: str) -> Iterator[str]:
    for op in plan["operators"]:
        if op["scope"] != scope:
            continue
        if "inner_scope" in op:
            yield f'{indent}subgraph loop{op["id"]}["loop {_quoted(op["name"])}"]'
            yield from _scope_boxes(plan, op["inner_scope"], indent + _INDENT)
            yield f"{indent}end"
            continue
        left, right = {"input": ("([", "])"), "view": ("[[", "]]"), "arrange": ("[(", ")]")}.get(op["kind"], ("[", "]"))
        calls = f"<br>called for each {op['calls']}" if "calls" in op else ""
        yield f'{indent}op{op["id"]}{left}"{_quoted(_title(op))}{calls}"{right}'


def _quoted(text: str) -> str:
    return text.replace('"', "#quot;")
