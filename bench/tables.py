"""Results of races and the like as Markdown tables of ratios: `python -m bench.tables build/bench.jsonl`.

Of each set of arguments the newest result counts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Result = dict[str, Any]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def number(value: float | None) -> str:
    """Three digits, in full."""
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def peer_of(name: str, players: Result) -> str | None:
    """The peer of one of our players: differential dataflow with as many workers and the same resolution."""
    left, slash, resolution = name.partition("/")
    _, colon, workers = left.partition(":")
    peer = f"differential{colon}{workers}{slash}{resolution}"
    return peer if peer in players else None


def clock_of(player: Result) -> str:
    """Single workers are compared by their CPU, several by the clock."""
    return "cpu" if player["workers"] == 1 else "wall"


def races(results: list[Result]) -> str:
    """One row for each player and batch size: the cost of an update, beside differential dataflow."""
    rows = []
    for result in results:
        players = result["players"]
        for name, one in players.items():
            peer, clock = peer_of(name, players), clock_of(one)
            beside = players[peer] if peer and peer != name else {}
            load_key = "load_cpu_s" if clock == "cpu" else "load_s"
            took, load = one[f"{clock}_us"], one[load_key]
            rows.append(
                [
                    f"{result['program']} {short(result['nodes'])}/{short(result['edges'])}",
                    f"{result['batch']:,}", name, number(took), clock,
                    number(took / beside[f"{clock}_us"]) if beside else "",
                    f"{number(one[f'{clock}_ms_p50'])} / {number(one[f'{clock}_ms_p99'])}",
                    number(load), number(load / beside[load_key]) if beside and beside[load_key] > 0.1 else "",
                    number(one["resident_mb"]), f"{result['load'][0]}–{result['load'][1]}",
                ]
            )  # fmt: skip
        for name, reason in result["left_out"].items():
            rows.append([result["program"], f"{result['batch']:,}", name, f"left out: {reason}", *[""] * 7])
    head = [
        "program", "updates a batch", "engine", "µs an update", "clock", "÷ differential", "epoch p50 / p99, ms",
        "load, s", "÷ differential", "MB", "machine's load",
    ]  # fmt: skip
    return table(head, rows)


def short(count: int) -> str:
    """1000 as 1k, 5000000 as 5m."""
    for size, unit in ((10**6, "m"), (10**3, "k")):
        if count >= size and count % size == 0:
            return f"{count // size}{unit}"
    return str(count)


def sustained(results: list[Result]) -> str:
    """One row for each player: single-update epochs early and late."""
    rows = []
    for result in results:
        for name, one in result["players"].items():
            for clock in ("cpu", "wall"):
                early, late = one[f"early_{clock}_ms"], one[f"late_{clock}_ms"]
                ratios = " / ".join(number(after / before) for before, after in zip(early, late, strict=True))
                rows.append(
                    [
                        name, clock, " / ".join(map(number, early)), " / ".join(map(number, late)), ratios,
                        number(one["late_mb"] / one["early_mb"]), f"{result['load'][0]}–{result['load'][1]}",
                    ]
                )  # fmt: skip
    head = [
        "engine", "clock", "early p50 / p99 / p99.9, ms", "late", "late ÷ early", "memory, late ÷ early",
        "machine's load",
    ]  # fmt: skip
    return table(head, rows)


def scanners(results: list[Result]) -> str:
    """One row for each form of messages: the cost of a row at ingestion, beside msgspec's."""
    rows = []
    for result in results:
        for one in result["cases"]:
            theirs = [number(one[f"{name}_ns"]) for name in ("decoded", "words", "checked")]
            rows.append(
                [
                    one["format"], one["columns"], number(one["bytes"]), number(one["ours_ns"]), *theirs,
                    number(one["checked_ratio"]), number(one["door_ns"]), number(one["door_ratio"]),
                    str(result["load"]),
                ]
            )  # fmt: skip
    head = [
        "format", "columns", "bytes a row", "ours, ns a row", "msgspec: decoded", "words", "checked", "checked ÷ ours",
        "whole door with ours", "with msgspec ÷ with ours", "machine's load",
    ]  # fmt: skip
    return table(head, rows)


def handshakes(results: list[Result]) -> str:
    """One row for each thing that a worker does with the rendezvous: its cost beside that over ZeroMQ."""
    rows = []
    for result in results:
        for one in result["cases"]:
            costs = [number(one[side][f"{clock}_us"]) for clock in ("wall", "cpu") for side in ("ours", "sockets")]
            rows.append([one["what"], "yes" if one["encrypted"] else "no", *costs, str(result["load"])])
    head = ["what", "encrypted", "ours, µs", "sockets, µs", "ours, µs of CPU", "sockets, µs of CPU", "machine's load"]
    return table(head, rows)


TABLES = {"race": races, "sustained": sustained, "scanner": scanners, "handshake": handshakes}


def tables(lines: Iterable[Result]) -> str:
    """All tables for which there are results; lines: those of build/bench.jsonl."""
    newest: dict[str, dict[str, Result]] = {}
    for line in lines:
        if line["benchmark"] in TABLES:
            newest.setdefault(line["benchmark"], {})[json.dumps(line["arguments"])] = line["result"]
    return "\n\n".join(TABLES[name](list(found.values())) for name, found in newest.items())


def main() -> None:
    """Print the tables of a file of results."""
    with Path(sys.argv[1]).open(encoding="utf-8") as lines:
        print(tables(json.loads(line) for line in lines))


if __name__ == "__main__":
    main()
