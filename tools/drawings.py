"""Draws the pictures of docs/concepts.md as SVG files: python tools/drawings.py writes them to docs/images.

They are drawn on a card of their own and follow the reader's colour scheme, so light and dark pages can show them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "images"
WIDTH = 760
_STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de; }
  text { font: 14px system-ui, sans-serif; fill: #1f2328; }
  .small { font-size: 12.5px; }
  .soft { fill: #57606a; }
  .strong { font-weight: 600; }
  .axis { stroke: #57606a; stroke-width: 1.5; fill: none; }
  .faint { stroke: #afb8c1; stroke-width: 1; fill: none; stroke-dasharray: 4 4; }
  .blue { fill: #0969da; stroke: #0969da; } .blueband { fill: #0969da22; stroke: #0969da; }
  .green { fill: #1a7f37; stroke: #1a7f37; } .greenband { fill: #1a7f3722; stroke: #1a7f37; }
  .red { fill: #cf222e; stroke: #cf222e; } .redband { fill: #cf222e1c; stroke: #cf222e; }
  .greyband { fill: #57606a1c; stroke: #afb8c1; }
  .hollow { fill: #ffffff; stroke: #0969da; stroke-width: 2; }
  .way { fill: none; stroke: #0969da; stroke-width: 1.3; opacity: .7; }
  text.blue, text.green, text.red { stroke: none; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #161b22; stroke: #30363d; }
    text { fill: #e6edf3; } .soft { fill: #9da7b3; }
    .axis { stroke: #9da7b3; } .faint { stroke: #6e7681; }
    .blue { fill: #58a6ff; stroke: #58a6ff; } .blueband { fill: #58a6ff2a; stroke: #58a6ff; }
    .green { fill: #3fb950; stroke: #3fb950; } .greenband { fill: #3fb9502a; stroke: #3fb950; }
    .red { fill: #ff7b72; stroke: #ff7b72; } .redband { fill: #ff7b722a; stroke: #ff7b72; }
    .greyband { fill: #9da7b322; stroke: #6e7681; }
    .hollow { fill: #161b22; stroke: #58a6ff; } .way { stroke: #58a6ff; }
  }
"""


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """A line of text."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "axis", arrow: bool = False) -> str:
    """A straight line, with an arrow head at its end if wanted."""
    head = ' marker-end="url(#head)"' if arrow else ""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{kind}"{head}/>'


def box(x: float, y: float, width: float, height: float, kind: str, round_by: float = 4) -> str:
    """A rectangle."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_by:g}" class="{kind}"/>'


def dot(x: float, y: float, kind: str = "blue", radius: float = 5) -> str:
    """An update."""
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" class="{kind}"/>'


def shape(points: Iterable[tuple[float, float]], kind: str) -> str:
    """A polygon."""
    return f'<polygon points="{" ".join(f"{x:g},{y:g}" for x, y in points)}" class="{kind}"/>'


