"""Compare the numbers of the documentation with the results of the benchmarks (bench/results/*.json).

python tools/results.py          prints each number without its result, with its place, and exits 1 if there is any
python tools/results.py write    writes the tables that results have into the pages

A *measured number* is a number with a unit of time, size, rate or ratio (`12 ms`, `3 MB`, `400 rows/s`, `1.8 ×`, `5 %`)
outside code. Each needs a marker, an HTML comment, which says where it comes from:

    <!-- result: FILE -->              from the runs in bench/results/FILE.json; FILE/KEY: from those runs, * stands for
                                       anything. Each number has to be one of their values, rounded as it is written.
    <!-- no result: REASON -->         no measurements: settings, limits, examples
    12 ms<!-- given -->                this number is no measurement, for example a goal
    <!-- table: FILE/KEY#NAME -->      up to `<!-- end of table -->`: a table of a run, as `write` writes it

A marker in a paragraph, list or table belongs to that one. On its own it belongs to everything up to the next heading,
and before the first heading to the whole page; the nearest one counts. In a table with a result every number counts
except those of its first column; in a list of numbers before a unit (`3, 4 and 5 ms`) all of them. Values have the unit
that their names have (`p99_ms`); strings have their own. Dated notes (docs/notebook, docs/decisions) and the reference,
which comes from the code, are not checked.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md")
LEFT_OUT = ("reference.md",)
NEEDED = ("command", "at", "commit", "machine", "versions", "values")

_TIMES = {"ns": 1e-9, "µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_SIZES = {"bytes": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
_KINDS: dict[str, tuple[str, float]] = {
    **{unit: ("time", scale) for unit, scale in _TIMES.items()},
    **{unit: ("size", scale) for unit, scale in _SIZES.items()},
    "second": ("time", 1.0),
    "minute": ("time", 60.0),
    "hour": ("time", 3600.0),
    "KB": ("size", 1e3),
    "byte": ("size", 1.0),
    "mb": ("size", 1e6),
    "gb": ("size", 1e9),
    "kb": ("size", 1e3),
    "×": ("ratio", 1.0),
    "%": ("ratio", 0.01),
    "ratio": ("ratio", 1.0),
    "rate": ("rate", 1.0),
    "a second": ("rate", 1.0),
    "/s": ("rate", 1.0),
}
"""Of a unit: what it measures, and how much of it one is."""
_UNIT = (
    r"(?P<rate>(?:[a-zA-Z-]+ )?a second|(?:[a-z]+)?/s)(?![\w/])|(?P<unit>ns|µs|us|ms|seconds?|minutes?|hours?|min|"
    r"bytes?|[kKMG]B|[KMG]iB|s|h|×|%)(?![\w/])"
)
_NUMBER = r"(?<![\w.,:/#-])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w/]|[.,:]\d)"
_BETWEEN = r"(?:, | and | or | to | → |–|/| / )"
_MEASURED = re.compile(rf"(?P<list>(?:{_NUMBER}{_BETWEEN})*)(?P<last>{_NUMBER})[ \u00a0]?(?:{_UNIT})")
_MARKER = re.compile(r"<!-- (?P<kind>result|no result|table): (?P<text>.*?) -->")
_RULE = re.compile(r"\|[ :|-]+\|\s*$")
_OF_UNIT = re.compile(r"(?:^|[|,(÷] ?|, |in )(?:ns|µs|ms|s|MB|GB|kB|bytes|seconds|ratio)(?=[ |,)])")
_GIVEN = "<!-- given -->"
_END = "<!-- end of table -->"
_CODE = re.compile(r"`[^`\n]+`|(?<=\])\([^)\s]*\)|<a [^>]*>|https?://\S+|\b\d{4}-\d\d-\d\d\b")


class Number(NamedTuple):
    """As a page or a result has it. unit: a key of the units above, or none."""

    text: str
    unit: str

    @property
    def value(self) -> float:
        return float(self.text.replace(",", ""))

    @property
    def slack(self) -> float:
        """Half of the last place that is written; zeros at the end of a whole number may be rounded ones."""
        digits = self.text.replace(",", "")
        _, point, decimals = digits.partition(".")
        if point:
            return 0.5 * 10.0 ** -len(decimals)
        zeros = len(digits) - len(digits.rstrip("0"))
        return 0.5 * 10.0 ** max(0, min(zeros, len(digits) - 2))


class Block(NamedTuple):
    """Lines of a page between empty lines; line: the number of the first."""

    line: int
    text: str


def _blank(code: re.Match[str]) -> str:
    """As long as the code, without its text."""
    return "`" * len(code[0])


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a page, without fenced code."""
    lines: list[str] = []
    begin, fenced = 1, False
    for place, line in enumerate([*text.splitlines(), ""], 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            line = ""
        if fenced or not line.strip() or line.startswith("#"):
            if lines:
                yield Block(begin, "\n".join(lines))
                lines = []
            if line.startswith("#") and not fenced:
                yield Block(place, line)
            continue
        if not lines:
            begin = place
        lines.append(line)


def measured(text: str) -> Iterator[tuple[Number, int]]:
    """The measured numbers of a text, and where they are; those with the mark of given ones are left out."""
    for found in _MEASURED.finditer(text):
        if text.startswith(_GIVEN, found.end()):
            continue
        unit = found["unit"] or "rate"
        unit = unit.removesuffix("s") if len(unit) > 3 else unit  # seconds, but s and ms
        for one in re.finditer(_NUMBER, found["list"]):
            yield Number(one[0], unit), found.start() + one.start()
        yield Number(found["last"], unit), found.start("last")


def cells(text: str) -> Iterator[tuple[Number, int]]:
    """The numbers in a table's rows but those of the first column."""
    at, rows = 0, False
    for line in text.splitlines(keepends=True):
        if rows and line.startswith("|"):
            yield from ((number, at + place) for number, place in _bare(line) if place > line.find("|", 1))
        rows = rows or bool(_RULE.match(line))
        at += len(line)


def _bare(text: str) -> Iterator[tuple[Number, int]]:
    """All numbers of a text, with their units if they have any; those with the mark of given ones are left out."""
    known = {place: number for number, place in measured(text)}
    without = [(one.start(), one.end()) for one in _MEASURED.finditer(text) if text.startswith(_GIVEN, one.end())]
    for one in re.finditer(_NUMBER, text):
        given = text.startswith(_GIVEN, one.end()) or any(start <= one.start() < end for start, end in without)
        if not given:
            yield known.get(one.start(), Number(one[0], "")), one.start()


def has_units(text: str) -> bool:
    """Whether a table has units in its head or its first column, so that its bare numbers are measured ones."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    if len(lines) < 3 or not any(True for _ in cells(text)):
        return False
    return bool(_OF_UNIT.search(lines[0])) or any(_OF_UNIT.search(line[: line.find("|", 1)]) for line in lines[2:])


class Results:
    """The runs of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runs: dict[str, dict[str, Any]] = {}
        self._values: dict[str, list[Number]] = {}

    def runs(self, name: str) -> dict[str, Any]:
        """Of one file; none if there is no file."""
        if name not in self._runs:
            file = self.folder / f"{name}.json"
            self._runs[name] = json.loads(file.read_text("utf-8"))["runs"] if file.exists() else {}
        return self._runs[name]

    def named(self, name: str) -> dict[str, Any]:
        """FILE or FILE/KEY."""
        file, _, key = name.partition("/")
        return {run: value for run, value in self.runs(file).items() if not key or fnmatchcase(run, key)}

    def values(self, name: str) -> list[Number]:
        """All numbers of FILE or FILE/KEY."""
        if name not in self._values:
            runs = self.named(name).values()
            self._values[name] = [one for run in runs for one in _numbers(run["values"], "")]
        return self._values[name]

    def problems(self) -> Iterator[str]:
        """What runs lack."""
        for file in sorted(self.folder.glob("*.json")):
            for key, run in self.runs(file.stem).items():
                lacking = [name for name in NEEDED if not run.get(name)]
                if lacking:
                    yield f"{file.name}: the run {key!r} has no {', '.join(lacking)}"


def _numbers(value: Any, name: str) -> Iterator[Number]:
    """The numbers below a value, with the units of their names or their own."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _numbers(one, f"{name}.{key}")
    elif isinstance(value, list):
        for one in value:
            yield from _numbers(one, name)
    elif isinstance(value, str):
        yield from (number for number, _ in _bare(_CODE.sub(" ", value)))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield Number(repr(value), _unit_of(name))


def _unit_of(name: str) -> str:
    """The unit that a value's name has."""
    parts = re.split(r"[._ ]", name)
    if "per" in parts and parts[parts.index("per") + 1 :][:1] == ["s"]:
        return "rate"
    return next((part for part in reversed(parts) if part in _KINDS), "")


def same(shown: Number, value: Number) -> bool:
    """Whether a page's number is a result's, rounded as the page has it."""
    try:
        number = float(value.text.replace(",", ""))
    except ValueError:
        return False
    kind, scale = _KINDS.get(value.unit, ("", 1.0))
    wanted, unit = _KINDS.get(shown.unit, ("", 1.0))
    if kind and wanted and kind != wanted:
        return False
    scales = [scale / unit] if wanted and kind else [1.0, 100.0] if wanted == "ratio" else [1.0]
    if kind and not wanted:  # a cell, whose unit is in the table's head
        scales = [scale / one for other, one in _KINDS.values() if other == kind]
    if kind == "size" or wanted == "size":
        scales += [one * 2.0 ** (10 * power) / 10.0 ** (3 * power) for one in scales for power in (-2, -1, 1, 2)]
    return any(abs(number * one - shown.value) <= shown.slack * 1.0000001 for one in scales)


def table(run: dict[str, Any], name: str) -> str:
    """A table of a run, with a line that says where it comes from."""
    made = run["tables"][name]
    rows = (made["head"], ["---"] * len(made["head"]), *made["rows"])
    lines = "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)
    load = run.get("load", "not recorded")
    beside = f"{load[0]} before and {load[-1]} after" if isinstance(load, list) else load
    when, _, _ = run["at"].partition("T")
    return f"{lines}\n\n*`{run['command']}`, {when}, {run['machine']}, load {beside}, commit {run['commit']}.*"


def check(page: str, text: str, results: Results) -> Iterator[str]:
    """What is wrong with a page: sentences with places."""
    whole: list[str] = []  # the markers of the page, of the section, each as (kind, text)
    section: list[str] = []
    seen_heading = False
    made = ""
    for block in (Block(line, _CODE.sub(_blank, one)) for line, one in blocks(text)):
        if block.text.startswith("#"):
            seen_heading, section = True, []
            continue
        markers = [f"{one['kind']}: {one['text']}" for one in _MARKER.finditer(block.text)]
        if made or any(one.startswith("table: ") for one in markers):
            made = "" if _END in block.text else block.text
            continue
        for marker in markers:
            name = marker.removeprefix("result: ")
            if marker.startswith("result: ") and not results.named(name):
                yield f"{page}:{block.line}: there is no result {name} in bench/results"
        if markers and not _MARKER.sub("", block.text).strip():
            if seen_heading:
                section = markers
            else:
                whole = markers
            continue
        yield from _check_block(page, block, markers or section or whole, results)


def _check_block(page: str, block: Block, markers: list[str], results: Results) -> Iterator[str]:
    text = _MARKER.sub(lambda found: " " * len(found[0]), block.text)
    names = [marker.removeprefix("result: ") for marker in markers if marker.startswith("result: ")]
    if markers and not names:
        return
    table = text.lstrip().startswith("|")
    numbers = list(cells(text)) if names and table else list(measured(text))
    if table and not names and not numbers and has_units(text):
        yield f"{page}:{block.line}: the table's numbers have no result: mark where they come from (tools/results.py)"
    for number, at in numbers:
        line = block.line + text[:at].count("\n")
        shown = f"{number.text} {'a second' if number.unit == 'rate' else number.unit}".strip()
        if not names:
            yield f"{page}:{line}: {shown!r} has no result: mark where it comes from (tools/results.py)"
        elif not any(same(number, value) for name in names for value in results.values(name)):
            yield f"{page}:{line}: {shown!r} is not in the result {', '.join(names)}"


def written(page: str, text: str, results: Results) -> str:
    """The page with its tables made again. Raises SystemExit for a table that no result has."""

    def again(found: re.Match[str]) -> str:
        name, _, which = found["name"].partition("#")
        runs = results.named(name)
        if not runs or which not in next(iter(runs.values())).get("tables", {}):
            raise SystemExit(f"{page}: there is no table {found['name']} in bench/results")
        return f"<!-- table: {found['name']} -->\n{table(next(iter(runs.values())), which)}\n{_END}"

    return re.sub(rf"<!-- table: (?P<name>.*?) -->\n.*?{_END}", again, text, flags=re.DOTALL)


def main() -> int:
    """Compare, or write."""
    results = Results(ROOT / "bench" / "results")
    found = list(results.problems())
    for pattern in PAGES:
        for file in sorted(ROOT.glob(pattern)):
            if file.name in LEFT_OUT:
                continue
            page, text = str(file.relative_to(ROOT)), file.read_text("utf-8")
            renewed = written(page, text, results)
            if sys.argv[1:] == ["write"]:
                file.write_text(renewed, encoding="utf-8")
            elif renewed != text:
                found.append(f"{page}: its tables are not those of bench/results: python tools/results.py write")
            found += check(page, renewed, results)
    print("\n".join(found), end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
