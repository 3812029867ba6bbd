"""Draw the rooms of the package and who imports whom, from the imports themselves, into docs/architecture.md.

python tools/rooms.py          prints the drawing
python tools/rooms.py write    writes it into docs/architecture.md, which tests/docs/test_rooms.py compares

A room is a folder of `storage`, `operators` or `service`; modules beside the rooms count as rooms of their own.
A room's floor is one above the highest room that it imports. Imports for type checking alone do not count.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- rooms: written by tools/rooms.py -->", "<!-- end of rooms -->"
TOPS = ("storage", "operators", "service")
SPLIT = {"operators.language"}
"""Packages whose own folders are rooms."""

Arrows = dict[str, set[str]]


class Circle(Exception):
    """Rooms that import each other."""


def room_of(module: str, top: str) -> str | None:
    """The room of a module of `top`, by its name without `vernier.`; None outside of it."""
    parts = module.split(".")
    if parts[0] != top or len(parts) < 2:
        return None
    depth = 3 if ".".join(parts[:2]) in SPLIT and len(parts) > 2 else 2
    name = ".".join(parts[:depth])
    return name.partition(".")[2] if (ROOT / name.replace(".", "/")).exists() or _is_module(name) else None


def _is_module(name: str) -> bool:
    return (ROOT / (name.replace(".", "/") + ".py")).exists()


def arrows(top: str) -> Arrows:
    """Which rooms each room of `top` imports."""
    found: Arrows = {}
    for file in sorted((ROOT / top).rglob("*.py")):
        relative = file.relative_to(ROOT).with_suffix("")
        if len(relative.parts) == 2 and relative.name == "__init__":
            continue
        here = room_of(".".join(relative.parts), top)
        if here is None or here == "language.__init__":
            continue
        mine = found.setdefault(here, set())
        for module in _imports(ast.parse(file.read_text(encoding="utf-8"))):
            there = room_of(module.removeprefix("vernier."), top) if module.startswith("vernier.") else None
            if there is not None and there != here:
                mine.add(there)
    return found


def _imports(tree: ast.Module) -> list[str]:
    """The modules that a file imports anywhere, but not for type checking alone."""
    typing = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    left_out = {id(part) for node in typing for part in ast.walk(node)}
    found = []
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Import):
            found += [name.name for name in node.names]
    return found


def floors(rooms: Arrows) -> dict[str, int]:
    """The floor of each room. Raises Circle."""
    found: dict[str, int] = {}

    def floor(room: str, path: tuple[str, ...]) -> int:
        if room in path:
            raise Circle(" -> ".join((*path[path.index(room) :], room)))
        if room not in found:
            below = [floor(other, (*path, room)) for other in sorted(rooms.get(room, ()))]
            found[room] = 1 + max(below, default=-1)
        return found[room]

    for room in sorted(rooms):
        floor(room, ())
    return found


def drawing() -> str:
    """The rooms of each top, floor by floor from the top down, with what each imports."""
    parts = []
    for top in reversed(TOPS):
        rooms = arrows(top)
        heights = floors(rooms)
        count = sum(map(len, rooms.values()))
        lines = [
            f"`{top}/`: {len(rooms)} rooms, {count} arrows, {1 + max(heights.values())} floors, no circle.",
            "",
            "| floor | room | imports |",
            "| --- | --- | --- |",
        ]
        for room in sorted(rooms, key=lambda room: (-heights[room], room)):
            below = ", ".join(sorted(rooms[room], key=lambda other: (-heights[other], other)))
            lines.append(f"| {heights[room]} | `{room}` | {below} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def write() -> None:
    """Put the drawing into the page."""
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{drawing()}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main() -> None:
    if sys.argv[1:] == ["write"]:
        write()
    else:
        print(drawing())


if __name__ == "__main__":
    main()
