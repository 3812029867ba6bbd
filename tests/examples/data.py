"""The examples as the tests see them: their programs, and the updates in their files as plain tuples."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import vernier as vn
from tests.programs.snapshots import Change, Inputs
from vernier.service.codec.instants import parse_instant

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/program.py"))
MINUTE = 60_000_000_000
START = parse_instant("2026-03-02T08:00:00Z")


def program(name: str) -> vn.App:
    """The program of an example."""
    return vn.load_program(EXAMPLES / name / "program.py")


def updates(name: str) -> Inputs:
    """All updates in the files of an example, by source; texts that are times are nanoseconds."""
    found: dict[str, list[Change]] = defaultdict(list)
    for file in sorted((EXAMPLES / name).glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            row = tuple(_value(value) for value in one["data"])
            found[one["input"]].append((row, parse_instant(one["time"]), one.get("diff", 1)))
    return found


def _value(value: object) -> object:
    return parse_instant(value) if isinstance(value, str) and value.endswith("Z") else value


def at(clock: str, day: str = "2026-03-02") -> int:
    """The nanoseconds of a clock time on the day of the examples."""
    return parse_instant(f"{day}T{clock}Z")