def drawing(height: int, title: str, parts: Iterable[str]) -> str:
    """A whole file. title: what a screen reader says."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            '<defs><marker id="head" markerWidth="9" markerHeight="9" refX="8" refY="4.5" orient="auto">',
            '<path d="M0,0 L9,4.5 L0,9 z" fill="#57606a"/></marker></defs>',
            box(0.5, 0.5, WIDTH - 1, height - 1, "card", 8),
            *parts,
            "</svg>\n",
        ]
    )


def times() -> str:
    """Message time above, data time below: what an epoch brings, and what it makes final."""
    top, bottom, left = 64, 226, 40
    epochs = [(left, 260, 40, 240), (260, 480, 240, 470), (480, 700, 470, 650)]
    kinds = ["blueband", "greenband", "blueband"]
    parts = [
        text(left, 30, "message time: when updates arrive, epoch by epoch", "strong"),
        text(left, 280, "data time: when updates happen, each at its own nanosecond", "strong"),
    ]
    for number, ((x1, x2, t1, t2), kind) in enumerate(zip(epochs, kinds), 7):
        parts.append(shape([(x1, top + 26), (x2, top + 26), (t2, bottom - 12), (t1, bottom - 12)], kind))
        parts.append(box(x1, top - 14, x2 - x1, 40, kind))
        parts.append(text(x1 + 8, top + 11, f"epoch {number}", "small soft"))
    arrivals = [
        (120, 72), (150, 205), (180, 120), (225, 330), (330, 262), (370, 445), (410, 390), (450, 560), (560, 490),
        (600, 630), (650, 520),
    ]  # fmt: skip
    for x, t in arrivals:
        held = any(x1 <= x < x2 and t >= t2 for x1, x2, _, t2 in epochs)
        parts.append(f'<path d="M{x},{top + 6} C{x},{top + 90} {t},{bottom - 90} {t},{bottom}" class="way"/>')
        parts.append(box(x - 5, top + 1, 10, 10, "blue", 2))
        parts.append(dot(t, bottom, "hollow" if held else "blue"))
    parts += [line(left, bottom, 722, bottom, "axis", True)]
    parts += [line(x, bottom - 12, x, bottom + 12) for x in (240, 470, 650)]
    parts += [text(650, bottom + 28, "frontier", "small", "middle")]
    parts += [text(330, bottom + 28, "hollow: arrived early, held until its epoch", "small soft", "middle")]
    title = "Three epochs bring updates in the order of arrival; each makes an interval of data time final."
    return drawing(300, title, parts)


def frontier() -> str:
    """Where since and the frontier stand, and what is on each side."""
    y, since, front = 100, 210, 500
    regions = [
        (30, since, "greyband", "merged", "older times read as one"),
        (since, front, "greenband", "final", "readable as of any nanosecond"),
        (front, 725, "blueband", "open", "updates may still come"),
    ]
    parts = []
    for x1, x2, kind, name, what in regions:
        parts.append(box(x1, y - 34, x2 - x1, 68, kind, 0))
        parts.append(text((x1 + x2) / 2, y - 64, name, "strong", "middle"))
        parts.append(text((x1 + x2) / 2, y - 46, what, "small soft", "middle"))
    parts.append(line(30, y, 732, y, "axis", True))
    parts += [dot(x, y, "green") for x in (250, 283, 330, 371, 384, 440, 476)]
    parts.append(dot(120, y, "green", 9))
    parts += [dot(x, y, "hollow") for x in (560, 640)]
    for x, name in ((since, "since"), (front, "frontier")):
        parts += [line(x, y - 40, x, y + 56), line(x, y + 52, x + 60, y + 52, "axis", True)]
        parts.append(text(x - 6, y + 57, name, "strong", "end"))
    parts += [
        text(600, y + 28, "stash: held", "small soft", "middle"),
        line(405, y + 82, 405, y + 14, "axis", True),
        text(405, y + 99, "an update for this time is late", "small red", "middle"),
    ]
    title = "Data time is merged before since, final between since and the frontier, and open behind the frontier."
    return drawing(216, title, parts)


def retraction() -> str:
    """Rows of a view as bars over data time, and the updates that begin and end them."""
    at = {100: 190, 130: 400, 200: 640}
    rows = [("web", 130), ("auth", 130), ("api", 130), ("report", 200), ("db", 200)]
    parts = [
        text(24, 34, "rows of the view", "strong"),
        text(190, 34, "+1 inserts, −1 retracts, each at its data time"),
    ]
    for i, (name, end) in enumerate(rows):
        y = 66 + 34 * i
        kind = "redband" if end == 130 else "blueband"
        parts += [
            text(24, y + 5, f"{name}, db"),
            box(at[100], y - 11, at[end] - at[100], 22, kind),
            text(at[100] + 7, y + 5, "+1", "small strong"),
            text(at[end] - 7, y + 5, "−1", "small strong", "end"),
        ]
    bottom = 66 + 34 * len(rows)
    parts.append(line(150, bottom, 730, bottom, "axis", True))
    for time, x in at.items():
        parts += [line(x, bottom - 5, x, bottom + 5), text(x, bottom + 22, str(time), "small", "middle")]
    parts.append(text(730, bottom + 22, "data time", "small soft", "end"))
    for x, words, anchor in ((372, "as of 129: five rows", "end"), (415, "as of 130: two rows", "start")):
        parts += [line(x, 48, x, bottom + 34, "faint"), text(x, bottom + 48, words, "small", anchor)]
    title = "Five rows begin at data time 100; three of them are retracted at 130, the others at 200."
    return drawing(bottom + 64, title, parts)


def rounds() -> str:
    """Changes of a loop by data time and round, and the order in which they are computed."""
    columns = {0: 210, 5: 330, 10: 450, 11: 570}
    changes = [
        (0, 0, "node 0: 0", "+1"), (1, 0, "node 3: 1", "+1"), (1, 5, "node 2: 1", "+1"), (1, 11, "node 3: 1", "−1"),
        (2, 10, "3 by way of 2", "no change"), (2, 11, "node 3: 2", "+1"),
    ]  # fmt: skip
    parts = [text(24, 34, "changes of the distances, by round and data time", "strong")]
    for number in range(3):
        y = 58 + 66 * number
        parts += [
            box(140, y, 505, 54, "greyband"),
            text(24, y + 32, f"round {number}"),
            line(652, y + 27, 690, y + 27, "axis", True),
            text(697, y + 32, f"step {number + 1}", "small"),
        ]
    for number, time, what, diff in changes:
        x, y = columns[time], 58 + 66 * number
        kind = {"+1": "greenband", "−1": "redband"}.get(diff, "greyband")
        parts += [
            box(x - 54, y + 5, 108, 44, kind),
            text(x, y + 23, what, "small", "middle"),
            text(x, y + 41, diff, "small strong" if diff != "no change" else "small soft", "middle"),
        ]
    bottom = 58 + 66 * 3 + 4
    edges = {0: "0→3 comes", 5: "0→2 comes", 10: "2→3 comes", 11: "0→3 goes"}
    parts.append(line(140, bottom, 690, bottom, "axis", True))
    for time, x in columns.items():
        parts += [
            line(x, bottom - 5, x, bottom + 5),
            text(x, bottom + 22, str(time), "small strong", "middle"),
            text(x, bottom + 40, edges[time], "small soft", "middle"),
        ]
    parts.append(text(740, bottom + 22, "data time", "small soft", "end"))
    title = "A grid of rounds and data times; each round is computed for all data times in one step."
    return drawing(bottom + 56, title, parts)


def cuts() -> str:
    """The same updates, cut into epochs in three ways, give the same changes."""
    where = [170, 215, 262, 330, 352, 430, 476, 530]
    parts = [text(24, 34, "the same updates, cut in three ways, give the same changes", "strong")]
    for i, (name, marks) in enumerate((("one epoch", []), ("three epochs", [300, 455]), ("eight epochs", where[1:]))):
        y = 70 + 46 * i
        parts += [text(24, y + 5, name), box(145, y - 16, 410, 32, "blueband")]
        for mark in marks:
            x = mark - 14 if len(marks) > 2 else mark
            parts.append(line(x, y - 16, x, y + 16))
        parts += [dot(x, y) for x in where]
        parts += [line(562, y, 606, 116 + (y - 116) * 0.35, "axis", True)]
    parts += [
        box(614, 84, 124, 64, "greenband"),
        text(676, 111, "one change file,", "small", "middle"),
        text(676, 130, "byte for byte", "small", "middle"),
    ]
    title = "Eight updates in one, three or eight epochs lead to the same output."
    return drawing(190, title, parts)


DRAWINGS: dict[str, Callable[[], str]] = {
    "times": times,
    "frontier": frontier,
    "retraction": retraction,
    "rounds": rounds,
    "cuts": cuts,
}


def main() -> int:
    """Write all drawings."""
    for name, draw in DRAWINGS.items():
        (FOLDER / f"concepts-{name}.svg").write_text(draw(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
