"""Charts of a view over data time, drawn as SVG by hand: no package is needed, and every notebook shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from vernier.service.local.table import instant

Points = Sequence[tuple[int, float]]
"""(data time, value from then on), times rising."""

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 240, 60, 150, 28, 30
_FONT = 'font-family="sans-serif" font-size="11"'
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f")


class Chart:
    """Lines of steps over data time. `svg`: the picture."""

    def __init__(self, title: str, lines: Mapping[str, Points], end: int) -> None:
        self.title = title
        self.lines = dict(lines)
        self.svg = _draw(title, self.lines, end)

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Chart({self.title!r}, {len(self.lines)} lines)"


def _draw(title: str, lines: Mapping[str, Points], end: int) -> str:
    times = [time for points in lines.values() for time, _ in points] or [0]
    values = [value for points in lines.values() for _, value in points]
    start, end = min(times), max(*times, end, min(times) + 1)
    low, high = min(0.0, *values, 0.0), max(1.0, *values, 1.0)
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def x(time: int) -> float:
        return _LEFT + (right - _LEFT) * ((time - start) / (end - start))

    def y(value: float) -> float:
        return bottom - (bottom - _TOP) * ((value - low) / (high - low))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" {_FONT}>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="16" font-size="13">{escape(title)}</text>',
        f'<path d="M{_LEFT},{_TOP}V{bottom}H{right}" fill="none" stroke="#999"/>',
        *(f'<text x="{_LEFT - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v:g}</text>' for v in (low, high)),
        f'<text x="{_LEFT}" y="{bottom + 16}">{escape(instant(start))}</text>',
        f'<text x="{right}" y="{bottom + 16}" text-anchor="end">{escape(instant(end))}</text>',
    ]
    for number, (name, points) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        steps = "".join(f"H{x(time):.1f}V{y(value):.1f}" for time, value in points)
        parts.append(f'<path d="M{x(points[0][0]):.1f},{y(0):.1f}{steps}H{right}" fill="none" stroke="{colour}"/>')
        if name:
            parts.append(f'<text x="{right + 8}" y="{_TOP + 14 * number + 8}" fill="{colour}">{escape(name)}</text>')
    return "".join(parts) + "</svg>"
