"""Pathway, told what to do on standard input (bench/peers/differential has the commands); run by a Python of its own.

`python -m bench.peers.pathway_player PROGRAM EDGES WINDOW WORKERS`: bfs or degrees. Pathway has one time a commit, so a
batch is a commit, whatever the resolution asked for. Its connector for Python takes rows one at a time; that is in the
times, as there is no other way in for a stream that is steered.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pathway as pw

from bench.stream import Stream, Sums


class Edge(pw.Schema):
    """An edge; `id_` tells equal ones apart."""

    id_: int = pw.column_definition(primary_key=True)
    src: int
    dst: int


class Commands(pw.io.python.ConnectorSubject):
    """Does what standard input says, each batch when the one before it has come out.

    What comes out are the answer's rows and one more, [the newest edge's id, -1], which tells that a batch is through.
    """

    _deletions_enabled = True  # Pathway looks for a call of `delete` in the text of `run`

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self.stream = stream
        self.sums = Sums()
        self.changed: list[list[int]] = []
        self.through = False
        self.ended = threading.Event()
        self.time = self.at = 0

    def on_change(self, key: object, row: dict[str, int], time: int, is_addition: bool) -> None:
        """A change of the answer."""
        if row["second"] < 0:
            self.through = True
        else:
            self.changed.append([row["first"], row["second"], self.time, 1 if is_addition else -1])

    def on_time_end(self, time: int) -> None:
        """All changes of a commit are there."""
        if self.through:
            self.through = False
            self.ended.set()

    def run(self) -> None:
        """Read commands until there are none."""
        for line in sys.stdin:
            command, *given = line.split()
            count, size = (0, 0) if command == "load" else (int(given[0]), int(given[1]))
            taken = [self._batch(-self.stream.window, 0)] if command == "load" else []
            for _ in range(count):
                taken.append(self._batch(self.at, self.at + size))
                self.at += size
            self._answer(taken)

    def _batch(self, first: int, stop: int) -> tuple[int, int]:
        """Nanoseconds by the clock and of CPU of updates first..stop-1; those below 0 only put edges in."""
        edges, window = self.stream.edges, self.stream.window
        rows = edges[np.arange(first + window, stop + window) % len(edges)].tolist()
        gone = edges[np.arange(first, stop) % len(edges)].tolist() if first >= 0 else []
        self.time = first + 1 if first >= 0 else 0
        self.ended.clear()
        began, before = time.perf_counter_ns(), time.process_time_ns()
        for place, (src, dst) in enumerate(rows, first + window):
            self.next(id_=place, src=src, dst=dst)
        for place, (src, dst) in enumerate(gone, first):
            self.delete(id_=place, src=src, dst=dst)
        self.commit()
        self.ended.wait()
        taken = time.perf_counter_ns() - began, time.process_time_ns() - before
        if self.changed:
            self.sums.add(np.array(self.changed, np.int64))
            self.changed.clear()
        return taken

    def _answer(self, taken: list[tuple[int, int]]) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        answer = {
            "wall_ns": [wall for wall, _ in taken], "cpu_ns": [cpu for _, cpu in taken],
            "resident": pages * resource.getpagesize(),
            "highest": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
            "timed": self.sums.timed, "timeless": self.sums.timeless,
        }  # fmt: skip
        print(json.dumps(answer), flush=True)


def bfs(edges: pw.Table) -> pw.Table:
    """How many nodes there are at each distance from node 0."""
    start = pw.debug.table_from_rows(pw.schema_from_types(node=int, dist=int), [(0, 0)])
    start = start.with_id_from(start.node)

    def step(known: pw.Table, edges: pw.Table, start: pw.Table) -> pw.Table:
        passed = edges.join(known, edges.src == known.node).select(node=edges.dst, dist=known.dist + 1)
        both = pw.Table.concat_reindex(start, passed)
        return both.groupby(both.node).reduce(both.node, dist=pw.reducers.min(both.dist))

    known = pw.iterate(
        lambda known, edges, start: {"known": step(known, edges, start)},
        known=pw.iterate_universe(start), edges=edges, start=start,
    )["known"]  # fmt: skip
    return known.groupby(known.dist).reduce(first=known.dist, second=pw.reducers.count())


def degrees(edges: pw.Table) -> pw.Table:
    """How many nodes have how many edges."""
    each = edges.groupby(edges.src).reduce(degree=pw.reducers.count())
    return each.groupby(each.degree).reduce(first=each.degree, second=pw.reducers.count())


def main() -> None:
    """Run until standard input ends. Several workers are Pathway's own business: PATHWAY_THREADS."""
    program, path, window = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    logging.disable(logging.WARNING)
    commands = Commands(Stream(np.fromfile(path, "<i8").reshape(-1, 2), window))
    edges = pw.io.python.read(commands, schema=Edge, autocommit_duration_ms=None)
    answer = {"bfs": bfs, "degrees": degrees}[program](edges)
    newest = edges.reduce(first=pw.reducers.max(edges.id_), second=-1)
    answer = pw.Table.concat_reindex(answer, newest)
    pw.io.subscribe(answer, on_change=commands.on_change, on_time_end=commands.on_time_end)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)


if __name__ == "__main__":
    main()
