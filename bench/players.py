"""The players: processes that run a benchmark's program with the same commands and updates (bench/ours.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from bench.cargo import CannotBuild, built
from bench.venvs import pathway

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Spec:
    """One player, as the command line names it: NAME[:WORKERS][*COPIES][@CORE][/batch], e.g. `differential:2`,
    `vernier@1` or `vernier/batch`.

    name: vernier, vernier-views (it keeps its view, as a service does), vernier-threads, differential,
    differential-count (its `count` operator where `count_total` would do, for degrees) or pathway. copies: how many of
    it do the same at the same time and share nothing, as `vernier*2`. The speed that is left to each of them is what
    the machine could give to as many workers. core: the only one that it may use. With `/batch` the updates of a batch
    share a time.
    """

    text: str
    name: str
    workers: int
    copies: int
    exact: bool
    core: int | None

    @staticmethod
    def of(text: str) -> Spec:
        """Read it."""
        left, _, resolution = text.partition("/")
        left, _, core = left.partition("@")
        left, _, copies = left.partition("*")
        name, _, workers = left.partition(":")
        if name not in COMMANDS or resolution not in ("", "batch"):
            known = ", ".join(COMMANDS)
            form = "NAME[:WORKERS][*COPIES][@CORE][/batch]"
            raise SystemExit(f"no player {text!r}; there are {form} with NAME of {known}")
        counts = int(workers or 1), int(copies or 1)
        return Spec(text, name, *counts, not resolution, int(core) if core else None)


def _vernier(program: str, tail: list[str]) -> list[str]:
    return [sys.executable, "-m", "bench.ours", program, *tail]


def _views(program: str, tail: list[str]) -> list[str]:
    return [*_vernier(program, tail), "--keep-views"]


def _threads(program: str, tail: list[str]) -> list[str]:
    return [*_vernier(program, tail), "--threads"]


def _differential(program: str, tail: list[str]) -> list[str]:
    return [str(built("differential")), program, *tail]


def _differential_count(program: str, tail: list[str]) -> list[str]:
    return _differential(f"{program}_count", tail)


def _pathway(program: str, tail: list[str]) -> list[str]:
    return [str(pathway()), "-m", "bench.peers.pathway_player", program, *tail]


COMMANDS: dict[str, Callable[[str, list[str]], list[str]]] = {
    "vernier": _vernier,
    "vernier-views": _views,
    "vernier-threads": _threads,
    "differential": _differential,
    "differential-count": _differential_count,
    "pathway": _pathway,
}


class Player:
    """A process that runs a program, or several that run it at the same time."""

    def __init__(self, spec: Spec, program: str, edges: Path, window: int, log: Path | None = None) -> None:
        self.spec, self.log = spec, log
        tail = [str(edges), str(window), str(spec.workers), *([str(log)] if log else [])]
        command = COMMANDS[spec.name](program, tail)
        self._processes = [
            subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(spec.copies)
        ]
        if spec.core is not None:
            for process in self._processes:
                os.sched_setaffinity(process.pid, {spec.core})

    def load(self) -> dict[str, Any]:
        """The first edges."""
        return self._ask("load")

    def run(self, count: int, size: int) -> dict[str, Any]:
        """A number of batches of equal size."""
        return self._ask(f"run {count} {size} {'exact' if self.spec.exact else 'batch'}")

    def changes(self) -> dict[tuple[int, ...], int]:
        """All changes so far: (two words of a row, time) to multiplicity; only with a log."""
        assert self.log is not None
        self._ask("log")
        found: dict[tuple[int, ...], int] = {}
        for *row, diff in np.fromfile(self.log, "<i8").reshape(-1, 4).tolist():
            found[tuple(row)] = found.get(tuple(row), 0) + diff
        return {row: diff for row, diff in found.items() if diff}

    def _ask(self, command: str) -> dict[str, Any]:
        """The answer; of copies, all times of all of them, and the rest of the first."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(command + "\n")
            process.stdin.flush()
        answers: list[dict[str, Any]] = []
        for process in self._processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise SystemExit(f"{self.spec.text} ended with status {process.wait()} on {command!r}")
            answers.append(json.loads(line))
        if any(one.get(key) != answers[0].get(key) for one in answers for key in ("timed", "timeless")):
            raise SystemExit(f"the answers of the copies of {self.spec.text} differ")
        for clock in {"wall_ns", "cpu_ns"} & answers[0].keys():
            answers[0][clock] = [taken for one in answers for taken in one[clock]]
        return answers[0]

    def __enter__(self) -> Player:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._processes:
            if kind is not None:
                process.terminate()
            process.communicate()


def start(
    names: list[str], program: str, edges: Path, window: int, stack: ExitStack, logs: Path | None = None
) -> tuple[list[Player], dict[str, str]]:
    """Start all players that can run; and the reason why others cannot, by name. They end with the stack."""
    players, left_out = [], {}
    for place, name in enumerate(names):
        spec = Spec.of(name)
        try:
            log = logs / f"log-{place}" if logs else None
            players.append(stack.enter_context(Player(spec, program, edges, window, log)))
        except CannotBuild as reason:
            left_out[name] = str(reason)
    return players, left_out


def agree(players: list[Player], answers: list[dict[str, Any]]) -> None:
    """End the program if answers differ: time by time for players with the same times, otherwise in the final state."""
    for key, alike in (("timed", lambda one: one.spec.exact), ("timeless", lambda one: True)):
        sums: dict[bool, int] = {}
        for player, answer in zip(players, answers, strict=True):
            if sums.setdefault(alike(player), answer[key]) != answer[key]:
                names = f"{player.spec.text} and {players[0].spec.text}"
                raise SystemExit(f"the answers of {names} differ{_where(players)}")


def _where(players: list[Player]) -> str:
    """The first difference between two logs, if there are logs."""
    first, *others = [player for player in players if player.spec.exact == players[0].spec.exact]
    if first.log is None:
        return "; with --log it is said where"
    expected = first.changes()
    for other in others:
        found = other.changes()
        wrong = [row for row in expected.keys() | found.keys() if expected.get(row) != found.get(row)]
        if wrong:
            row = min(wrong, key=lambda row: row[-1])
            return f": {row[:-1]} at {row[-1]} is {found.get(row, 0):+d} and {expected.get(row, 0):+d}"
    return ""
